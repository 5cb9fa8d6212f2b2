"""Compiled code on disk: found again, and never taken where it may be somebody else's."""

import os

import numpy as np
import pytest

from ddpg.native import code_cache, engine
from ddpg.native.code_cache import read, write

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
    compiled = engine.Compiled(text, 2)
    compiled.run(1, 0, block.ctypes.data, block.ctypes.data)
    return block[0]


def test_code_is_compiled_once(folder, monkeypatch):
    made = []
    optimised = engine.optimised
    monkeypatch.setattr(engine, "optimised", lambda *given: made.append(0) or optimised(*given))
    assert [run(), run(), run(ADD.replace("1.0", "2.0")), run()] == [3, 3, 4, 3]
    assert len(made) == 2
    assert len(list(folder.iterdir())) == 2


def test_code_is_of_this_processor(folder, monkeypatch):
    run()
    monkeypatch.setattr(engine._llvm(), "get_host_cpu_name", lambda: "x86-64")
    run()
    assert len(list(folder.iterdir())) == 2


def test_code_is_of_this_pipeline(folder, monkeypatch):
    run()
    monkeypatch.setattr(engine, "PIPELINE", engine.PIPELINE + 1)
    run()
    assert len(list(folder.iterdir())) == 2


def test_off_keeps_nothing(folder, monkeypatch):
    monkeypatch.setenv("DDPG_CACHE", "off")
    assert run() == 3
    assert not folder.exists()


def test_changed_files_are_compiled_anew(folder):
    run()
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for damaged in (b"", whole[:-1], whole[:50], whole[:60] + bytes([whole[60] ^ 1]) + whole[61:]):
        file.write_bytes(damaged)
        assert read(file.name) is None
        assert run() == 3
        assert file.read_bytes() == whole


def test_a_file_has_its_digest_before_its_code(folder):
    write(KEY, b"code")
    digest = bytes.fromhex("5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b")
    assert (folder / KEY).read_bytes() == digest + b"code"
    assert read(KEY) == b"code"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners here")
def test_nothing_is_read_where_others_may_write(folder, monkeypatch):
    write(KEY, b"code")
    assert folder.stat().st_mode & 0o077 == 0
    for mode in (0o720, 0o702):
        folder.chmod(mode)
        assert read(KEY) is None
    folder.chmod(0o700)
    assert read(KEY) == b"code"
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    assert read(KEY) is None


def test_what_was_used_longest_ago_makes_room_and_files_of_others_stay(folder, monkeypatch):
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


def test_what_a_kill_left_makes_room(folder, monkeypatch):
    monkeypatch.setattr(code_cache, "KEPT", 1)
    folder.mkdir(mode=0o700)
    (folder / f"{KEY}.x1").write_bytes(b"half")
    os.utime(folder / f"{KEY}.x1", (0, 0))
    write(KEY, b"code")
    assert [path.name for path in folder.iterdir()] == [KEY]


def test_a_place_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DDPG_CACHE", str(tmp_path / "file"))
    assert run() == 3
    monkeypatch.setenv("DDPG_CACHE", str(tmp_path))
    (tmp_path / "native").mkdir(mode=0o700)
    (tmp_path / "native" / KEY).mkdir()
    write(KEY, b"code")  # no file can have that name
    assert read(KEY) is None
    assert [path.name for path in (tmp_path / "native").iterdir()] == [KEY]
