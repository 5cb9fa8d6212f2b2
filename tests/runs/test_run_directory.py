"""Run directories: validation of their files, atomic creation, and removal of what a kill left unfinished."""

import hashlib
import json
import os
import resource
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from ddpg.checkpoints import safe_json
from ddpg.cli.main import main
from ddpg.errors import FileFault, UsageError
from ddpg.runs import run_config, run_directory
from ddpg.runs.lock import run_lock
from ddpg.runs.plotting import plot_learning_curve
from ddpg.runs.tables import read_table

CONFIG = {
    "env_id": "Pendulum-v1",
    "algorithm": "DDPG",
    "seed": 5,
    "total_timesteps": 100,
    "evaluation_interval": 50,
    "evaluation_episodes": 2,
    "n_envs": 1,
    "vectorization": "sync",
    "config": {"hidden": [4], "gamma": 0.5, "jit": True, "norm": None, "learning_rate_schedule": {"custom": "halved"}},
    "versions": {"python": "3.12"},
    "command": ["ddpg", "train"],
    "wrappers": ["FlattenObservation"],
    "env_kwargs": {"g": 5.0, "modes": ["a", {"b": None}]},
    "collector": "ray",
    "workers": 3,
    "ray_address": "auto",
    "dataset": "data.npz",
    "offline_timesteps": 40,
    "diagnose": True,
    "episode_limit": 200,
    "changes": [{"timesteps": 50, "time": "2026-01-01T00:00:00+00:00", "settings": {"gamma": [0.4, 0.5]}}],
}


def sealed(fields):
    """Return the JSON of the fields with a valid checksum, as a forger would write it."""
    digest = hashlib.sha256(safe_json.canonical_json(fields)).hexdigest()
    return json.dumps(fields | {"config_sha256": digest})


def test_a_config_is_read_as_it_was_written(tmp_path):
    run_config.write(tmp_path, CONFIG)
    assert run_directory.read_config(tmp_path) == CONFIG


def test_a_checkpoint_in_place_of_a_run_is_named(tmp_path):
    run_config.write(tmp_path, CONFIG)
    for folder, message in (
        (tmp_path / "checkpoints" / "100", f"checkpoint of {str(tmp_path)!r} --checkpoint 100"),
        (tmp_path / "saved", "saved agent environment DDPG.load ddpg.evaluate"),
    ):
        folder.mkdir(parents=True)
        (folder / "manifest.json").touch()
        with refuses(UsageError, message):
            run_directory.read_config(folder)


@pytest.mark.parametrize(
    "later",
    [
        *("wrappers", "env_kwargs", "collector", "workers", "ray_address", "dataset", "offline_timesteps", "diagnose"),
        *("episode_limit", "changes"),
    ],
)
def test_a_field_that_an_older_config_lacks_has_its_default(later, tmp_path):
    defaults = {"wrappers": [], "env_kwargs": {}, "collector": "local", "workers": None, "ray_address": None} | {
        **{"dataset": None, "offline_timesteps": None, "diagnose": False, "episode_limit": None, "changes": []}
    }
    run_config.write(tmp_path, {name: value for name, value in CONFIG.items() if name != later})
    assert run_directory.read_config(tmp_path) == CONFIG | {later: defaults[later]}


def test_values_that_could_not_be_read_are_not_written(tmp_path):
    for field, value in {"workers": 2.0, "evaluation_episodes": 100_001, "command": ["a\udcff"]}.items():
        with refuses(UsageError, "a run"):
            run_config.write(tmp_path, CONFIG | {field: value})
    assert not list(tmp_path.iterdir())


def test_the_longest_word_of_a_command_line(tmp_path):
    run_config.write(tmp_path, CONFIG | {"command": ["a" * 2**16]})
    assert len(run_config.read(tmp_path)["command"][0]) == 2**16
    with pytest.raises(UsageError):
        run_config.write(tmp_path, CONFIG | {"command": ["a" * (2**16 + 1)]})


def test_the_shortest_run_can_be_written(tmp_path):
    shortest = CONFIG | {
        "command": ["a" * 2**16],
        "total_timesteps": 1,
        "evaluation_interval": 1,
        "evaluation_episodes": 1,
        "seed": 0,
    }
    run_config.write(tmp_path, shortest)
    assert {name: run_config.read(tmp_path)[name] for name in shortest} == shortest


WRONG = [
    ({"seed": -1}, "seed is -1"),
    ({"total_timesteps": 0}, "total_timesteps is 0"),
    ({"total_timesteps": "100"}, "total_timesteps is '100'"),
    ({"evaluation_interval": 0}, "evaluation_interval is 0"),
    ({"evaluation_episodes": 10**12}, "evaluation_episodes is 1000000000000"),
    ({"n_envs": 10**6}, "n_envs is 1000000"),
    ({"vectorization": "fork"}, "vectorization is 'fork'"),
    ({"env_id": ""}, "env_id is ''"),
    ({"config": {"hidden": {"a": 1}}}, "config"),
    ({"command": "rm"}, "command is 'rm'"),
    ({"wrappers": "TimeLimit"}, "wrappers is 'TimeLimit'"),
    ({"extra": 1}, "extra"),
    ({"format": 2}, "of format 1"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_a_config_must_follow_its_schema(change, message, tmp_path):
    (tmp_path / "config.json").write_text(sealed({"format": 1} | CONFIG | change))
    with pytest.raises(FileFault) as caught:
        run_directory.read_config(tmp_path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "take another run directory" in str(caught.value)
    assert "checkpoint" not in str(caught.value)


@given(st.data())
def test_a_changed_byte_is_detected(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("run")
    run_config.write(folder, CONFIG)
    content = bytearray((folder / "config.json").read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    (folder / "config.json").write_bytes(content)
    try:
        found = run_directory.read_config(folder)
    except FileFault:
        return
    assert found == CONFIG  # white space may differ


@pytest.mark.parametrize("data", ["", "[" * 10**6, "{}", "[]", "null", '{"format": NaN}', "x" * (2 << 20)])
def test_files_that_are_no_config(data, tmp_path, capsys):
    (tmp_path / "config.json").write_text(data)
    assert main(["resume", str(tmp_path)]) == 4
    assert capsys.readouterr().err.count("\n") == 1


def test_a_config_must_be_a_regular_file(tmp_path):
    run_config.write(tmp_path, CONFIG)
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "config.json").symlink_to(tmp_path / "config.json")
    with refuses(FileFault, "symbolic link"):
        run_directory.read_config(tmp_path / "link")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "config.json")
    with refuses(FileFault, "pipe"):
        run_directory.read_config(tmp_path / "pipe")
    with refuses(UsageError, "run directory"):
        run_directory.read_config(tmp_path / "nothing")


# -- creation -------------------------------------------------------------------------------------------------


def create(root, save=lambda path: path.mkdir(parents=True)):
    return run_directory.create(root, "Some/Env-v0", CONFIG, save)


def test_a_run_directory_appears_complete_or_not_at_all(tmp_path):
    parent = tmp_path / "Some" / "Env-v0"

    def save(path):
        assert not [entry for entry in parent.iterdir() if entry.name.isdecimal()]
        path.mkdir(parents=True)

    assert create(tmp_path, save) == parent / "1"
    assert sorted(path.name for path in (parent / "1").iterdir()) == ["checkpoints", "config.json"]

    def full(path):
        raise OSError(28, "No space left on device")

    with refuses(OSError, "No space"):
        create(tmp_path, full)
    assert [path.name for path in parent.iterdir()] == ["1"]


def test_runs_that_start_at_once_get_different_directories(tmp_path):
    with ThreadPoolExecutor(20) as pool:
        runs = list(pool.map(lambda _: create(tmp_path), range(20)))
    assert sorted(int(run.name) for run in runs) == list(range(1, 21))


def test_unfinished_run_directories_are_removed_after_a_day(tmp_path):
    parent = create(tmp_path).parent
    for name, age in ((".ddpg-begun-old", 25 * 3600), (".ddpg-begun-young", 60), (".other", 25 * 3600)):
        (parent / name).mkdir()
        os.utime(parent / name, (time.time() - age,) * 2)
    create(tmp_path)
    assert {entry.name for entry in parent.iterdir()} == {"1", "2", ".ddpg-begun-young", ".other"}


# -- leftovers ------------------------------------------------------------------------------------------------


def test_leftovers_and_nothing_else_are_removed(tmp_path):
    folder = tmp_path / "checkpoints"

    def directory_of(name, *files):
        (folder / name).mkdir(parents=True)
        for file in files:
            (folder / name / file).write_text("{}")

    directory_of("100", "manifest.json")
    directory_of(".100.ddpg-writing", "manifest.json", "variables.safetensors")  # an unfinished checkpoint
    directory_of(".100.ddpg-old", "manifest.json")  # already replaced
    directory_of(".best.ddpg-old", "manifest.json")  # not yet replaced
    directory_of("50", "variables.safetensors")  # partly removed
    directory_of("25", "notes.txt")
    directory_of(".7.ddpg-writing", "notes.txt")
    (tmp_path / ".metrics.csv.ddpg-writing").write_text("")
    (tmp_path / ".hidden").write_text("")
    run_directory.remove_unfinished(tmp_path)
    assert {path.name for path in folder.iterdir()} == {"100", "best", "25", ".7.ddpg-writing"}
    assert {path.name for path in tmp_path.iterdir()} == {"checkpoints", ".hidden"}


# -- tables and locks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ["x,1", "-5,1", "5,1", "12,one", "12", "12,1,5", "12,1,"])
def test_a_damaged_row_is_named(row, tmp_path):
    path = tmp_path / "t.csv"
    for rest in ("20,2.5\n", ""):
        path.write_text(f"timesteps,value\n10,1.5\n{row}\n{rest}")
        with refuses(FileFault, "t.csv line 3"):
            read_table(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("timesteps,mean_return\n100,1.5\n\n200,\n", "line 4 is damaged (mean_return is '', expected a number); mend"),
        (
            "timesteps,mean_return\n200\n100,one\n",
            "line 2 is damaged (its number of cells is 1, expected 2); mend the line, or remove",
        ),
        ("timesteps,mean_return\n100,1.5\n200,1,5\n", "line 3 is damaged (its number of cells is 3, expected 2); mend"),
        (
            "timesteps,mean_return\n,1\n",
            "line 2 is damaged (timesteps is '', expected a number); mend the line, or remove",
        ),
        (
            "timesteps,episodes\n",
            "line 1 is damaged (it has no column mean_return); mend the line, or move the file away",
        ),
        ("mean_return\n1.5\n", "line 1 is damaged (it has no column timesteps); mend the line, or move the file away"),
    ],
)
def test_a_cell_that_is_empty_or_missing_is_named(text, message, tmp_path, capsys):
    run = create(tmp_path)
    (run / "evaluations.csv").write_text(text)
    for command in (["runs", str(run)], ["plot", str(run), "-o", str(tmp_path / "a.png")]):
        assert main(command) == 4
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"ddpg: error: {run / 'evaluations.csv'} {message}")


def test_optional_cells_may_be_empty(tmp_path):
    for name, text in {"metrics": "timesteps,seconds,loss\n1,2,\n", "evaluations": ""}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    assert read_table(tmp_path / "metrics.csv") == [{"timesteps": "1", "seconds": "2", "loss": ""}]
    assert read_table(tmp_path / "evaluations.csv") == []


def test_a_learning_curve_needs_only_the_required_columns(tmp_path):
    (tmp_path / "evaluations.csv").write_text("timesteps,mean_return,episodes\n100,1.5,\n")
    assert plot_learning_curve(tmp_path, "title").stat().st_size > 10_000
    (tmp_path / "episodes.csv").write_text("timesteps,return\n10,\n")
    with refuses(FileFault, "episodes.csv line 2 return"):
        plot_learning_curve(tmp_path, "title")


def test_a_huge_table_is_not_read_into_memory(tmp_path):
    """A sparse file of 4 GB."""
    path = tmp_path / "t.csv"
    path.write_text("timesteps,value\n10,1.5\n")
    os.truncate(path, 4 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with refuses(FileFault, "t.csv line 3 65536"):
        read_table(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KiB


def test_a_table_must_be_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "t.csv")
    with refuses(FileFault, "pipe"):
        read_table(tmp_path / "t.csv")


def test_the_owner_of_a_lock_is_named_in_one_line(tmp_path):
    with run_lock(tmp_path):
        (tmp_path / ".owner.json").write_text(json.dumps({"pid": 1, "since": "now\n", "command": "\x1b[31m" * 99}))
        with refuses(UsageError, "process 1 since now") as caught, run_lock(tmp_path):
            pass
    assert str(caught.value).isprintable()


def manifest_of_nothing(folder):
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"format": 3, "sha256": {}}')


@pytest.mark.parametrize("below", ["", "more", "checkpoints/0", "checkpoints/0/studies/mine"])
def test_runs_and_studies_are_not_rooted_in_a_run(below, tmp_path):
    run = create(tmp_path)
    (tmp_path / "link").symlink_to(run)
    for root in (run / below, tmp_path / "link" / below):
        with refuses(UsageError, f"{root} {run} outside"):
            run_directory.check_root(root)
    for allowed in (tmp_path, run.parent, run.parent / "1-studies"):
        run_directory.check_root(allowed)


def test_runs_are_not_rooted_in_a_checkpoint_but_in_projects_with_a_config_and_checkpoints_of_their_own(tmp_path):
    manifest_of_nothing(tmp_path / "saved")
    with refuses(UsageError, f"checkpoint {tmp_path / 'saved'}"):
        run_directory.check_root(tmp_path / "saved" / "runs")
    (tmp_path / "config.json").write_text('{"format": 1, "name": "my project"}')
    (tmp_path / "checkpoints").mkdir()
    run_directory.check_root(tmp_path / "runs")


def test_every_command_that_trains_refuses_a_root_in_a_run(tmp_path, capsys):
    run = create(tmp_path)
    (tmp_path / "study.toml").write_text('environments = ["Pendulum-v1"]\nseeds = 1\n[configurations]\nplain = {}\n')
    for words in (["train", "Pendulum-v1"], ["tune", "Pendulum-v1"], ["study", str(tmp_path / "study.toml")]):
        assert main([*words, "--root", str(run / "more"), "--no-progress-bar"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"ddpg: error: root={str(run / 'more')!r} is in the run {str(run)!r}")
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "config.json"]


def test_a_read_only_file_system_is_named(tmp_path, monkeypatch):
    class ReadOnly:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda path: ReadOnly)
    with pytest.raises(FileFault, match="EROFS"):
        run_directory.check_root(tmp_path / "runs")
