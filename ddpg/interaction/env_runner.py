"""Run environments: step one or a vector of them, reset them when episodes end, and yield checked transitions.

Gymnasium and NumPy only. A stepper hides the differences between a plain environment (:class:`SingleStepper`) and a
vector (:class:`VectorStepper`, in either autoreset mode); :class:`EnvRunner` combines a stepper's results into
transitions. Every failure of an environment raises an :class:`~ddpg.errors.EnvironmentFault` that names the
environment, step, episode and seed.
"""

import contextlib
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from ddpg.errors import EnvironmentFault, UsageError, brief, format_error, users_level
from ddpg.interaction import env_calls, spaces
from ddpg.interaction.actions import unbatch
from ddpg.interaction.env_calls import call, check_timeout, env_name, unpacked_reset, unpacked_step
from ddpg.interaction.envpool import is_envpool
from ddpg.interaction.transitions import (
    EnvStep,
    Episode,
    FaultCounter,
    ObservationReader,
    StepResult,
    Transitions,
)
from ddpg.interaction.validation import (
    LARGEST,
    validate_flag,
    validate_flags,
    validate_numeric,
    validate_reward,
    validate_rewards,
)

ALIKE_ENDS = 3  # episodes, from the first on, that end with the next one's first observation before a warning says so

_ONLY = (0,)  # the index of a plain environment
_FLAGS = np.zeros(1, bool), np.ones(1, bool)  # of a plain environment, by their value
for _flags in _FLAGS:
    _flags.flags.writeable = False
_DROPPED = EnvStep((), np.zeros(0), np.zeros(0, bool), np.zeros(0, bool), {}, [], _ONLY)


def make_env_runner(
    env: gym.Env | gym.vector.VectorEnv,
    seed: int | None,
    on_bad_transition: str = "raise",
    step_timeout: float | None = None,
) -> "EnvRunner":
    """Reset ``env`` with ``seed`` and return a runner of its N environments; arguments as for :func:`make_stepper`.

    Raises:
        UsageError: as :func:`make_stepper`, or if the observation space is not a Box.
        EnvironmentFault: if the reset failed, or the first observation is not in its space.
    """
    reader = ObservationReader(spaces.check_observation_space(spaces.spaces_of(env)[0]), getattr(env, "num_envs", 1))
    return EnvRunner(make_stepper(env, seed, reader, on_bad_transition, step_timeout))


class EnvRunner:
    """Steps N environments and yields their transitions, whose values are checked and copied.

    A step that raises ends the current episodes: :attr:`observations` are then the first ones of new episodes.

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
        stored_actions = np.asarray(env_actions if actions is None else actions)
        if len(step.env_indices) < self.count:
            rows = list(step.env_indices)
            observations, stored_actions, next_observations = (
                values[rows] for values in (observations, stored_actions, next_observations)
            )
        transitions = Transitions(
            observations,
            stored_actions,
            step.rewards.astype(np.float32),
            next_observations,
            step.terminated,
            step.truncated,
            step.env_indices,
        )
        return StepResult(transitions, step.episodes, step.dropped)


def make_stepper(
    env: gym.Env | gym.vector.VectorEnv,
    seed: int | None,
    reader: ObservationReader,
    on_bad_transition: str = "raise",
    step_timeout: float | None = None,
) -> "SingleStepper | VectorStepper":
    """Reset ``env`` with ``seed`` and return its stepper.

    Args:
        env: one environment, or a vector.
        seed: of this reset; later resets are without a seed.
        reader: reads observations as soon as they are returned.
        on_bad_transition: ``"raise"`` or ``"drop"``: see :class:`~ddpg.interaction.transitions.FaultCounter`.
        step_timeout: longest duration of a step or a reset of a vector of processes, in seconds.

    Raises:
        UsageError: if ``env`` is not an environment, is EnvPool's own vector (whose resets ignore seeds), has an
            autoreset mode other than NEXT_STEP and SAME_STEP, or a ``step_timeout`` is given for environments in this
            process.
        EnvironmentFault: if the environment failed.
    """
    if is_envpool(env):
        raise UsageError(
            "a vector from envpool.make is seeded when it is made, and ignores the seeds of resets; "
            "pass ddpg.EnvPoolVector(ID, N) instead"
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


def _autoreset_mode(env: gym.vector.VectorEnv) -> Any:
    """Return the mode of ``env``; gymnasium before 1.4 overwrites the metadata when it makes another vector."""
    inner: Any = env.unwrapped
    own = isinstance(inner, (SyncVectorEnv, AsyncVectorEnv)) and env.metadata is inner.metadata  # not a wrapper's
    return inner.autoreset_mode if own else env.metadata.get("autoreset_mode")


class _Stepper:
    """What both steppers share: environments that are reset when their next observations are read."""

    _observations: Any = None
    _restart: Callable[..., None]
    _fault: Callable[..., EnvironmentFault]

    @property
    def observations(self) -> Any:
        """The current observations; where an episode has ended or was lost, the first ones of new episodes."""
        if self._observations is None:
            self._restart()
        return self._observations

    def _as_fault(self, error: BaseException) -> EnvironmentFault:
        return self._fault(format_error(error))

    def _checked(self, check: Callable, *values: Any) -> Any:
        """Return what ``check`` makes of values that the environment returned; a refusal is a fault of it."""
        try:
            return check(*values)
        except UsageError as error:
            raise self._fault(str(error)) from None


class SingleStepper(_Stepper):
    """Steps a plain environment, as N = 1 environments."""

    count = 1

    def __init__(self, env: gym.Env, seed: int | None, reader: ObservationReader, fault_counter: FaultCounter):
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
            observation = self._checked(unpacked_reset, returned)
            try:
                self._observations = self._reader.read_one(observation)
            except UsageError as error:
                self._fault_counter.record(self._fault(str(error)))
            self._fault_counter.end_step(good=False)
            seed = None

    def step(self, action: Any) -> EnvStep:
        """Step with one ``action``, in env units.

        Raises:
            EnvironmentFault: if the environment failed.
        """
        self._observations = None  # if anything below raises, the episode is lost
        self._length += 1
        returned = call(self.env.step, action, fault=self._as_fault)
        observation, reward, terminated, truncated, info = self._checked(unpacked_step, returned)
        try:
            # Read before anything else: the environment may write its next observation into the same array.
            current = self._reader.read_one(observation)
            reward = validate_reward(reward)
            terminated, truncated = validate_flag(terminated, "terminated"), validate_flag(truncated, "truncated")
            success = success_of(info) if terminated or truncated else None
        except UsageError as error:
            self._fault_counter.record(self._fault(str(error)))
            self._fault_counter.end_step(good=False)
            return _DROPPED
        self._fault_counter.end_step(good=True)
        self._return += reward
        final, episodes = {}, []
        if terminated or truncated:
            episodes.append(Episode(self._return, self._length, 0, success, terminated))
            final[0] = current
        else:  # a new episode begins only when its observation is read, so an evaluation ends without an extra reset
            self._observations = current
        return EnvStep(_ONLY, np.array([reward]), _FLAGS[terminated], _FLAGS[truncated], final, episodes)

    def _fault(self, what: str) -> EnvironmentFault:
        when = f"in step {self._length} of" if self._length else "in the reset to"
        return EnvironmentFault(
            f"environment {env_name(self.env)} failed {when} episode {self._episode} since its reset "
            f"{_describe_reset(self._seed)}: {what}"
        )


class VectorStepper(_Stepper):
    """Steps a vector environment with NEXT_STEP or SAME_STEP autoreset.

    NEXT_STEP: the step after an episode's end ignores the action and returns the first observation of the next episode
    with reward 0. That row is not a transition and is left out.

    SAME_STEP: the step that ends an episode already returns the next episode's first observation. The true last
    observation is in ``infos["final_obs"]`` and is returned in ``final_observations``. An environment that writes every
    observation into one array has overwritten it by then: in a SyncVectorEnv that is a fault, elsewhere a warning,
    because there an episode that truly ends where the next one begins looks the same.

    A vector cannot reset a single environment. If a bad transition is dropped, the rest of its episode is dropped too;
    once the episodes of all environments are dropped, the vector is reset.
    """

    def __init__(
        self,
        env: gym.vector.VectorEnv,
        seed: int | None,
        reader: ObservationReader,
        fault_counter: FaultCounter,
        timeout: float | None,
    ):
        mode = _autoreset_mode(env)
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise UsageError(
                f"vector environment {env} has autoreset_mode {mode}; expected AutoresetMode.NEXT_STEP or SAME_STEP, "
                'declared in its metadata: gymnasium.make_vec(..., vector_kwargs={"autoreset_mode": "NextStep"})'
            )
        self.env = env
        self.count = env.num_envs
        self._same_step = mode == AutoresetMode.SAME_STEP
        self._alike_ends = 0 if reader.copies else None  # None: an end has differed, or the observations are not kept
        self._reader, self._fault_counter = reader, fault_counter
        self._timeout = timeout
        self._limit = contextlib.nullcontext() if timeout is None else env_calls.StepTimeout(env, timeout)
        self._abandoned: set[int] = set()  # environments whose current episode is abandoned
        self._seed, self._episodes = seed, np.zeros(self.count, int)
        self._restart(seed)

    def _restart(self, seed: int | None = None) -> None:
        self._ended = np.zeros(self.count, bool)
        self._returns = np.zeros(self.count)
        self._lengths = np.zeros(self.count, int)
        self._episodes += 1
        observations = self._checked(unpacked_reset, self._call(self.env.reset, seed=seed))
        self._observations, self._abandoned = self._read(observations)
        self._fault_counter.end_step(good=False)

    def step(self, actions: Any) -> EnvStep:
        """Step with N ``actions`` as the vector environment takes them, in env units.

        Raises:
            EnvironmentFault: if an environment failed.
        """
        self._observations = None  # if anything below raises, the episodes are lost
        stepped = ~self._ended
        self._lengths[stepped] += 1
        returned = self._call(self.env.step, actions)
        observations, rewards, terminated, truncated, infos = self._checked(unpacked_step, returned)
        current, unreadable = self._read(observations)
        rewards = self._checked(validate_rewards, rewards, self.count)
        terminated = self._checked(validate_flags, terminated, self.count, "terminated")
        truncated = self._checked(validate_flags, truncated, self.count, "truncated")
        done = terminated | truncated
        ended = [int(index) for index in np.flatnonzero(done & stepped)]
        final, faults = self._final_observations(ended, infos, current) if self._same_step else ({}, {})
        faults |= self._bad_rewards(rewards, stepped)
        successes, unclear = self._successes([index for index in ended if index not in self._abandoned], infos)
        faults |= unclear
        dropped: list[int] = []
        if unreadable or faults or self._abandoned:
            dropped = self._dropped(stepped, set(ended), unreadable, faults)
            stepped[dropped] = False
        # Indexing by a mask copies: the environment may write the next step into the same arrays.
        indices = np.flatnonzero(stepped).tolist()
        step = EnvStep(indices, rewards[stepped], terminated[stepped], truncated[stepped], final, [], dropped)
        self._fault_counter.end_step(good=step.rewards.size > 0)
        self._returns[stepped] += step.rewards
        for index in ended:
            if index not in dropped:
                so_far = float(self._returns[index]), int(self._lengths[index])
                step.episodes.append(Episode(*so_far, index, successes[index], bool(terminated[index])))
            self._returns[index], self._lengths[index] = 0.0, 0
            self._episodes[index] += 1
        if not self._same_step:
            self._ended = done
        if len(self._abandoned) < self.count:
            self._observations = current
        return step

    def _call(self, function: Callable, *arguments: Any, **options: Any) -> Any:
        with self._limit:
            return call(function, *arguments, fault=self._as_fault, **options)

    def _as_fault(self, error: BaseException) -> EnvironmentFault:
        """Convert an exception of a call to an EnvironmentFault, and end the vector's processes."""
        index, what = env_calls.describe_failure(self.env, error, self._timeout)
        env_calls.terminate_processes(self.env)
        return self._fault(what, index)

    def _successes(self, ended: list[int], infos: Mapping[str, Any]) -> tuple[dict[int, bool | None], dict[int, str]]:
        """Return whether each ended episode succeeded, or the fault in reading its success, both by environment."""
        successes, faults = {}, {}
        for index in ended:
            try:
                successes[index] = _vector_success(infos, index, self._same_step)
            except UsageError as error:
                faults[index] = str(error)
            except Exception as error:  # infos without the structure of gymnasium's vectors
                raise self._fault(f"infos of the vector's step cannot be read: {format_error(error)}", index) from None
        return successes, faults

    def _read(self, observations: Any) -> tuple[Any, set[int]]:
        """Return the checked observations, and the environments whose observation is unreadable."""
        try:
            return self._reader.read_batch(observations), set()
        except UsageError as error:
            message = str(error)
        current, unreadable = self._checked(self._reader.read_masked, observations)
        self._fault_counter.record(self._fault(message, min(unreadable)))
        return current, unreadable

    def _final_observations(
        self, ended: list[int], infos: dict[str, Any], current: Any
    ) -> tuple[dict[int, Any], dict[int, str]]:
        """Return the last observation of each ended episode, or the fault in reading it, both by environment."""
        final, faults = {}, {}
        for index in ended:
            if "final_obs" not in infos:
                raise self._fault(
                    'the vector environment ended a SAME_STEP episode without infos["final_obs"], its last '
                    "observation; return it there, as gymnasium's own vector environments do, or use "
                    "AutoresetMode.NEXT_STEP",
                    index,
                )
            try:
                final[index] = self._reader.read_one(infos["final_obs"][index])
            except UsageError as error:
                faults[index] = str(error)
                continue
            if self._alike_ends is not None:
                self._check_not_overwritten(index, infos["final_obs"][index], final[index], current)
        return final, faults

    def _check_not_overwritten(self, index: int, returned: Any, final: np.ndarray, current: np.ndarray) -> None:
        """Refuse a last observation that the reset after it has overwritten, or warn if it may be one.

        ``returned`` is the last observation as the vector returned it, ``final`` the same as it was read,
        ``[1, *shape]``, and ``current`` holds the observations after the reset, ``[N, *shape]``.
        """
        advice = "return a copy (observation.copy()), or use AutoresetMode.NEXT_STEP"
        if isinstance(self.env, SyncVectorEnv):
            first = self.env._env_obs[index]
            if isinstance(returned, np.ndarray) and isinstance(first, np.ndarray) and np.shares_memory(returned, first):
                raise self._fault(
                    "in mode SAME_STEP the first observation of the next episode overwrites the last one of this, "
                    f"because the environment returns the same array for both: {advice}",
                    index,
                )
            return
        assert self._alike_ends is not None
        self._alike_ends = self._alike_ends + 1 if np.array_equal(final[0], current[index]) else None
        if self._alike_ends == ALIKE_ENDS:
            self._alike_ends = None
            warnings.warn(
                f"{env_name(self.env)}: each of the first {ALIKE_ENDS} episodes ended with the observation with which "
                "the next one begins; if the environment writes every observation into one array, the last ones are "
                f"lost in mode SAME_STEP: {advice}",
                stacklevel=users_level(),
            )

    def _bad_rewards(self, rewards: np.ndarray, stepped: np.ndarray) -> dict[int, str]:
        good = np.abs(rewards) <= LARGEST
        if good.all():
            return {}
        faults = {}
        for index in map(int, np.flatnonzero(~good & stepped)):
            try:
                validate_reward(float(rewards[index]), f"reward of environment {index}")
            except UsageError as error:
                faults[index] = str(error)
        return faults

    def _dropped(self, stepped: np.ndarray, ended: set[int], unreadable: set[int], faults: dict[int, str]) -> list[int]:
        """Return the environments whose transition is dropped, and update those whose episode is abandoned.

        Args:
            stepped: ``[N]``, which environments stepped; the others were only reset.
            ended: environments whose episode ended.
            unreadable: environments whose current observation could not be read.
            faults: other faults, by environment.
        """
        for index in sorted(faults):
            self._fault_counter.record(self._fault(faults[index], index))
        rows = set(np.flatnonzero(stepped).tolist())
        over = ended if self._same_step else set()  # the current observation already belongs to the next episode
        dropped = rows & (self._abandoned | set(faults) | (unreadable - over))
        self._abandoned = (dropped - over) | unreadable
        return sorted(dropped)

    def _fault(self, what: str, index: int | None = None) -> EnvironmentFault:
        if index is None and self.count > 1:
            which, index = f"one of the {self.count} environments", int(np.argmax(self._lengths))
        else:
            index = index or 0
            which = f"environment {index} of {self.count}"
        step = self._lengths[index]
        when = f"in step {step} of" if step else "in the reset to"
        return EnvironmentFault(
            f"{which} ({env_name(self.env)}) failed {when} episode {self._episodes[index]} since the vector's reset "
            f"{_describe_reset(self._seed)}: {what}"
        )


def _describe_reset(seed: int | None) -> str:
    """Return the words that name a reset by its seed."""
    return "without a seed" if seed is None else f"with seed {seed}"


def success_of(info: Mapping[str, Any]) -> bool | None:
    """Return ``info["is_success"]`` of an ended episode; ``None`` if it is missing.

    Raises:
        UsageError: if it is not a single number or flag.
    """
    return None if (value := info.get("is_success")) is None else _as_success(value)


def _as_success(value: Any) -> bool:
    array = validate_numeric(value, "info['is_success']", "True or False")
    if array.size != 1 or array.item() not in (0, 1):
        raise UsageError(f"info['is_success'] is {brief(value)}; expected True or False")
    return bool(array.item())


def _vector_success(infos: Mapping[str, Any], index: int, same_step: bool) -> bool | None:
    """Return ``is_success`` of environment ``index``'s ended episode; in SAME_STEP mode it is in ``final_info``."""
    if same_step:
        final: Any = infos.get("final_info", {})
        if not isinstance(final, dict):  # an info for each environment
            return success_of(final[index] or {})
        infos = final
    values, reported = infos.get("is_success"), infos.get("_is_success")
    return _as_success(values[index]) if values is not None and (reported is None or reported[index]) else None
