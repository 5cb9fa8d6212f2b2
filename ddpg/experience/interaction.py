"""What an agent learns from: an environment, or a vector of them, as transitions it can rely on.

Gymnasium and NumPy only. :mod:`ddpg.experience.stepping` steps; here observations are checked and copied, and put
together to transitions.
"""

from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.errors import UsageError
from ddpg.experience import spaces
from ddpg.experience.actions import first
from ddpg.experience.stepping import SingleStepper, VectorStepper, make_stepper
from ddpg.experience.transitions import Episode as Episode
from ddpg.experience.transitions import Transitions
from ddpg.experience.values import as_float32, as_numbers


def spaces_of(env: Any) -> tuple[gym.Space, gym.Space]:
    """Return the observation and action space of an env, a vector env, or a pair of spaces."""
    if isinstance(env, gym.vector.VectorEnv):
        return env.single_observation_space, env.single_action_space
    if isinstance(env, gym.Env):
        return env.observation_space, env.action_space
    if isinstance(env, (tuple, list)) and len(env) == 2 and all(isinstance(part, gym.Space) for part in env):
        return env[0], env[1]
    raise UsageError(
        f"env={env!r} is neither a gymnasium Env, nor a VectorEnv, nor a pair (observation_space, action_space); "
        "make one with gymnasium.make(...)"
    )


def make_interaction(env: gym.Env | gym.vector.VectorEnv, seed: int | None) -> "Interaction":
    """Reset ``env`` with ``seed`` and return it as N environments.

    Raises:
        UsageError: no environment, one whose observation space is not a Box, a vector environment whose autoreset
            mode is neither NEXT_STEP nor SAME_STEP, or a first observation that is not of its space.
    """
    reader = ObservationReader(spaces.check_observation_space(spaces_of(env)[0]), getattr(env, "num_envs", 1))
    return Interaction(make_stepper(env, seed, reader.one, reader.many))


class Interaction:
    """N environments as a source of transitions; rewards, flags and observations are checked and its own.

    A step that raises loses the episodes under way: :attr:`observations` then are the first ones of new episodes.

    Attributes:
        count: N.
        single: whether this is a plain environment, none of a vector.
    """

    def __init__(self, stepper: SingleStepper | VectorStepper):
        self.env = stepper.env
        self.count = stepper.count
        self._stepper = stepper
        self.single = isinstance(stepper, SingleStepper)

    @property
    def observations(self) -> np.ndarray:
        """Where the environments are, ``[N, *observation shape]`` float32."""
        return self._stepper.observations

    def step(self, actions: Any) -> Transitions:
        """Step with N ``actions`` as a vector environment takes them, in env units.

        Raises:
            UsageError: the environment returned what it may not: an observation of another shape or kind than its
                space, NaN, a reward that is no number, flags that are none.
        """
        stepper = self._stepper
        observations = stepper.observations
        step = stepper.step(first(actions) if self.single else actions)
        next_observations = step.last[0] if self.single and step.last else stepper.observations
        if step.last and not self.single:
            next_observations = next_observations.copy()
            for index, row in step.last.items():
                next_observations[index] = row[0]
        rows = step.environments
        return Transitions(
            rows,
            observations[rows],
            step.rewards.astype(np.float32),
            next_observations[rows],
            step.terminated,
            step.truncated,
            step.episodes,
        )


class ObservationReader:
    """Checks what ``count`` environments return as observations, and copies it to float32."""

    def __init__(self, space: gym.spaces.Box, count: int):
        self._shape, self._shape_of_all = space.shape, (count, *space.shape)
        self._bytes = space.dtype == np.uint8

    def one(self, observation: Any) -> np.ndarray:
        """Return the observation of one environment as ``[1, *shape]``.

        Raises:
            UsageError: another shape, no real numbers, NaN, or what the space's bytes cannot hold.
        """
        return self._read(observation, self._shape)[None]

    def many(self, observations: Any) -> np.ndarray:
        """Return those of all environments, ``[N, *shape]``.

        Raises:
            UsageError: as for :meth:`one`.
        """
        return self._read(observations, self._shape_of_all)

    def _read(self, values: Any, shape: tuple[int, ...]) -> np.ndarray:
        array = as_numbers(values, "observation")
        if array.shape != shape:
            raise UsageError(
                f"observation has shape {array.shape}; expected {shape}, as the observation space says: "
                "fix the environment, or wrap it in gymnasium.wrappers.ReshapeObservation"
            )
        if self._bytes:
            spaces.check_bytes(array, "observation")
        numbers = as_float32(array, "observation")
        # A copy: an environment may write every observation into the same array.
        return numbers.copy() if numbers is array else numbers
