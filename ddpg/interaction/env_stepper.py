"""Step one environment, or a vector, as N environments that reset by themselves.

Gymnasium and NumPy only. What differs between a plain environment and the autoreset modes of vector
environments is settled here and in :mod:`ddpg.interaction.vector_stepper`, and rewards and flags are checked;
observations are
whatever ``reader`` makes of them. What an environment does wrong is an
:class:`~ddpg.errors.EnvironmentFault` that names it, the step, the episode and the seed.
"""

from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.errors import EnvironmentFault, UsageError
from ddpg.interaction.env_calls import call, unpacked_reset, unpacked_step
from ddpg.interaction.env_errors import FaultCounter, check_timeout, describe_reset, env_name, format_error
from ddpg.interaction.envpool import is_envpool
from ddpg.interaction.observation_check import ObservationReaderProtocol
from ddpg.interaction.transitions import ALL_ENVS, EnvStep, Episode
from ddpg.interaction.validation import validate_flag, validate_reward
from ddpg.interaction.vector_stepper import VectorStepper, success_of


def make_stepper(
    env: gym.Env | gym.vector.VectorEnv,
    seed: int | None,
    reader: ObservationReaderProtocol,
    on_bad_transition: str = "raise",
    step_timeout: float | None = None,
) -> "SingleStepper | VectorStepper":
    """Reset ``env`` with ``seed`` and return what steps it.

    Args:
        env: one environment, or a vector.
        seed: of this reset; later episodes go on from it.
        reader: translates observations as soon as they are returned.
        on_bad_transition: ``"raise"`` or ``"drop"``: see :class:`~ddpg.interaction.env_errors.FaultCounter`.
        step_timeout: seconds that a step or a reset of a vector of processes may take.

    Raises:
        UsageError: neither, EnvPool's own vector, which no reset seeds, a vector environment whose autoreset mode is
            neither NEXT_STEP nor SAME_STEP, or a ``step_timeout`` for environments in this process.
        EnvironmentFault: the environment failed.
    """
    if is_envpool(env):
        raise UsageError(
            "what envpool.make returns is seeded when it is made, and ignores the seeds of resets; "
            "hand over ddpg.EnvPoolVector(ID, N) instead"
        )
    tolerance = FaultCounter(on_bad_transition)
    check_timeout(env, step_timeout)
    if isinstance(env, gym.vector.VectorEnv):
        return VectorStepper(env, seed, reader, tolerance, step_timeout)
    if isinstance(env, gym.Env):
        return SingleStepper(env, seed, reader, tolerance)
    raise UsageError(
        f"env={env!r} is neither a gymnasium Env nor a VectorEnv; make one with gymnasium.make(...) or make_vec(...)"
    )


class SingleStepper:
    """A plain environment as one of N = 1."""

    count = 1

    def __init__(self, env: gym.Env, seed: int | None, reader: ObservationReaderProtocol, tolerance: FaultCounter):
        self.env = env
        self._reader, self._tolerance = reader, tolerance
        self._seed, self._episode = seed, 0
        self._restart(seed)

    def _restart(self, seed: int | None = None) -> None:
        self._observations = None
        self._return, self._length = 0.0, 0
        while self._observations is None:
            self._episode += 1
            returned = call(self.env.reset, seed=seed, fault=self._raised)
            try:
                observation = unpacked_reset(returned)
            except UsageError as error:
                raise self._fault(str(error)) from None
            try:
                self._observations = self._reader.one(observation)
            except UsageError as error:
                self._tolerance.record(self._fault(str(error)))
            seed = None

    @property
    def observations(self) -> Any:
        """What was read where the environment is now; a new episode's start after one ended, or a step raised."""
        if self._observations is None:
            self._restart()
        return self._observations

    def step(self, action: Any) -> EnvStep:
        """Step with one ``action``, in env units.

        Raises:
            EnvironmentFault: the environment failed.
        """
        self._observations = None  # should anything below raise, the episode is lost
        self._length += 1
        returned = call(self.env.step, action, fault=self._raised)
        try:
            observation, reward, terminated, truncated, info = unpacked_step(returned)
        except UsageError as error:
            raise self._fault(str(error)) from None
        try:
            # Read before anything else: the environment may write its next observation into the same array.
            current = self._reader.one(observation)
            reward = validate_reward(reward)
            terminated, truncated = validate_flag(terminated, "terminated"), validate_flag(truncated, "truncated")
        except UsageError as error:
            self._tolerance.record(self._fault(str(error)))
            return _NOTHING
        self._tolerance.reset()
        self._return += reward
        last, episodes = {}, []
        if terminated or truncated:
            try:
                success = success_of(info)
            except UsageError as error:
                raise self._fault(str(error)) from None
            episodes.append(Episode(self._return, self._length, 0, success))
            last[0] = current
        else:  # a next episode begins when somebody looks: after the last one of an evaluation nobody does
            self._observations = current
        return EnvStep(ALL_ENVS, np.array([reward]), np.array([terminated]), np.array([truncated]), last, episodes)

    def _raised(self, error: BaseException) -> EnvironmentFault:
        return self._fault(format_error(error))

    def _fault(self, what: str) -> EnvironmentFault:
        when = f"in step {self._length} of" if self._length else "in the reset to"
        return EnvironmentFault(
            f"environment {env_name(self.env)} failed {when} episode {self._episode} since its reset "
            f"{describe_reset(self._seed)}: {what}"
        )


_NOTHING = EnvStep(np.zeros(1, bool), np.zeros(0), np.zeros(0, bool), np.zeros(0, bool), {}, [], [0])
