"""Run a command that is killed when its parent dies, whatever the cause. It runs as a script and imports no package.

    python -IS parent_guard.py PARENT METHOD COMMAND...

On Linux (``METHOD`` is ``signal``) the kernel sends SIGKILL when the parent dies, and the command replaces this script
(exec). Elsewhere (``pipe``) standard input is a pipe whose other end only the parent holds. The pipe closes when the
parent dies, and this script, which keeps running beside the command, then kills the command. A byte in the pipe asks it
to terminate the command.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def with_parent_guard(command: Sequence[str], method: str | None = None) -> tuple[list[str], int]:
    """Return ``command`` wrapped so that it ends with this process, and the standard input to give it.

    Args:
        command: the command to run.
        method: ``"signal"`` or ``"pipe"``; by default the one that this system supports.

    Returns:
        The wrapped command, and ``subprocess.DEVNULL`` or, for ``"pipe"``, ``subprocess.PIPE``.
    """
    method = method or ("signal" if sys.platform == "linux" else "pipe")
    words = [sys.executable, "-IS", os.path.abspath(__file__), str(os.getpid()), method, *command]
    return words, subprocess.DEVNULL if method == "signal" else subprocess.PIPE


def terminate(process: subprocess.Popen) -> None:
    """Terminate the command that ``process`` guards: with SIGTERM; Windows has no such signal, and ends it at once.

    A guard with a pipe is asked to do so, because on Windows terminating the guard would leave the command running.
    """
    if process.stdin is None:
        process.terminate()
        return
    with contextlib.suppress(OSError):  # it has ended
        os.write(process.stdin.fileno(), b"t")


def end_with_parent(parent: int) -> None:
    """Let Linux kill this process when the process ``parent`` dies; kill it now if that process has died already."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _end_by_signal(parent: int, command: Sequence[str]) -> None:
    end_with_parent(parent)
    os.execvp(command[0], list(command))


def _end_by_pipe(command: Sequence[str]) -> int:
    """Run a command while watching the pipe; return its status, or end by the signal that ended the command."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def watch() -> None:
        while os.read(0, 1):
            process.terminate()
        process.kill()

    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    threading.Thread(target=watch, daemon=True).start()
    status = process.wait()
    if status < 0:
        if -status not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    if sys.argv[2] == "signal":
        _end_by_signal(int(sys.argv[1]), sys.argv[3:])
    sys.exit(_end_by_pipe(sys.argv[3:]))
