"""Environments for the rendering process: ``drawn_envs:drawn/Telling-v0``, and others that crash, fail or hang."""

import os
import signal
import sys
import warnings

import gymnasium as gym
import numpy as np
from environments import Counting


class Telling(Counting):
    """Three steps an episode. Frames encode the step (red), last action (green) and if TensorFlow is loaded (blue)."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode=None, length=3):
        super().__init__(length=length)
        self.render_mode = render_mode

    def render(self):
        action = self.actions[-1].item() if self.actions else 0.0
        shades = 10 * self.step_number, round(100 + 100 * action), 255 * ("tensorflow" in sys.modules)
        return np.full((8, 8, 3), shades, np.uint8)


class Cautioning(Telling):
    """Its ``render`` warns in every step."""

    def render(self):
        warnings.warn("the\nlight is off", RuntimeWarning, stacklevel=2)
        return super().render()


class Unlit(Telling):
    """Its ``render`` raises the value of ``MUJOCO_GL``."""

    def render(self):
        raise KeyError(os.environ.get("MUJOCO_GL"))


class Crashing(Telling):
    """Its ``render`` kills the process, like a crash of the graphics library."""

    def render(self):
        if self.step_number == 2:
            os.kill(os.getpid(), signal.SIGSEGV)
        return super().render()


class Exiting(Telling):
    """Its ``render`` exits the process silently."""

    def render(self):
        os._exit(7)


class Failing(Telling):
    """Its second step raises."""

    def step(self, action):
        if self.step_number == 1:
            raise ZeroDivisionError("division by zero")
        return super().step(action)


class Once(Telling):
    """Its second reset raises."""

    def reset(self, **options):
        if self.episode == 0:
            raise ZeroDivisionError("division by zero")
        return super().reset(**options)


class Unclosed(Telling):
    """Its ``close`` raises."""

    def close(self):
        raise OSError("in use")


class Speaking(Telling):
    """Its observations are not numbers."""

    def __init__(self, **options):
        super().__init__(**options)
        self.observation_space = gym.spaces.Text(3)

    def reset(self, **options):
        super().reset(**options)
        return object(), {}


class Switching(Telling):
    """Its spaces are of kinds that no agent of this package can have."""

    def __init__(self, **options):
        super().__init__(**options)
        self.observation_space = gym.spaces.MultiBinary(2)
        self.action_space = gym.spaces.MultiDiscrete([2, 3])

    def reset(self, **options):
        super().reset(**options)
        return np.zeros(2, np.int8), {}

    def step(self, action):
        return np.ones(2, np.int8), *super().step(action)[1:]

    def render(self):
        return np.full((8, 8, 3), 10 * self.step_number, np.uint8)


class Mujoco(Telling):
    """A class whose metadata says that it renders with MuJoCo."""


Mujoco.__module__ = "somewhere.mujoco.mujoco_env"

for kind in (Telling, Cautioning, Unlit, Crashing, Exiting, Failing, Once, Unclosed, Speaking, Switching):
    gym.register(f"drawn/{kind.__name__}-v0", kind)
gym.register("drawn/Timed-v0", Telling, max_episode_steps=3)
