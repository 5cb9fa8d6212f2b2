"""Array files are compatible with the safetensors library, and are written and read without copies in memory."""

import hashlib
import tracemalloc

import msgspec
import numpy as np
import pytest
import safetensors.numpy
from checkpoints import replay
from refusals import refuses

from ddpg import UsageError
from ddpg.checkpoints import arrays as array_files
from ddpg.checkpoints.manifest import ArraySpec

MIXED = {
    "bytes": np.arange(5, dtype=np.uint8),
    "number": np.asarray(7),
    "wide": np.linspace(0, 1, 6).reshape(2, 3),
    "é, long": np.arange(4, dtype=np.int32),
    "none": np.zeros((0, 3), np.float32),
    "turned": np.arange(12, dtype=np.float32).reshape(3, 4).T,
    "every second": np.arange(12, dtype=np.float32)[::2],
}


def table(arrays):
    return msgspec.convert(array_files.describe(arrays), dict[str, ArraySpec])


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)


@pytest.mark.parametrize("arrays", [MIXED, replay(), {}], ids=["mixed", "replay", "none"])
def test_the_safetensors_library_reads_our_files(tmp_path, arrays, monkeypatch):
    monkeypatch.setattr(array_files, "CHUNK", 16)  # most arrays take several chunks
    path = tmp_path / "a.safetensors"
    checksum = array_files.write(path, arrays)
    assert checksum == hashlib.sha256(path.read_bytes()).hexdigest()
    assert_same(safetensors.numpy.load_file(path), arrays)
    assert_same(array_files.read(path, table(arrays), checksum), arrays)


def test_we_read_files_of_the_safetensors_library(tmp_path):
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in MIXED.items()}
    data = safetensors.numpy.save(arrays)
    (tmp_path / "a.safetensors").write_bytes(data)
    assert_same(array_files.read(tmp_path / "a.safetensors", table(arrays), hashlib.sha256(data).hexdigest()), arrays)


def test_arrays_are_aligned(tmp_path):
    """An array of five bytes must not shift the float64 array after it."""
    path = tmp_path / "a.safetensors"
    array_files.write(path, MIXED)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    entries = msgspec.json.decode(data[8 : 8 + length])
    for name, array in MIXED.items():
        assert entries[name]["data_offsets"][0] % array.itemsize == 0, name


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 5000, 9999])
def test_the_first_non_finite_number_is_named(monkeypatch, bad, row):
    monkeypatch.setattr(array_files, "CHUNK", 4000)
    array = np.zeros((10_000, 2), np.float32)
    array[row:, 1] = bad
    with refuses(UsageError, f"replay rewards [{row}, 1] {bad}"):
        array_files.check_finite("replay", {"rewards": array})
    with refuses(UsageError, "b[] nan"):
        array_files.check_finite("variables", {"b": np.float32(np.nan).reshape(())})


def test_arrays_are_not_copied_in_memory(tmp_path):
    """For 32 MB of arrays, writing allocates at most 10 MB, and reading at most 10 MB beyond its result."""
    arrays = {"a": np.ones((2, 4_000_000), np.float32).T}
    path = tmp_path / "a.safetensors"
    tracemalloc.start()
    try:
        array_files.check_finite("replay", arrays)
        checksum = array_files.write(path, arrays)
        assert tracemalloc.get_traced_memory()[1] < 10e6
        tracemalloc.reset_peak()
        array_files.read(path, table(arrays), checksum)
        assert tracemalloc.get_traced_memory()[1] < 42e6
    finally:
        tracemalloc.stop()
