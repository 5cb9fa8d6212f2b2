"""Planning of speed measurements, the clock inside the environment, and the results file."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import common
import evaluating
import gymnasium as gym
import numpy as np
import pytest
import shapes
from common import Clock
from refusals import refuses

from benchmarks.speed import __main__ as speed
from benchmarks.speed import packages, running
from benchmarks.speed.kinds import KINDS
from benchmarks.speed.packages import OURS, PEERS, SCRIPTS
from benchmarks.speed.plan import Job, jobs, remaining
from benchmarks.speed.results import Results
from benchmarks.speed.tasks import TASKS

ROOT = Path(__file__).parents[2]
SPEED = ROOT / "benchmarks" / "speed"


@pytest.fixture
def clock(monkeypatch):
    """Replace all clocks by a settable number of seconds; the process's CPU time is half of it."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(common.time, "perf_counter", lambda: now.seconds)
    monkeypatch.setattr(common.time, "time", lambda: now.seconds)
    monkeypatch.setattr(common.os, "times", lambda: SimpleNamespace(user=now.seconds / 2 - 1, system=1.0))
    return now


def stepped(now, moments, note, steps):
    """Step an environment; step n begins at second 10 n."""
    env = Clock(gym.make("Pendulum-v1"), moments, note)
    env.reset(seed=0)
    for step in range(1, steps + 1):
        now.seconds = 10.0 * step
        env.step(env.action_space.sample())


def test_notes_are_taken_before_their_steps(clock):
    noted = []
    stepped(clock, {2, 5}, lambda step: noted.append((step, clock.seconds)), 7)
    assert noted == [(2, 20.0), (5, 50.0)]


def test_rates_leave_out_the_warm_up(clock):
    """From step 2 to step 6 at 10 s per step: 0.1 steps/s, and 5 s of CPU time per step."""
    found = common.training(SimpleNamespace(warm=2, steps=6), lambda moments, note: stepped(clock, moments, note, 7))
    assert found["steps_per_second"] == pytest.approx(0.1)
    assert found["cpu_seconds_per_1000_steps"] == pytest.approx(5000)


def test_peak_memory_is_that_of_the_process_alone():
    ballast = np.ones(50_000_000)  # 400 MB, in the parent
    code = "import common; print(common.peak_megabytes())"
    child = subprocess.run(
        [sys.executable, "-c", code], cwd=SPEED / "peers", capture_output=True, text=True, check=True
    )
    assert 5 < float(child.stdout) < 300 < ballast.nbytes / 1e6


def test_updates_alone(clock):
    """A call of 256 updates takes 2 s; the first (5 s) does not count, and two more exceed the 3 s of measuring."""
    takes = iter([5.0, 2.0, 2.0, 2.0])
    calls = []

    def update(count):
        calls.append(count)
        clock.seconds += next(takes)

    task = SimpleNamespace(warm=2, steps=100, update=update)
    assert common.learner(task, lambda: None) == {"updates_per_second": pytest.approx(128)}
    assert calls == [256, 256, 256]
    assert task.steps == 2


def test_acting_is_the_median_time_of_an_action(clock):
    takes = iter([1e-6] * 1_200 + [5e-6] * 1_000)
    task = SimpleNamespace(
        env="Pendulum-v1", starts=10, steps=0, act=lambda _: setattr(clock, "seconds", clock.seconds + next(takes))
    )
    assert common.acting(task, lambda: None)["microseconds"] == pytest.approx(3)
    assert task.steps == 110


def test_the_time_of_evaluations_is_not_counted(clock, monkeypatch):
    """A step takes 1 s, from second 101; evaluations before steps 3 and 5 take 30 s; the second reaches the goal."""
    returns = iter([-500.0, -150.0])

    def mean_return(env, act):
        clock.seconds += 30
        return next(returns)

    monkeypatch.setattr(evaluating, "mean_return", mean_return)
    task = SimpleNamespace(began=90.0, goal=-200.0, act=None)
    evaluation = evaluating.Evaluation(None, task)
    found = None
    clock.seconds = 100.0
    for step in range(1, 6):
        clock.seconds += 1
        found = evaluation.at(step) if step in (1, 3, 5) else None
    assert found == {
        "seconds": 15.0,  # 45 s since second 90, less 30 s of the first evaluation
        "training_seconds": 4.0,
        "steps": 5,
        "evaluation_seconds": 60.0,
        "mean_return": -150.0,
    }


def test_evaluations_have_fixed_seeds():
    env = gym.make("Pendulum-v1")
    means = {evaluating.mean_return(env, lambda observation: [0.0]) for _ in range(2)}
    (mean,) = means
    assert -2_000 < mean < -800


def test_shapes_are_those_of_half_cheetah():
    env = shapes.make("shapes:HalfCheetah")
    observation, _ = env.reset(seed=0)
    assert (observation.shape, observation.dtype, env.action_space.shape) == ((17,), "float64", (6,))
    ends = [env.step(env.action_space.sample())[3] for _ in range(1_000)]
    assert ends.index(True) == 999


SCRIPT = """
from common import measure
def train(task, env):
    task.act = lambda observation: env.action_space.sample()
    if task.fails:
        raise RuntimeError("no such thing")
    env.reset(seed=task.seed)
    kept = []
    for _ in range(task.steps + 1):
        kept.append(bytearray(b"x" * 10_000))
        if env.step(env.action_space.sample())[3]:
            env.reset()
measure(train)
"""


def run_script(tmp_path, monkeypatch, kind, **changes):
    """Run ``SCRIPT`` in place of a package's script, and return its result."""
    (tmp_path / "mine.py").write_text(SCRIPT)
    monkeypatch.setattr(running, "SCRIPTS", tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(SCRIPTS))
    task = dataclasses.asdict(TASKS["Pendulum 64-64"].brief()) | {"steps": 3_000, "warm": 1_000} | changes
    description = {**task, "kind": kind, "options": {}, "seed": 0, "fails": False, **changes}
    peer = dataclasses.replace(PEERS[OURS], script="mine")
    core = min(os.sched_getaffinity(0))
    (found,) = running.run_at_once([description], sys.executable, peer, [{core}], tmp_path)
    return found


def test_a_process_prints_its_rate_and_versions(tmp_path, monkeypatch):
    found = run_script(tmp_path, monkeypatch, "training")
    assert found["steps_per_second"] > 0
    assert found["versions"]["gymnasium"] == gym.__version__


def test_memory_is_the_growth_per_step(tmp_path, monkeypatch):
    """The script keeps 10,000 bytes per step."""
    found = run_script(tmp_path, monkeypatch, "memory", env="shapes:HalfCheetah")
    assert found["bytes_per_transition"] == pytest.approx(10_000, rel=0.1)


def test_the_start_ends_after_the_first_updates(tmp_path, monkeypatch):
    found = run_script(tmp_path, monkeypatch, "start", steps=10**9, warm=50)
    assert 0 < found["import_seconds"] <= found["first_updates_seconds"]


def test_a_goal_that_is_not_reached_is_a_failure(tmp_path, monkeypatch):
    found = run_script(tmp_path, monkeypatch, "solve", steps=500, goal=0.0)
    assert "a mean return of -" in found["failed"]
    assert "after 500 steps" in found["failed"]


def test_a_failed_script_gives_the_last_line_of_its_errors(tmp_path, monkeypatch):
    assert run_script(tmp_path, monkeypatch, "training", fails=True) == {"failed": "RuntimeError: no such thing"}


def test_rates_of_simultaneous_processes_are_added():
    rows = [{"steps_per_second": rate, "cpu_seconds_per_1000_steps": cpu} for rate, cpu in ((100, 4), (60, 6))]
    found = running.combined(rows, KINDS["seeds"])
    assert found == {"steps_per_second": 160, "cpu_seconds_per_1000_steps": 5}
    assert running.combined([rows[0], {"failed": "why"}], KINDS["seeds"]) == {"failed": "why"}


def test_packages_alternate():
    planned = list(jobs(["training"], ["Pendulum 64-64"], [2], [OURS, "SBX"], 2))
    assert [(job.peer, job.repeat) for job in planned] == [(OURS, 0), ("SBX", 0), (OURS, 1), ("SBX", 1)]


def test_packages_are_measured_only_where_they_are_supported():
    peers = {job.peer for job in jobs(["learner"], TASKS, [1, 2], PEERS, 1)}
    assert "RLtools (TD3)" not in peers
    assert {"ours", "Tianshou", "TF-Agents"} <= peers


def test_other_algorithms_are_compared_only_with_each_other():
    for name, kind in KINDS.items():
        assert kind.ours in kind.peers(name)
        assert {PEERS[peer].only for peer in kind.peers(name)} == {name if name in ("stronger", "dqn") else None}


def test_failed_jobs_are_tried_again():
    one, two = jobs(["seeds"], TASKS, [2], [OURS, "SBX"], 1)
    rows = [{**dataclasses.asdict(one), "steps_per_second": 1.0}, {**dataclasses.asdict(two), "failed": "why"}]
    assert remaining([one, two], rows) == [two]


ROW = {**dataclasses.asdict(Job("seeds", "HalfCheetah 256-256", 2, OURS, 0)), "steps_per_second": 1.0}


def test_results_can_be_resumed(tmp_path):
    path = tmp_path / "speed.json"
    Results(path, resume=False).add({**ROW, "versions": {"numpy": "2"}})
    again = Results(path, resume=True)
    assert again.rows == [ROW]
    again.add({**ROW, "steps_per_second": 2.0})  # the same measurement
    again.add({**ROW, "repeat": 1})
    document = json.loads(path.read_text())
    assert [row["steps_per_second"] for row in document["rows"]] == [2.0, 1.0]
    assert document["versions"] == {OURS: {"numpy": "2"}}


def test_a_file_keeps_the_rates_of_its_first_run(tmp_path, monkeypatch):
    """Rates vary from run to run, so different ones do not prevent resuming, and the file keeps the first."""
    path = tmp_path / "speed.json"
    monkeypatch.setattr("benchmarks.speed.results.rates", lambda: {"blas_gflops": {"1": 100.0}})
    first = Results(path, resume=False)
    first.measure_rates()
    first.add(dict(ROW))
    monkeypatch.setattr("benchmarks.speed.results.rates", lambda: {"blas_gflops": {"1": 50.0}})
    again = Results(path, resume=True)
    again.measure_rates()
    again.add({**ROW, "repeat": 1})
    assert json.loads(path.read_text())["machine"]["blas_gflops"] == {"1": 100.0}


def test_existing_results_are_not_overwritten(tmp_path):
    path = tmp_path / "speed.json"
    Results(path, resume=False).add(dict(ROW))
    with refuses(ValueError, "--resume"):
        Results(path, resume=False)
    path.write_text(path.read_text().replace('"cores": ', '"cores": 9', 1))
    with refuses(ValueError, "FILE"):
        Results(path, resume=True)


def test_every_peer_has_a_script():
    for peer in PEERS.values():
        assert (SCRIPTS / f"{peer.script}.py").exists(), peer


def test_a_brief_task_makes_updates_if_the_full_one_does():
    task = KINDS["training"].tasks["Pendulum 64-64"].brief()
    assert task.starts < task.warm < task.steps == 1_200
    (task,) = KINDS["memory"].tasks.values()
    assert task.brief().starts > task.brief().steps  # memory is measured without updates


@pytest.mark.slow
def test_brief_numbers_need_another_results_file(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["benchmarks.speed", "--brief"])
    with pytest.raises(SystemExit) as left:
        speed.main()
    assert left.value.code == 2
    assert "name another file with --results" in capsys.readouterr().err


def test_a_package_is_skipped_where_it_cannot_be_measured(monkeypatch):
    monkeypatch.setattr(packages.shutil, "which", lambda program: None)
    monkeypatch.setattr(packages.jit, "obstacle_to_bfloat16", lambda: "no such instructions")
    monkeypatch.setattr(packages.jit, "host_registers", lambda: SimpleNamespace(amx=False))
    assert PEERS["RLtools (TD3)"].obstacle() == "it needs g++"
    assert PEERS[packages.OURS_BFLOAT16].obstacle() == "no such instructions"
    assert "AMX" in PEERS[packages.OURS_BFLOAT16X3].obstacle()
    assert not PEERS[OURS].obstacle()
