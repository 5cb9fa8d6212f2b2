"""A command that ends with the process that started it, however that ends: run as a script, which imports nothing.

    python -IS parent_guard.py PARENT METHOD COMMAND...

On Linux (``METHOD`` is ``signal``) the system sends SIGKILL when the parent has died, and the command takes this
script's place. Elsewhere (``pipe``) standard input is a pipe of which only the parent has the other end: it reads as
ended when the parent has died, and this script, which stays beside the command, kills it then.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def guarded(command: Sequence[str], method: str | None = None) -> tuple[list[str], int]:
    """Return a command that ends with this process, and what its standard input has to be.

    Args:
        command: what to run.
        method: ``"signal"`` or ``"pipe"``; by default what this system has.

    Returns:
        The words, and ``subprocess.DEVNULL`` or, where its end must be seen, ``subprocess.PIPE``.
    """
    method = method or ("signal" if sys.platform == "linux" else "pipe")
    words = [sys.executable, "-IS", os.path.abspath(__file__), str(os.getpid()), method, *command]
    return words, subprocess.DEVNULL if method == "signal" else subprocess.PIPE


def _end_by_signal(parent: int, command: Sequence[str]) -> None:
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that
        os.kill(os.getpid(), signal.SIGKILL)
    os.execvp(command[0], list(command))


def _end_by_pipe(command: Sequence[str]) -> int:
    """Run a command beside the pipe; return its status, or end by the signal that ended it."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def watch() -> None:
        while os.read(0, 1):
            pass
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
