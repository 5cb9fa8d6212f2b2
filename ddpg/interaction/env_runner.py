"""Run environments: one or a vector of them as a source of checked transitions.

Gymnasium and NumPy only. :mod:`ddpg.interaction.env_stepper` steps; here what it gives is put together
to transitions.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.errors import UsageError, brief
from ddpg.interaction import spaces
from ddpg.interaction.actions import unbatch
from ddpg.interaction.env_stepper import SingleStepper, VectorStepper, make_stepper
from ddpg.interaction.observation_check import ObservationReader
from ddpg.interaction.transitions import Episode as Episode
from ddpg.interaction.transitions import Transitions


def spaces_of(env: Any) -> tuple[gym.Space, gym.Space]:
    """Return the observation and action space of an env, a vector env, or a pair of spaces."""
    if isinstance(env, gym.vector.VectorEnv):
        return env.single_observation_space, env.single_action_space
    if isinstance(env, gym.Env):
        return env.observation_space, env.action_space
    if isinstance(env, (tuple, list)) and len(env) == 2 and all(isinstance(part, gym.Space) for part in env):
        return env[0], env[1]
    raise UsageError(
        f"env={brief(env)} is neither a gymnasium Env, nor a VectorEnv, nor a pair (observation_space, action_space); "
        "make one with gymnasium.make(...)"
    )


def make_env_runner(
    env: gym.Env | gym.vector.VectorEnv,
    seed: int | None,
    on_bad_transition: str = "raise",
    step_timeout: float | None = None,
) -> "EnvRunner":
    """Reset ``env`` with ``seed`` and return it as N environments.

    Args:
        env: one environment, or a vector.
        seed: of this reset; later episodes go on from it.
        on_bad_transition: ``"raise"`` what no environment may return, or ``"drop"`` the transitions it belongs to.
        step_timeout: seconds that a step or a reset of a vector of processes may take.

    Raises:
        UsageError: no environment, one whose observation space is not a Box, a vector environment whose autoreset
            mode is neither NEXT_STEP nor SAME_STEP, or a timeout for environments in this process.
        EnvironmentFault: the reset failed, or gave a first observation that is not of its space.
    """
    reader = ObservationReader(spaces.check_observation_space(spaces_of(env)[0]), getattr(env, "num_envs", 1))
    return EnvRunner(make_stepper(env, seed, reader, on_bad_transition, step_timeout))


class EnvRunner:
    """N environments as a source of transitions; rewards, flags and observations are checked and its own.

    A step that raises loses the episodes under way: :attr:`observations` then are the first ones of new episodes.

    Attributes:
        count: N.
        single: whether this is a plain environment, none of a vector.
        dropped: the environments whose last step was no transition, and whose episode is abandoned.
    """

    def __init__(self, stepper: SingleStepper | VectorStepper):
        self.env = stepper.env
        self.count = stepper.count
        self._stepper = stepper
        self.single = isinstance(stepper, SingleStepper)
        self.dropped: Sequence[int] = ()

    @property
    def observations(self) -> np.ndarray:
        """Where the environments are, ``[N, *observation shape]`` float32."""
        return self._stepper.observations

    def step(self, actions: Any) -> Transitions:
        """Step with N ``actions`` as a vector environment takes them, in env units.

        Raises:
            EnvironmentFault: the environment raised, hung, or returned what it may not: an observation of another
                shape or kind than its space, NaN, a reward that is no number, flags that are none.
        """
        stepper = self._stepper
        observations = stepper.observations
        step = stepper.step(unbatch(actions) if self.single else actions)
        self.dropped = step.dropped
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
