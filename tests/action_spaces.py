"""Spaces with bounds that differ by dimension, and actions of several parts, for tests of policies and exports."""

import gymnasium as gym
import numpy as np

UNBOUNDED = gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
BOX = gym.spaces.Box(np.float32([[-1, 0.5], [0, -30]]), np.float32([[3, 1], [1, 30]]))
PARTS = (gym.spaces.Box(0, 30, (1,)), gym.spaces.Box(0, 1, (0,)), gym.spaces.Box(-0.1, 0.7, (2, 1), np.float64))
MOVES = gym.spaces.Tuple((gym.spaces.Discrete(3, start=1), gym.spaces.Tuple(PARTS)))
