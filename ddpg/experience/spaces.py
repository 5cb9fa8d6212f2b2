"""Boxes: checking them, and what comes in for them.

NumPy and gymnasium only.
"""

import math

import numpy as np
from gymnasium import spaces

from ddpg.errors import UsageError


def check_observation_space(space: spaces.Space) -> spaces.Box:
    """Return ``space`` if it is a Box (any numeric dtype, any shape, infinite bounds allowed).

    Raises:
        UsageError: another kind of space, or an empty one.
    """
    if not isinstance(space, spaces.Box):
        raise UsageError(
            f"observation space {space} is not a Box; wrap the environment in "
            "gymnasium.wrappers.FlattenObservation, or another wrapper that makes it one"
        )
    if space.shape == () or 0 in space.shape:
        raise UsageError(f"observation space {space} has shape {space.shape}; expected at least one number")
    return space


def check_action_space(space: spaces.Space) -> spaces.Box:
    """Return ``space`` if it is a Box of floats with finite bounds and some width in every dimension.

    Raises:
        UsageError: a Discrete (or other) space, integer actions, infinite bounds, zero width.
    """
    if not isinstance(space, spaces.Box):
        raise UsageError(
            f"action space {space} is not a Box; DDPG acts in continuous spaces"
            + (" (a Discrete space needs a DQN)" if isinstance(space, spaces.Discrete) else "")
        )
    if not np.issubdtype(space.dtype, np.floating):
        raise UsageError(f"action space {space} has dtype {space.dtype}; expected a Box of floats")
    if space.shape == () or 0 in space.shape:
        raise UsageError(f"action space {space} has shape {space.shape}; expected at least one number")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UsageError(
            f"action space {space} has infinite bounds; DDPG scales and bounds actions by them: "
            "give finite ones, e.g. with gymnasium.wrappers.RescaleAction or ClipAction"
        )
    if not (space.high > space.low).all():
        raise UsageError(f"action space {space} has zero width in some dimension; drop that dimension")
    return space


def check_discrete_space(space: spaces.Space) -> spaces.Discrete:
    """Return ``space`` if it is Discrete.

    Raises:
        UsageError: another kind of space.
    """
    if not isinstance(space, spaces.Discrete):
        raise UsageError(f"action space {space} is not Discrete; DQN chooses among actions, DDPG acts in boxes")
    return space


def flat_size(space: spaces.Box) -> int:
    """Return how many numbers one element of ``space`` holds."""
    return math.prod(space.shape)


def as_batch(space: spaces.Box, values, what: str) -> tuple[np.ndarray, bool]:
    """Return ``values`` as float32 ``[B, *space.shape]``, and whether it was a single element.

    A single element has the space's shape or is flat, ``(n,)``; a batch has one axis more.

    Raises:
        UsageError: another shape, or a NaN or infinite number in it.
    """
    array = np.asarray(values, np.float32)
    shape, size = space.shape, flat_size(space)
    if array.shape in (shape, (size,)):
        single = True
    elif array.shape[1:] in (shape, (size,)):
        single = False
    else:
        raise UsageError(
            f"{what} has shape {array.shape}; expected {shape}, or a batch {('B', *shape)}".replace("'B'", "B")
        )
    check_finite(array, what)
    return array.reshape(-1, *shape), single


def as_column(values, count: int, what: str) -> np.ndarray:
    """Return ``values`` as float32 ``[count, 1]``.

    Raises:
        UsageError: another shape, ``[B]`` too, or a NaN or infinite number in it.
    """
    column = np.asarray(values, np.float32)
    if column.shape != (count, 1):
        raise UsageError(
            f"{what} has shape {column.shape}; expected [B, 1] = {[count, 1]}: [B] would broadcast to [B, B]"
        )
    check_finite(column, what)
    return column


def check_finite(array: np.ndarray, what: str) -> None:
    """Refuse NaN and infinity, naming the first place.

    Raises:
        UsageError: ``array`` holds a NaN or an infinite number.
    """
    # A sum is finite only if all its terms are: one fast reduction, and the exact look only in doubt.
    if math.isfinite(np.add.reduce(array, axis=None)):
        return
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        place = tuple(bad[0].tolist())
        raise UsageError(
            f"{what} holds {array[place]} at index {list(place)}; expected finite numbers: one such value "
            "would turn every weight into NaN, so fix the environment or the observation"
        )
