"""Metrics of several updates: their mean, however many calls it took."""

import gymnasium as gym
import numpy as np
import pytest

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig

BOX = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
SPACES = {DDPG: BOX, DQN: gym.spaces.Discrete(3)}
QUICK = {"hidden": (8,), "batch_size": 4, "optimizer": "sgd", "jit": False}
CONFIGS = {
    DDPG: DDPGConfig(**QUICK, actor_learning_rate=0.1, critic_learning_rate=0.1),
    DQN: DQNConfig(**QUICK, learning_rate=0.1),
}


def made(kind, updates_per_call, td_target="stop_gradient"):
    config = CONFIGS[kind].replace(updates_per_call=updates_per_call, td_target=td_target)
    agent = kind((BOX, SPACES[kind]), config, seed=0)
    rng = np.random.default_rng(0)
    for number in range(20):
        before, after = rng.uniform(-1, 1, (2, 2))
        action = 1 if kind is DQN else rng.uniform(-1, 1, 2).astype(np.float32)
        agent.observe(before, action, float(number), after, True, False)
    return agent


@pytest.mark.parametrize("kind", [DDPG, DQN])
@pytest.mark.parametrize(("updates_per_call", "n"), [(2, 5), (4, 3), (1, 5)])
def test_metrics_are_means_over_updates(kind, updates_per_call, n):
    """Five updates in calls of two are two, two and one: the last call's share is a fifth."""
    agent, single = (made(kind, number) for number in (updates_per_call, updates_per_call))
    together = agent.update(n)
    each = [single.update(1) for _ in range(n)]
    assert agent.num_updates == single.num_updates == n
    loss = agent.metrics[0]
    assert each[0][loss] > 1.1 * each[-1][loss] or each[-1][loss] > 1.1 * each[0][loss]
    for name in agent.metrics:
        assert together[name] == pytest.approx(np.mean([one[name] for one in each]), rel=1e-4, abs=1e-6), name


def test_step_by_step_alike():
    together = made(DDPG, 1, "placeholder").update(3)
    single = made(DDPG, 1, "placeholder")
    each = [single.update(1) for _ in range(3)]
    for name, mean in together.items():
        assert mean == pytest.approx(np.mean([one[name] for one in each]), rel=1e-4, abs=1e-6), name
