"""Arrays in safetensors files, checked against the manifest before they are read.

A file is eight bytes with the length of a header, the header (JSON: dtype, shape and place of every array), and the
arrays one after another, little-endian (https://huggingface.co/docs/safetensors). Its own library writes such files
too; here they are written and read piece by piece, so that a replay memory is never held twice, its checksum is made on
the way, and what a disk says stays an ``OSError``.
"""

import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ddpg.checkpoints import memory_limit, safe_json
from ddpg.checkpoints.manifest import REPLAY, ArraySpec, Table
from ddpg.checkpoints.safe_json import convert, refusal
from ddpg.errors import FileFault, UsageError, with_filename

CHUNK = 1 << 22  # bytes that are checked, written or read at a time

_CODES = {"float32": "F32", "float64": "F64", "uint8": "U8", "int32": "I32", "int64": "I64"}


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def describe(arrays: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Return the table of some arrays for the manifest."""
    return {name: {"dtype": array.dtype.name, "shape": list(array.shape)} for name, array in arrays.items()}


def check_finite(group: str, arrays: dict[str, np.ndarray]) -> None:
    """Refuse what :func:`read` would refuse.

    Raises:
        UsageError: an array holds NaN or infinity.
    """
    for name, array in arrays.items():
        if (place := _not_finite(array)) is not None:
            raise UsageError(
                f"{group} {name}{list(place)} is {array[place]}, which a checkpoint does not hold: training diverged; "
                "go back to an earlier checkpoint, and lower the learning rate or scale the rewards down"
            )


def write(path: Path, arrays: dict[str, np.ndarray]) -> str:
    """Write some arrays to a new file, down to the disk, and return its SHA-256."""
    # The widest first: so each begins at a whole number of its words.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    ends = list(itertools.accumulate(array.nbytes for _, array in ordered))
    header = {
        name: {"dtype": _CODES[array.dtype.name], "shape": list(array.shape), "data_offsets": [end - array.nbytes, end]}
        for (name, array), end in zip(ordered, ends, strict=True)
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    checksum = hashlib.sha256()
    with with_filename(path), path.open("wb") as file:
        for piece in itertools.chain((len(text).to_bytes(8, "little"), text), *map(_bytes, dict(ordered).values())):
            checksum.update(piece)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    return checksum.hexdigest()


def read(path: Path, table: Table, checksum: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file that are what ``table`` says, and finite.

    Raises:
        FileFault: they are not, or the file is none of ours.
        FileNotFoundError: nothing is there.
    """
    expected = sum(array.nbytes for array in table.values())
    # A header is one JSON object with a line for each array; it is padded to whole words.
    longest = 1024 + sum(len(json.dumps(name)) + 256 for name in table)
    with safe_json.open_regular_file(path) as (file, size):
        if not expected <= size <= expected + longest:
            raise refusal(f"{path}: its size in bytes", size, f"{expected} and a header, as the manifest says")
        if size > (memory := memory_limit.memory_limit()):
            raise refusal(f"{path}: its size in bytes", size, f"no more than the memory of this machine, {memory}")
        found = hashlib.sha256()
        head = file.read(8)
        header = file.read(min(int.from_bytes(head, "little"), longest))
        found.update(head + header)
        refused, places = None, []
        try:
            places = _places(path, head, header, size, table)
        except UsageError as error:  # said unless it is the checksum's fault
            refused = error
        arrays = {name: _filled(path, file, table[name], found) for name in places}
        while piece := file.read(CHUNK):
            found.update(piece)
    if found.hexdigest() != checksum:
        raise FileFault(f"{path} is damaged: it does not match its checksum; take another checkpoint")
    if refused is not None:
        raise refused
    for name, array in arrays.items():
        if (place := _not_finite(array)) is not None:
            raise refusal(f"{path}: {name!r}{list(place)}", array[place], "a finite number")
    return arrays


def check_position(path: Path, arrays: dict[str, np.ndarray], capacity: int) -> None:
    """Refuse a replay memory whose next write is not behind its newest row: its end, unless it is full."""
    assert set(arrays) >= set(REPLAY)
    rows, position = len(arrays["rewards"]), int(arrays["position"])
    if rows < capacity and position != rows:
        raise refusal(f"{path}: position", position, f"{rows}, behind the last of the rows")
    if rows == capacity and not 0 <= position < rows:
        raise refusal(f"{path}: position", position, f"one of the {rows} rows")


def _places(path: Path, head: bytes, header: bytes, size: int, table: Table) -> list[str]:
    """Return the names of the arrays in the order in which they lie in the file.

    Raises:
        UsageError: the header is not that of ``table``'s arrays, one behind the other.
    """
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length != len(header):
        raise refusal(f"{path}: its header in bytes", length, f"no more than {len(header)}, as its arrays need")
    entries = safe_json.parse_json(f"{path}: its header", header)
    if not isinstance(entries, dict) or entries.keys() != table.keys():
        raise refusal(f"{path}: its arrays", entries, f"those of the manifest, {safe_json.short_repr(list(table))}")
    found = {name: convert(f"{path}: {name!r}", entry, _Entry) for name, entry in entries.items()}
    end = 0
    ordered = sorted(found.items(), key=lambda item: item[1].data_offsets)
    for name, entry in ordered:
        spec, place = table[name], f"{path}: {name!r}"
        if (entry.dtype, entry.shape) != (_CODES[spec.dtype], spec.shape):
            raise refusal(place, f"{entry.dtype} {entry.shape}", f"{_CODES[spec.dtype]} {spec.shape} by the manifest")
        if entry.data_offsets != (end, end + spec.nbytes):
            raise refusal(f"{place}.data_offsets", entry.data_offsets, f"{(end, end + spec.nbytes)}")
        end += spec.nbytes
    if 8 + length + end != size:
        raise refusal(f"{path}: its size in bytes", size, f"{8 + length + end}, where the last array ends")
    return [name for name, _ in ordered]


def _filled(path: Path, file: BufferedReader, spec: ArraySpec, checksum: Any) -> np.ndarray:
    """Return the next array of a file; its bytes count towards ``checksum``."""
    data = np.empty(spec.nbytes, np.uint8)
    for start in range(0, len(data), CHUNK):
        piece = data[start : start + CHUNK].data
        if file.readinto(piece) != len(piece):
            raise FileFault(f"{path} became shorter while it was read; take another checkpoint")
        checksum.update(piece)
    dtype = np.dtype(spec.dtype)
    return np.asarray(data.view(dtype.newbyteorder("<")).reshape(spec.shape), dtype)


def _pieces(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield an array's rows by the chunk, and the number of the first one of each."""
    if array.size:
        count = max(1, CHUNK * len(array) // array.nbytes)
        for start in range(0, len(array), count):
            yield start, array[start : start + count]


def _bytes(array: np.ndarray) -> Iterator[bytes | memoryview]:
    """Yield what lies in a file for an array: its memory, row by row, whatever the strides say, little-endian."""
    for _, piece in _pieces(np.atleast_1d(array)):
        yield np.ascontiguousarray(piece, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def _not_finite(array: np.ndarray) -> tuple[int, ...] | None:
    """Return the index of the first NaN or infinity, if any."""
    if array.dtype.kind != "f":
        return None
    for start, piece in _pieces(np.atleast_1d(array)):
        finite = np.isfinite(piece)
        if not finite.all():
            first, *rest = np.argwhere(~finite)[0].tolist()
            return (start + first, *rest)[: array.ndim]
    return None
