"""Every flag of every command refuses hostile values in one line, before the command starts any work.

Commands and flags come from :data:`ddpg.cli.main.COMMANDS`. The work that a command would start (an agent, a
comparison, a process of a cell) is replaced by an exception that the command line does not handle, so that a test fails
if its flag accepts a hostile value.
"""

import contextlib
import dataclasses
import types
import zlib

import pytest
from hostile import within_bounds

from ddpg.cli.main import COMMANDS, main
from ddpg.cli.train import Train, _options_of_all_algorithms

VALUES = {
    "5001 digits": "1" + "0" * 5000,
    "5001 digits below zero": "-1" + "0" * 5000,
    "nan": "nan",
    "infinity": "inf",
    "minus one": "-1",
    "beyond float64": "1e400",
    "empty": "",
    "unicode": "Straße\u202e\U0001f9e8",
    "null character": "a\0b",
    "100 kB": "x" * 100_000,
    "brackets": "[[[[",
    "true": "true",
}
# Valid values: a path may have almost any name, and allowing imports of an unused module has no effect.
ACCEPTED = {"allow_import": {*VALUES}, "v_min": {"minus one"}, "v_max": {"minus one"}}
PATHS = {*VALUES} - {"5001 digits", "5001 digits below zero", "100 kB", "empty", "null character"}
STUDY = 'environments = ["Pendulum-v1"]\ntotal_timesteps = 100\nevaluation_interval = 50\n'


class Begun(BaseException):
    """Raised when a command would start its work."""


def begin(*arguments, **options):
    raise Begun


@pytest.fixture(scope="module")
def valid_arguments(tmp_path_factory):
    """Return valid positional arguments of each command."""
    folder = tmp_path_factory.mktemp("hostile")
    small = ["--hidden", "2", "--batch-size", "2", "--learning-starts", "2", "--no-jit", "--optimizer", "sgd"]
    steps = ["--seed", "0", "--total-timesteps", "4", "--evaluation-interval", "2", "--evaluation-episodes", "1"]
    assert main(["train", "Pendulum-v1", *small, *steps, "--root", str(folder), "--no-progress-bar"]) == 0
    (folder / "study.toml").write_text(STUDY)
    run = str(folder / "Pendulum-v1" / "1")
    by_run = {name: [run] for name in ("resume", "evaluate", "check-critic", "export", "record", "watch", "plot")}
    by_env = {name: ["Pendulum-v1"] for name in ("train", "paths", "tune")}
    return {**by_run, **by_env, "runs": [str(folder)], "study": [str(folder / "study.toml")], "zoo": []}


@pytest.fixture
def no_work(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in (
        *("runs.training.agent_for", "runs.training.load_agent", "agents.off_policy.load_agent"),
        *("laboratory.compare.compare_paths", "laboratory.flow.trace_update"),
        "studies.engine_choice.EngineChoice.started",
    ):
        monkeypatch.setattr(f"ddpg.{name}", begin)
    # Nor does the rendering process start, which would be slow for so many values.
    drawn = types.SimpleNamespace(spaces=None)
    monkeypatch.setattr("ddpg.runs.saved_policy.open_renderer", lambda source: contextlib.nullcontext(drawn))


def flags_of_command(name):
    return COMMANDS[name].flags() | (_options_of_all_algorithms() if COMMANDS[name] is Train else {})


def accepted(name, flag):
    """Return the hostile values that a flag accepts."""
    fields = {field.name: field for field in dataclasses.fields(COMMANDS[name])}
    is_path = flag in fields and fields[flag].metadata.get("is_path")
    return PATHS if is_path and not fields[flag].metadata.get("positional") else ACCEPTED.get(flag, set())


def check(name, flag, values, valid_arguments, capsys):
    """Give a flag, or a positional argument, one hostile value after the other."""
    fields = {field.name: field for field in dataclasses.fields(COMMANDS[name])}
    positional = flag in fields and fields[flag].metadata.get("positional")
    wrong = {}
    for value in values:
        words = (
            [VALUES[value]] if positional else [*valid_arguments[name], "--" + flag.replace("_", "-"), VALUES[value]]
        )
        try:
            with within_bounds():
                status = main([name, *words])
        except Begun:
            status = None
        except Exception as error:
            wrong[value] = f"{type(error).__name__}: {str(error)[:150]}"
        errors = capsys.readouterr().err
        one_line = errors.startswith("ddpg: error: ") and errors.count("\n") == 1 and len(errors) < 2000
        if (
            value not in wrong
            and not (status == 2 and one_line)
            and not (status in (0, None) and value in accepted(name, flag))
        ):
            wrong[value] = f"status {status}, {errors[:150]!r}"
    assert not wrong


CASES = [(name, flag) for name in COMMANDS for flag in flags_of_command(name)]
# Parsing the hundred flags of these takes 0.1 s. Most flags of ``train`` are options of the algorithms, whose values
# test_hostile_arguments tries in Python: a third of them here, with one value each.
MANY = ("train", "tune")
ALL_OF_MANY = [case for case in CASES if case[0] in MANY]
OWN = COMMANDS["train"].flags()


def chosen(name, flag):
    """Return the values of the ordinary run."""
    begin = zlib.crc32(flag.encode())
    step = len(VALUES) if name == "train" else 4 if name == "tune" else 1
    return list(VALUES)[begin % step :: step]


SOME = [case for case in CASES if case[0] != "train" or case[1] in OWN or zlib.crc32(case[1].encode()) % 3 == 0]


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("plot", "runs", "zoo")])
def test_commands_with_valid_arguments_start_work(name, valid_arguments, no_work):
    with pytest.raises(Begun):
        main([name, *valid_arguments[name]])


@pytest.mark.parametrize(("name", "flag"), SOME, ids=map(" ".join, SOME))
def test_hostile_values_are_refused_in_one_line(name, flag, valid_arguments, no_work, capsys):
    check(name, flag, chosen(name, flag), valid_arguments, capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "flag"), ALL_OF_MANY, ids=map(" ".join, ALL_OF_MANY))
def test_all_hostile_values_of_train_and_tune(name, flag, valid_arguments, no_work, capsys):
    check(name, flag, VALUES, valid_arguments, capsys)


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("study", ["--jobs", "1000000000"]),
        ("tune", ["--jobs", "1000000000"]),
        ("tune", ["--trials", "1000000000"]),
        ("tune", ["--trials", "1000", "--seeds", "1000"]),
        ("tune", ["--seeds", "1000000000"]),
        ("tune", ["--fresh-seeds", "1000000000"]),
        ("tune", ["--total-timesteps", "9007199254740993"]),
        ("tune", ["--evaluation-interval", "9007199254740993"]),
        ("tune", ["--evaluation-episodes", "100001"]),
    ],
)
def test_absurd_sizes_of_studies_are_refused(command, flags, valid_arguments, no_work, capsys):
    with within_bounds():
        assert main([command, *valid_arguments[command], *flags]) == 2
    assert flags[0][2:].replace("-", "_") in capsys.readouterr().err
