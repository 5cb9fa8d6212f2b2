"""Transitions and episodes, which environments yield and the replay buffer stores, and the checks of their values.

An :class:`ObservationReader` checks the observations that environments return and copies them, because an environment
may write every observation into the same array. A :class:`FaultCounter` raises the faults found, or drops them.
"""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces as gym_spaces

from ddpg.errors import EnvironmentFault, UsageError, brief
from ddpg.interaction import spaces
from ddpg.interaction.actions import Actions, BoxActions
from ddpg.interaction.validation import (
    LARGEST,
    as_float32,
    validate_flag,
    validate_flags,
    validate_numeric,
    validate_reward,
    validate_rewards,
)

MAX_FAULTS_IN_A_ROW = 100  # steps or resets with a fault, without a good transition in between; the last one raises


class Episode(NamedTuple):
    """One finished episode: its undiscounted return (env units), its length (steps), the index of its environment.

    ``success`` is the last step's ``info["is_success"]``; ``None`` if the environment does not report it.
    ``terminated``: its last state is terminal; otherwise it was only truncated.
    """

    episode_return: float
    length: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which is not used here
    success: bool | None = None
    terminated: bool = False


@dataclasses.dataclass(slots=True)  # not frozen: its constructor would take four times as long, in every step
class Transitions:
    """N transitions of one or several environments, passed as one value from the environment to the replay buffer.

    | field | shape | units |
    |---|---|---|
    | observations | [N, *observation shape] | env, float32 |
    | actions | [N, A] | as stored: [-1, 1], or the index of a discrete action |
    | rewards | [N] | env, float32 |
    | next_observations | [N, *observation shape] | env, float32; the true last one where an episode ended |
    | terminated, truncated | [N] | bool |
    | env_indices | N integers | the environment that each transition comes from |

    A slice of transitions is ``transitions[start:stop]``.
    """

    observations: Any
    actions: Any
    rewards: Any
    next_observations: Any
    terminated: Any
    truncated: Any
    env_indices: Sequence[int]

    def __len__(self) -> int:
        return len(self.rewards)

    def __getitem__(self, rows: slice) -> "Transitions":
        return Transitions(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


class EnvStep(NamedTuple):
    """The results of one step of N environments, before they are combined into :class:`Transitions`.

    Environments that were only reset in this step, or whose transition is dropped, are left out: n ≤ N remain.

    Attributes:
        env_indices: the n environments.
        rewards: ``[n]`` float64, env units.
        terminated, truncated: ``[n]`` bool.
        final_observations: by environment, the last observation of an episode that ended, if the stepper's
            ``observations`` are already the first of the next episode.
        episodes: the episodes that ended.
        dropped: environments whose transition is dropped: see :class:`FaultCounter`.
    """

    env_indices: Sequence[int]
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    final_observations: dict[int, Any]
    episodes: list[Episode]
    dropped: Sequence[int] = ()


class StepResult(NamedTuple):
    """The result of one step of an :class:`~ddpg.interaction.env_runner.EnvRunner`.

    Attributes:
        transitions: of the environments that stepped.
        episodes: the episodes that ended with this step.
        dropped: environments whose transition, and the rest of its episode, is dropped.
    """

    transitions: Transitions
    episodes: list[Episode]
    dropped: Sequence[int]


def check_transition(
    observation_space: gym_spaces.Box,
    to_flat: Callable[[Any], np.ndarray],
    observation: Any,
    action: Any,
    reward: Any,
    next_observation: Any,
    terminated: Any,
    truncated: Any,
    env_index: int = 0,
) -> Transitions:
    """Check one transition of a user's own loop.

    Args:
        observation_space: the space of s and s′.
        to_flat: translates one action to ``[1, A]`` as stored; raises UsageError if the space does not contain it.
        observation, next_observation: s and s′, the space's shape, or flat.
        action: a, as sent to the environment.
        reward: r, a finite real number.
        terminated, truncated: each a bool, or 0 or 1.
        env_index: the environment of the transition.

    Returns:
        The transition, with a leading axis of length 1.

    Raises:
        UsageError: if several transitions are given at once, a value has a wrong shape or type or is NaN, or the
            action is outside its space.
    """
    rows = []
    for name, value in (("observation", observation), ("next_observation", next_observation)):
        row, _ = spaces.as_batch(observation_space, value, name)
        if len(row) != 1:
            raise UsageError(
                f"{name} has shape {np.shape(value)}, {len(row)} of them; observe stores one transition: "
                "call it once for each"
            )
        if observation_space.dtype == np.uint8:
            spaces.check_integers(row, observation_space.dtype, name)
        rows.append(row)
    return Transitions(
        observations=rows[0],
        actions=to_flat(action),
        rewards=np.array([validate_reward(reward)], np.float32),
        next_observations=rows[1],
        terminated=np.array([validate_flag(terminated, "terminated")]),
        truncated=np.array([validate_flag(truncated, "truncated")]),
        env_indices=[env_index],
    )


def check_transitions(
    observation_space: gym_spaces.Box,
    translation: Actions,
    observations: Any,
    actions: Any,
    rewards: Any,
    next_observations: Any,
    terminated: Any,
    truncated: Any,
    env_index: int,
) -> Transitions:
    """Check N transitions that were recorded elsewhere, in order, in one environment.

    Args:
        observation_space: the space of s and s′.
        translation: of the actions, to those that are stored.
        observations, next_observations: s and s′, ``[N, *observation shape]``, or flat, ``[N, n]``.
        actions: a, a sequence of N actions as sent to the environment.
        rewards: r, ``[N]``.
        terminated, truncated: ``[N]``.
        env_index: the environment that all of them count as.

    Raises:
        UsageError: if shapes differ, a value has a wrong type or is NaN, or an action is outside its space.
    """
    obs = _checked_rows(observation_space, observations, "observations")
    next_obs = _checked_rows(observation_space, next_observations, "next_observations")
    count = len(obs)
    if len(next_obs) != count:
        raise UsageError(f"{count} observations but {len(next_obs)} next_observations; give one for each transition")
    numbers = validate_rewards(rewards, count, "rewards")
    as_float32(numbers, "rewards")
    terminated = validate_flags(terminated, count, "terminated")
    truncated = validate_flags(truncated, count, "truncated")
    flat = _flat_actions(translation, actions, count)
    return Transitions(obs, flat, numbers.astype(np.float32), next_obs, terminated, truncated, [env_index] * count)


def _flat_actions(translation: Actions, actions: Any, count: int) -> np.ndarray:
    """Return ``count`` actions as they are stored, ``[N, A]``; a bad one is refused with its row."""
    box = translation if isinstance(translation, BoxActions) else None
    if box and isinstance(actions, np.ndarray) and actions.shape == (count, *box.space.shape):
        with contextlib.suppress(UsageError):  # which the loop below raises again, with the row
            return box.rows_to_flat(actions)  # a hundred times as fast
    chosen: list[np.ndarray] = []
    try:
        # One more than expected is enough to notice too many, and keeps an infinite iterator from hanging.
        for action in itertools.islice(actions, count + 1):
            chosen.append(translation.to_flat(action))
    except TypeError:
        raise UsageError(f"actions={brief(actions)} is no sequence; expected one of {count} actions") from None
    except UsageError as error:
        raise UsageError(f"row {len(chosen)}: {error}") from None
    if len(chosen) != count:
        raise UsageError(f"{count} observations but {len(chosen)} actions; give one for each transition")
    return np.concatenate(chosen) if chosen else np.zeros((0, 1), np.float32)


def _checked_rows(space: gym_spaces.Box, values: Any, name: str) -> np.ndarray:
    rows, single = spaces.as_batch(space, values, name)
    if single:
        raise UsageError(f"{name} has shape {np.shape(values)}; expected N of them, {('N', *space.shape)}")
    if space.dtype == np.uint8:
        spaces.check_integers(rows, space.dtype, name)
    return rows


class ObservationReader:
    """Checks the observations of ``count`` environments, and copies them to float32 before they can be overwritten.

    Args:
        space: of one observation.
        count: N.
        copies: ``False`` returns observations as they are, for callers that use them before the next step; those of
            another space than a Box are not checked then.
    """

    def __init__(self, space: gym_spaces.Space, count: int, copies: bool = True):
        self.copies, self._checks = copies, copies or isinstance(space, gym_spaces.Box)
        self._shape, self._dtype = space.shape or (), space.dtype
        self._shape_of_all = count, *self._shape

    def read_one(self, observation: Any) -> Any:
        """Return the observation of one environment as ``[1, *shape]``.

        Raises:
            UsageError: if the shape is wrong, or a value is NaN, not a real number, or does not fit a space of bytes.
        """
        read = self._read(observation, self._shape) if self._checks else observation
        return read[None] if self.copies else observation

    def read_batch(self, observations: Any) -> Any:
        """Return the observations of all environments, ``[N, *shape]``.

        Raises:
            UsageError: as for :meth:`read_one`.
        """
        read = self._read(observations, self._shape_of_all) if self._checks else observations
        return read if self.copies else observations

    def read_masked(self, observations: Any) -> tuple[np.ndarray, set[int]]:
        """Return all observations, with 0 for NaN and numbers beyond float32, and the indices of those that held one.

        Their other numbers stay, since the environment's next action may depend on them: on an action mask, say.

        Raises:
            UsageError: if something else is wrong.
        """
        array = np.array(validate_numeric(observations, "observation"))
        if array.shape != self._shape_of_all:
            return self._read(array, self._shape_of_all), set()
        bad = ~(np.abs(array) <= LARGEST)
        array[bad] = 0
        held = bad.reshape(len(array), -1).any(axis=1)
        return self._read(array, self._shape_of_all), set(np.flatnonzero(held).tolist())

    def _read(self, values: Any, shape: tuple[int, ...]) -> np.ndarray:
        array = validate_numeric(values, "observation")
        if array.shape != shape:
            raise spaces.wrong_shape(array, shape)
        if self._dtype == np.uint8:
            spaces.check_integers(array, self._dtype, "observation")
        numbers = as_float32(array, "observation")
        # A copy: an environment may write every observation into the same array.
        return numbers.copy() if numbers is array else numbers


class FaultCounter:
    """Raises an environment's faults, or with ``on_bad_transition="drop"`` counts those that are dropped.

    The transition of a dropped fault is not stored, and its episode is abandoned. A step or a reset counts once, even
    if several environments of a vector were at fault, and a good transition of any of them resets the count. The
    :data:`MAX_FAULTS_IN_A_ROW`-th fault in a row raises, so that environments that only fail are not stepped forever.
    """

    def __init__(self, on_bad_transition: str):
        self._drops = on_bad_transition == "drop"
        self._fault: EnvironmentFault | None = None  # of the current step or reset
        self._in_a_row = 0

    def record(self, fault: EnvironmentFault) -> None:
        """Raise ``fault``, or note it for :meth:`end_step`.

        Raises:
            EnvironmentFault: if faults are not dropped.
        """
        if not self._drops:
            raise fault
        self._fault = fault

    def end_step(self, good: bool) -> None:
        """Count a step or a reset in which a fault was noted; reset the count if it had a ``good`` transition.

        Raises:
            EnvironmentFault: if the count reaches :data:`MAX_FAULTS_IN_A_ROW`.
        """
        fault, self._fault = self._fault, None
        if good:
            self._in_a_row = 0
        elif fault is not None:
            self._in_a_row += 1
            if self._in_a_row >= MAX_FAULTS_IN_A_ROW:
                raise EnvironmentFault(
                    f"{fault}; that was step or reset {self._in_a_row} in a row with a fault, without a good "
                    "transition between them: on_bad_transition='drop' goes no further"
                )
