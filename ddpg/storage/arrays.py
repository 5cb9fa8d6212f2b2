"""Arrays in safetensors files, held to what the manifest says of them before they are read."""

import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import numpy as safetensors

from ddpg.errors import FileFault, UsageError
from ddpg.storage import document
from ddpg.storage.document import refusal
from ddpg.storage.manifest import REPLAY, Array, Table
from ddpg.storage.schema import converted

_CODES = {"float32": "F32", "float64": "F64", "uint8": "U8", "int32": "I32", "int64": "I64"}


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def describe(arrays: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Return the table of some arrays for the manifest."""
    return {name: {"dtype": array.dtype.name, "shape": list(array.shape)} for name, array in arrays.items()}


def serialised(group: str, arrays: dict[str, np.ndarray]) -> bytes:
    """Return the file of some arrays.

    Raises:
        UsageError: one holds NaN or infinity, which :func:`read` would refuse.
    """
    for name, array in arrays.items():
        if (place := _not_finite(array)) is not None:
            raise UsageError(
                f"{group} {name}{list(place)} is {array[place]}, which a checkpoint does not hold: training diverged; "
                "go back to an earlier checkpoint, and lower the learning rate or scale the rewards down"
            )
    # safetensors writes the memory as it lies, whatever the strides say.
    return safetensors.save({name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()})


def read(path: Path, table: Table, checksum: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file that are what ``table`` says, and finite.

    Raises:
        UsageError: they are not, or the file is none of ours.
        FileNotFoundError: nothing is there.
    """
    expected = sum(array.nbytes for array in table.values())
    # A header is one JSON object with a line for each array; it is padded to whole words.
    header = 1024 + sum(len(json.dumps(name)) + 256 for name in table)
    with document.opened(path) as (file, size):
        if not expected <= size <= expected + header:
            raise refusal(f"{path}: its size in bytes", size, f"{expected} and a header, as the manifest says")
        if size > (memory := _memory()):
            raise refusal(f"{path}: its size in bytes", size, f"no more than the memory of this machine, {memory}")
        data = bytearray(size)
        if file.readinto(data) != size:
            raise FileFault(f"{path} became shorter while it was read; take another checkpoint")
    if hashlib.sha256(data).hexdigest() != checksum:
        raise FileFault(f"{path} is damaged: it does not match its checksum; take another checkpoint")
    arrays = _views(path, data, table)
    for name, array in arrays.items():
        if (place := _not_finite(array)) is not None:
            raise refusal(f"{path}: {name!r}{list(place)}", array[place], "a finite number")
    return arrays


def check_position(path: Path, arrays: dict[str, np.ndarray], capacity: int) -> None:
    """Refuse a replay memory whose next write is not behind its newest row: its end, unless it is full."""
    assert set(arrays) == set(REPLAY)
    rows, position = len(arrays["rewards"]), int(arrays["position"])
    if rows < capacity and position != rows:
        raise refusal(f"{path}: position", position, f"{rows}, behind the last of the rows")
    if rows == capacity and not 0 <= position < rows:
        raise refusal(f"{path}: position", position, f"one of the {rows} rows")


def _views(path: Path, data: bytearray, table: Table) -> dict[str, np.ndarray]:
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > len(data):
        raise refusal(f"{path}: its header in bytes", start - 8, f"no more than the file, {len(data)}")
    entries = document.parse(f"{path}: its header", bytes(data[8:start]))
    if not isinstance(entries, dict) or entries.keys() != table.keys():
        raise refusal(f"{path}: its arrays", entries, f"those of the manifest, {document.brief(list(table))}")
    found = {name: converted(f"{path}: {name!r}", entry, _Entry) for name, entry in entries.items()}
    end = 0
    for name, entry in sorted(found.items(), key=lambda item: item[1].data_offsets):
        spec, place = table[name], f"{path}: {name!r}"
        if (entry.dtype, entry.shape) != (_CODES[spec.dtype], spec.shape):
            raise refusal(place, f"{entry.dtype} {entry.shape}", f"{_CODES[spec.dtype]} {spec.shape} by the manifest")
        if entry.data_offsets != (end, end + spec.nbytes):
            raise refusal(f"{place}.data_offsets", entry.data_offsets, f"{(end, end + spec.nbytes)}")
        end += spec.nbytes
    if start + end != len(data):
        raise refusal(f"{path}: its size in bytes", len(data), f"{start + end}, where the last array ends")
    return {name: _view(data, start + found[name].data_offsets[0], spec) for name, spec in table.items()}


def _view(data: bytearray, offset: int, spec: Array) -> np.ndarray:
    dtype = np.dtype(spec.dtype).newbyteorder("<")
    array = np.frombuffer(data, dtype, math.prod(spec.shape), offset).reshape(spec.shape)
    return np.require(array, np.dtype(spec.dtype), "A")  # whole numbers of words from the start, for TensorFlow


def _not_finite(array: np.ndarray) -> tuple[int, ...] | None:
    """Return the index of the first NaN or infinity, if any."""
    if array.dtype.kind != "f" or np.isfinite(array).all():
        return None
    return tuple(np.argwhere(~np.isfinite(array))[0].tolist())


def _memory() -> int:
    """Return the bytes of memory of this machine, or more than any file has where nobody says."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 1 << 62
