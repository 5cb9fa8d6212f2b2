"""Validate numbers, rewards and flags from callers and environments. NumPy only."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.errors import UsageError, brief, did_you_mean

LARGEST = float(np.finfo(np.float32).max)
_LARGEST = np.float32(LARGEST)
LARGEST_INT = 2**63 - 1  # NumPy, files and environments count in 64-bit integers
_LONGEST_PATH, _LONGEST_NAME = 4096, 255  # Linux's limits
LARGEST_EXACT = 2**24  # float32 represents every integer up to this one exactly

_REAL = "biuf"
_ARRAY = "an array of real numbers: translate it first"
_NUMBER = "one real number: return float(reward) from the environment"
_KINDS = {"c": "complex numbers", "U": "strings", "S": "bytes", "O": "objects", "M": "dates", "m": "durations"}


def validate_numeric(values: Any, what: str, expected: str = _ARRAY) -> np.ndarray:
    """Return ``values`` as an array of booleans, integers or floats; an array of that kind is returned unchanged.

    Args:
        values: any object.
        what: its name, for the message.
        expected: what it should be, for the message.

    Raises:
        UsageError: if ``values`` is not an array of real numbers: if it holds strings, complex numbers, rows of
            different lengths or masked entries, for example.
    """
    if type(values) is np.ndarray:
        array = values
    else:
        refuse_masked(values, what)
        try:
            array = np.asarray(values)
        except (ValueError, TypeError, OverflowError, RuntimeError) as error:
            which = "with rows of different shapes" if isinstance(values, (list, tuple)) else "NumPy cannot read"
            raise UsageError(
                f"{what} is a {type(values).__name__} {which}; expected an array of real numbers "
                f"({str(error).splitlines()[0]})"
            ) from None
    if array.dtype.kind not in _REAL:
        if (large := _large_integer(array)) is not None:
            raise UsageError(
                f"{what} holds the integer {brief(large)}, which does not fit into 64 bits; expected numbers that "
                "float32 can hold: scale them"
            )
        raise UsageError(f"{what} is {_kind(values, array)}; expected {expected}")
    return array


def refuse_masked(values: Any, what: str, depth: int = 0) -> None:
    """Refuse masked entries, also of arrays in lists: ``np.asarray`` would use the numbers under the mask.

    Args:
        values: any object; one without a masked array passes.
        what: its name, for the message.
        depth: nesting depth of ``values`` in lists; NumPy's arrays have at most 64 axes.

    Raises:
        UsageError: if an entry is masked.
    """
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        if mask.any():
            place = np.argwhere(mask)[0].tolist()
            raise UsageError(
                f"{what} is a masked array whose entry at index {place} is masked, that is missing; expected a number "
                "everywhere: fill the masked entries in, e.g. with .filled(0)"
            )
    elif isinstance(values, (list, tuple)) and depth < 64:
        for value in values:
            refuse_masked(value, what, depth + 1)


def _kind(values: Any, array: np.ndarray) -> str:
    if values is None:
        return "None"
    name = "array" if values is array else type(values).__name__
    holds = f" of {_KINDS.get(array.dtype.kind, f'dtype {array.dtype}')}" if array.ndim or values is array else ""
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}{holds}"


def _large_integer(array: np.ndarray) -> int | None:
    """Return an integer beyond 64 bits, for which NumPy made ``array`` an array of objects; ``None``: another cause."""
    if array.dtype != object or not all(is_real(value) for value in array.flat):
        return None
    return next((value for value in array.flat if isinstance(value, int) and abs(value) > LARGEST_INT), None)


def as_float32(values: Any, what: str) -> np.ndarray:
    """Return ``values`` as an array of float32; an array of float32 is returned unchanged.

    Raises:
        UsageError: if ``values`` holds anything but real numbers, NaN, infinity, a number beyond float32, or an integer
            beyond ±2^24, which float32 would round.
    """
    array = validate_numeric(values, what)
    kind = array.dtype.kind
    if kind == "f":
        check_finite(array, what)
    elif kind != "b" and array.dtype.itemsize > 2:
        _check_exact(array, what)
    return np.asarray(array, np.float32)


def check_finite(array: np.ndarray, what: str) -> None:
    """Refuse NaN, infinity and numbers beyond float32; the message gives the first one's index.

    Raises:
        UsageError: if ``array`` holds such a number.
    """
    if array.dtype.kind != "f":
        return
    # If float32 can hold the sum of squares, it can hold every number. This takes a third of the time of the maximum.
    if array.size <= 1000 and np.vdot(array, array) <= _LARGEST:
        return
    magnitudes = np.abs(array)
    # The maximum is NaN if any number is NaN: a single fast reduction that never warns.
    if not np.maximum.reduce(magnitudes, axis=None, initial=0) <= _LARGEST:
        good = magnitudes <= _LARGEST
        place = tuple(np.argwhere(~good)[0].tolist())
        raise UsageError(
            f"{what} holds {array[place]} at index {list(place)}; expected finite numbers of float32: one such value "
            "would turn outputs, and in training every weight, into NaN, so fix the environment or the data"
        )


def validate_reward(value: Any, what: str = "reward") -> float:
    """Return one reward as a float.

    Raises:
        UsageError: if ``value`` is not one finite real number; ``None``, a string, an array of rank 1 and NaN are not.
    """
    value = validate_scalar(value, what)
    if not -LARGEST <= value <= LARGEST:
        raise UsageError(
            f"{what} holds {brief(value)}; expected a finite number of float32, at most {LARGEST:.4g} in magnitude: "
            "one such value would turn every weight into NaN, so fix the environment"
        )
    return float(value)


def validate_scalar(value: Any, what: str) -> float | int:
    """Return one reward as a number of Python; NaN, infinity and the size are not checked for.

    Raises:
        UsageError: if ``value`` is not one real number; ``None``, a string and an array of rank 1 are not.
    """
    if isinstance(value, float):  # NumPy's float64 is a subclass
        return float(value)
    if isinstance(value, int):  # Python's integers may exceed NumPy's 64 bits
        return value
    scalar = validate_numeric(value, what, _NUMBER)
    if scalar.ndim:
        raise UsageError(f"{what} has shape {scalar.shape}; expected {_NUMBER}")
    return scalar.item()


def validate_rewards(values: Any, count: int, what: str = "reward") -> np.ndarray:
    """Return the rewards of ``count`` environments as a float64 array ``[count]``; NaN is not checked for.

    Raises:
        UsageError: if ``values`` has another shape, or holds anything but real numbers.
    """
    array = validate_numeric(values, what)
    _check_count(array, count, what)
    return np.asarray(array, np.float64)


def validate_int(value: Any, what: str, at_least: int, at_most: int = LARGEST_INT) -> int:
    """Return a whole number, of whatever type, as an int.

    Raises:
        UsageError: if ``value`` is not a whole number, or outside ``[at_least, at_most]``.
    """
    if not (is_real(value) and at_least <= value <= at_most and value == int(value)):
        # The upper limit is named only if it was exceeded; otherwise it would be noise.
        limit = f", and at most {at_most}" if is_real(value) and value > at_most else ""
        raise UsageError(f"{what}={brief(value)} must be a whole number, at least {at_least}{limit}")
    return int(value)


def validate_optional_int(value: Any, what: str, at_least: int) -> int | None:
    """Return ``None``, or what :func:`validate_int` returns; errors as for it."""
    return None if value is None else validate_int(value, what, at_least)


def validate_float(value: Any, what: str, at_least: float = -LARGEST, at_most: float = LARGEST) -> float:
    """Return a finite real number as a float.

    Raises:
        UsageError: if ``value`` is not a real number, is NaN, or is outside ``[at_least, at_most]``.
    """
    if not (is_real(value) and at_least <= value <= at_most):
        raise UsageError(f"{what}={brief(value)} must be a finite number from {at_least:g} to {at_most:g}")
    return float(value)


def validate_positive(value: Any, what: str, or_none: bool = False) -> Any:
    """Return a number > 0 as it is; ``None`` too, if that is allowed.

    Raises:
        UsageError: if ``value`` is not a real number, is NaN, is not above 0, or is beyond float32.
    """
    if not ((value is None and or_none) or (is_real(value) and 0 < value <= LARGEST)):
        raise UsageError(f"{what}={brief(value)} must be a finite number > 0{', or None' if or_none else ''}")
    return value


def validate_bool(value: Any, what: str) -> bool:
    """Return a caller's flag as a bool.

    Raises:
        UsageError: if ``value`` is neither a bool nor 0 or 1.
    """
    if isinstance(value, (bool, np.bool_)) or (is_real(value) and value in (0, 1)):
        return bool(value)
    raise UsageError(f"{what}={brief(value)} must be True or False")


def validate_text(value: Any, what: str, expected: str) -> str:
    """Return a caller's string.

    Raises:
        UsageError: if ``value`` is not a string; the message says that ``expected`` was expected.
    """
    if not isinstance(value, str):
        raise UsageError(f"{what}={brief(value)} must be {expected}")
    return str(value)


def validate_choice(value: Any, what: str, choices: Collection[str]) -> str:
    """Return a caller's choice among names.

    Raises:
        UsageError: if ``value`` is none of ``choices``; the message has the one that is most similar.
    """
    if not isinstance(value, str) or value not in choices:
        hint = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise UsageError(f"{what}={brief(value)} is not one of {', '.join(choices)}{hint}")
    return value


def validate_names(values: Any, what: str) -> tuple[str, ...]:
    """Return a caller's list of strings as a tuple.

    Raises:
        UsageError: if ``values`` is not a list or tuple of strings.
    """
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
        raise UsageError(f"{what}={brief(values)} must be a list of names")
    return tuple(values)


def validate_path(value: Any, what: str = "path") -> Path:
    """Return a caller's path.

    Raises:
        UsageError: if ``value`` is neither a string nor a path, or no file system could have such a path.
    """
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise UsageError(f"{what}={brief(value)} must be a path: a string or a pathlib.Path")
    text = os.fspath(value)
    if "\0" in text or len(text) > _LONGEST_PATH or any(len(part) > _LONGEST_NAME for part in text.split(os.sep)):
        raise UsageError(
            f"{what}={brief(text)} is no path: expected no null character, at most {_LONGEST_PATH} characters, and "
            f"{_LONGEST_NAME} between two {os.sep!r}"
        )
    return Path(text)


def is_real(value: Any) -> bool:
    """Return whether ``value`` is one integer or float, of Python or NumPy; a bool does not count."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def validate_flag(value: Any, what: str) -> bool:
    """Return ``terminated`` or ``truncated`` as a bool.

    Raises:
        UsageError: if ``value`` is neither a bool nor 0 or 1.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if not isinstance(value, (np.ndarray, np.integer, int)) or np.ndim(value):
        raise _no_flag(value, what)
    refuse_masked(value, what)
    return bool(_as_bools(np.asarray(value), value, what))


def validate_flags(values: Any, count: int, what: str) -> np.ndarray:
    """Return the flags of ``count`` environments as an array of bools ``[count]``.

    Raises:
        UsageError: if ``values`` has another shape, or holds anything but bools, 0 and 1.
    """
    if type(values) is np.ndarray and values.dtype == np.bool_ and values.shape == (count,):
        return values
    array = validate_numeric(values, what)
    _check_count(array, count, what)
    return _as_bools(array, values, what)


def _as_bools(array: np.ndarray, given: Any, what: str) -> np.ndarray:
    if array.size and (array.dtype.kind not in "biu" or not ((array == 0) | (array == 1)).all()):
        raise _no_flag(given, what)
    return array.astype(bool)


def _no_flag(value: Any, what: str) -> UsageError:
    cast = "; it is of floats: give .astype(bool)" if isinstance(value, np.ndarray) and value.dtype.kind == "f" else ""
    return UsageError(f"{what}={brief(value)} is not a flag; expected True or False (or 1 or 0){cast}")


def _check_count(array: np.ndarray, count: int, what: str) -> None:
    if array.shape != (count,):
        raise UsageError(f"{what} has shape {array.shape}; expected {(count,)}: one for each environment or transition")


def _check_exact(array: np.ndarray, what: str) -> None:
    if not array.size or -LARGEST_EXACT <= int(array.min()) <= int(array.max()) <= LARGEST_EXACT:
        return
    place = np.unravel_index(int(np.argmax(np.abs(array.astype(np.float64)))), array.shape)
    raise UsageError(
        f"{what} holds the integer {array[place]} at index {[int(index) for index in place]}; float32 rounds integers "
        f"beyond {LARGEST_EXACT}: scale them in a wrapper, such as gymnasium.wrappers.TransformObservation"
    )
