"""Start cells as forks of a process that has imported TensorFlow, an import that takes most of a short cell's time.

Each cell is a process with its own session, random states and locks, as if it had been started directly. The server and
its cells end with the process that started the server, even if it is killed.

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
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import msgspec

from ddpg.studies.parent_guard import end_with_parent, with_parent_guard

# The server's program. Only this process imports TensorFlow; whoever imports this module does not.
_SERVE = (
    "import sys;sys.path[:]=filter(None,sys.path);from ddpg.cli.main import main;"
    "from ddpg.quiet import load_tensorflow;from ddpg.studies.forked_cells import serve;"
    "load_tensorflow();serve();sys.exit(main())"
)
# The other third-party modules of a run that take longest to import; none of them starts a thread.
_PRELOADED = (
    *("gymnasium", "llvmlite.binding", "safetensors.numpy", "scipy.special", "tqdm", "tyro"),
    *("PIL.Image", "matplotlib.figure", "matplotlib.backends.backend_agg"),
)
_LARGEST = 2**20  # maximum bytes of a message
_REAP_INTERVAL = 0.05  # seconds between two looks of the server at whether cells have ended


class Ready(msgspec.Struct, tag=True):
    """The server has imported its modules; ``forks``: whether it has a single thread, and so can start cells."""

    forks: bool


class Start(msgspec.Struct, tag=True):
    """Start a cell: ``ddpg`` with ``arguments``. The message comes with three open files: output, errors and lock."""

    number: int
    arguments: list[str]


class Terminate(msgspec.Struct, tag=True):
    """Send SIGTERM to a cell."""

    number: int


class Ended(msgspec.Struct, tag=True):
    """A cell has ended; ``status`` is as in :class:`subprocess.Popen`."""

    number: int
    status: int


class CellServer:
    """The client side of a server from which cells are forked.

    Args:
        environment: environment variables of the server and its cells, in addition to this process's.

    Attributes:
        forks: whether it can start cells; ``False`` if the system does not support that or the server has died.
    """

    def __init__(self, environment: Mapping[str, str]):
        self.forks, self._statuses, self._started = False, dict[int, int](), 0
        if sys.platform != "linux":
            return
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        words, _ = with_parent_guard([sys.executable, "-c", _SERVE])
        with theirs:
            self._process = subprocess.Popen(
                words,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=os.environ | dict(environment),
                start_new_session=True,
            )
        self._receive(None)

    def start(self, arguments: Sequence[str], output: BinaryIO, errors: BinaryIO, lock: BinaryIO) -> "ServedCell":
        """Start a cell.

        Args:
            arguments: of the ``ddpg`` command.
            output, errors: open files to which it prints.
            lock: a locked file, which it keeps open until it ends.

        Raises:
            OSError: if the server has died.
        """
        self._started += 1
        message = msgspec.json.encode(Start(self._started, list(arguments)))
        try:
            socket.send_fds(self._connection, [message], [file.fileno() for file in (output, errors, lock)])
        except OSError:
            self._gone()
            raise
        return ServedCell(self, self._started)

    def terminate(self, number: int) -> None:
        """Send a cell SIGTERM, unless it has ended."""
        with contextlib.suppress(OSError):  # the server has died, and the cell with it
            self._connection.send(msgspec.json.encode(Terminate(number)))

    def status(self, number: int, timeout: float | None = 0.0) -> int | None:
        """Wait up to ``timeout`` seconds for a cell to end, and return its status; ``None``: it has not ended."""
        end = None if timeout is None else time.monotonic() + timeout
        while number not in self._statuses:
            if not self._receive(None if end is None else max(0.0, end - time.monotonic())):
                break
        return self._statuses.get(number)

    def close(self) -> None:
        """End the server; cells that are still running end with it."""
        if self.forks:
            self._gone()

    def _receive(self, timeout: float | None) -> bool:
        """Receive one message, waiting up to ``timeout`` seconds; return whether there was one."""
        if not select.select([self._connection], [], [], timeout)[0]:
            return False
        try:
            data = self._connection.recv(_LARGEST)
        except ConnectionError:  # the server died with unread messages
            data = b""
        if not data:
            self._gone()
            return False
        match msgspec.json.decode(data, type=Ready | Ended):
            case Ready(forks):
                self.forks = forks
                if not forks:
                    self._gone()
            case Ended(number, status):
                self._statuses[number] = status
        return True

    def _gone(self) -> None:
        """Wait for the server, which has died or loses its connection now, and count its running cells as killed."""
        self.forks = False
        self._connection.close()
        self._process.wait()
        for number in range(1, self._started + 1):
            self._statuses.setdefault(number, -signal.SIGKILL)


class ServedCell:
    """A cell started by a server, with the part of the interface of :class:`subprocess.Popen` that we use.

    Attributes:
        returncode: its status; ``None`` until :meth:`poll` or :meth:`wait` has seen it end.
    """

    def __init__(self, server: CellServer, number: int):
        self.returncode: int | None = None
        self._server, self._number = server, number

    def poll(self) -> int | None:
        """Return its status, or ``None`` while it runs."""
        if self.returncode is None:
            self.returncode = self._server.status(self._number)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Raises:
            subprocess.TimeoutExpired: if it has not ended after ``timeout`` seconds.
        """
        if self.returncode is None:
            self.returncode = self._server.status(self._number, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("ddpg", timeout or 0.0)
        return self.returncode

    def terminate(self) -> None:
        """Ask the cell to save and end."""
        if self.poll() is None:
            self._server.terminate(self._number)


def serve() -> None:
    """Fork a cell for each message on standard input; return only in the cells, with their arguments in ``sys.argv``.

    The server itself exits when its parent closes the connection.
    """
    connection = socket.socket(fileno=os.dup(0))
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    for module in _PRELOADED:
        importlib.import_module(module)
    forks = len(os.listdir("/proc/self/task")) == 1
    connection.send(msgspec.json.encode(Ready(forks)))
    if forks:
        _Server(connection).run()
    else:
        os._exit(0)


class _Server:
    """The loop of :func:`serve`."""

    def __init__(self, connection: socket.socket):
        self._connection, self._running = connection, dict[int, int]()  # number of a cell by process id

    def run(self) -> None:
        """Serve messages; return only in a forked cell.

        SIGTERM is blocked: a service manager that stops a study sends it to all of the study's processes. If this one
        died of it, its cells would be killed before they have saved.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        while True:
            requested, _, _ = select.select([self._connection], [], [], _REAP_INTERVAL)
            if requested and self._handle_message():
                return
            self._reap()

    def _handle_message(self) -> bool:
        """Handle one message; return whether this process is now a forked cell."""
        data, files, _, _ = socket.recv_fds(self._connection, _LARGEST, 3)
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
        *printed, lock = files
        os.set_inheritable(lock, False)
        for file, place in zip(printed, (1, 2), strict=True):
            os.dup2(file, place)
            os.close(file)
        self._connection.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        sys.argv = ["ddpg", *arguments]
