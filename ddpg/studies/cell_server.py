"""The process from which a study's cells are forked, on Linux.

A fork has only the thread that called it, so the server forks as long as it has no other. That is why it imports other
packages' modules and none of ours: tflearn's import builds a graph, for which TensorFlow starts a thread.
"""

import contextlib
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Sequence

import msgspec

from ddpg.quiet import load_tensorflow
from ddpg.studies.forked_cells import LARGEST, Ended, Ready, Start, Terminate
from ddpg.studies.parent_guard import end_with_parent

# What a run imports of other packages and takes longest; nothing of it starts a thread.
PRELOADED = (
    *("gymnasium", "llvmlite.binding", "safetensors.numpy", "scipy.special", "tqdm", "tyro"),
    *("PIL.Image", "matplotlib.figure", "matplotlib.backends.backend_agg"),
)
_TASKS = "/proc/self/task"


def serve() -> None:
    """Start a cell for each message on standard input; return in each cell, whose arguments are in ``sys.argv``.

    The server itself ends where its parent closes the connection.
    """
    connection = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    load_tensorflow()
    for module in PRELOADED:
        importlib.import_module(module)
    forks = len(os.listdir(_TASKS)) == 1
    connection.send(msgspec.json.encode(Ready(forks)))
    if forks:
        _Server(connection).run()
    else:
        os._exit(0)


class _Server:
    """The loop of :func:`serve`."""

    def __init__(self, connection: socket.socket):
        self._connection, self._running = connection, dict[int, int]()  # number of a cell by process id
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)

    def run(self) -> None:
        """Serve; return in a cell."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        while True:
            asked = self._connection.fileno()
            readable, _, _ = select.select([asked, self._woken], [], [])
            if self._woken in readable:
                os.read(self._woken, LARGEST)
                self._reap()
            if asked in readable and self._take():
                return

    def _take(self) -> bool:
        """Do what one message asks for; return whether this is a cell now."""
        data, files, _, _ = socket.recv_fds(self._connection, LARGEST, 2)
        if not data:
            os._exit(0)
        match msgspec.json.decode(data, type=Start | Terminate):
            case Start(number, arguments):
                server, process = os.getpid(), os.fork()
                if not process:
                    self._become(arguments, files, server)
                    return True
                self._running[process] = number
                for file in files:
                    os.close(file)
            case Terminate(number):
                for process in [process for process, other in self._running.items() if other == number]:
                    os.kill(process, signal.SIGTERM)  # not reaped yet, so the id is still its own
        return False

    def _reap(self) -> None:
        for process in [*self._running]:
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                ended = Ended(self._running.pop(process), os.waitstatus_to_exitcode(status))
                with contextlib.suppress(OSError):  # the parent has died, and this process will
                    self._connection.send(msgspec.json.encode(ended))

    def _become(self, arguments: Sequence[str], files: Sequence[int], server: int) -> None:
        """Make this fork a cell: a session of its own, its files in their places, no trace of the server."""
        os.setsid()
        end_with_parent(server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for file, place in zip(files, (1, 2), strict=True):
            os.dup2(file, place)
            os.close(file)
        self._connection.close()
        os.close(self._woken)
        os.close(self._wake)
        sys.argv = ["ddpg", *arguments]
