"""A misbehaving environment ends the run with one line, status 3 and a complete checkpoint, and it can be resumed."""

import locale
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hostile_envs import AT_RESET, AT_STEP, FAILURES, OF_STEPS, TAMPERING
from remains import saved

from ddpg import UsageError
from ddpg.cli.main import main
from ddpg.runs import run_directory
from ddpg.runs.env_factory import make_env
from ddpg.runs.tables import read_table

GOAL = 60
OPTIONS = ["--recipe", "ddpg", "--hidden", "4", "--batch-size", "4", "--learning-starts", "8"]
OPTIONS += ["--updates-per-call", "2", "--no-jit", "--optimizer", "sgd", "--target", "online", "--seed", "0"]
OPTIONS += ["--evaluation-interval", "20", "--evaluation-episodes", "1"]
WAYS = {
    "plain": ["--total-timesteps", str(GOAL)],
    "sync": ["--n-envs", "2", "--total-timesteps", "120"],
    "async": ["--n-envs", "2", "--vectorization", "async", "--total-timesteps", "120"],
    "workers": ["--collector", "process", "--workers", "1", "--total-timesteps", "300"],
}
SLOW = pytest.mark.slow


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    """Work in an empty directory, and restore the state of the process afterwards."""
    monkeypatch.chdir(tmp_path)
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))  # for subprocesses
    variables, random_state, old_locale = dict(os.environ), random.getstate(), locale.setlocale(locale.LC_ALL)
    numpy_state = np.random.get_state()  # noqa: NPY002
    yield
    os.environ.update(variables)
    random.setstate(random_state)
    np.random.set_state(numpy_state)  # noqa: NPY002
    locale.setlocale(locale.LC_ALL, old_locale)


def slow_but(*fast):
    """Return the names of all failures, all but ``fast`` marked as slow."""
    return [name if name in fast else pytest.param(name, marks=SLOW) for name in FAILURES]


def trained(name, way, capfd):
    """Return the status and the stderr of ``ddpg train``."""
    capfd.readouterr()
    status = main(["train", f"hostile_envs:hostile/{name}-v0", *OPTIONS, *WAYS[way], "--no-progress-bar"])
    return status, capfd.readouterr().err


def run_of(name):
    return run_directory.checkpoints(f"runs/hostile/{name}-v0/1")[-1].parents[1]


def assert_fails_cleanly(name, way, message, capfd, monkeypatch, resumes=True):
    """Train; expect one line and a checkpoint of all that was learned; then resume without the misbehaviour."""
    status, err = trained(name, way, capfd)
    (line,) = err.splitlines()
    assert (status, line[:13]) == (3, "ddpg: error: "), line
    assert ("KeyboardInterrupt" if "Interrupts" in name else message) in line, line
    manifest, groups = saved(run_of(name))
    steps = manifest["num_timesteps"]
    assert len(groups["replay"]["rewards"]) == steps
    assert (manifest["num_updates"] > 0) == (steps > 8)
    if "close" not in name and resumes:
        monkeypatch.setenv("HOSTILE", "off")
        assert main(["resume", str(run_of(name)), "--allow-import", "hostile_envs", "--no-progress-bar"]) == 0
        assert int(run_directory.checkpoints(run_of(name))[-1].name) > steps
    return steps


@pytest.mark.parametrize(
    "name", [*slow_but("Interrupts", "InfoNone"), *(pytest.param(name, marks=SLOW) for name in OF_STEPS)]
)
def test_failure_in_a_step(name, capfd, monkeypatch):
    message = f"failed in step {AT_STEP % 10} of episode"
    resumes = name in ("Exits", "Interrupts")
    assert assert_fails_cleanly(f"{name}-step", "plain", message, capfd, monkeypatch, resumes) == AT_STEP - 1


@pytest.mark.parametrize("name", slow_but("BaseException"))
def test_failure_in_a_reset(name, capfd, monkeypatch):
    steps = assert_fails_cleanly(f"{name}-reset", "plain", "failed in the reset to episode", capfd, monkeypatch)
    assert steps == 10 * (AT_RESET - 1)


RAISING = [name for name in FAILURES if name not in ("InfoNone", "InfoList", "Masked", "OneValueLess")]


@pytest.mark.parametrize("way", ["plain", *(pytest.param(way, marks=SLOW) for way in ("sync", "async"))])
@pytest.mark.parametrize("name", [name if name == "Exits" else pytest.param(name, marks=SLOW) for name in RAISING])
def test_failure_in_close(name, way, capfd, monkeypatch):
    assert assert_fails_cleanly(f"{name}-close", way, "failed in close", capfd, monkeypatch) >= GOAL


@pytest.mark.parametrize(
    ("name", "way", "where"),
    [
        ("Exits", "sync", "step"),
        *(
            pytest.param(name, way, where, marks=SLOW)
            for name in FAILURES
            for way in ("sync", "async", "workers")
            for where in ("step", "reset")
            if (name, way, where) != ("Exits", "sync", "step")
        ),
    ],
)
def test_failure_in_vectors_and_workers(name, way, where, capfd, monkeypatch):
    assert_fails_cleanly(f"{name}-{where}", way, "", capfd, monkeypatch)


@pytest.mark.slow  # the next test fails in an evaluation, too
@pytest.mark.parametrize("name", FAILURES)
def test_failure_in_an_evaluation(name, capfd, monkeypatch):
    """The evaluation after 40 steps fails, and is made on resume."""
    assert assert_fails_cleanly(f"{name}-evaluation", "plain", "failed in step 5 of", capfd, monkeypatch) == 40
    evaluations = read_table(run_of(f"{name}-evaluation") / "evaluations.csv")
    assert [int(row["timesteps"]) for row in evaluations] == [20, 40, 60]


def test_failure_in_the_last_evaluation(capfd, monkeypatch):
    """The run has made all its steps; only the evaluation is made on resume."""
    name = "Exits-evaluation"
    last = ["--total-timesteps", "40"]
    monkeypatch.setitem(WAYS, "short", last)
    assert assert_fails_cleanly(name, "short", "failed in step 5 of", capfd, monkeypatch, resumes=False) == 40
    monkeypatch.setenv("HOSTILE", "off")
    assert main(["resume", str(run_of(name)), "--allow-import", "hostile_envs", "--no-progress-bar"]) == 0
    evaluations = read_table(run_of(name) / "evaluations.csv")
    assert [int(row["timesteps"]) for row in evaluations] == [20, 40]
    assert main(["resume", str(run_of(name)), "--allow-import", "hostile_envs", "--no-progress-bar"]) == 2


def parameters_of(name):
    manifest, groups = saved(run_of(name))
    assert len(groups["replay"]["rewards"]) == manifest["num_timesteps"] == GOAL
    return groups["variables"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The parameters that the run learns without tampering."""
    root = tmp_path_factory.mktemp("undisturbed")
    assert main(["train", "hostile_envs:hostile/Well-v0", *OPTIONS, *WAYS["plain"], "--root", str(root)]) == 0
    return saved(root / "hostile/Well-v0/1")[1]["variables"]


@pytest.mark.parametrize("where", ["step", pytest.param("reset", marks=SLOW), pytest.param("evaluation", marks=SLOW)])
@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=SLOW) for name in TAMPERING if name != "Everything"), "Everything"]
)
def test_tampering_with_the_process_changes_nothing(name, where, undisturbed, tmp_path, capfd):
    status, err = trained(f"{name}-{where}", "plain", capfd)
    assert (status, err) == (0, "")
    learned = parameters_of(f"{name}-{where}")
    np.testing.assert_equal(learned, undisturbed)
    assert os.getcwd() == str(tmp_path)
    mask = os.umask(0)
    os.umask(mask)
    assert mask != 0o777
    assert np.geterr()["under"] == "ignore"


def test_an_error_about_a_long_name_is_short():
    with pytest.raises(UsageError) as caught:
        make_env("x" * 10_000)
    assert len(str(caught.value)) < 1_000
