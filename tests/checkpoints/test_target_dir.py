"""Saving never removes what is not a checkpoint."""

import json
import os

import numpy as np
import pytest
from checkpoints import fields
from refusals import refuses

from ddpg import UsageError
from ddpg.checkpoints import checkpoint, target_dir

GROUPS = {"variables": {"a": np.arange(6.0, dtype=np.float32)}}


def tree(root):
    """Return everything under ``root``: names with contents or targets of links."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = path.read_bytes() if path.is_file() else None
    return found


def make_file(path):
    path.write_text("mine")


def make_link_to_directory(path):
    target = path.with_name("target")
    checkpoint.write(target, fields(), GROUPS)
    path.symlink_to(target)


def make_dangling_link(path):
    path.symlink_to(path.with_name("nowhere"))


def make_project(path):
    path.mkdir()
    (path / "train.py").write_text("mine")


def make_hidden_only(path):
    path.mkdir()
    (path / ".git").mkdir()


def make_run(path):
    checkpoint.write(path / "checkpoints" / "100", fields(), GROUPS)
    (path / "config.json").write_text("{}")


def make_shared(path):
    checkpoint.write(path, fields(), GROUPS)
    (path / "notes.txt").write_text("mine")


def make_linked_array(path):
    checkpoint.write(path, fields(), GROUPS)
    (path / "variables.safetensors").rename(path.with_name("elsewhere"))
    (path / "variables.safetensors").symlink_to(path.with_name("elsewhere"))


def make_unlisted(path):
    checkpoint.write(path, fields(), GROUPS)
    (path / "other.safetensors").write_text("mine")


def test_file_manager_litter_is_ignored_and_removed(tmp_path):
    path = tmp_path / "c"
    for _ in range(2):
        checkpoint.write(path, fields(), GROUPS)
        for name in (".DS_Store", "._variables.safetensors", "Thumbs.db", "desktop.ini"):
            (path / name).write_text("litter")
    checkpoint.write(path, fields(), GROUPS)
    assert sorted(os.listdir(path)) == ["manifest.json", "variables.safetensors"]
    (path / ".DS_Store").write_text("litter")
    target_dir.remove_staging(path)
    assert not path.exists()
    path.mkdir()
    (path / ".DS_Store").mkdir()  # a directory cannot be litter
    with refuses(UsageError, ".DS_Store"):
        checkpoint.write(path, fields(), GROUPS)


def test_the_root_directory_is_refused():
    with refuses(UsageError, "/"):
        checkpoint.find("/")


def make_foreign_manifest(path):
    path.mkdir()
    (path / "manifest.json").write_text(json.dumps({"name": "an extension of a browser", "format": 1}))


def make_manifest_of_foreign_file(path):
    path.mkdir()
    (path / "manifest.json").write_text(json.dumps({"format": 1, "sha256": {"thesis.tex": ""}}))
    (path / "thesis.tex").write_text("mine")


def make_foreign_staging_directory(path):
    staging = path.with_name(f".{path.name}.ddpg-writing")
    staging.mkdir()
    (staging / "notes.txt").write_text("mine")


def make_linked_backup(path):
    checkpoint.write(path, fields(), GROUPS)
    target = path.with_name("target")
    target.mkdir()
    (target / "manifest.json").write_text("mine")
    path.with_name(f".{path.name}.ddpg-old").symlink_to(target)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (make_file, "file"),
        (make_link_to_directory, "target"),
        (make_dangling_link, "nowhere"),
        (make_project, "train.py"),
        (make_hidden_only, ".git"),
        (make_run, "config.json"),
        (make_shared, "notes.txt"),
        (make_linked_array, "variables.safetensors"),
        (make_unlisted, "other.safetensors"),
        (make_foreign_manifest, "manifest.json"),
        (make_manifest_of_foreign_file, "manifest.json"),
        (make_foreign_staging_directory, "c.ddpg-writing notes.txt"),
        (make_linked_backup, "c.ddpg-old"),
    ],
)
def test_everything_but_a_checkpoint_is_kept(tmp_path, make, message):
    path = tmp_path / "c"
    make(path)
    before = tree(tmp_path)
    with refuses(UsageError, message) as caught:
        checkpoint.write(path, fields(), GROUPS)
    assert str(tmp_path) in str(caught.value)
    assert tree(tmp_path) == before


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    with refuses(UsageError, "file"):
        checkpoint.write(tmp_path / "file" / "a" / "c", fields(), GROUPS)


@pytest.mark.parametrize("name", ["loop", "loop/100"])
def test_a_link_to_itself_is_an_error_about_files(name, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with refuses(UsageError, name):
        checkpoint.find(tmp_path / name)
    with pytest.raises((UsageError, FileExistsError)):
        checkpoint.write(tmp_path / name, fields(), GROUPS)
    assert [*tmp_path.iterdir()] == [tmp_path / "loop"]


def test_an_empty_directory_is_filled(tmp_path):
    (tmp_path / "c").mkdir()
    checkpoint.write(tmp_path / "c", fields(num_timesteps=1), GROUPS)
    assert checkpoint.read(tmp_path / "c")[0]["num_timesteps"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


@pytest.mark.parametrize("name", [".", "", "../here", "absolute"])
@pytest.mark.parametrize("holds", ["a file", "a checkpoint"])
def test_the_working_directory_is_refused(tmp_path, monkeypatch, name, holds):
    here = tmp_path / "here"
    if holds == "a file":
        make_project(here)
    else:
        checkpoint.write(here, fields(), GROUPS)
    monkeypatch.chdir(here)
    before = tree(tmp_path)
    with refuses(UsageError, "working directory"):
        checkpoint.write(here if name == "absolute" else name, fields(), GROUPS)
    assert tree(tmp_path) == before


def test_an_empty_working_directory_is_filled_and_keeps_its_inode(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    checkpoint.write(".", fields(num_timesteps=1), GROUPS)
    assert checkpoint.read(".")[0]["num_timesteps"] == 1
    assert here.samefile(os.curdir)


def test_a_link_to_the_parent_is_followed(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    for number in range(2):
        checkpoint.write(tmp_path / "link" / "c", fields(num_timesteps=number), GROUPS)
    assert checkpoint.read(tmp_path / "disk" / "c")[0]["num_timesteps"] == 1
    assert (tmp_path / "link").is_symlink()


def test_a_damaged_checkpoint_may_be_replaced(tmp_path):
    path = checkpoint.write(tmp_path / "c", fields(), GROUPS)
    (path / "variables.safetensors").unlink()
    checkpoint.write(path, fields(num_timesteps=1), GROUPS)
    assert checkpoint.read(path)[0]["num_timesteps"] == 1


def test_leftovers_of_a_kill_are_removed(tmp_path):
    for role in ("writing", "old"):
        checkpoint.write(tmp_path / f".c.ddpg-{role}", fields(), GROUPS)
    (tmp_path / ".c.ddpg-old" / "manifest.json").unlink()
    checkpoint.write(tmp_path / "c", fields(), GROUPS)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c"]


def test_a_file_added_during_writing_is_kept(tmp_path, monkeypatch):
    path = checkpoint.write(tmp_path / "c", fields(num_timesteps=1), GROUPS)
    write_durably = checkpoint.write_durably

    def write_and_add_notes(*arguments):
        write_durably(*arguments)
        (path / "notes.txt").write_text("mine")

    monkeypatch.setattr(checkpoint, "write_durably", write_and_add_notes)
    with refuses(UsageError, "notes.txt"):
        checkpoint.write(path, fields(num_timesteps=2), GROUPS)
    assert (path / "notes.txt").read_text() == "mine"
    assert checkpoint.read(path)[0]["num_timesteps"] == 1
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["c"]
