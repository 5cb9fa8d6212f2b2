"""Code that steps the training environment on its own abandons its episode: no stored transition spans the gap."""

import numpy as np
import pytest
from agent_options import IDLE
from environments import Counting
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ddpg import DDPG, Callback, DDPGConfig, evaluate

CONFIG = DDPGConfig(**IDLE, buffer_size=200)
LENGTH = 7


def vector(mode):
    return SyncVectorEnv([lambda: Counting(LENGTH)] * 2, autoreset_mode=mode)


class Episodes(Callback):
    def __init__(self):
        self.lengths = []

    def on_episode_end(self, agent, episode):
        self.lengths.append((episode.length, episode.episode_return))


class EvaluatesOnce(Callback):
    def __init__(self, at):
        self.at = at

    def on_step(self, agent):
        if self.at is not None and agent.num_timesteps >= self.at:
            self.at = None
            evaluate(agent, agent.env, 2)


@pytest.mark.parametrize("within", [True, False])
@pytest.mark.parametrize(
    "make",
    [lambda: Counting(LENGTH), lambda: vector(AutoresetMode.NEXT_STEP), lambda: vector(AutoresetMode.SAME_STEP)],
    ids=["single", "next step", "same step"],
)
def test_evaluating_in_the_training_environment_stores_no_false_transition(make, within):
    """Observations are [episode, step] and the reward is the step, so every stored row can be checked."""
    agent = DDPG(make(), CONFIG, seed=0)
    episodes = Episodes()
    if within:
        agent.learn(40, [episodes, EvaluatesOnce(at=4)])
    else:
        agent.learn(4, episodes)
        evaluate(agent, agent.env, 2)
        agent.learn(36, episodes)
    stored = agent.replay.arrays()
    before, after = stored["observations"], stored["next_observations"]
    assert len(before) == agent.num_timesteps >= 40
    np.testing.assert_array_equal(after - before, [[0, 1]] * len(before))
    np.testing.assert_array_equal(stored["rewards"][:, 0], after[:, 1])
    np.testing.assert_array_equal(stored["terminated"][:, 0], after[:, 1] == LENGTH)
    # The abandoned episode is not reported; finished ones are complete.
    assert set(episodes.lengths) == {(LENGTH, sum(range(1, LENGTH + 1)))}
    assert len(episodes.lengths) == stored["terminated"].sum()
