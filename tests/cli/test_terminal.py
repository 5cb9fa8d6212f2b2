"""Streams that are closed from the start, or have no letters for what is written."""

import io
import os
import subprocess
import sys

import pytest

from ddpg.cli.terminal import tolerate_broken_pipes


def ended(command, closing, **surroundings):
    """Return how ``sh`` ends a command of Python's where streams are closed, and what stood on the two others."""
    line = f"exec {sys.executable} {command} {closing}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, env=os.environ | surroundings)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("closing", "arguments", "status", "told"),
    [
        (">&-", "evaluate --help", 0, ""),
        (">&-", "evaluate", 2, "ddpg: error: "),
        ("2>&-", "evaluate", 2, ""),
        (">&- 2>&- <&-", "evaluate", 2, ""),
    ],
)
def test_commands_of_a_process_without_streams(closing, arguments, status, told):
    found, out, err = ended(f"-m ddpg {arguments}", closing)
    assert (found, out, err[: len("ddpg: error: ")]) == (status, "", told)
    assert err.count("\n") == (told != "")


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
print("whole", os.path.getsize(sys.argv[1]))
"""


@pytest.mark.parametrize("closing", ["2>&-", "2>&- <&-"])
def test_the_next_file_does_not_get_what_goes_to_stderr(closing, tmp_path):
    (tmp_path / "writes.py").write_text(WRITES)
    found = ended(f"{tmp_path / 'writes.py'} {tmp_path / 'file'}", closing)
    assert found == (0, "whole 0\n", "")


def test_what_a_stream_has_no_letters_for_is_escaped(monkeypatch):
    ascii_only = io.TextIOWrapper(io.BytesIO(), "ascii", newline="\n")
    monkeypatch.setattr(sys, "stdout", ascii_only)
    with tolerate_broken_pipes():
        print("hidden=64×64")
        print("plain")
    assert ascii_only.buffer.getvalue() == b"hidden=64\\xd764\nplain\n"


def test_a_stream_that_is_gone_while_its_descriptor_is_not(monkeypatch):
    """As under ``pythonw``, or where a library takes it away."""
    monkeypatch.setattr(sys, "stdout", None)
    with tolerate_broken_pipes():
        print("nowhere", flush=True)
        nowhere = sys.stdout
    assert sys.stdout is None
    assert nowhere.closed
