"""Streams that are closed from the start, and characters that a stream's encoding lacks."""

import contextlib
import errno
import io
import os
import pty
import subprocess
import sys

import pytest
from refusals import refuses

from ddpg.cli.terminal import BrokenPipeTolerantStream, tolerate_broken_pipes


def run_in_shell(command, closing):
    """Run Python in a shell that closes streams; return the status, stdout and stderr."""
    line = f"exec {sys.executable} {command} {closing}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("closing", "arguments", "status", "begin"),
    [
        (">&-", "evaluate --help", 0, ""),
        (">&-", "evaluate", 2, "ddpg: error: "),
        ("2>&-", "evaluate", 2, ""),
        (">&- 2>&- <&-", "evaluate", 2, ""),
    ],
)
def test_commands_with_closed_streams(closing, arguments, status, begin):
    found, out, err = run_in_shell(f"-m ddpg {arguments}", closing)
    assert (found, out, err[: len("ddpg: error: ")]) == (status, "", begin)
    assert err.count("\n") == (begin != "")


WRITES = """
import os, subprocess, sys
from ddpg.cli.terminal import tolerate_broken_pipes
with tolerate_broken_pipes():
    assert not sys.stderr.isatty()
    print("a \\u00d7", file=sys.stderr, flush=True)
    mine = open(sys.argv[1], "w")
    os.write(2, b"a library's")
    subprocess.run([sys.executable, "-c", "import os; os.write(2, b'a child')"], check=True)
assert mine.fileno() not in (1, 2)
print("size", os.path.getsize(sys.argv[1]))
"""


@pytest.mark.parametrize("closing", ["2>&-", "2>&- <&-"])
def test_output_to_a_closed_stderr_does_not_reach_the_next_file(closing, tmp_path):
    (tmp_path / "writes.py").write_text(WRITES)
    found = run_in_shell(f"{tmp_path / 'writes.py'} {tmp_path / 'file'}", closing)
    assert found == (0, "size 0\n", "")


def test_characters_that_the_encoding_lacks_are_escaped(monkeypatch):
    ascii_only = io.TextIOWrapper(io.BytesIO(), "ascii", newline="\n")
    monkeypatch.setattr(sys, "stdout", ascii_only)
    with tolerate_broken_pipes():
        print("hidden=64×64")
        print("plain")
    assert ascii_only.buffer.getvalue() == b"hidden=64\\xd764\nplain\n"


def test_a_stream_that_is_none_while_its_descriptor_is_open(monkeypatch):
    """As under ``pythonw``, or after a library has removed it."""
    monkeypatch.setattr(sys, "stdout", None)
    with tolerate_broken_pipes():
        print("nowhere", flush=True)
        nowhere = sys.stdout
    assert sys.stdout is None
    assert nowhere.closed


def test_what_is_printed_to_a_closed_terminal_is_discarded():
    terminal, end = pty.openpty()
    stream = BrokenPipeTolerantStream(os.fdopen(end, "w"))
    stream.write("seen\n")
    stream.flush()
    os.close(terminal)
    stream.write("not seen\n")
    stream.flush()
    stream._stream.close()


@pytest.mark.parametrize(("number", "reported"), [(errno.EPIPE, False), (errno.EINVAL, False), (errno.ENOSPC, True)])
def test_what_is_printed_to_a_closed_pipe_is_discarded(number, reported):
    """Writing to one raises EINVAL on Windows."""

    class Failing(io.RawIOBase):
        def writable(self):
            return True

        def fileno(self):
            return spare

        def write(self, data):
            raise OSError(number, os.strerror(number))

    spare = os.open(os.devnull, os.O_WRONLY)
    raw = Failing()
    stream = BrokenPipeTolerantStream(io.TextIOWrapper(raw, "ascii", write_through=True))
    with refuses(OSError, os.strerror(number)) if reported else contextlib.nullcontext():
        stream.write("not seen\n")
    os.close(spare)
