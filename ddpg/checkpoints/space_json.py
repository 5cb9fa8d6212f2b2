"""Convert gymnasium spaces to JSON values and back; a description is checked before anything is allocated for it."""

import math
from typing import Annotated, Any, TypeAlias

import gymnasium as gym
import msgspec
import numpy as np

from ddpg.checkpoints.safe_json import convert, one_of, refusal
from ddpg.errors import UsageError, brief

LARGEST = 8 << 20  # bytes of one element: 1080p frames of three bytes a pixel fit
_SAFE = 2**53

DTYPES = (
    *("float16", "float32", "float64", "bool"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
)

WHOLE = tuple(name for name in DTYPES if "int" in name)

Bounds: TypeAlias = bool | int | float | None


class Box(msgspec.Struct, tag="Box", tag_field="type", forbid_unknown_fields=True):
    """``low`` and ``high`` hold every bound in order, or one number for all; ``null`` means infinite."""

    shape: Annotated[list[Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]], msgspec.Meta(max_length=32)]
    dtype: one_of(*DTYPES)  # type: ignore[valid-type]
    low: list[Bounds] | Bounds
    high: list[Bounds] | Bounds


class Discrete(msgspec.Struct, tag="Discrete", tag_field="type", forbid_unknown_fields=True):
    """``n`` integers from ``start`` on; without ``dtype`` they have 64 bits."""

    n: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    start: Annotated[int, msgspec.Meta(ge=-_SAFE, le=_SAFE)]
    dtype: one_of(*WHOLE) = "int64"  # type: ignore[valid-type]


_Spaces: TypeAlias = Annotated["list[Space]", msgspec.Meta(min_length=1, max_length=1024)]


class Tuple(msgspec.Struct, tag="Tuple", tag_field="type", forbid_unknown_fields=True):
    """One element of each space."""

    spaces: _Spaces


class OneOf(msgspec.Struct, tag="OneOf", tag_field="type", forbid_unknown_fields=True):
    """One element of one of the spaces."""

    spaces: _Spaces


Space: TypeAlias = Box | Discrete | Tuple | OneOf


def describe_space(space: gym.spaces.Space) -> dict[str, Any]:
    """Return a Box, a Discrete, or a Tuple or OneOf of them as JSON values. Infinite bounds become ``null``."""
    if isinstance(space, gym.spaces.Discrete):
        kind = {} if space.dtype == np.int64 else {"dtype": str(space.dtype)}
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start), **kind}
    if isinstance(space, (gym.spaces.Tuple, gym.spaces.OneOf)):
        return {"type": type(space).__name__, "spaces": [describe_space(part) for part in space.spaces]}
    if not isinstance(space, gym.spaces.Box):
        raise UsageError(
            f"space {brief(space)} cannot be saved; expected a Box, a Discrete, or a Tuple or OneOf of them"
        )

    def bounds(values: np.ndarray) -> list | float | None:
        listed = [value if np.isfinite(value) else None for value in values.reshape(-1).tolist()]
        return listed[0] if len(set(listed)) == 1 else listed

    return {
        "type": "Box",
        "shape": list(space.shape),
        "dtype": str(space.dtype),
        "low": bounds(space.low),
        "high": bounds(space.high),
    }


def restore_space(description: dict[str, Any], where: str = "the space") -> gym.spaces.Space:
    """Return the space that :func:`describe_space` described.

    Raises:
        UsageError: if the description is of another kind of space, its bounds do not fit its shape and dtype, or an
            element has more than ``LARGEST`` bytes; ``where`` names the space in the message.
    """
    return _build(where, check_space(where, description))


def check_space(where: str, description: Any) -> Space:
    """Check that :func:`restore_space` can build the space, without building it, and return the description."""
    space = convert(where, description, Space)
    if _element_bytes(space) > LARGEST:
        raise refusal(where, description, f"elements of at most {LARGEST} bytes")
    _check_bounds(where, space)
    return space


def _element_bytes(space: Space) -> int:
    if isinstance(space, Box):
        return math.prod(space.shape) * np.dtype(space.dtype).itemsize
    return 8 if isinstance(space, Discrete) else sum(map(_element_bytes, space.spaces))


def _check_bounds(where: str, space: Space) -> None:
    if isinstance(space, Discrete):
        limits = np.iinfo(space.dtype)
        if not limits.min <= space.start <= space.start + space.n - 1 <= limits.max:
            raise refusal(f"{where}.start", space.start, f"{space.n} numbers of dtype {space.dtype} from there on")
        return
    if not isinstance(space, Box):
        for index, part in enumerate(space.spaces):
            _check_bounds(f"{where}.spaces[{index}]", part)
        return
    dtype, size = np.dtype(space.dtype), math.prod(space.shape)
    if dtype.kind == "f":
        least, most = float(np.finfo(dtype).min), float(np.finfo(dtype).max)
    else:
        least, most = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    kinds = (int, float, type(None)) if dtype.kind == "f" else (bool,) if dtype.kind == "b" else (int,)
    for name in ("low", "high"):
        given = getattr(space, name)
        if isinstance(given, list) and len(given) != size:
            raise refusal(f"{where}.{name}", given, f"one bound, or a list of {size}, as the shape {space.shape} has")
        for value in given if isinstance(given, list) else [given]:
            if type(value) not in kinds or not (value is None or least <= value <= most):
                raise refusal(f"{where}.{name}", value, f"a number of dtype {dtype}")
    low, high = _array(space, space.low, -np.inf), _array(space, space.high, np.inf)
    if not (low <= high).all():
        raise refusal(f"{where}.low", space.low, f"nowhere more than high, {space.high}")


def _build(where: str, space: Space) -> gym.spaces.Space:
    if isinstance(space, Discrete):
        dtype_argument = {} if space.dtype == "int64" else {"dtype": np.dtype(space.dtype).type}
        try:
            return gym.spaces.Discrete(space.n, start=space.start, **dtype_argument)
        except TypeError:  # older versions of gymnasium have only int64
            raise UsageError(
                f"{where}: a Discrete space of dtype {space.dtype} needs a newer gymnasium than {gym.__version__}"
            ) from None
    if isinstance(space, Box):
        shape, dtype = tuple(space.shape), np.dtype(space.dtype)
        low, high = _array(space, space.low, -np.inf), _array(space, space.high, np.inf)
        return gym.spaces.Box(low, high, shape, dtype.type)
    kind = gym.spaces.Tuple if isinstance(space, Tuple) else gym.spaces.OneOf
    return kind([_build(where, part) for part in space.spaces])


def _array(space: Box, bounds: list[Bounds] | Bounds, infinite: float) -> np.ndarray:
    """Return the bounds as an array of the box's shape, with ``infinite`` in place of ``None``."""
    if isinstance(bounds, list):
        return np.array([infinite if bound is None else bound for bound in bounds], space.dtype).reshape(space.shape)
    return np.full(space.shape, infinite if bounds is None else bounds, space.dtype)
