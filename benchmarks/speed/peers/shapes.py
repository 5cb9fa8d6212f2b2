"""An environment with HalfCheetah's shapes and no physics, for filling replay memories quickly."""

import gymnasium as gym
import numpy as np

LENGTH = 1_000  # steps per episode, as in HalfCheetah


class Shapes(gym.Env):
    """Has HalfCheetah-v5's observations ``[17]`` (float64) and actions ``[6]``; actions have no effect."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (17,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (6,), np.float32)

    def __init__(self):
        self._observations = np.random.default_rng(0).normal(size=(LENGTH + 1, 17))
        self._at = 0

    def reset(self, *, seed=None, options=None):
        """Return the first observation."""
        super().reset(seed=seed)
        self._at = 0
        return self._observations[0].copy(), {}

    def step(self, action):
        """Return the next observation, with reward 0."""
        self._at += 1
        return self._observations[self._at].copy(), 0.0, False, self._at == LENGTH, {}


def make(name: str) -> gym.Env:
    """Return gymnasium's environment ``name``, or :class:`Shapes` for ``shapes:HalfCheetah``."""
    return Shapes() if name == "shapes:HalfCheetah" else gym.make(name)
