"""The process from which a study's cells are forked, on Linux.

Only the calling thread survives in a forked child, so the server can fork only while it has a single thread. That is
why it preloads third-party modules, but none of this package's: importing tflearn builds a graph, for which TensorFlow
starts a thread.
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

# The third-party modules of a run that take longest to import; none of them starts a thread.
PRELOADED = (
    *("gymnasium", "llvmlite.binding", "safetensors.numpy", "scipy.special", "tqdm", "tyro"),
    *("PIL.Image", "matplotlib.figure", "matplotlib.backends.backend_agg"),
)
_TASKS = "/proc/self/task"


def serve() -> None:
    """Fork a cell for each message on standard input; return only in the cells, with their arguments in ``sys.argv``.

    The server itself exits when its parent closes the connection.
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
        """Serve messages; return only in a forked cell."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        while True:
            requests = self._connection.fileno()
            readable, _, _ = select.select([requests, self._woken], [], [])
            if self._woken in readable:
                os.read(self._woken, LARGEST)
                self._reap()
            if requests in readable and self._handle_message():
                return

    def _handle_message(self) -> bool:
        """Handle one message; return whether this process is now a forked cell."""
        data, files, _, _ = socket.recv_fds(self._connection, LARGEST, 3)
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
                    os.kill(process, signal.SIGTERM)  # not reaped yet, so the process id cannot be another process's
        return False

    def _reap(self) -> None:
        for process in [*self._running]:
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                ended = Ended(self._running.pop(process), os.waitstatus_to_exitcode(status))
                with contextlib.suppress(OSError):  # the parent has died, so this process is about to end
                    self._connection.send(msgspec.json.encode(ended))

    def _become(self, arguments: Sequence[str], files: Sequence[int], server: int) -> None:
        """Turn this fork into a cell: give it its own session and output files, and undo the server's set-up."""
        os.setsid()
        end_with_parent(server)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        *printed, lock = files
        os.set_inheritable(lock, False)
        for file, place in zip(printed, (1, 2), strict=True):
            os.dup2(file, place)
            os.close(file)
        self._connection.close()
        os.close(self._woken)
        os.close(self._wake)
        sys.argv = ["ddpg", *arguments]
