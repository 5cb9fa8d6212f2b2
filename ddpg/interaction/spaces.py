"""Get and check the spaces of environments, and convert values to batches of a space's shape.

NumPy and gymnasium only.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from ddpg.errors import UsageError, brief
from ddpg.interaction.validation import as_float32, validate_numeric

_ROUND = "round them in a gymnasium.wrappers.TransformAction(env, round_them, spaces.Box(low, high))"
_TRANSLATE = "translate it in a gymnasium.ActionWrapper into one Box for DDPG, or one Discrete for DQN"


def spaces_of(env: Any) -> tuple[spaces.Space, spaces.Space]:
    """Return the observation and action space of an environment, of one environment of a vector, or of a pair."""
    if isinstance(env, gym.vector.VectorEnv):
        return env.single_observation_space, env.single_action_space
    if isinstance(env, gym.Env):
        return env.observation_space, env.action_space
    if isinstance(env, (tuple, list)) and len(env) == 2 and all(isinstance(part, spaces.Space) for part in env):
        return env[0], env[1]
    raise UsageError(
        f"env={brief(env)} is neither a gymnasium Env, nor a VectorEnv, nor a pair (observation_space, action_space); "
        "make one with gymnasium.make(...)"
    )


def wrappers_of(env: Any) -> Iterator[Any]:
    """Yield the wrappers of an environment, or of a vector and its first environment, the outermost first."""
    while isinstance(env, (gym.Wrapper, gym.vector.VectorWrapper)):
        yield env
        env = env.env
    if isinstance(env, gym.vector.VectorEnv) and (envs := getattr(env, "envs", None)):
        yield from wrappers_of(envs[0])


def check_observation_space(space: spaces.Space) -> spaces.Box:
    """Return ``space`` if it is a Box (any numeric dtype, any shape, infinite bounds allowed).

    Raises:
        UsageError: if the space is of another kind, or empty.
    """
    if not isinstance(space, spaces.Box):
        if part := unflattenable_part(space):
            raise UsageError(
                f"observation space {brief(space)} is not a Box, and FlattenObservation cannot make it one: {part} is "
                "not a fixed number of numbers; translate it, or leave it out, in a gymnasium.ObservationWrapper"
            )
        raise UsageError(
            f"observation space {brief(space)} is not a Box; wrap the environment in "
            "gymnasium.wrappers.FlattenObservation, at the command line with --wrap FlattenObservation, or in another "
            "wrapper that makes it one"
        )
    _check_shape(space, "observation")
    return space


def unflattenable_part(space: spaces.Space, place: str = "it") -> str | None:
    """Return the first part of a space that gymnasium cannot flatten, with its place; ``None`` if there is none.

    Such a part is a ``Sequence``, which has no fixed size, or of a kind that gymnasium does not know.
    """
    if not isinstance(space, (spaces.Dict, spaces.Tuple, spaces.OneOf)):
        if isinstance(space, spaces.Space):
            try:
                spaces.utils.flatdim(space)
            except (ValueError, NotImplementedError):
                return f"{place}, {brief(space)},"
        return None
    for key, part in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
        if found := unflattenable_part(part, f"its part {key!r}" if place == "it" else f"{place}[{key!r}]"):
            return found
    return None


def _check_shape(space: spaces.Box, what: str) -> None:
    if space.shape == ():
        raise UsageError(f"{what} space {brief(space)} has shape (); declare a single number with shape (1,)")
    if 0 in space.shape:
        raise UsageError(f"{what} space {brief(space)} has shape {space.shape}; expected at least one number")


def check_action_space(space: spaces.Space) -> spaces.Box:
    """Return ``space`` if it is a Box of floats with finite bounds and some width in every dimension.

    Raises:
        UsageError: if the space is not a Box (Discrete, for example), its actions are integers, a bound is infinite, or
            its width is 0 in some dimension or too large for float64.
    """
    if not isinstance(space, spaces.Box):
        raise UsageError(
            f"action space {brief(space)} is not a Box; DDPG acts in continuous spaces"
            + (" (a Discrete space needs a DQN)" if isinstance(space, spaces.Discrete) else f"; {_TRANSLATE}")
        )
    if not np.issubdtype(space.dtype, np.floating):
        raise UsageError(f"action space {brief(space)} has dtype {space.dtype}; expected a Box of floats: {_ROUND}")
    _check_shape(space, "action")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise UsageError(
            f"action space {brief(space)} has infinite bounds; DDPG scales and bounds actions by them: "
            "leave out gymnasium.wrappers.ClipAction, which declares infinite ones (DDPG keeps actions in the box), "
            "or give finite ones: gymnasium.wrappers.TransformAction(env, lambda action: action, spaces.Box(low, high))"
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
    """Return the algorithm for an action space: DQN for a Discrete one, else DDPG, which refuses unsupported spaces."""
    return "DQN" if isinstance(action_space, spaces.Discrete) else "DDPG"


def check_discrete_space(space: spaces.Space) -> spaces.Discrete:
    """Return ``space`` if it is Discrete.

    Raises:
        UsageError: if the space is of another kind.
    """
    if not isinstance(space, spaces.Discrete):
        raise UsageError(
            f"action space {brief(space)} is not Discrete; DQN chooses among actions, DDPG acts in boxes"
            + ("" if isinstance(space, spaces.Box) else f"; {_TRANSLATE}")
        )
    return space


def same_space(one: spaces.Space, other: spaces.Space) -> bool:
    """Return whether two spaces are the same; Box bounds are compared up to rounding, and dtypes are ignored."""
    if isinstance(one, (spaces.Tuple, spaces.OneOf)) and isinstance(other, (spaces.Tuple, spaces.OneOf)):
        same_parts = all(same_space(*pair) for pair in zip(one.spaces, other.spaces, strict=False))
        return type(one) is type(other) and len(one.spaces) == len(other.spaces) and same_parts
    if isinstance(one, spaces.Box) and isinstance(other, spaces.Box):
        same = functools.partial(np.allclose, atol=0.0)  # relative: bounds may be small
        return one.shape == other.shape and same(one.low, other.low) and same(one.high, other.high)
    return bool(one == other)


def flat_size(space: spaces.Box) -> int:
    """Return how many numbers one element of ``space`` holds."""
    return math.prod(space.shape)


def image_axes(shape: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the axes of height and width in an observation of this shape; ``None`` if it is no image.

    Images are ``[height, width]`` or ``[height, width, channels]``, and stacks of frames ``[frames, height, width]``
    (channels may come first, too) or ``[frames, height, width, channels]``. Of three axes the first one counts frames
    or channels if it is shorter than the last.
    """
    if len(shape) not in (2, 3, 4):
        return None
    return (1, 2) if len(shape) == 4 or (len(shape) == 3 and shape[0] < shape[2]) else (0, 1)


def as_batch(space: spaces.Box, values: Any, what: str) -> tuple[np.ndarray, bool]:
    """Return ``values`` as float32 ``[B, *space.shape]``, and whether it was a single element.

    A single element has the space's shape or is flat, ``(n,)``; a batch has one axis more.

    Raises:
        UsageError: if ``values`` has another shape, holds anything but finite real numbers, or holds an integer beyond
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


def check_some(batch: np.ndarray, what: str) -> None:
    """Refuse a minibatch of no rows: its mean is NaN, and a step on it moves the weights by the optimiser's momentum.

    Raises:
        UsageError: if ``batch`` has no rows.
    """
    if not len(batch):
        raise UsageError(f"{what} has shape {batch.shape}, which is no row; expected a minibatch of at least one")


def as_column(values: Any, count: int, what: str) -> np.ndarray:
    """Return ``values`` as float32 ``[count, 1]``.

    Raises:
        UsageError: if ``values`` has another shape (such as ``[B]``), or holds anything but finite real numbers.
    """
    column = validate_numeric(values, what)
    if column.shape != (count, 1):
        raise UsageError(
            f"{what} has shape {column.shape}; expected [B, 1] = {[count, 1]}: [B] would broadcast to [B, B]"
        )
    return as_float32(column, what)


def check_integers(array: np.ndarray, dtype: np.dtype, what: str) -> None:
    """Refuse numbers that a space of integers cannot hold: a copy to its dtype, such as an image's, truncates them.

    Raises:
        UsageError: if a number is not whole, or does not fit ``dtype``.
    """
    if array.dtype == dtype:
        return
    with np.errstate(invalid="ignore"):  # NaN and large floats become other integers, which are refused
        bad = array.astype(dtype) != array
    if bad.any():
        place = tuple(np.argwhere(bad)[0].tolist())
        least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        raise UsageError(
            f"{what} holds {array[place]} at index {list(place)}; its space is of {dtype}: expected whole numbers "
            f"from {least} to {most}, or a space of floats"
        )


def wrong_shape(array: np.ndarray, shape: tuple[int, ...]) -> UsageError:
    """Return the error for observations whose shape is not ``shape``."""
    return UsageError(
        f"observation has shape {array.shape}; expected {shape}, as the observation space says: "
        "fix the environment, or wrap it in gymnasium.wrappers.ReshapeObservation"
    )


def check_castable(space: spaces.Box, observation: Any) -> None:
    """Refuse an observation that changes when a vector copies it to an array of the space's shape and dtype.

    Floats may be rounded to a narrower float type, and may be NaN or infinite.

    Raises:
        UsageError: if the shape is wrong, a value is not a real number, a number does not fit a space of integers, or
            an integer is beyond ±2^24 in a space of floats.
    """
    array = validate_numeric(observation, "observation")
    if array.shape != space.shape:
        raise wrong_shape(array, space.shape)
    if space.dtype.kind != "f":
        check_integers(array, space.dtype, "observation")
    elif array.dtype.kind != "f":
        as_float32(array, "observation")
