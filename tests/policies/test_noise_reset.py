"""Ornstein-Uhlenbeck noise restarts with an episode, and only in the environment of that episode.

Two agents with the same seed draw the same numbers z. They follow from the noise of the agent whose episodes never end,
x′ = (1 − θ)x + σz, and give the noise that the other agent must have.
"""

import numpy as np
from agent_options import TINY
from environments import Counting
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ddpg import DDPG, DDPGConfig, evaluate

STEPS, DECAY = 12, 1 - 0.15
CONFIG = DDPGConfig(
    **TINY, noise="ornstein_uhlenbeck", noise_scale=0.05, learning_starts=0, updates_per_call=1000, target="online"
)


def noise(env, count, between=None):
    """Return the noise in the actions of an agent, ``[steps, environments]``; it makes no updates.

    After half of the steps, ``between(agent)`` is called.
    """
    agent = DDPG(env, CONFIG, seed=0)
    agent.learn(STEPS * count // 2)
    if between is not None:
        between(agent)
    agent.learn(STEPS * count // 2)
    assert agent.num_updates == 0
    stored = agent.replay.arrays()
    policy = (agent.predict(stored["observations"])[0] - 1) / 3  # the box is [-2, 4]
    return (stored["actions"] - policy).reshape(STEPS, count)


def restarted(endless, period):
    """Return the noise of the draws behind ``endless`` if it restarts at 0 after every ``period`` steps."""
    draws = endless - DECAY * np.concatenate([[0], endless[:-1]])
    values, x = [], 0.0
    for step, draw in enumerate(draws):
        x = draw + (0.0 if step % period == 0 else DECAY * x)
        values.append(x)
    return values


def test_noise_restarts_with_an_episode():
    endless = noise(Counting(1000), 1)[:, 0]
    ended = noise(Counting(5), 1)[:, 0]
    np.testing.assert_allclose(ended, restarted(endless, 5), atol=1e-5)
    assert np.abs(ended - endless).max() > 1e-3


def test_noise_restarts_after_the_environment_was_used_elsewhere():
    endless = noise(Counting(1000), 1)[:, 0]
    used = noise(Counting(1000), 1, lambda agent: evaluate(agent, agent.env, episodes=1, seed=5))[:, 0]
    np.testing.assert_allclose(used, restarted(endless, STEPS // 2), atol=1e-5)
    assert np.abs(used - endless).max() > 1e-3


def vector(*lengths):
    return SyncVectorEnv(
        [lambda length=length: Counting(length) for length in lengths], autoreset_mode=AutoresetMode.SAME_STEP
    )


def test_noise_of_other_environments_does_not_restart():
    endless = noise(vector(1000, 1000), 2)
    ended = noise(vector(1000, 4), 2)
    np.testing.assert_allclose(ended[:, 0], endless[:, 0], atol=1e-5)
    np.testing.assert_allclose(ended[:, 1], restarted(endless[:, 1], 4), atol=1e-5)
