"""Child processes that end with their parent: by a parent-death signal on Linux, by a pipe elsewhere."""

import fcntl
import signal
import subprocess
import sys

import pytest

from ddpg.studies.parent_guard import terminate, with_parent_guard

METHODS = ["pipe", *(["signal"] if sys.platform == "linux" else [])]
# Locks the file named by its first argument, prints "ready", and writes "survived" to the file after 300 s.
CHILD = """
import fcntl, signal, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("ready", flush=True)
signal.sigtimedwait([], 300)
file.write("survived")
"""
PARENT = """
import subprocess, sys
from ddpg.studies.parent_guard import with_parent_guard
words, stdin = with_parent_guard([sys.executable, "-c", *sys.argv[2:]], sys.argv[1])
subprocess.Popen(words, stdin=stdin).wait()
"""


def started(command, method):
    words, stdin = with_parent_guard(command, method)
    return subprocess.Popen(words, stdin=stdin, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("method", METHODS)
def test_a_child_ends_when_its_parent_is_killed(method, tmp_path):
    lock = tmp_path / "lock"
    words = [sys.executable, "-c", PARENT, method, CHILD, str(lock)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "ready\n"
        parent.send_signal(signal.SIGKILL)
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # waits until the child has ended
            assert file.read() == ""


@pytest.mark.parametrize("method", METHODS)
def test_status_signals_and_output_are_passed_through(method):
    with started([sys.executable, "-c", "print('said'); raise SystemExit(3)"], method) as ended:
        assert (ended.stdout.read(), ended.wait()) == ("said\n", 3)
    with started([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], method) as killed:
        assert killed.wait() == -signal.SIGKILL
    saves = "import signal; signal.signal(15, lambda *_: exit(7)); print(flush=True); signal.pause()"
    with started([sys.executable, "-c", saves], method) as terminated:
        terminated.stdout.readline()
        terminate(terminated)
        assert terminated.wait() == 7
        terminate(terminated)


@pytest.mark.parametrize("method", METHODS)
def test_a_guard_passes_the_signal_of_a_service_manager_on(method):
    saves = "import signal; signal.signal(15, lambda *_: exit(7)); print(flush=True); signal.pause()"
    with started([sys.executable, "-c", saves], method) as terminated:
        terminated.stdout.readline()
        terminated.terminate()
        assert terminated.wait() == 7


def test_a_child_ends_if_its_parent_died_before_the_guard_started(tmp_path):
    words, _ = with_parent_guard([sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"], "signal")
    words[3] = str(int(words[3]) + 1)  # not the parent, which is this process
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert not (tmp_path / "ran").exists()
