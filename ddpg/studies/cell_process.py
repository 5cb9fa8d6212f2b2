"""Run the ``ddpg`` command on a cell in a process of this machine; the interface of engines."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ddpg.compiler.thread_pool import INTRAOP, available_cores
from ddpg.errors import FileFault
from ddpg.runs.lock import hold_cell_log
from ddpg.studies.parent_guard import guarded
from ddpg.studies.study_folder import CellFolder, read_evaluation

# Not ``-m ddpg``, with which modules of the working directory go before all others. An empty entry stands for it.
_MAIN = (
    "import sys;sys.path[:]=filter(None,sys.path);sys.argv[0]='ddpg';from ddpg.cli.main import main;sys.exit(main())"
)
COMMAND = (sys.executable, "-c", _MAIN)


class Process(Protocol):
    """A cell under way, here or elsewhere; what it has written is in its folder here when it has ended.

    Attributes:
        returncode: as of :class:`subprocess.Popen`: negative where a signal ended it; ``None`` as long as it runs.
        gone: why it was lost through no fault of its own, with the machine that it was on; ``None`` where it was not.
    """

    returncode: int | None
    gone: str | None

    def poll(self) -> int | None:
        """Return ``returncode``, as it is now. Does not wait."""

    def terminate(self) -> None:
        """Ask it to save and to end."""

    def wait(self) -> None:
        """Wait until it has ended."""


class Engine(Protocol):
    """Where cells are run."""

    def slots(self) -> int:
        """Return how many of them may be under way at once, as it is now."""

    def start(self, place: CellFolder) -> Process:
        """Begin what is next in a cell. Its folder exists."""

    def close(self) -> None:
        """Let go of what belongs to the engine, and of no cell's folder."""


class CellProcess:
    """What is next in a cell, in a process of this machine; what it says goes to the cell's log.

    It ends with this process, also where that is killed: nothing is left behind that computes on.

    Args:
        place: of the cell.
        command: the ``ddpg`` command, to which the cell's arguments are added.
        environment: variables besides this process's.
        folder: where it runs; none: where this process does.

    Attributes:
        returncode, gone: of :class:`Process`.
    """

    def __init__(
        self,
        place: CellFolder,
        command: Sequence[str],
        environment: Mapping[str, str],
        folder: Path | None = None,
    ):
        self.returncode: int | None = None
        self.gone: str | None = None
        self._place, self._evaluates = place, place.stage == "evaluate"
        words, stdin = guarded([*command, *place.arguments()])
        with place.log.open("ab") as log, contextlib.ExitStack() as stack:
            output = stack.enter_context(partial_result_path(place).open("wb")) if self._evaluates else log
            hold_cell_log(log)
            self._process = subprocess.Popen(
                words,
                stdin=stdin,
                stdout=output,
                stderr=log,
                env=os.environ | dict(environment),
                cwd=folder,
                start_new_session=True,  # a terminal's Ctrl-C is for this process, which asks it
            )

    def poll(self) -> int | None:
        """Return its status, ``None`` as long as it runs; where it has evaluated, the result is then in its place."""
        if self.returncode is None and self._process.poll() is not None:
            self.returncode = self._process.returncode
            if self._evaluates and self.returncode == 0:
                self._take()
        return self.returncode

    def _take(self) -> None:
        """Put the result in its place; where it is none, the cell has failed."""
        result = partial_result_path(self._place)
        try:
            read_evaluation(result, "something else was printed beside the evaluation's result")
        except FileFault as fault:
            with self._place.log.open("a", encoding="utf-8") as log:
                log.write(f"ddpg: error: {fault}\n")
            self.returncode = 4
        else:
            result.replace(self._place.final)

    def terminate(self) -> None:
        """Ask it to save and to end."""
        self._process.terminate()

    def wait(self, timeout: float | None = None) -> None:
        """Wait until it has ended, or so many seconds."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return
        self.poll()


class LocalEngine:
    """Runs cells as processes of this machine, which share its cores.

    Args:
        jobs: at a time; none: one for every core.
        command: the ``ddpg`` command.
    """

    def __init__(self, jobs: int | None = None, command: Sequence[str] = COMMAND):
        cores = available_cores()
        self._jobs, self._command = cores if jobs is None else jobs, command
        self._environment = cell_environment(threads_per_cell(self._jobs, cores))

    def slots(self) -> int:
        """Return the jobs."""
        return self._jobs

    def start(self, place: CellFolder) -> CellProcess:
        """Begin what is next in a cell."""
        return CellProcess(place, self._command, self._environment)

    def close(self) -> None:
        """Do nothing: the processes belong to who waits for them."""


def cell_environment(threads: int) -> dict[str, str]:
    """Return the environment variables of a cell that may use so many threads."""
    return {"TF_CPP_MIN_LOG_LEVEL": "3", INTRAOP: str(threads)}


def threads_per_cell(jobs: int, cores: int) -> int:
    """Return how many threads each of so many processes may use."""
    return max(1, cores // jobs)


def partial_result_path(place: CellFolder) -> Path:
    """Return where an evaluation's result is written until it is whole."""
    return place.final.with_name(f".{place.final.name}.ddpg-writing")
