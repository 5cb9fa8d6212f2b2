"""The cache of compiled code on disk: code is reused, but not if another user could have written it."""

import hashlib
import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from ddpg.compiler import code_cache, jit
from ddpg.compiler.code_cache import read, write

ADD = """
define void @run(i64 %count, i64 %worker, ptr %block, ptr %sums) {
  %value = load float, ptr %block
  %sum = fadd float %value, 1.0
  store float %sum, ptr %block
  ret void
}
"""
KEY = "a" * 64


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DDPG_CACHE", str(tmp_path))
    return tmp_path / "native"


def run(text=ADD):
    block = np.float32([2])
    compiled = jit.CompiledModule(text, 2)
    compiled.run(1, 0, block.ctypes.data, block.ctypes.data)
    return block[0]


def test_code_is_compiled_once(folder, monkeypatch):
    made = []
    optimised = jit.optimised
    monkeypatch.setattr(jit, "optimised", lambda *given: made.append(0) or optimised(*given))
    assert [run(), run(), run(ADD.replace("1.0", "2.0")), run()] == [3, 3, 4, 3]
    assert len(made) == 2
    assert len(list(folder.iterdir())) == 2


def test_code_is_cached_per_processor(folder, monkeypatch):
    run()
    monkeypatch.setattr(jit._llvm(), "get_host_cpu_name", lambda: "x86-64")
    run()
    assert len(list(folder.iterdir())) == 2


def test_code_is_cached_per_version_of_the_pipeline(folder, monkeypatch):
    run()
    monkeypatch.setattr(jit, "PIPELINE", jit.PIPELINE + 1)
    run()
    assert len(list(folder.iterdir())) == 2


def test_off_writes_no_cache(folder, monkeypatch):
    monkeypatch.setenv("DDPG_CACHE", "off")
    assert run() == 3
    assert not folder.exists()


def test_changed_files_are_compiled_again(folder):
    run()
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:-1], whole[:50], whole[:60] + bytes([whole[60] ^ 1]) + whole[61:]):
        file.write_bytes(damaged)
        assert read(file.name) is None
        assert run() == 3
        assert file.read_bytes() == whole


def test_a_file_begins_with_the_length_and_digest_of_its_code(folder):
    write(KEY, b"code")
    length = b"\4" + bytes(7)
    digest = hashlib.sha256(KEY.encode() + length + b"code").digest()
    assert (folder / KEY).read_bytes() == length + digest + b"code"
    assert read(KEY) == b"code"


def test_two_files_with_swapped_contents_are_compiled_again(folder):
    other = ADD.replace("1.0", "2.0")
    assert [run(), run(other)] == [3, 4]
    one, two = folder.iterdir()
    contents = [one.read_bytes(), two.read_bytes()]
    one.write_bytes(contents[1])
    two.write_bytes(contents[0])
    assert [read(one.name), read(two.name)] == [None, None]
    assert [run(), run(other)] == [3, 4]
    assert [one.read_bytes(), two.read_bytes()] == contents


@pytest.mark.parametrize("left", [0, 4, 500])
def test_truncated_code_is_not_run_even_with_a_correct_checksum(folder, left):
    """LLVM's loader would terminate the process."""
    run()
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    head, code = whole[:8] if left else bytes(8), whole[40:][:left]
    file.write_bytes(head + hashlib.sha256(file.name.encode() + head + code).digest() + code)
    assert run() == 3
    assert file.read_bytes() == whole


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_other_users_can_write_is_compiled_again(folder, mode):
    run()
    (file,) = folder.iterdir()
    file.chmod(mode)
    assert read(file.name) is None
    assert run() == 3
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read(file.name)


def test_a_file_of_another_user_is_not_read(folder, monkeypatch):
    write(KEY, b"code")
    real = os.fstat
    monkeypatch.setattr(os, "fstat", lambda file: os.stat_result([*real(file)[:4], os.getuid() + 1, *real(file)[5:10]]))
    assert read(KEY) is None


def test_links_are_not_followed(folder, tmp_path, monkeypatch):
    run()
    (file,) = folder.iterdir()
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert read(file.name) is None
    assert run() == 3
    assert not file.is_symlink()
    other = tmp_path / "other"
    other.mkdir()
    (other / "native").symlink_to(folder)
    monkeypatch.setenv("DDPG_CACHE", str(other))
    assert read(file.name) is None
    assert run() == 3


def test_opening_a_pipe_does_not_block(folder):
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / KEY, 0o600)
    assert read(KEY) is None


WRITER = """
import sys
from ddpg.compiler import code_cache
code_cache.KEPT = 3
for turn in range(200):
    key = f"{(turn + int(sys.argv[1])) % 8:064x}"
    code_cache.write(key, key.encode() * 1000)
    other = f"{turn % 8:064x}"
    assert code_cache.read(other) in (None, other.encode() * 1000)
"""


def test_concurrent_writers_leave_complete_files(folder):
    """A reader gets a complete file or none; several processes may delete the same file."""
    processes = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(number)], stderr=subprocess.PIPE) for number in range(4)
    ]
    assert [(process.communicate()[1], process.returncode) for process in processes] == [(b"", 0)] * 4
    left = [path.name for path in folder.iterdir()]
    assert 1 <= len(left) <= 4
    assert all(read(name) == name.encode() * 1000 for name in left)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owners on this system")
def test_nothing_is_read_from_a_folder_that_other_users_can_write(folder, monkeypatch):
    write(KEY, b"code")
    assert folder.stat().st_mode & 0o077 == 0
    for mode in (0o720, 0o702):
        folder.chmod(mode)
        assert read(KEY) is None
    folder.chmod(0o700)
    assert read(KEY) == b"code"
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert read(KEY) is None


def test_the_least_recently_used_file_is_deleted_and_foreign_files_stay(folder, monkeypatch):
    monkeypatch.setattr(code_cache, "KEPT", 2)
    keys = [letter * 64 for letter in "abc"]
    for age, key in enumerate(keys[:2]):
        write(key, b"code")
        os.utime(folder / key, (age, age))
    (folder / "notes.txt").write_text("mine")
    os.utime(folder / "notes.txt", (0, 0))
    assert read(keys[0])  # used just now
    write(keys[2], b"code")
    assert sorted(path.name for path in folder.iterdir()) == [keys[0], keys[2], "notes.txt"]


def test_an_interrupted_writes_temporary_file_is_deleted(folder, monkeypatch):
    monkeypatch.setattr(code_cache, "KEPT", 1)
    folder.mkdir(mode=0o700)
    (folder / f"{KEY}.x1").write_bytes(b"half")
    os.utime(folder / f"{KEY}.x1", (0, 0))
    write(KEY, b"code")
    assert [path.name for path in folder.iterdir()] == [KEY]


def test_an_unwritable_cache_folder_is_ignored(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DDPG_CACHE", str(tmp_path / "file"))
    assert run() == 3
    monkeypatch.setenv("DDPG_CACHE", str(tmp_path))
    (tmp_path / "native").mkdir(mode=0o700)
    (tmp_path / "native" / KEY).mkdir()
    write(KEY, b"code")  # a folder has that name
    assert read(KEY) is None
    assert [path.name for path in (tmp_path / "native").iterdir()] == [KEY]
