"""Write arrays to safetensors files, and read them back after checking them against the manifest.

A file is eight bytes with the length of a header, the header (JSON: dtype, shape and offsets of every array), and the
arrays one after another, little-endian (https://huggingface.co/docs/safetensors). The format's own library is not used:
this module reads and writes in chunks, so that a replay buffer is never held in memory twice, the checksum is computed
in the same pass, and disk errors stay ``OSError``.
"""

import hashlib
import itertools
import json
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ddpg.checkpoints import memory_limit, safe_json
from ddpg.checkpoints.atomic_write import write_durably
from ddpg.checkpoints.manifest import ARRAY_DTYPES, REPLAY, ArraySpec, Table
from ddpg.checkpoints.safe_json import convert, refusal
from ddpg.errors import FileFault, UsageError

CHUNK = 1 << 22  # bytes that are written or read at a time


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def describe(arrays: dict[str, np.ndarray]) -> dict[str, dict[str, Any]]:
    """Return dtype and shape of every array, as the manifest lists them."""
    return {name: {"dtype": array.dtype.name, "shape": list(array.shape)} for name, array in arrays.items()}


def check_finite(group: str, arrays: dict[str, np.ndarray]) -> None:
    """Refuse arrays that :func:`read` would refuse.

    Raises:
        UsageError: if an array holds NaN or infinity.
    """
    for name, array in arrays.items():
        if (place := _first_not_finite(array)) is not None:
            raise UsageError(
                f"{group} {name}{list(place)} is {array[place]}, which is never saved: training diverged; "
                "go back to an earlier checkpoint, and lower the learning rate or scale the rewards down"
            )


def write(path: Path, arrays: dict[str, np.ndarray]) -> str:
    """Write arrays to a new file, flush it to disk, and return its SHA-256."""
    # The widest dtype first, so that each array is aligned to its own item size.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    ends = list(itertools.accumulate(array.nbytes for _, array in ordered))
    header = {
        name: {
            "dtype": ARRAY_DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [end - array.nbytes, end],
        }
        for (name, array), end in zip(ordered, ends, strict=True)
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = [len(text).to_bytes(8, "little"), text]
    checksum = hashlib.sha256()

    def pieces() -> Iterator[bytes | memoryview]:
        for piece in itertools.chain(head, *(_little_endian(array) for _, array in ordered)):
            checksum.update(piece)
            yield piece

    write_durably(path, pieces())
    return checksum.hexdigest()


def read(path: Path, table: Table, checksum: str) -> dict[str, np.ndarray]:
    """Return the arrays of a file.

    Args:
        path: the file.
        table: dtype and shape of every array, by name.
        checksum: the SHA-256 of the file.

    Raises:
        FileFault: if the file does not match ``table`` or ``checksum``, or an array holds NaN or infinity.
        FileNotFoundError: if ``path`` does not exist.
    """
    expected = sum(array.nbytes for array in table.values())
    # An upper bound: the header is one JSON object with an entry for each array, padded to eight bytes.
    longest = 1024 + sum(len(json.dumps(name)) + 256 for name in table)
    with safe_json.open_regular_file(path) as (file, size):
        if not expected <= size <= expected + longest:
            raise refusal(f"{path}: its size in bytes", size, f"{expected} and a header, as the JSON beside it says")
        if size > (memory := memory_limit.memory_limit()):
            raise refusal(f"{path}: its size in bytes", size, f"no more than the memory of this machine, {memory}")
        found = hashlib.sha256()
        head = file.read(8)
        header = file.read(min(int.from_bytes(head, "little"), longest))
        found.update(head + header)
        refused, names = None, []
        try:
            names = _ordered_names(path, head, header, size, table)
        except UsageError as error:  # raised below, unless the checksum shows that the file is damaged
            refused = error
        arrays = {name: _read_array(path, file, table[name], found) for name in names}
        while piece := file.read(CHUNK):
            found.update(piece)
    if found.hexdigest() != checksum:
        raise FileFault(f"{path} is damaged: it does not match its checksum; take another checkpoint")
    if refused is not None:
        raise refused
    for name, array in arrays.items():
        if (place := _first_not_finite(array)) is not None:
            raise refusal(f"{path}: {name!r}{list(place)}", array[place], "a finite number")
    return arrays


def check_position(path: Path, arrays: dict[str, np.ndarray], capacity: int) -> None:
    """Refuse a replay buffer with a wrong write position: until the buffer is full, it must be the number of rows."""
    assert set(arrays) >= set(REPLAY)
    rows, position = len(arrays["rewards"]), int(arrays["position"])
    if rows < capacity and position != rows:
        raise refusal(f"{path}: position", position, f"{rows}, after the last row")
    if rows == capacity and not 0 <= position < rows:
        raise refusal(f"{path}: position", position, f"a row from 0 to {rows - 1}")


def _ordered_names(path: Path, head: bytes, header: bytes, size: int, table: Table) -> list[str]:
    """Return the names of the arrays in their order in the file.

    Raises:
        UsageError: if the header does not list the arrays of ``table``, or they do not directly follow each other.
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
        dtype = ARRAY_DTYPES[spec.dtype]
        if (entry.dtype, entry.shape) != (dtype, spec.shape):
            raise refusal(place, f"{entry.dtype} {entry.shape}", f"{dtype} {spec.shape} by the manifest")
        if entry.data_offsets != (end, end + spec.nbytes):
            raise refusal(f"{place}.data_offsets", entry.data_offsets, f"{(end, end + spec.nbytes)}")
        end += spec.nbytes
    if 8 + length + end != size:
        raise refusal(f"{path}: its size in bytes", size, f"{8 + length + end}, where the last array ends")
    return [name for name, _ in ordered]


def _read_array(path: Path, file: BufferedReader, spec: ArraySpec, checksum: Any) -> np.ndarray:
    """Read the next array of a file, and update ``checksum`` with its bytes."""
    data = np.empty(spec.nbytes, np.uint8)
    for start in range(0, len(data), CHUNK):
        piece = data[start : start + CHUNK].data
        if file.readinto(piece) != len(piece):
            raise FileFault(f"{path} became shorter while it was read; take another checkpoint")
        checksum.update(piece)
    dtype = np.dtype(spec.dtype)
    return np.asarray(data.view(dtype.newbyteorder("<")).reshape(spec.shape), dtype)


def _row_chunks(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield an array in chunks of rows, each with the index of its first row."""
    if array.size:
        count = max(1, CHUNK * len(array) // array.nbytes)
        for start in range(0, len(array), count):
            yield start, array[start : start + count]


def _little_endian(array: np.ndarray) -> Iterator[bytes | memoryview]:
    """Yield the bytes of an array as stored in the file: row-major and little-endian, whatever its strides."""
    for _, piece in _row_chunks(np.atleast_1d(array)):
        yield np.ascontiguousarray(piece, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def _first_not_finite(array: np.ndarray) -> tuple[int, ...] | None:
    """Return the index of the first NaN or infinity, if any."""
    if array.dtype.kind != "f":
        return None
    for start, piece in _row_chunks(np.atleast_1d(array)):
        finite = np.isfinite(piece)
        if not finite.all():
            first, *rest = np.argwhere(~finite)[0].tolist()
            return (start + first, *rest)[: array.ndim]
    return None
