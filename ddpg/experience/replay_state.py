"""What a saved replay memory must be before it is taken back: rows of one size, successors that can be. NumPy only."""

from collections.abc import Mapping

import numpy as np

from ddpg.errors import UsageError


def check_rows(arrays: Mapping[str, np.ndarray], fields: Mapping[str, np.ndarray]) -> None:
    """Refuse arrays that are not rows of ``fields``, the buffer's own.

    Raises:
        UsageError: another shape or dtype, or flags that are neither 0 nor 1.
    """
    size = len(arrays["rewards"])
    for name, field in fields.items():
        _check(name, arrays[name], (size, *field.shape[1:]), field.dtype)
    observations = fields["observations"]
    last = arrays["last_observations"]
    _check("last_observations", last, (len(last), *observations.shape[1:]), observations.dtype)
    for name in ("terminated", "truncated"):
        if (arrays[name] > 1).any():
            raise UsageError(f"replay field {name} holds {arrays[name].max()}, expected flags, 0 or 1")


def check_successors(arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse successors that rows of a ring cannot have.

    Raises:
        UsageError: a successor that is no row, that is not newer than its row, that has two rows before it, or that
            follows an end; or another number of last observations than of rows without a successor.
    """
    successors, size = arrays["successors"], len(arrays["rewards"])
    _check("successors", successors, (size,), successors.dtype)
    alone = successors == -1
    if len(arrays["last_observations"]) != alone.sum():
        raise UsageError(
            f"the replay memory has {len(arrays['last_observations'])} last observations, expected {alone.sum()}: "
            "one for each row without a successor"
        )
    rows = np.flatnonzero(~alone)
    following = successors[rows].astype(np.int64)
    age = lambda numbers: (numbers - int(arrays["position"])) % max(1, size)  # noqa: E731  # 0: the oldest
    ended = (arrays["terminated"] + arrays["truncated"])[rows, 0] > 0
    bad = (following < 0) | (following >= size) | (age(following) <= age(rows)) | ended
    if bad.any():
        row, successor = rows[bad][0], following[bad][0]
        raise UsageError(
            f"replay row {row} has the successor {successor}, expected a newer one of the {size} rows, and none after "
            "an end"
        )
    if len(np.unique(following)) != len(following):
        raise UsageError("a replay row is the successor of two rows, expected of one at most")


def _check(name: str, array: np.ndarray, shape: tuple[int, ...], dtype: np.dtype) -> None:
    if array.shape != shape:
        raise UsageError(f"replay field {name} has shape {array.shape}, expected {shape}")
    if array.dtype != dtype:
        raise UsageError(f"replay field {name} has dtype {array.dtype}, expected {dtype}")
