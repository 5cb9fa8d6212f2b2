"""Whatever an environment does: one line, the status, a checkpoint with all that was learned, and the run goes on."""

import locale
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hostile_envs import AT_RESET, AT_STEP, FAILURES, OF_STEPS, TAMPERING

from ddpg import DDPG
from ddpg.cli.main import main
from ddpg.runs import run_directory

GOAL = 60
OPTIONS = [
    "--recipe",
    "ddpg",
    "--hidden",
    "4",
    "--batch-size",
    "4",
    "--learning-starts",
    "8",
    "--updates-per-call",
    "2",
]
OPTIONS += ["--no-jit", "--optimizer", "sgd", "--seed", "0"]
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
    """Work in an empty directory, and put back what nothing in the package depends on."""
    monkeypatch.chdir(tmp_path)
    paths = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))  # of processes
    variables, random_state, there = dict(os.environ), random.getstate(), locale.setlocale(locale.LC_ALL)
    numpy_state = np.random.get_state()  # noqa: NPY002
    yield
    os.environ.update(variables)
    random.setstate(random_state)
    np.random.set_state(numpy_state)  # noqa: NPY002
    locale.setlocale(locale.LC_ALL, there)


def slow_but(*fast):
    """Return all failures by name, those that are not named marked as slow."""
    return [name if name in fast else pytest.param(name, marks=SLOW) for name in FAILURES]


def trained(name, way, capfd):
    """Return the status of ``ddpg train`` and what is on stderr."""
    capfd.readouterr()
    status = main(["train", f"hostile_envs:hostile/{name}-v0", *OPTIONS, *WAYS[way], "--no-progress-bar"])
    return status, capfd.readouterr().err


def the_run(name):
    return run_directory.checkpoints(f"runs/hostile/{name}-v0/1")[-1].parents[1]


def assert_it_failed_well(name, way, says, capfd, monkeypatch, goes_on=True):
    """Train, find one line and a checkpoint of all that was learned, and go on from it without the misbehaviour."""
    status, err = trained(name, way, capfd)
    (line,) = err.splitlines()
    assert (status, line[:13]) == (3, "ddpg: error: "), line
    assert ("KeyboardInterrupt" if "Interrupts" in name else says) in line, line
    with DDPG.load(the_run(name)) as agent:
        steps = agent.num_timesteps
        assert len(agent.replay) == steps
        assert (agent.num_updates > 0) == (steps > 8)
    if "close" not in name and goes_on:
        monkeypatch.setenv("HOSTILE", "off")
        assert main(["resume", str(the_run(name)), "--allow-import", "hostile_envs", "--no-progress-bar"]) == 0
        assert int(run_directory.checkpoints(the_run(name))[-1].name) > steps
    return steps


@pytest.mark.parametrize(
    "name", [*slow_but("Exits", "Interrupts", "InfoNone"), *(pytest.param(name, marks=SLOW) for name in OF_STEPS)]
)
def test_in_a_step(name, capfd, monkeypatch):
    says = f"failed in step {AT_STEP % 10} of episode"
    goes_on = name in ("Exits", "Interrupts")
    assert assert_it_failed_well(f"{name}-step", "plain", says, capfd, monkeypatch, goes_on) == AT_STEP - 1


@pytest.mark.parametrize("name", slow_but("BaseException"))
def test_in_a_reset(name, capfd, monkeypatch):
    steps = assert_it_failed_well(f"{name}-reset", "plain", "failed in the reset to episode", capfd, monkeypatch)
    assert steps == 10 * (AT_RESET - 1)


RAISING = [name for name in FAILURES if name not in ("InfoNone", "InfoList", "Masked", "OneValueLess")]


@pytest.mark.parametrize("way", ["plain", *(pytest.param(way, marks=SLOW) for way in ("sync", "async"))])
@pytest.mark.parametrize("name", [name if name == "Exits" else pytest.param(name, marks=SLOW) for name in RAISING])
def test_in_close(name, way, capfd, monkeypatch):
    assert assert_it_failed_well(f"{name}-close", way, "failed in close", capfd, monkeypatch) >= GOAL


@pytest.mark.parametrize(
    ("name", "way", "where"),
    [
        ("Exits", "sync", "step"),
        ("Masked", "sync", "step"),
        *(
            pytest.param(name, way, where, marks=SLOW)
            for name in FAILURES
            for way in ("sync", "async", "workers")
            for where in ("step", "reset")
            if (name, way, where) not in (("Exits", "sync", "step"), ("Masked", "sync", "step"))
        ),
    ],
)
def test_elsewhere(name, way, where, capfd, monkeypatch):
    assert_it_failed_well(f"{name}-{where}", way, "", capfd, monkeypatch)


@pytest.mark.parametrize("name", slow_but("Exits"))
def test_in_an_evaluation(name, capfd, monkeypatch):
    """The evaluation after 40 steps fails; it is made when the run goes on."""
    assert assert_it_failed_well(f"{name}-evaluation", "plain", "failed in step 5 of", capfd, monkeypatch) == 40
    evaluations = run_directory.read_table(the_run(f"{name}-evaluation") / "evaluations.csv")
    assert [int(row["timesteps"]) for row in evaluations] == [20, 40, 60]


def test_in_the_last_evaluation(capfd, monkeypatch):
    """The run has made all its steps; the evaluation that it owes is made when it goes on."""
    name = "Exits-evaluation"
    last = ["--total-timesteps", "40"]
    monkeypatch.setitem(WAYS, "short", last)
    assert assert_it_failed_well(name, "short", "failed in step 5 of", capfd, monkeypatch, goes_on=False) == 40
    monkeypatch.setenv("HOSTILE", "off")
    assert main(["resume", str(the_run(name)), "--allow-import", "hostile_envs", "--no-progress-bar"]) == 0
    evaluations = run_directory.read_table(the_run(name) / "evaluations.csv")
    assert [int(row["timesteps"]) for row in evaluations] == [20, 40]
    assert main(["resume", str(the_run(name)), "--allow-import", "hostile_envs", "--no-progress-bar"]) == 2


def what_was_learned(name):
    with DDPG.load(the_run(name)) as agent:
        assert len(agent.replay) == agent.num_timesteps == GOAL
        return agent.get_parameters()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What is learned where nothing is done."""
    root = tmp_path_factory.mktemp("undisturbed")
    assert main(["train", "hostile_envs:hostile/Well-v0", *OPTIONS, *WAYS["plain"], "--root", str(root)]) == 0
    with DDPG.load(root / "hostile/Well-v0/1") as agent:
        return agent.get_parameters()


@pytest.mark.parametrize("where", ["step", pytest.param("reset", marks=SLOW), pytest.param("evaluation", marks=SLOW)])
@pytest.mark.parametrize(
    "name", [*(pytest.param(name, marks=SLOW) for name in TAMPERING if name != "Everything"), "Everything"]
)
def test_tampering_with_the_process_changes_nothing(name, where, undisturbed, tmp_path, capfd):
    status, err = trained(f"{name}-{where}", "plain", capfd)
    assert (status, err) == (0, "")
    learned = what_was_learned(f"{name}-{where}")
    assert learned.keys() == undisturbed.keys()
    for variable, value in undisturbed.items():
        np.testing.assert_array_equal(learned[variable], value, err_msg=variable)
    assert os.getcwd() == str(tmp_path)
    mask = os.umask(0)
    os.umask(mask)
    assert mask != 0o777
    assert np.geterr()["under"] == "ignore"
