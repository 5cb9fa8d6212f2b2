"""Statistics of an evaluation worked out by hand, the seeds of its episodes, and exploration only on request."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Still

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, evaluate
from ddpg.runs.evaluation import Evaluation


def test_summary_by_hand():
    summary = Evaluation(np.array([1.0, 2.0, 3.0, 4.0]), np.array([5, 5, 5, 9]), 3, np.array([1, 0, 0, 0])).summary()
    # s = √(5/3), its standard error s/2 = 0.6454972, and Student's 97.5 % quantile at 3 degrees of freedom 3.1824463.
    expected = {
        "episodes": 4,
        "mean_return": 2.5,
        "std_return": 1.2909944,
        "ci95_low": 2.5 - 2.0542603,
        "ci95_high": 2.5 + 2.0542603,
        "min_return": 1,
        "max_return": 4,
        "mean_length": 6,
        "clipped_actions": 3,
        "success_rate": 0.25,
    }
    assert {name: summary[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def test_one_episode_has_no_spread():
    summary = Evaluation(np.array([2.0]), np.array([3])).summary()
    assert (summary["mean_return"], summary["std_return"]) == (2, 0)
    assert (summary["ci95_low"], summary["ci95_high"]) == (2, 2)
    assert "success_rate" not in summary


class Echo(gym.Env):
    """An episode has three steps; its return is the sum of its actions and a number drawn at the reset."""

    def __init__(self, action_space=None, start=0.0):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = action_space or gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.start_scale = start

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 3
        self.drawn = self.start_scale * float(self.np_random.uniform())
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.left -= 1
        reward = float(np.sum(action)) + (self.drawn if self.left == 0 else 0.0)
        return np.zeros(2, np.float32), reward, self.left == 0, False, {}


def test_episodes_start_differently_and_a_seed_repeats_them():
    env = Echo(start=1.0)
    returns = evaluate(Still(), env, 6, seed=3).returns
    assert len(set(returns)) == 6
    np.testing.assert_array_equal(evaluate(Still(), env, 6, seed=3).returns, returns)
    np.testing.assert_array_equal(evaluate(Still(), Echo(start=1.0), 6, seed=3).returns, returns)
    assert set(evaluate(Still(), env, 6, seed=4).returns).isdisjoint(returns)


def make_agent(kind):
    if kind is DDPG:
        return DDPG(Echo(), DDPGConfig(hidden=(8,), noise_scale=0.3, jit=False, optimizer="sgd"), seed=0)
    return DQN(Echo(gym.spaces.Discrete(3)), DQNConfig(hidden=(8,), jit=False, optimizer="sgd"), seed=0)


@pytest.mark.parametrize("kind", [DDPG, DQN])
def test_evaluation_explores_only_if_not_deterministic(kind):
    agent = make_agent(kind)
    action = float(np.sum(agent.predict(np.zeros(2, np.float32))[0]))
    np.testing.assert_allclose(evaluate(agent, agent.env, 8, seed=0).returns, 3 * action, rtol=1e-5, atol=1e-6)
    noisy = evaluate(agent, agent.env, 8, seed=0, deterministic=False).returns
    assert len(set(noisy)) > 3


def test_an_evaluation_is_printed_as_one_line():
    # Mean 2.5, deviation 1.291; t(3) = 3.182, so ± 2.054.
    four = Evaluation(np.array([1.0, 2.0, 3.0, 4.0]), np.array([5, 5, 5, 9]), successes=np.array([1, 0, 0, 0]))
    assert str(four) == "mean return 2.5 (95 % CI 0.4457 to 4.554, 4 episodes of 6 steps), success rate 25%"
    assert str(Evaluation(np.array([-1234.5]), np.array([3]))) == "mean return -1234 (1 episode of 3 steps)"
