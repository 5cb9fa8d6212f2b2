"""``on_bad_transition="drop"``: what an environment may not return is counted, and nothing of it is learned from."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting
from gymnasium.vector import SyncVectorEnv

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.errors import EnvironmentFault

SMALL = DDPGConfig(
    **{"hidden": (4,), "batch_size": 4, "learning_starts": 10, "updates_per_call": 4, "buffer_size": 100},
    **{"jit": False, "noise": "ornstein_uhlenbeck"},
    optimizer="sgd",
)


def bad():
    return Counting(4, nan_at=3)  # two transitions of every episode are good


@pytest.mark.parametrize("vector", [False, True])
def test_dropped_transitions_are_counted_and_never_stored(vector):
    env = SyncVectorEnv([bad, lambda: Counting(4)]) if vector else bad()
    agent = DDPG(env, SMALL.replace(on_bad_transition="drop"), seed=0)
    restarted = []
    end_episode = agent.behaviour.end_episode
    agent.behaviour.end_episode = lambda index: (restarted.append(index), end_episode(index))
    agent.learn(40)
    stored = agent.replay.arrays()
    assert np.isfinite(stored["next_observations"]).all()
    np.testing.assert_array_equal(stored["next_observations"][:, 1], stored["observations"][:, 1] + 1)
    assert len(agent.replay) == agent.num_timesteps >= 40
    # An environment alone restarts at once; in a vector the fourth step of the episode is dropped too.
    per_episode = 2 if vector else 1
    episodes = (stored["next_observations"][:, 1] == 2).sum() / (2 if vector else 1)
    assert agent.num_dropped_transitions == pytest.approx(per_episode * episodes, abs=2)
    assert restarted.count(0) >= episodes - 1
    assert agent.counts["dropped_transitions"] == agent.num_dropped_transitions > 5


def test_by_default_they_are_raised():
    agent = DDPG(bad(), SMALL, seed=0)
    with pytest.raises(EnvironmentFault, match="in step 3 of episode 1 since its reset with seed"):
        agent.learn(40)
    assert "dropped_transitions" not in agent.counts


def test_step_timeout_is_refused_where_nothing_keeps_it():
    agent = DDPG(gym.make("Pendulum-v1"), SMALL.replace(step_timeout=1))
    with pytest.raises(UsageError, match=r"step_timeout=1\.0 needs environments in processes of their own"):
        agent.learn(40)
