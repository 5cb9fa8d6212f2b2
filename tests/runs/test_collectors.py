"""Runs with workers: their files, resuming, interrupts, and the options that workers exclude."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from agent_options import WITHOUT_SLOTS_AND_TARGETS
from refusals import refuses

from ddpg import DDPGConfig, UsageError, resume, train
from ddpg.agents.off_policy import load_agent
from ddpg.runs import run_directory
from ddpg.runs.env_factory import make_env
from ddpg.runs.recorder import RunRecorder
from ddpg.runs.run_state import RunState
from ddpg.runs.tables import read_table

CONFIG = DDPGConfig(
    hidden=(8,),
    batch_size=8,
    learning_starts=100,
    updates_per_step=0.1,
    jit=False,
    buffer_size=2000,
    **WITHOUT_SLOTS_AND_TARGETS,
)
OPTIONS = {"evaluation_episodes": 1, "evaluation_interval": 400, "progress_bar": False, "seed": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return train("Pendulum-v1", CONFIG, root=root, total_timesteps=1000, collector="process", workers=2, **OPTIONS)


def test_a_run_with_workers_writes_the_usual_files(run):
    assert [path.name for path in run_directory.checkpoints(run)][-1] == "1000"
    document = run_directory.read_config(run)
    assert (document["collector"], document["workers"], document["ray_address"]) == ("process", 2, None)
    rows = read_table(run / "metrics.csv")
    assert {"policy_lag", "worker_deaths", "lost_rollouts", "lost_episodes", "refused_rollouts"} <= set(rows[0])
    assert rows[-1]["timesteps"] == "1000"
    # Evaluations do not wait for the end of an episode; the last one is made at the goal.
    evaluated = [int(row["timesteps"]) for row in read_table(run / "evaluations.csv")]
    assert len(evaluated) == 3
    assert all(0 <= at - due < 320 for at, due in zip(evaluated, (400, 800, 1000), strict=True))
    assert {row["length"] for row in read_table(run / "episodes.csv")} == {"200"}


@pytest.mark.slow
def test_a_resumed_run_starts_new_episodes_and_keeps_what_it_learned(run):
    resume(run, total_timesteps=1500, workers=1, progress_bar=False)
    assert run_directory.read_config(run)["workers"] == 1
    assert [path.name for path in run_directory.checkpoints(run)][-1] == "1500"
    rows = read_table(run / "metrics.csv")
    steps = [int(row["timesteps"]) for row in rows]
    assert steps == sorted(set(steps))
    assert float(rows[-1]["n_updates"] or 0) in (0, 140)


def test_workers_cannot_be_added_on_resume(run, tmp_path):
    plain = train("Pendulum-v1", CONFIG, root=tmp_path, total_timesteps=200, **OPTIONS)
    for given in ({"workers": 2}, {"ray_address": "auto"}):
        (name,) = given
        with refuses(UsageError, f"{name} {plain} leave out") as caught:
            resume(plain, total_timesteps=400, progress_bar=False, **given)
        assert "set the collector" not in str(caught.value)  # resume has no flag for the collector


def test_options_that_exclude_workers_leave_no_run_directory(tmp_path):
    with refuses(UsageError, "n_envs=2 parameter_noise=0.1"):
        train(
            "Pendulum-v1",
            CONFIG.replace(parameter_noise=0.1),
            root=tmp_path,
            n_envs=2,
            collector="process",
            workers=2,
            **OPTIONS,
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("collector", ["process", "ray"])
def test_ctrl_c_saves_the_run_and_ends_every_process(tmp_path, collector):
    if collector == "ray":
        pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    command = [sys.executable, "-m", "ddpg", "train", "Pendulum-v1", "--collector", collector, "--workers", "2"]
    command += ["--total-timesteps", "1000000", "--root", str(tmp_path), "--no-progress-bar", "--no-jit"]
    command += ["--hidden", "8", "--updates-per-step", "0.01", "--evaluation-episodes", "1", "--seed", "0"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    metrics = tmp_path / "Pendulum-v1" / "1" / "metrics.csv"
    deadline = time.monotonic() + 60
    while not (metrics.exists() and len(metrics.read_text().splitlines()) > 1):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # to all its processes, as from a terminal
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert re.search(r"with new ones: ddpg resume", err)
    assert "exactly" not in err
    assert "Traceback" not in err
    wait_for_end_of_group(process.pid, deadline)


HANGING_MODULE = """
import os, time
import gymnasium as gym
from environments import Counting

class Hanging(Counting):
    def step(self, action):
        open(os.environ["HANGING"], "a").close()
        time.sleep(60)

gym.register("Hanging-v0", Hanging)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags", [("--collector", "process", "--workers", "2"), ("--n-envs", "2", "--vectorization", "async")]
)
def test_hanging_environments_end_when_the_run_is_killed(tmp_path, flags):
    (tmp_path / "hanging.py").write_text(HANGING_MODULE)
    paths = [str(tmp_path), str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HANGING": str(tmp_path / "hangs")}
    command = [sys.executable, "-m", "ddpg", "train", "hanging:Hanging-v0", *flags, "--root", str(tmp_path)]
    process = subprocess.Popen(command, env=variables, start_new_session=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (tmp_path / "hangs").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.wait()
    wait_for_end_of_group(process.pid, deadline)


def wait_for_end_of_group(group, deadline):
    """Wait until no process of the group is left; fail at the deadline."""
    while any(read_group(path) == group for path in Path("/proc").glob("[0-9]*/stat")):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.05)


def read_group(path):
    """Return the process group in a ``/proc`` stat file; ``None`` if the process is gone or a zombie."""
    try:
        _, _, rest = path.read_text().rpartition(")")
    except OSError:
        return None
    state, _, group, *_ = rest.split()
    return None if state == "Z" else int(group)


def test_a_run_with_workers_does_not_promise_to_resume_exactly(run, tmp_path):
    document = run_directory.read_config(run)
    with load_agent(run_directory.checkpoints(run)[-1], make_env("Pendulum-v1")) as agent:
        run_state = RunState.begun(agent.metrics, agent.counts, agent.num_timesteps)
        copy = tmp_path / "1"
        shutil.copytree(run, copy)
        for exact in (True, False):
            agent.loop.exact = exact
            with contextlib.closing(RunRecorder(copy, document, agent, agent.env, run_state)) as recorder:
                assert recorder.leave(agent)[1] is exact
