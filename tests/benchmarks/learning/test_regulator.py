"""The best possible returns of the linear regulator."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from benchmarks.learning import regulator
from benchmarks.learning.regulator import best_returns, start_states
from ddpg import evaluate
from ddpg.config.toml_file import read_toml
from ddpg_envs.lqr import LQREnv


class LinearController:
    def __init__(self, gain):
        self.gain = gain

    def predict(self, observation, **_):
        return -(self.gain @ observation).astype(np.float32), None


def test_the_best_returns_are_those_of_the_optimal_controller_in_the_same_episodes():
    env = gym.make("ddpg_envs/LQR-v0")
    optimal = LQREnv.optimal_gain(gamma=0.99999)  # nearly undiscounted, so equal to the controller for 100 steps
    best = best_returns(start_states(seed=3, episodes=5))
    found = evaluate(LinearController(optimal), env, episodes=5, seed=3).returns
    np.testing.assert_allclose(found, best, rtol=1e-5)
    others = evaluate(LinearController(1.1 * optimal), env, episodes=5, seed=3).returns
    assert (np.array(others) < best).all()


def test_the_mean_over_all_start_states():
    """It is a third of the sum over two unit states: position and velocity are uniform in ±1, with variance 1/3."""
    assert best_returns(np.eye(2)).sum() / 3 == pytest.approx(-3.871, abs=5e-4)


def test_the_table_compares_the_episodes_of_the_study():
    study = read_toml(Path(regulator.__file__).with_suffix(".toml"))
    assert study["final_episodes"] == regulator.EPISODES
    assert gym.spec(study["environments"][0]).max_episode_steps == regulator.STEPS
