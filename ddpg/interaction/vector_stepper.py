"""Step a vector environment in either autoreset mode; see :mod:`ddpg.interaction.env_runner`."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from ddpg.errors import EnvironmentFault, UsageError
from ddpg.interaction import env_errors
from ddpg.interaction.env_calls import call, unpacked_reset, unpacked_step
from ddpg.interaction.env_errors import FaultCounter, describe_reset, env_name, format_error
from ddpg.interaction.spaces import ObservationReaderProtocol
from ddpg.interaction.transitions import EnvStep, Episode
from ddpg.interaction.validation import LARGEST, validate_flags, validate_numeric, validate_reward, validate_rewards


class VectorStepper:
    """A vector environment; NEXT_STEP and SAME_STEP autoreset.

    NEXT_STEP: the step after an episode's end ignores the action and returns the first observation of the next episode
    with reward 0. That row is not a transition and is left out.

    SAME_STEP: the step that ends an episode already returns the next one's first observation; the true
    last one is in ``infos["final_obs"]``, from where it goes to ``final_observations``.

    A vector cannot reset a single environment. If a bad transition is dropped, the rest of its episode is dropped too;
    once the episodes of all environments are dropped, the vector is reset.
    """

    def __init__(
        self,
        env: gym.vector.VectorEnv,
        seed: int | None,
        reader: ObservationReaderProtocol,
        fault_counter: FaultCounter,
        timeout: float | None,
    ):
        mode = env.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise UsageError(
                f"vector environment {env} has autoreset_mode {mode}; expected AutoresetMode.NEXT_STEP or SAME_STEP, "
                'declared in its metadata: gymnasium.make_vec(..., vector_kwargs={"autoreset_mode": "NextStep"})'
            )
        self.env = env
        self.count = env.num_envs
        self._same_step = mode == AutoresetMode.SAME_STEP
        self._reader, self._fault_counter = reader, fault_counter
        self._timeout = timeout
        self._limit = contextlib.nullcontext() if timeout is None else env_errors.StepTimeout(env, timeout)
        self._abandoned: set[int] = set()  # environments whose current episode is abandoned
        self._seed, self._episodes = seed, np.zeros(self.count, int)
        self._restart(seed)

    def _restart(self, seed: int | None = None) -> None:
        self._ended = np.zeros(self.count, bool)
        self._returns = np.zeros(self.count)
        self._lengths = np.zeros(self.count, int)
        self._episodes += 1
        returned = self._call(self.env.reset, seed=seed)
        try:
            observations = unpacked_reset(returned)
        except UsageError as error:
            raise self._fault(str(error)) from None
        self._observations, self._abandoned = self._read(observations)

    @property
    def observations(self) -> Any:
        """The current observations; after a step that raised, the first ones of new episodes."""
        if self._observations is None:
            self._restart()
        return self._observations

    def step(self, actions: Any) -> EnvStep:
        """Step with N ``actions`` as the vector environment takes them, in env units.

        Raises:
            EnvironmentFault: if an environment failed.
        """
        self._observations = None  # should anything below raise, the episodes are lost
        stepped = ~self._ended
        self._lengths[stepped] += 1
        returned = self._call(self.env.step, actions)
        try:
            observations, rewards, terminated, truncated, infos = unpacked_step(returned)
        except UsageError as error:
            raise self._fault(str(error)) from None
        current, unreadable = self._read(observations)
        try:
            rewards = validate_rewards(rewards, self.count)
            terminated = validate_flags(terminated, self.count, "terminated")
            truncated = validate_flags(truncated, self.count, "truncated")
        except UsageError as error:
            raise self._fault(str(error)) from None
        done = terminated | truncated
        ended = [int(index) for index in np.flatnonzero(done & stepped)]
        final, faults = self._final_observations(ended, infos) if self._same_step else ({}, {})
        faults |= self._bad_rewards(rewards, stepped)
        dropped: list[int] = []
        if unreadable or faults or self._abandoned:
            dropped = self._dropped(stepped, set(ended), unreadable, faults)
            stepped[dropped] = False
        # Indexing by a mask copies: the environment may write the next step into the same arrays.
        indices = np.flatnonzero(stepped).tolist()
        step = EnvStep(indices, rewards[stepped], terminated[stepped], truncated[stepped], final, [], dropped)
        if step.rewards.size:
            self._fault_counter.reset()
        self._returns[stepped] += step.rewards
        for index in ended:
            if index not in dropped:
                success = self._success(infos, index)
                step.episodes.append(Episode(float(self._returns[index]), int(self._lengths[index]), index, success))
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
        index, what = env_errors.describe_failure(self.env, error, self._timeout)
        env_errors.terminate_processes(self.env)
        return self._fault(what, index)

    def _success(self, infos: Mapping[str, Any], index: int) -> bool | None:
        try:
            return _vector_success(infos, index, self._same_step)
        except UsageError as error:
            raise self._fault(str(error), index) from None
        except Exception as error:  # an info for each environment, or none, where this one's is looked for
            raise self._fault(f"infos of the vector's step cannot be read: {format_error(error)}", index) from None

    def _read(self, observations: Any) -> tuple[Any, set[int]]:
        """Return the observations read, and the environments whose observation is unreadable."""
        try:
            return self._reader.read_batch(observations), set()
        except UsageError as error:
            message = str(error)
        try:
            current, unreadable = self._reader.read_masked(observations)
        except UsageError as error:
            raise self._fault(str(error)) from None
        self._fault_counter.record(self._fault(message, min(unreadable)))
        return current, unreadable

    def _final_observations(self, ended: list[int], infos: dict[str, Any]) -> tuple[dict[int, Any], dict[int, str]]:
        """Return the last observations of ended episodes, and the faults in reading others, both by environment."""
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
        return final, faults

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
        over = ended if self._same_step else set()  # their current observation already belongs to the next episode
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
            f"{describe_reset(self._seed)}: {what}"
        )


def success_of(info: Mapping[str, Any]) -> bool | None:
    """Return ``info["is_success"]`` of an ended episode; ``None`` if it is missing.

    Raises:
        UsageError: if it is not a single number or flag.
    """
    return None if (value := info.get("is_success")) is None else _as_success(value)


def _as_success(value: Any) -> bool:
    array = validate_numeric(value, "info['is_success']")
    if array.size != 1:
        raise UsageError(f"info['is_success'] has shape {array.shape}; expected True or False")
    return bool(array.item())


def _vector_success(infos: Mapping[str, Any], index: int, same_step: bool) -> bool | None:
    """Return ``is_success`` of the ended episode of environment ``index``; SAME_STEP has it in ``final_info``."""
    if same_step:
        final: Any = infos.get("final_info", {})
        if not isinstance(final, dict):  # an info for each environment
            return success_of(final[index] or {})
        infos = final
    values, reported = infos.get("is_success"), infos.get("_is_success")
    return _as_success(values[index]) if values is not None and (reported is None or reported[index]) else None
