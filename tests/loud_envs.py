"""An environment that prints, in Python and past it, when it is created, drawn or closed: ``loud/Loud-v0``.

ddpg train loud_envs:loud/Loud-v0
"""

import os

import gymnasium as gym
import numpy as np
from environments import Counting
from gymnasium import spaces

SAID = ("hello", "as C prints")


def say():
    print(SAID[0])
    os.write(1, f"{SAID[1]}\n".encode())


class Loud(Counting):
    """Three steps an episode."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode=None):
        super().__init__(observation_space=spaces.Box(-1.0, 9.0, (2,), np.float32))
        self.render_mode = render_mode
        say()

    def render(self):
        say()
        return np.zeros((2, 2, 3), np.uint8)

    def close(self):
        say()


gym.register("loud/Loud-v0", Loud)
