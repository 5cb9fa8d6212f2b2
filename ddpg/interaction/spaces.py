"""Check spaces and what is in them: observations that environments return, and batches of numbers that users give.

NumPy and gymnasium only. What an environment returns is copied where it is kept: it may write all into one array.
"""

import math
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ddpg.errors import UsageError, brief
from ddpg.interaction.validation import LARGEST, as_float32, validate_numeric
from ddpg.interaction.validation import check_finite as check_finite  # also for those who check arrays by themselves


def check_observation_space(space: spaces.Space) -> spaces.Box:
    """Return ``space`` if it is a Box (any numeric dtype, any shape, infinite bounds allowed).

    Raises:
        UsageError: if the space is of another kind, or empty.
    """
    if not isinstance(space, spaces.Box):
        raise UsageError(
            f"observation space {brief(space)} is not a Box; wrap the environment in "
            "gymnasium.wrappers.FlattenObservation, at the command line with --wrap FlattenObservation, or in another "
            "wrapper that makes it one"
        )
    if space.shape == () or 0 in space.shape:
        raise UsageError(f"observation space {brief(space)} has shape {space.shape}; expected at least one number")
    return space


def check_action_space(space: spaces.Space) -> spaces.Box:
    """Return ``space`` if it is a Box of floats with finite bounds and some width in every dimension.

    Raises:
        UsageError: if the space is no Box (Discrete, for example), its actions are integers, a bound is infinite, or
            its width is 0 in some dimension.
    """
    if not isinstance(space, spaces.Box):
        raise UsageError(
            f"action space {brief(space)} is not a Box; DDPG acts in continuous spaces"
            + (" (a Discrete space needs a DQN)" if isinstance(space, spaces.Discrete) else "")
        )
    if not np.issubdtype(space.dtype, np.floating):
        raise UsageError(f"action space {brief(space)} has dtype {space.dtype}; expected a Box of floats")
    if space.shape == () or 0 in space.shape:
        raise UsageError(f"action space {brief(space)} has shape {space.shape}; expected at least one number")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UsageError(
            f"action space {brief(space)} has infinite bounds; DDPG scales and bounds actions by them: "
            "give finite ones, e.g. with gymnasium.wrappers.RescaleAction or ClipAction"
        )
    with np.errstate(over="ignore"):
        low, high = np.asarray(space.low, np.float64), np.asarray(space.high, np.float64)
        reached = np.isfinite(high - low) & np.isfinite(high + low)
    if not reached.all():
        raise UsageError(
            f"action space {brief(space)} is wider than float64 numbers reach; give bounds nearer to each other"
        )
    if not (space.high > space.low).all():
        raise UsageError(f"action space {brief(space)} has zero width in some dimension; drop that dimension")
    return space


def algorithm_for(action_space: spaces.Space) -> str:
    """Return the algorithm for an action space: DQN for a Discrete one, else DDPG (which says if it cannot)."""
    return "DQN" if isinstance(action_space, spaces.Discrete) else "DDPG"


def check_discrete_space(space: spaces.Space) -> spaces.Discrete:
    """Return ``space`` if it is Discrete.

    Raises:
        UsageError: if the space is of another kind.
    """
    if not isinstance(space, spaces.Discrete):
        raise UsageError(f"action space {brief(space)} is not Discrete; DQN chooses among actions, DDPG acts in boxes")
    return space


def flat_size(space: spaces.Box) -> int:
    """Return how many numbers one element of ``space`` holds."""
    return math.prod(space.shape)


def as_batch(space: spaces.Box, values: Any, what: str) -> tuple[np.ndarray, bool]:
    """Return ``values`` as float32 ``[B, *space.shape]``, and whether it was a single element.

    A single element has the space's shape or is flat, ``(n,)``; a batch has one axis more.

    Raises:
        UsageError: if ``values`` has another shape, or holds anything but finite real numbers, or an integer beyond
            ±2^24, which float32 would round.
    """
    array = validate_numeric(values, what)
    shape, size = space.shape, flat_size(space)
    if array.shape in (shape, (size,)):
        single = True
    elif array.shape[1:] in (shape, (size,)):
        single = False
    else:
        raise UsageError(
            f"{what} has shape {array.shape}; expected {shape}, or a batch {('B', *shape)}".replace("'B'", "B")
        )
    return as_float32(array, what).reshape(-1, *shape), single


def as_column(values: Any, count: int, what: str) -> np.ndarray:
    """Return ``values`` as float32 ``[count, 1]``.

    Raises:
        UsageError: if ``values`` has another shape (``[B]`` among them), or holds anything but finite real numbers.
    """
    column = validate_numeric(values, what)
    if column.shape != (count, 1):
        raise UsageError(
            f"{what} has shape {column.shape}; expected [B, 1] = {[count, 1]}: [B] would broadcast to [B, B]"
        )
    return as_float32(column, what)


def check_bytes(array: np.ndarray, what: str) -> None:
    """Refuse what an image of bytes cannot hold: the replay memory would cut it off.

    Raises:
        UsageError: if a number is not whole, or outside [0, 255].
    """
    if array.dtype.kind == "b" or array.dtype == np.uint8:
        return
    bad = ~((array >= 0) & (array <= 255) & (array == np.floor(array)))
    if bad.any():
        place = tuple(np.argwhere(bad)[0].tolist())
        raise UsageError(
            f"{what} holds {array[place]} at index {list(place)}; its space is one of bytes: expected whole numbers "
            "from 0 to 255, or a space of floats"
        )


class ObservationReaderProtocol(Protocol):
    """Reads the observations that an environment returned, before it can overwrite them."""

    def read_one(self, observation: Any) -> Any:
        """Read the observation of one environment."""

    def read_batch(self, observations: Any) -> Any:
        """Read the observations of a vector's N environments."""

    def read_masked(self, observations: Any) -> tuple[Any, set[int]]:
        """Read what :meth:`read_batch` refuses: zeros for bad environments, and the indices of these."""


class ObservationReader:
    """Checks the observations of ``count`` environments and copies them to float32."""

    def __init__(self, space: gym.spaces.Box, count: int):
        self._shape, self._shape_of_all = space.shape, (count, *space.shape)
        self._bytes = space.dtype == np.uint8

    def read_one(self, observation: Any) -> np.ndarray:
        """Return the observation of one environment as ``[1, *shape]``.

        Raises:
            UsageError: if the shape is wrong, or a value is not a real number, NaN, or outside the space's bytes.
        """
        return self._read(observation, self._shape)[None]

    def read_batch(self, observations: Any) -> np.ndarray:
        """Return the observations of all environments, ``[N, *shape]``.

        Raises:
            UsageError: as for :meth:`read_one`.
        """
        return self._read(observations, self._shape_of_all)

    def read_masked(self, observations: Any) -> tuple[np.ndarray, set[int]]:
        """Return all observations, with zeros for those that hold NaN or exceed float32, and the indices of these.

        Raises:
            UsageError: if something else is wrong.
        """
        array = np.array(validate_numeric(observations, "observation"))
        if array.shape != self._shape_of_all:
            return self.read_batch(array), set()
        rows = array.reshape(len(array), -1)
        bad = ~(np.abs(rows) <= LARGEST).all(axis=1)
        array[bad] = 0
        return self.read_batch(array), set(np.flatnonzero(bad).tolist())

    def _read(self, values: Any, shape: tuple[int, ...]) -> np.ndarray:
        array = validate_numeric(values, "observation")
        if array.shape != shape:
            raise UsageError(
                f"observation has shape {array.shape}; expected {shape}, as the observation space says: "
                "fix the environment, or wrap it in gymnasium.wrappers.ReshapeObservation"
            )
        if self._bytes:
            check_bytes(array, "observation")
        numbers = as_float32(array, "observation")
        # A copy: an environment may write every observation into the same array.
        return numbers.copy() if numbers is array else numbers


class Passthrough:
    """Returns observations uncopied, for callers that use them before the next step; checks those of a Box."""

    def __init__(self, space: gym.Space, count: int):
        self._check = ObservationReader(space, count) if isinstance(space, gym.spaces.Box) else None

    def read_one(self, observation: Any) -> Any:
        """Return ``observation``.

        Raises:
            UsageError: as for :meth:`ObservationReader.read_one`.
        """
        if self._check is not None:
            self._check.read_one(observation)
        return observation

    def read_batch(self, observations: Any) -> Any:
        """Return ``observations``.

        Raises:
            UsageError: as for :meth:`ObservationReader.read_one`.
        """
        if self._check is not None:
            self._check.read_batch(observations)
        return observations

    def read_masked(self, observations: Any) -> tuple[Any, set[int]]:
        """Return the observations with zeros for those that are not finite, and the indices of these.

        Raises:
            UsageError: if something else is wrong.
        """
        assert self._check is not None, "nothing is refused that is not checked"
        return self._check.read_masked(observations)
