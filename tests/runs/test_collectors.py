"""Runs with workers: as others, but for what a checkpoint cannot hold."""

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
from refusals import refuses

from ddpg import DDPGConfig, UsageError, resume, train
from ddpg.agents.off_policy import load_agent
from ddpg.runs import run_directory
from ddpg.runs.env_factory import make_env
from ddpg.runs.recorder import RunRecorder
from ddpg.runs.run_state import RunState

CONFIG = DDPGConfig(
    hidden=(8,), batch_size=8, learning_starts=100, updates_per_step=0.1, optimizer="sgd", jit=False, buffer_size=2000
)
OPTIONS = {"evaluation_episodes": 1, "evaluation_interval": 400, "progress_bar": False, "seed": 0}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    return train("Pendulum-v1", CONFIG, root=root, total_timesteps=1000, collector="process", workers=2, **OPTIONS)


def test_a_run_with_workers_leaves_what_others_do(run):
    assert [path.name for path in run_directory.checkpoints(run)][-1] == "1000"
    document = run_directory.read_config(run)
    assert (document["collector"], document["workers"], document["ray_address"]) == ("process", 2, None)
    rows = run_directory.read_table(run / "metrics.csv")
    assert {"policy_lag", "worker_deaths", "lost_rollouts", "lost_episodes", "refused_rollouts"} <= set(rows[0])
    assert rows[-1]["timesteps"] == "1000"
    # Evaluated where it is due, not where an episode happens to end; then at the goal.
    evaluated = [int(row["timesteps"]) for row in run_directory.read_table(run / "evaluations.csv")]
    assert len(evaluated) == 3
    assert all(0 <= at - due < 320 for at, due in zip(evaluated, (400, 800, 1000), strict=True))
    assert {row["length"] for row in run_directory.read_table(run / "episodes.csv")} == {"200"}


def test_it_goes_on_with_new_episodes_and_all_that_was_learned(run):
    resume(run, total_timesteps=1500, workers=1, progress_bar=False)
    assert run_directory.read_config(run)["workers"] == 1
    assert [path.name for path in run_directory.checkpoints(run)][-1] == "1500"
    rows = run_directory.read_table(run / "metrics.csv")
    steps = [int(row["timesteps"]) for row in rows]
    assert steps == sorted(set(steps))
    assert float(rows[-1]["n_updates"] or 0) in (0, 140)


def test_a_run_without_workers_gets_none_later(run, tmp_path):
    plain = train("Pendulum-v1", CONFIG, root=tmp_path, total_timesteps=200, **OPTIONS)
    for given in ({"workers": 2}, {"ray_address": "auto"}):
        (name,) = given
        with refuses(UsageError, f"{name} {plain} leave out") as caught:
            resume(plain, total_timesteps=400, progress_bar=False, **given)
        assert "set the collector" not in str(caught.value)  # resume has no flag for the collector


def test_options_that_workers_cannot_keep_leave_nothing_behind(tmp_path):
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
    os.killpg(process.pid, signal.SIGINT)  # to all of its processes, as a terminal does
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert re.search(r"with new ones: ddpg resume", said)
    assert "exactly" not in said
    assert "Traceback" not in said
    while any(read_group(path) == process.pid for path in Path("/proc").glob("[0-9]*/stat")):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.05)


HANGS = """
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
def test_environments_that_hang_end_with_a_run_that_is_killed(tmp_path, flags):
    (tmp_path / "hanging.py").write_text(HANGS)
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
    while any(read_group(path) == process.pid for path in Path("/proc").glob("[0-9]*/stat")):
        assert time.monotonic() < deadline, "a process is left"
        time.sleep(0.05)


def read_group(path):
    """The process group of a process, or none if it is gone or nobody has asked for its exit status yet."""
    try:
        _, _, rest = path.read_text().rpartition(")")
    except OSError:
        return None
    state, _, group, *_ = rest.split()
    return None if state == "Z" else int(group)


def test_leaving_a_run_with_workers_promises_nothing_exact(run, tmp_path):
    document = run_directory.read_config(run)
    with load_agent(run_directory.checkpoints(run)[-1], make_env("Pendulum-v1")) as agent:
        run_state = RunState.begun(agent.metrics, agent.counts, agent.num_timesteps)
        copy = tmp_path / "1"
        shutil.copytree(run, copy)
        for exact in (True, False):
            agent.loop.exact = exact
            with contextlib.closing(RunRecorder(copy, document, agent, agent.env, run_state)) as recorder:
                assert recorder.leave(agent)[1] is exact
