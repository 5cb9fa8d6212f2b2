"""Run a cell, which is one run of a study, as a ``ddpg`` process on this machine; and the interface of all engines."""

import abc
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ddpg.checkpoints import atomic_write
from ddpg.compiler.thread_pool import INTRAOP, available_cores
from ddpg.errors import FileFault
from ddpg.runs import signals
from ddpg.runs.lock import lock_cell_log
from ddpg.studies.forked_cells import CellServer, ServedCell
from ddpg.studies.parent_guard import terminate, with_parent_guard
from ddpg.studies.study_folder import CellFolder, read_evaluation

# Not ``-m ddpg``: it would import from the working directory first (the empty entry of sys.path).
_MAIN = (
    "import sys;sys.path[:]=filter(None,sys.path);sys.argv[0]='ddpg';from ddpg.cli.main import main;sys.exit(main())"
)
COMMAND = (sys.executable, "-c", _MAIN)


class Process(abc.ABC):
    """A running cell, here or on another machine; once it has ended, its files are in its folder on this machine.

    Attributes:
        returncode: as in :class:`subprocess.Popen`: negative if a signal ended it; ``None`` while it runs.
        gone: the reason why its machine was lost; ``None`` if it was not.
    """

    returncode: int | None = None
    gone: str | None = None

    @property
    def waiting(self) -> bool:
        """Whether it is in a queue and has not begun, as far as is known."""
        return False

    @abc.abstractmethod
    def poll(self) -> int | None:
        """Return the current ``returncode`` without waiting."""

    @abc.abstractmethod
    def terminate(self) -> None:
        """Ask the cell to save and end."""

    def wait(self) -> None:
        """Wait until it has ended."""
        while self.poll() is None:
            time.sleep(0.1)


class Engine(abc.ABC):
    """Runs cells on this machine or a cluster.

    Attributes:
        queues: whether a started cell can wait in a queue for a long time; its job then runs all stages that are left.
    """

    queues = False

    @abc.abstractmethod
    def slots(self) -> int:
        """Return how many cells can run at once at the moment."""

    def holds(self, folder: CellFolder) -> bool:
        """Return whether a job that an earlier command submitted works on a cell; :meth:`start` then follows it.

        Never so for an engine whose cells end with the study.

        Raises:
            ddpg.studies.slurm_commands.Unavailable: if that is unknown at the moment; no cell may be started then.
        """
        return False

    @abc.abstractmethod
    def start(self, folder: CellFolder) -> Process:
        """Start the next stage of a cell, whose folder exists."""

    def close(self) -> None:
        """Release the engine's resources; the cells' folders are kept."""


class CellProcess(Process):
    """The next stage of a cell as a process on this machine; its output goes to the cell's log.

    The process ends with this one, even if this one is killed, so that no orphan keeps computing.

    Args:
        folder: the folder of the cell.
        command: the ``ddpg`` command, to which the cell's arguments are added.
        threads: number of threads of the cell.
        cwd: its working directory; ``None``: this process's.
        server: a server that forks the cell instead, with the server's environment and this process's directory.
    """

    def __init__(
        self,
        folder: CellFolder,
        command: Sequence[str],
        threads: int,
        cwd: Path | None = None,
        server: CellServer | None = None,
    ):
        self._folder, self._evaluates = folder, folder.stage == "evaluate"
        self._partial = atomic_write.temporary_path(folder.final)  # an evaluation's result, until it is complete
        with lock_cell_log(folder.log) as lock, folder.log.open("ab") as log, contextlib.ExitStack() as stack:
            output = stack.enter_context(self._partial.open("wb")) if self._evaluates else log
            self._process: subprocess.Popen | ServedCell
            if server is not None:
                with contextlib.suppress(OSError):  # the server has died, so start a new process below
                    self._process = server.start(folder.arguments(), output, log, lock)
                    return
            words, stdin = with_parent_guard([*command, *folder.arguments()])
            self._process = subprocess.Popen(
                words,
                stdin=stdin,
                stdout=output,
                stderr=log,
                env=os.environ | cell_environment(threads),
                cwd=cwd,
                pass_fds=(lock.fileno(),) if os.name == "posix" else (),
                start_new_session=True,  # Ctrl-C should reach only this process, which then terminates the cell
            )

    def poll(self) -> int | None:
        """Return its status, or ``None`` while it runs; after an evaluation, also store the result."""
        if self.returncode is None and self._process.poll() is not None:
            self.returncode = self._process.returncode
            if self._evaluates:
                self._store_result()
        return self.returncode

    def _store_result(self) -> None:
        """Move the evaluation's result to its final path; if it is not valid, the cell has failed.

        The process may have failed after it had printed the result: the environment in ``close``, a library at exit.
        """
        try:
            read_evaluation(self._partial, "something else was printed beside the evaluation's result")
        except FileFault as fault:
            if self.returncode == 0:
                self._folder.log_error(str(fault))
                self.returncode = 4
        else:
            self._partial.replace(self._folder.final)

    def terminate(self) -> None:
        """Ask the cell to save and end; on Windows, end it at once."""
        if isinstance(self._process, ServedCell):
            self._process.terminate()
        else:
            terminate(self._process)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most ``timeout`` seconds."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return
        self.poll()


class LocalEngine(Engine):
    """Runs cells as processes on this machine, which share its cores.

    If possible, they are forks of a process that has imported TensorFlow; otherwise each imports it itself.

    Args:
        jobs: maximum number of cells at a time; ``None``: one per core.
        command: the ``ddpg`` command; with any command but :data:`COMMAND` cells are not forked.
    """

    def __init__(self, jobs: int | None = None, command: Sequence[str] = COMMAND):
        cores = available_cores()
        self._jobs, self._command = cores if jobs is None else jobs, command
        self._threads = max(1, cores // self._jobs)
        self._server: CellServer | None = None

    def slots(self) -> int:
        """Return the number of jobs."""
        return self._jobs

    def start(self, folder: CellFolder) -> CellProcess:
        """Start the next stage of a cell."""
        if self._server is None and self._command == COMMAND:
            self._server = CellServer(cell_environment(self._threads))
        server = self._server if self._server is not None and self._server.forks else None
        return CellProcess(folder, self._command, self._threads, server=server)

    def close(self) -> None:
        """End the process from which cells are forked; the caller has waited for the cells."""
        if self._server is not None:
            self._server.close()


def cell_environment(threads: int) -> dict[str, str]:
    """Return a cell's environment variables, with which it has ``threads`` threads."""
    return {"TF_CPP_MIN_LOG_LEVEL": "3", INTRAOP: str(threads), signals.CELL: "1"}
