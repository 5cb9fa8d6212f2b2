"""Environments with one fault in a given step, registered as ``faulty/...-v0``.

ddpg train faulty_envs:faulty/NaN-v0
"""

import functools
import os
import time

import gymnasium as gym
import numpy as np
from gymnasium import spaces

FAULTS = {
    "NaN": lambda values: (np.full(3, np.nan, np.float32), *values[1:]),
    "Infinity": lambda values: (values[0], float("inf"), *values[2:]),
    "Shape": lambda values: (np.zeros(4, np.float32), *values[1:]),
    "Kind": lambda values: (np.array(["a", "b", "c"]), *values[1:]),
    "Flag": lambda values: (*values[:2], "no", *values[3:]),
    "Raises": lambda values: raising(),
    "Hangs": lambda values: time.sleep(3600),
    "Dies": lambda values: os._exit(7),
}


def raising():
    raise RuntimeError("the simulator\nlost its state")


class Faulty(gym.Env):
    """Ten steps an episode; from step ``at`` on, or only then, :data:`FAULTS` changes what a step returns.

    Args:
        fault: a name in :data:`FAULTS`, or ``None``.
        at: the step, counted from 1 over all episodes.
        once: whether only that step is faulty.
    """

    def __init__(self, fault=None, at=150, once=False):
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.fault, self.at, self.once = fault, at, once
        self.life = self.step_number = 0

    def _observation(self):
        return np.array([self.step_number / 10, np.sin(self.life), 0.0], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return self._observation(), {}

    def step(self, action):
        self.life += 1
        self.step_number += 1
        values = self._observation(), -float(action[0] ** 2), False, self.step_number == 10, {}
        failing = self.fault and (self.life == self.at or (self.life > self.at and not self.once))
        return FAULTS[self.fault](values) if failing else values


class NoReset(Faulty):
    """Its fifteenth reset raises."""

    resets = 0

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        if self.resets == 15:
            raise OSError("no connection to the simulator")
        return super().reset(seed=seed)


def no_constructor(**options):
    raise KeyError("no licence for the simulator")


for name in FAULTS:
    gym.register(f"faulty/{name}-v0", functools.partial(Faulty, name))
gym.register("faulty/None-v0", Faulty)
gym.register("faulty/NaNOnce-v0", functools.partial(Faulty, "NaN", once=True))
gym.register("faulty/Reset-v0", NoReset)
gym.register("faulty/Constructor-v0", no_constructor)
