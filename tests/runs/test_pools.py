"""Runs in EnvPool: their files, their evaluations in Gymnasium's environment, and exact resuming."""

import importlib.metadata
import sys

import fake_envpool
import gymnasium as gym
import pytest
from agent_options import TINY
from refusals import refuses
from remains import assert_same

from ddpg import DDPGConfig, UsageError, resume, train
from ddpg.cli.main import main
from ddpg.errors import EnvironmentFault
from ddpg.runs import env_factory, run_directory
from ddpg.runs.tables import read_table

CONFIG = DDPGConfig(**TINY, learning_starts=20, updates_per_call=3, buffer_size=90, target="online")
RUN = {
    **{"seed": 5, "total_timesteps": 150, "evaluation_interval": 60, "evaluation_episodes": 1, "progress_bar": False},
    **{"n_envs": 2, "vectorization": "envpool"},
}


@pytest.fixture
def fake(monkeypatch):
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.2.5" if name == "envpool" else version(name))
    monkeypatch.setitem(sys.modules, "envpool", fake_envpool)
    monkeypatch.setattr(fake_envpool, "pools", [])
    return fake_envpool


def test_a_run_trains_in_a_pool_and_is_evaluated_in_gymnasiums_environment(fake, monkeypatch, tmp_path):
    evaluated = []
    run_in = "ddpg.runs.run_loop.make_env"
    own = env_factory.make_env
    monkeypatch.setattr(run_in, lambda *arguments: evaluated.append(arguments[0].env_id) or own(*arguments))
    run = train("Pendulum-v1", CONFIG, root=tmp_path, **RUN)
    document = run_directory.read_config(run)
    assert (document["vectorization"], document["versions"]["envpool"]) == ("envpool", "1.2.5")
    assert {len(pool.envs) for pool in fake.pools} == {2}
    assert len(read_table(run / "evaluations.csv")) == 3
    assert evaluated
    assert set(evaluated) == {"Pendulum-v1"}
    # One pool for the start, and one after each checkpoint but the last.
    assert len({tuple(pool.seeds) for pool in fake.pools}) == len(fake.pools) == 3


def check_resumes_exactly(tmp_path, monkeypatch, kind):
    """Let a run fail midway, resume it from an earlier checkpoint, and compare it with a run that did not fail."""
    uninterrupted = train("Pendulum-v1", CONFIG, root=tmp_path / "uninterrupted", **RUN)
    step, steps = kind.step, []

    def failing(self, *arguments):
        steps.append(1)
        if len(steps) == 45:
            raise RuntimeError("out of order")
        return step(self, *arguments)

    monkeypatch.setattr(kind, "step", failing)
    with refuses(EnvironmentFault, "Pendulum-v1 RuntimeError: out of order"):
        train("Pendulum-v1", CONFIG, root=tmp_path / "failed", **RUN)
    run = tmp_path / "failed" / "Pendulum-v1" / "1"
    checkpoints = [path.name for path in run_directory.checkpoints(run)]
    assert checkpoints == ["60", "88"]  # 44 steps of two environments
    assert_same(resume(run, which="60", progress_bar=False), uninterrupted)


@pytest.mark.slow
def test_a_run_resumes_exactly(fake, monkeypatch, tmp_path):
    check_resumes_exactly(tmp_path, monkeypatch, fake.Pool)


@pytest.mark.slow
def test_a_run_in_envpool_resumes_exactly(monkeypatch, tmp_path):
    pytest.importorskip("envpool")
    from ddpg import EnvPoolVector

    check_resumes_exactly(tmp_path, monkeypatch, EnvPoolVector)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Pendulum-v1"], "vectorization='envpool' is for several environments; give --n-envs 2 or more"),
        (["Pendulum-v1", "--n-envs", "2", "--wrap", "FlattenObservation"], "wrapper 'FlattenObservation' is of a gym"),
        (["ddpg_envs/LQR-v0", "--n-envs", "2"], "has no environment 'ddpg_envs/LQR-v0'"),
        (["Pendulum-v1", "--n-envs", "2", "--step-timeout", "3"], "step_timeout=3.0 needs environments in processes"),
    ],
)
def test_options_that_envpool_does_not_support(fake, arguments, message, tmp_path, capsys):
    root = tmp_path / "runs"
    assert main(["train", *arguments, "--vectorization", "envpool", "--root", str(root), "--no-progress-bar"]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not root.exists() or not list(root.iterdir())


def test_envpool_that_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with refuses(UsageError, "'envpool'"):
        train("Pendulum-v1", CONFIG, root=tmp_path, **RUN)
    assert not list(tmp_path.iterdir())


def test_spaces_and_time_limit_are_gymnasiums(fake):
    one = gym.make("Pendulum-v1")
    env = env_factory.make_training_env("Pendulum-v1", 3, "envpool")
    assert (env.single_action_space, env.spec.max_episode_steps) == (one.action_space, 200)
