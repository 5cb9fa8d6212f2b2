"""With ``--json`` only the command's JSON is on stdout, whatever an environment prints."""

import json
import math
import os
import subprocess
import sys

import pytest
from loud_envs import SAID
from small_studies import train_by_hand

from ddpg.cli.main import main
from ddpg.cli.terminal import stdout_reserved_for_answer
from ddpg.studies.study import Cell, read_study
from ddpg.studies.study_folder import CellFolder

LOUD = "loud_envs:loud/Loud-v0"
TINY = ["--recipe", "ddpg", "--hidden", "4", "--batch-size", "4", "--learning-starts", "8", "--no-jit"]
TINY += ["--optimizer", "sgd", "--target", "online"]
RUN = ["--total-timesteps", "12", "--evaluation-interval", "12", "--evaluation-episodes", "1", "--no-progress-bar"]


def json_of(capfd, *arguments):
    """Return the JSON that a command prints on stdout; all other output must be on stderr."""
    capfd.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    out, err = capfd.readouterr()
    assert all(said in err for said in SAID)
    return json.loads(out)


def test_other_output_goes_to_stderr(capfd):
    with stdout_reserved_for_answer():
        print("python")
        os.write(1, b"c\n")
        subprocess.run([sys.executable, "-S", "-c", "print('child')"], check=True)
    with stdout_reserved_for_answer(False):
        print("answer")
    os.write(1, b"after\n")
    sys.stdout.flush()
    out, err = capfd.readouterr()
    assert {*out.split()} == {"answer", "after"}
    assert {*err.split()} == {"python", "c", "child"}


def test_train_prints_nothing_but_json(tmp_path, capfd):
    """Nor do the commands on a run."""
    summary = json_of(capfd, "train", LOUD, *TINY, *RUN, "--root", tmp_path, "--json")
    assert summary["finished"]
    run, flags = summary["run"], ["--json", "--allow-import", "loud_envs"]
    assert json_of(capfd, "evaluate", run, "--episodes", 2, *flags)["mean_return"] == 6.0
    assert json_of(capfd, "record", run, "-o", tmp_path / "a.gif", *flags)["path"] == str(tmp_path / "a.gif")
    longer = ["--total-timesteps", 20, "--no-progress-bar"]
    assert json_of(capfd, "resume", run, *longer, *flags)["timesteps"] == 20


def test_study_prints_nothing_but_json(tmp_path, capfd):
    study, root = tmp_path / "study.toml", tmp_path / "out"
    study.write_text(f"environments = ['{LOUD}']\ntotal_timesteps = 100\n")
    (group,) = read_study(study, ["loud_envs"])
    train_by_hand(CellFolder(root, Cell(group, 0)), [5.0, 7.0])
    summary = json_of(capfd, "study", study, "--root", root, "--json", "--allow-import", "loud_envs")
    assert (summary["finished"], summary["rows"][0]["final"]) == (1, 7.0)


def test_output_at_exit_goes_to_stderr(tmp_path):
    (tmp_path / "runs").mkdir()
    code = (
        "import atexit, sys\nfrom ddpg.cli.main import main\natexit.register(print, 'bye')\n"
        "sys.argv[1:] = ['runs', '--json']\nsys.exit(main())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ('{"runs": []}\n', "bye\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_stdout_or_stderr_may_be_closed(closed, tmp_path):
    (tmp_path / "runs").mkdir()
    words = f"exec {sys.executable} -m ddpg runs --json {closed}"
    done = subprocess.run(["sh", "-c", words], cwd=tmp_path, capture_output=True, text=True)
    expected = "" if closed == ">&-" else '{"runs": []}\n'
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


def strict_json(text):
    """Parse JSON, in which no number is infinite or NaN."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_numbers_that_are_not_finite_are_null(tmp_path, capsys):
    study, root = tmp_path / "study.toml", tmp_path / "out"
    study.write_text("environments = ['Pendulum-v1']\ntotal_timesteps = 100\n")
    (group,) = read_study(study)
    train_by_hand(CellFolder(root, Cell(group, 0)), [math.inf, math.nan, -math.inf])
    answers = {}
    for words in (["study", study, "--root", root], ["runs", root], ["plot", root, "-o", tmp_path / "a.png"]):
        assert main([*map(str, words), "--json"]) == 0
        answers[words[0]] = strict_json(capsys.readouterr().out)
    (row,), (run,), (curve,) = answers["study"]["rows"], answers["runs"]["runs"], answers["plot"]["curves"]
    assert (row["final"], run["last_return"], run["best_return"]) == (None, None, None)
    assert curve["centre"] == [None, None, None]
