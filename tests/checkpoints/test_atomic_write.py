"""Small files are replaced atomically: a reader or an error sees the old file or the complete new one."""

import os
import stat
import subprocess
import sys

import pytest
from matplotlib.figure import Figure
from refusals import refuses

from ddpg.checkpoints import atomic_write
from ddpg.errors import UsageError


@pytest.mark.parametrize(
    ("name", "begins"), [("a.png", b"\x89PNG"), ("a.PDF", b"%PDF"), ("a.svg", b"<?xml"), ("a", b"\x89PNG")]
)
def test_the_suffix_selects_the_format_of_a_picture(name, begins, tmp_path):
    assert atomic_write.write_figure(tmp_path / name, Figure((1, 1))) == tmp_path / name
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_open_picture_can_be_read_while_it_is_replaced(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        atomic_write.write_figure(path, Figure((1, 1)))
        assert reader.read() == b"old"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_full_disk_keeps_the_old_picture(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    path.write_bytes(b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_write.os, "fsync", full)
    with refuses(OSError, "No space") as caught:
        atomic_write.write_figure(path, Figure((1, 1)))
    assert caught.value.filename == str(path)
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("a.png", b"old")]


def test_a_missing_folder_is_reported_with_the_pictures_path(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        atomic_write.write_figure(tmp_path / "none" / "a.png", Figure((1, 1)))
    assert caught.value.filename == str(tmp_path / "none" / "a.png")


def test_a_folder_at_the_path_is_named_and_no_temporary_file_is_left(tmp_path):
    path = tmp_path / "table.csv"
    path.mkdir()
    with refuses(OSError, "table.csv") as caught:
        atomic_write.write_text(path, "1\n")
    assert (caught.value.filename, caught.value.filename2) == (str(path), None)
    assert "ddpg-writing" not in str(caught.value)
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("name", ["pictures", "pictures.png"])
def test_a_folder_is_refused_as_a_picture(name, tmp_path):
    (tmp_path / name).mkdir()
    with refuses(UsageError, f"{str(tmp_path / name)!r} directory file"):
        atomic_write.check_figure(tmp_path / name)


def make_special(kind, path):
    """Create a ``pipe``, a ``device`` or a ``symbolic link`` to itself; return its status."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        if os.geteuid() != 0:
            pytest.skip("only root makes devices")
        try:
            os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except OSError as error:
            pytest.skip(f"no devices here: {error}")
    else:
        path.symlink_to(path)
    return os.lstat(path)


@pytest.mark.parametrize("kind", ["pipe", "device", "symbolic link"])
@pytest.mark.parametrize("name", ["a.png", "a"])
def test_special_files_are_not_replaced(kind, name, tmp_path):
    path = tmp_path / name
    before = make_special(kind, path)
    with refuses(UsageError, f"{str(path)!r} {kind} file"):
        atomic_write.check_figure(path)
    assert os.lstat(path) == before


@pytest.mark.parametrize("exists", [True, False])
def test_a_picture_at_a_link_is_written_to_its_target(exists, tmp_path):
    link, target = tmp_path / "a.png", tmp_path / "elsewhere" / "b.png"
    target.parent.mkdir()
    if exists:
        target.write_bytes(b"old")
    link.symlink_to(target)
    written = atomic_write.write_figure(atomic_write.check_figure(link), Figure((1, 1)))
    assert written == target.resolve()
    assert link.is_symlink()
    assert target.read_bytes().startswith(b"\x89PNG")
    link.unlink()
    link.symlink_to(tmp_path / "b.txt")
    with refuses(UsageError, "b.txt .png"):
        atomic_write.check_figure(link)


def test_a_file_at_the_folders_path_is_reported_with_the_full_path(tmp_path):
    (tmp_path / "file").touch()
    with refuses(OSError) as caught:
        atomic_write.write_text(tmp_path / "file" / "a.csv", "1\n")
    assert caught.value.filename == str(tmp_path / "file" / "a.csv")


def test_text_is_written_without_newline_translation(tmp_path):
    atomic_write.write_text(tmp_path / "a", "∇\r\n1\n")
    assert (tmp_path / "a").read_bytes() == "∇\r\n1\n".encode()


def test_two_processes_can_write_one_file_at_once(tmp_path):
    write = "import pathlib; from ddpg.checkpoints import atomic_write as a; a.write_text(pathlib.Path('x'), 'his')"
    with atomic_write.replacing(tmp_path / "x") as temporary:
        temporary.write_text("half of mine")
        subprocess.run([sys.executable, "-c", write], cwd=tmp_path, check=True)
        assert (tmp_path / "x").read_text() == "his"
        assert temporary.read_text() == "half of mine"
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("x", "half of mine")]


def test_a_file_that_a_killed_process_left_is_removed_a_day_later(tmp_path):
    kill = "import os, pathlib; from ddpg.checkpoints.atomic_write import replacing\n"
    kill += "with replacing(pathlib.Path('x')) as file: file.write_text('half'); os.kill(os.getpid(), 9)"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", kill], cwd=tmp_path)
    old, young = tmp_path.iterdir()
    others = [tmp_path / name for name in (".y.1.ddpg-writing", ".x.ddpg-writing", ".x.a.ddpg-writing", "x.1")]
    folder, link = tmp_path / ".x.1.ddpg-writing", tmp_path / ".x.2.ddpg-writing"
    folder.mkdir()
    link.symlink_to("y")
    for path in others:
        path.touch()
    for path in (old, folder, *others):
        os.utime(path, (1e9, 1e9))
    atomic_write.write_text(tmp_path / "x", "mine")
    assert {*tmp_path.iterdir()} == {tmp_path / "x", young, folder, link, *others}
    atomic_write.write_text(tmp_path / "x", "again")
    assert young.read_text() == "half"
