"""Parameterised actions as one flat box: a wrapper for any agent that acts in boxes. NumPy and gymnasium only."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gym_spaces

from ddpg.errors import UsageError
from ddpg.experience import spaces
from ddpg.experience.actions import ParameterisedActions, first


class FlattenParameterisedAction(gym.ActionWrapper):
    """Let an agent that acts in a ``Box`` act in an environment with parameterised actions.

    The action space becomes ``Box(-1, 1, (A,))``: a score for each discrete action, then all parameters,
    each rescaled to [-1, 1]; the environment gets the action with the largest score and its parameters
    (Hausknecht & Stone 2016, arXiv 1511.04143). :class:`ddpg.DDPG` does the same by itself, with the
    environment as it is; this is for agents that do not.

    Args:
        env: with a ``Tuple(Discrete(n), Tuple(Box, ...))`` or ``OneOf(Box, ...)`` action space.

    Attributes:
        num_clipped_actions: actions that left [-1, 1] and were clipped to it.

    Raises:
        UsageError: another action space.
    """

    def __init__(self, env: gym.Env):
        super().__init__(env)
        if not isinstance(env.action_space, (gym_spaces.Tuple, gym_spaces.OneOf)):
            raise UsageError(
                f"action space {env.action_space} is not parameterised; expected Tuple(Discrete(n), Tuple(Box, ...)) "
                "or OneOf(Box, ...): a Box needs no wrapper"
            )
        self._actions = ParameterisedActions(env.action_space)
        self.action_space = self._flat_space = gym_spaces.Box(-1.0, 1.0, (self._actions.size,), np.float32)
        self.num_clipped_actions = 0

    def action(self, action: np.ndarray):
        """Translate a flat action ``[A]`` to the environment's.

        Raises:
            UsageError: another shape, or NaN.
        """
        flat, single = spaces.as_batch(self._flat_space, action, "action")
        if not single:
            raise UsageError(f"action has shape {np.shape(action)}; expected {self.action_space.shape}")
        self.num_clipped_actions += int(np.abs(flat).max() > 1)
        return first(self._actions.to_env(flat))

    def flatten(self, action) -> np.ndarray:
        """Translate an action of the environment to a flat one, ``[A]``.

        Raises:
            UsageError: not an action of the environment.
        """
        return self._actions.to_flat(action)[0]
