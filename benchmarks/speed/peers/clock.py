"""A clock inside the environment: training of every package passes there, step by step."""

from collections.abc import Callable, Container

import gymnasium as gym


class Clock(gym.Wrapper):
    """Calls ``note(number)`` when the environment's step of a ``number`` among ``moments`` begins.

    Args:
        env: the environment.
        moments: numbers of steps; the first step has the number 1.
        note: what is to be done then; what it takes is taken from training.
    """

    def __init__(self, env: gym.Env, moments: Container[int], note: Callable[[int], None]):
        super().__init__(env)
        self._taken, self._moments, self._note = 0, moments, note

    def step(self, action):
        """Step, and count."""
        self._taken += 1
        if self._taken in self._moments:
            self._note(self._taken)
        return self.env.step(action)
