"""Small environments for tests."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class Counting(gym.Env):
    """Observation [episode, step]: every row tells where it belongs. Reward: the step. Ends as told.

    Args:
        length: steps in an episode.
        truncate: end by truncation, else by termination.
        nan_at: step whose observation is NaN.
        nan_reward_at: step whose reward is NaN.
    """

    def __init__(
        self, length=3, truncate=False, nan_at=None, nan_reward_at=None, observation_space=None, action_space=None
    ):
        self.observation_space = observation_space or spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = action_space or spaces.Box(-2.0, 4.0, (1,), np.float32)
        self.length, self.truncate, self.nan_at, self.nan_reward_at = length, truncate, nan_at, nan_reward_at
        self.episode = -1
        self.step_number = 0
        self.actions = []

    def _observation(self):
        value = np.array([self.episode, self.step_number], np.float64)
        return np.full(2, np.nan) if self.step_number == self.nan_at else value

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.episode += 1
        self.step_number = 0
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.actions.append(action)
        self.step_number += 1
        done = self.step_number >= self.length
        reward = np.nan if self.step_number == self.nan_reward_at else float(self.step_number)
        return self._observation(), reward, done and not self.truncate, done and self.truncate, {}


class Shaped(gym.Env):
    """Any Box in, any Box out: zeros plus a drift, 5 steps an episode; reward −‖action‖²."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space
        self.step_number = 0

    def _observation(self):
        return np.full(self.observation_space.shape, self.step_number, self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        return self._observation(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.step_number += 1
        return self._observation(), -float(np.square(action).sum()), False, self.step_number >= 5, {}
