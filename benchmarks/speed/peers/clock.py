"""Time training from inside the environment, the only place that every package's training loop passes through."""

from collections.abc import Callable, Container

import gymnasium as gym


class Clock(gym.Wrapper):
    """Calls ``note(number)`` at the beginning of every step whose ``number`` is in ``moments``.

    Args:
        env: the environment.
        moments: numbers of steps; the first step has the number 1.
        note: called before the step; its own time counts as training time.
    """

    def __init__(self, env: gym.Env, moments: Container[int], note: Callable[[int], None]):
        super().__init__(env)
        self._taken, self._moments, self._note = 0, moments, note

    def step(self, action):
        """Call ``note`` if the step's number is in ``moments``, then step."""
        self._taken += 1
        if self._taken in self._moments:
            self._note(self._taken)
        return self.env.step(action)
