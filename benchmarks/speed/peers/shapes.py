"""An environment of HalfCheetah's shapes that costs nothing, to fill memories with."""

import gymnasium as gym
import numpy as np

LENGTH = 1_000  # steps of an episode, as HalfCheetah's


class Shapes(gym.Env):
    """Observations ``[17]`` of float64 and actions ``[6]``, as HalfCheetah-v5's; nothing happens."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (17,), np.float64)
    action_space = gym.spaces.Box(-1.0, 1.0, (6,), np.float32)

    def __init__(self):
        self._observations = np.random.default_rng(0).normal(size=(LENGTH + 1, 17))
        self._at = 0

    def reset(self, *, seed=None, options=None):
        """Begin again."""
        super().reset(seed=seed)
        self._at = 0
        return self._observations[0].copy(), {}

    def step(self, action):
        """Go on to the next observation."""
        self._at += 1
        return self._observations[self._at].copy(), 0.0, False, self._at == LENGTH, {}


def make(name: str) -> gym.Env:
    """Return the environment of gymnasium's id ``name``, or this one."""
    return Shapes() if name == "shapes:HalfCheetah" else gym.make(name)
