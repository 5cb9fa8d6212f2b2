"""Run environments: step one or a vector of them, reset them when episodes end, and yield checked transitions.

Gymnasium and NumPy only. A stepper hides what differs between a plain environment (:class:`SingleStepper`) and a vector
(:mod:`ddpg.interaction.vector_stepper`); :class:`EnvRunner` combines a stepper's results to transitions. Whatever an
environment does wrong raises an :class:`~ddpg.errors.EnvironmentFault` that names the environment, step, episode and
seed.
"""

from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.errors import EnvironmentFault, UsageError, brief
from ddpg.interaction import spaces
from ddpg.interaction.actions import unbatch
from ddpg.interaction.env_calls import call, unpacked_reset, unpacked_step
from ddpg.interaction.env_errors import FaultCounter, check_timeout, describe_reset, env_name, format_error
from ddpg.interaction.envpool import is_envpool
from ddpg.interaction.spaces import ObservationReader, ObservationReaderProtocol
from ddpg.interaction.transitions import EnvStep, Episode, StepResult, Transitions
from ddpg.interaction.validation import validate_flag, validate_reward
from ddpg.interaction.vector_stepper import VectorStepper, success_of


def spaces_of(env: Any) -> tuple[gym.Space, gym.Space]:
    """Return the observation and action space of an environment, of one of a vector, or of a pair of spaces."""
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
        seed: of this reset; later resets are without a seed.
        on_bad_transition: ``"raise"`` an error for values that are not allowed, or ``"drop"`` their transitions.
        step_timeout: the longest that a step or a reset of a vector of processes may take, in seconds.

    Raises:
        UsageError: if ``env`` is not an environment, its observation space is not a Box, its autoreset mode is neither
            NEXT_STEP nor SAME_STEP, or a timeout is given for environments in this process.
        EnvironmentFault: if the reset failed, or the first observation is not in its space.
    """
    reader = ObservationReader(spaces.check_observation_space(spaces_of(env)[0]), getattr(env, "num_envs", 1))
    return EnvRunner(make_stepper(env, seed, reader, on_bad_transition, step_timeout))


class EnvRunner:
    """N environments as a source of transitions, whose values are checked and copied.

    A step that raises ends the current episodes: :attr:`observations` then are the first ones of new episodes.

    Attributes:
        count: N.
        single: whether this is a plain environment and not a vector.
    """

    def __init__(self, stepper: "SingleStepper | VectorStepper"):
        self.env = stepper.env
        self.count = stepper.count
        self._stepper = stepper
        self.single = isinstance(stepper, SingleStepper)

    @property
    def observations(self) -> np.ndarray:
        """The current observation of each environment, ``[N, *observation shape]`` float32."""
        return self._stepper.observations

    def step(self, env_actions: Any, actions: np.ndarray | None = None) -> StepResult:
        """Step all environments once.

        Args:
            env_actions: N actions in env units, as a vector environment takes them.
            actions: the same actions as they are stored, ``[N, A]``; ``env_actions`` by default.

        Raises:
            EnvironmentFault: if the environment raised or hung, or returned an observation that does not fit its
                space, NaN, a reward that is not a number, or flags that are not booleans.
        """
        stepper = self._stepper
        observations = stepper.observations
        step = stepper.step(unbatch(env_actions) if self.single else env_actions)
        final = step.final_observations
        next_observations = final[0] if self.single and final else stepper.observations
        if final and not self.single:
            next_observations = next_observations.copy()
            for index, row in final.items():
                next_observations[index] = row[0]
        rows = slice(None) if len(step.env_indices) == self.count else list(step.env_indices)
        transitions = Transitions(
            observations[rows],
            np.asarray(env_actions if actions is None else actions)[rows],
            step.rewards.astype(np.float32),
            next_observations[rows],
            step.terminated,
            step.truncated,
            step.env_indices,
        )
        return StepResult(transitions, step.episodes, step.dropped)


def make_stepper(
    env: gym.Env | gym.vector.VectorEnv,
    seed: int | None,
    reader: ObservationReaderProtocol,
    on_bad_transition: str = "raise",
    step_timeout: float | None = None,
) -> "SingleStepper | VectorStepper":
    """Reset ``env`` with ``seed`` and return its stepper.

    Args:
        env: one environment, or a vector.
        seed: of this reset; later resets are without a seed.
        reader: reads observations as soon as they are returned.
        on_bad_transition: ``"raise"`` or ``"drop"``: see :class:`~ddpg.interaction.env_errors.FaultCounter`.
        step_timeout: seconds that a step or a reset of a vector of processes may take.

    Raises:
        UsageError: if ``env`` is neither, is EnvPool's own vector (whose resets ignore seeds), has an autoreset mode
            other than NEXT_STEP and SAME_STEP, or a ``step_timeout`` is given for environments in this process.
        EnvironmentFault: if the environment failed.
    """
    if is_envpool(env):
        raise UsageError(
            "what envpool.make returns is seeded when it is made, and ignores the seeds of resets; "
            "hand over ddpg.EnvPoolVector(ID, N) instead"
        )
    fault_counter = FaultCounter(on_bad_transition)
    check_timeout(env, step_timeout)
    if isinstance(env, gym.vector.VectorEnv):
        return VectorStepper(env, seed, reader, fault_counter, step_timeout)
    if isinstance(env, gym.Env):
        return SingleStepper(env, seed, reader, fault_counter)
    raise UsageError(
        f"env={env!r} is neither a gymnasium Env nor a VectorEnv; make one with gymnasium.make(...) or make_vec(...)"
    )


class SingleStepper:
    """A plain environment, as N = 1 environments."""

    count = 1

    def __init__(self, env: gym.Env, seed: int | None, reader: ObservationReaderProtocol, fault_counter: FaultCounter):
        self.env = env
        self._reader, self._fault_counter = reader, fault_counter
        self._seed, self._episode = seed, 0
        self._restart(seed)

    def _restart(self, seed: int | None = None) -> None:
        self._observations = None
        self._return, self._length = 0.0, 0
        while self._observations is None:
            self._episode += 1
            returned = call(self.env.reset, seed=seed, fault=self._as_fault)
            try:
                observation = unpacked_reset(returned)
            except UsageError as error:
                raise self._fault(str(error)) from None
            try:
                self._observations = self._reader.read_one(observation)
            except UsageError as error:
                self._fault_counter.record(self._fault(str(error)))
            seed = None

    @property
    def observations(self) -> Any:
        """The current observation; after an episode ended or a step raised, the first one of a new episode."""
        if self._observations is None:
            self._restart()
        return self._observations

    def step(self, action: Any) -> EnvStep:
        """Step with one ``action``, in env units.

        Raises:
            EnvironmentFault: if the environment failed.
        """
        self._observations = None  # should anything below raise, the episode is lost
        self._length += 1
        returned = call(self.env.step, action, fault=self._as_fault)
        try:
            observation, reward, terminated, truncated, info = unpacked_step(returned)
        except UsageError as error:
            raise self._fault(str(error)) from None
        try:
            # Read before anything else: the environment may write its next observation into the same array.
            current = self._reader.read_one(observation)
            reward = validate_reward(reward)
            terminated, truncated = validate_flag(terminated, "terminated"), validate_flag(truncated, "truncated")
        except UsageError as error:
            self._fault_counter.record(self._fault(str(error)))
            return _DROPPED
        self._fault_counter.reset()
        self._return += reward
        final, episodes = {}, []
        if terminated or truncated:
            try:
                success = success_of(info)
            except UsageError as error:
                raise self._fault(str(error)) from None
            episodes.append(Episode(self._return, self._length, 0, success))
            final[0] = current
        else:  # a next episode begins when somebody looks: after the last one of an evaluation nobody does
            self._observations = current
        return EnvStep(_ONLY, np.array([reward]), np.array([terminated]), np.array([truncated]), final, episodes)

    def _as_fault(self, error: BaseException) -> EnvironmentFault:
        return self._fault(format_error(error))

    def _fault(self, what: str) -> EnvironmentFault:
        when = f"in step {self._length} of" if self._length else "in the reset to"
        return EnvironmentFault(
            f"environment {env_name(self.env)} failed {when} episode {self._episode} since its reset "
            f"{describe_reset(self._seed)}: {what}"
        )


_ONLY = (0,)  # the environment's index
_DROPPED = EnvStep((), np.zeros(0), np.zeros(0, bool), np.zeros(0, bool), {}, [], _ONLY)
