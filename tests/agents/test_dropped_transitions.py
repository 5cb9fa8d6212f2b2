"""``on_bad_transition="drop"``: invalid transitions are counted, and nothing is learned from them."""

import numpy as np
import pytest
from agent_options import IDLE
from environments import Counting
from gymnasium.vector import SyncVectorEnv
from refusals import refuses

from ddpg import DDPG, DDPGConfig
from ddpg.errors import EnvironmentFault

SMALL = DDPGConfig(**IDLE, buffer_size=100, noise="ornstein_uhlenbeck")


def bad():
    return Counting(4, nan_at=3)  # two transitions of every episode are valid


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
    # A single environment restarts at once; in a vector the episode's fourth step is dropped too.
    per_episode = 2 if vector else 1
    episodes = (stored["next_observations"][:, 1] == 2).sum() / (2 if vector else 1)
    assert agent.num_dropped_transitions == pytest.approx(per_episode * episodes, abs=2)
    assert restarted.count(0) >= episodes - 1
    assert agent.counts["dropped_transitions"] == agent.num_dropped_transitions > 5


@pytest.mark.parametrize("vector", [False, True])
def test_the_return_that_scales_rewards_restarts_after_a_drop(vector):
    """γ = 0.5 and rewards 1 and 2 before each drop: G is 1 and 2.5, and the next episode starts at 0 again."""
    env = SyncVectorEnv([bad, lambda: Counting(2)]) if vector else bad()
    options = {"on_bad_transition": "drop", "normalize_rewards": True, "gamma": 0.5}
    agent = DDPG(env, SMALL.replace(**options), seed=0).learn(8 if vector else 4)
    assert agent.memory.statistics()["rewards.largest"] == 2.5


def test_n_step_returns_do_not_span_a_drop():
    """All observations are equal, so only the drop marks the new episode."""

    class Still(Counting):
        def _observation(self):
            return np.zeros(2)

    agent = DDPG(Still(4, nan_reward_at=3), SMALL.replace(on_bad_transition="drop"), seed=0).learn(4)
    assert agent.replay.gather(np.arange(4), 3, 0.5).discounts[:, 0].tolist() == [0.25, 0.5] * 2


def test_by_default_an_invalid_transition_raises():
    agent = DDPG(bad(), SMALL, seed=0)
    with refuses(EnvironmentFault, "step 3 episode 1 seed"):
        agent.learn(40)
    assert "dropped_transitions" not in agent.counts
