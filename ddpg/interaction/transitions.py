"""Transitions and episodes: what stepping environments yields, and what a user's own loop hands over."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces as gym_spaces

from ddpg.errors import UsageError, brief
from ddpg.interaction import spaces
from ddpg.interaction.validation import as_float32, validate_flag, validate_flags, validate_reward, validate_rewards


class Episode(NamedTuple):
    """One finished episode: its undiscounted return (env units), its length (steps), its environment.

    ``success`` is what the environment said at the end in ``info["is_success"]``, ``None`` where it said nothing.
    """

    episode_return: float
    length: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of an episode
    success: bool | None = None


class EnvStep(NamedTuple):
    """What one step gave, of the n ≤ N environments that really stepped and whose step is a transition.

    ``rewards`` (float64, env units), ``terminated`` and ``truncated`` (bool) are ``[n]``; ``environments``
    indexes those n among the N. ``last`` holds, by environment, the true last observation of an episode that
    ended where the stepper's ``observations`` are already the first of the next one. ``dropped`` are the
    environments that stepped to no transition: see :class:`ddpg.interaction.env_errors.FaultCounter`.
    """

    environments: slice | np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    last: dict[int, Any]
    episodes: list[Episode]
    dropped: Sequence[int] = ()


class Transitions(NamedTuple):
    """What one step gave: arrays ``[n, ...]`` of the n ≤ N environments that really stepped.

    | field | shape | units |
    |---|---|---|
    | environments | | those n among the N: all of them, or a mask ``[N]``; or the number of one that made n in a row |
    | observations | [n, *observation shape] | env, float32 |
    | rewards | [n] | env, float32 |
    | next_observations | [n, *observation shape] | env, float32; the true last one where an episode ended |
    | terminated, truncated | [n] | bool |
    | episodes | | those that ended with this step |
    """

    environments: slice | np.ndarray | int
    observations: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    episodes: list[Episode]

    @property
    def env_indices(self) -> Sequence[int]:
        """Of each transition the number, from 0, of its environment."""
        if isinstance(self.environments, int):
            return [self.environments] * len(self.rewards)
        if isinstance(self.environments, slice):
            return range(len(self.rewards))
        return self.environments.nonzero()[0].tolist()


ALL_ENVS = slice(None)
Columns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def check_transition(
    observation_space: gym_spaces.Box,
    to_flat: Callable[[Any], np.ndarray],
    observation: Any,
    action: Any,
    reward: Any,
    next_observation: Any,
    terminated: Any,
    truncated: Any,
) -> tuple[Transitions, np.ndarray]:
    """Check one transition of a user's own loop.

    Args:
        observation_space: where s and s′ belong.
        to_flat: translates one action to ``[1, A]`` as stored, and refuses what is none.
        observation: s, the space's shape, or flat.
        action: a, as it was sent to the environment.
        reward: r, a finite real number.
        next_observation: s′.
        terminated: a bool; 0 and 1 count as such.
        truncated: the same.

    Returns:
        The transition, with a leading axis of 1, and the action as stored, ``[1, A]``.

    Raises:
        UsageError: several transitions at once, a wrong shape or kind of value, NaN, or no action of the space.
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
            spaces.check_bytes(row, name)
        rows.append(row)
    actions = to_flat(action)
    rewards = np.array([validate_reward(reward)], np.float32)
    flags = [np.array([validate_flag(terminated, "terminated")]), np.array([validate_flag(truncated, "truncated")])]
    return Transitions(ALL_ENVS, rows[0], rewards, rows[1], flags[0], flags[1], []), actions


def check_transitions(
    observation_space: gym_spaces.Box,
    to_flat: Callable[[Any], np.ndarray],
    observations: Any,
    actions: Any,
    rewards: Any,
    next_observations: Any,
    terminated: Any,
    truncated: Any,
) -> Columns:
    """Check N transitions of somebody else's; arguments as for :func:`checked_transition`, each of them N.

    Returns:
        s, a as stored ``[N, A]``, r, s′, terminated and truncated.

    Raises:
        UsageError: other shapes, a wrong kind of value, NaN, or no action of the space.
    """
    before = _checked_rows(observation_space, observations, "observations")
    after = _checked_rows(observation_space, next_observations, "next_observations")
    count = len(before)
    if len(after) != count:
        raise UsageError(f"{count} observations but {len(after)} next_observations; give one for each transition")
    numbers = validate_rewards(rewards, count, "rewards")
    as_float32(numbers, "rewards")
    flags = [
        validate_flags(values, count, name) for values, name in ((terminated, "terminated"), (truncated, "truncated"))
    ]
    try:
        # One more than there are is enough to tell; whatever has no end has no length either.
        chosen = [to_flat(action) for action in itertools.islice(actions, count + 1)]
    except TypeError:
        raise UsageError(f"actions={brief(actions)} is no sequence; expected one of {count} actions") from None
    if len(chosen) != count:
        raise UsageError(f"{count} observations but {len(chosen)} actions; give one for each transition")
    flat = np.concatenate(chosen) if chosen else np.zeros((0, 1), np.float32)
    return before, flat, numbers.astype(np.float32), after, flags[0], flags[1]


def _checked_rows(space: gym_spaces.Box, values: Any, name: str) -> np.ndarray:
    rows, single = spaces.as_batch(space, values, name)
    if single:
        raise UsageError(f"{name} has shape {np.shape(values)}; expected N of them, {('N', *space.shape)}")
    if space.dtype == np.uint8:
        spaces.check_bytes(rows, name)
    return rows
