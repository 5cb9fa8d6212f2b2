"""Run cells on a Ray cluster, each as an actor of one CPU.

A node needs nothing of the study's folder: the cell's files go there with the actor, and what changes comes back
through the object store, now and then and at the end. Where the node is lost, or the study killed, the cell goes on
from what has come back. An actor and not a task, since it can be asked to save and end.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddpg.compiler.thread_pool import available_cores
from ddpg.interaction.env_errors import format_error
from ddpg.runs.lock import hold_cell_log
from ddpg.studies.cell_files import ChangeTracker, FileChanges, apply_changes
from ddpg.studies.cell_process import COMMAND, CellProcess, cell_environment
from ddpg.studies.study import Cell
from ddpg.studies.study_folder import CellFolder
from ddpg.workers.ray_workers import connect_to_ray

INTERVAL = 5.0  # seconds between the files that come back
_LOOK = 1.0  # seconds that an actor waits for its process before it answers
_FRESH = 2.0  # seconds that the size of the cluster is taken for known
_TERMINATED = -15


class RemoteCell:
    """What runs on the cluster.

    Args:
        cell: of the study.
        command: the ``ddpg`` command; where its first word is none, this node's interpreter.
        environment: variables besides the node's.
        folder: where the study was started, which is where the cell runs if the node has it.
        files: of the cell so far.
        interval: seconds between the files that go back.
    """

    def __init__(
        self,
        cell: Cell,
        command: Sequence[str | None],
        environment: Mapping[str, str],
        folder: str,
        files: FileChanges,
        interval: float,
    ):
        self._words = [sys.executable if word is None else word for word in command]
        self._cell, self._environment, self._files, self._interval = cell, environment, files, interval
        self._folder = Path(folder) if Path(folder).is_dir() else None
        self._process: CellProcess | None = None
        self._told = time.monotonic()

    def look(self) -> tuple[int | None, FileChanges]:
        """Return the process's status after at most a second, and what has changed if it is time, or has ended."""
        if self._process is None:
            self._begin()
        assert self._process is not None
        self._process.wait(_LOOK)
        status = self._process.poll()
        if status is None and time.monotonic() - self._told < self._interval:
            return None, FileChanges({}, [])
        changes = self._outbox.changes()
        self._told = time.monotonic()
        if status is not None:
            shutil.rmtree(self._root, ignore_errors=True)
        return status, changes

    def terminate(self) -> None:
        """Ask the process to save and to end."""
        if self._process is not None:
            self._process.terminate()

    def _begin(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="ddpg-cell-"))
        place = CellFolder(self._root, self._cell)
        apply_changes(place.folder, self._files)
        place.folder.mkdir(parents=True, exist_ok=True)
        self._files = FileChanges({}, [])
        self._outbox = ChangeTracker(place.folder)
        self._outbox.mark()
        self._process = CellProcess(place, self._words, self._environment, self._folder)


class RemoteProcess:
    """A cell on the cluster, as its scheduler sees it.

    Args:
        ray: the module.
        actor: a :class:`RemoteCell` on the cluster.
        place: of the cell here, where its files are put.

    Attributes:
        returncode, gone: of :class:`ddpg.studies.cell_process.Process`.
    """

    def __init__(self, ray: Any, actor: Any, place: CellFolder):
        self.returncode: int | None = None
        self.gone: str | None = None
        self._ray, self._actor, self._place = ray, actor, place
        self._log = place.log.open("ab")
        hold_cell_log(self._log)
        self._answered = False
        self._looking = actor.look.remote()

    def poll(self) -> int | None:
        """Return its status; puts files in place that have come."""
        if self.returncode is None and self._ray.wait([self._looking], timeout=0)[0]:
            self._take()
        return self.returncode

    def terminate(self) -> None:
        """Ask it to save and to end; one that still waits for room on the cluster never begins."""
        if self._answered:
            self._actor.terminate.remote()
        elif self.returncode is None:
            self._end(_TERMINATED)

    def wait(self) -> None:
        """Wait until it has ended."""
        while self.poll() is None:
            self._ray.wait([self._looking], timeout=1.0)

    def _take(self) -> None:
        try:
            status, changes = self._ray.get(self._looking)
        except self._ray.exceptions.RayTaskError as error:  # a full disk there, or no such package
            self._log.write(f"ddpg: error: on its node: {format_error(error.cause)}\n".encode())
            self._end(1)
            return
        except self._ray.exceptions.RayError as error:
            self.gone = f"its node is gone ({type(error).__name__})"
            self._end(-9)
            return
        self._answered = True
        apply_changes(self._place.folder, changes)
        if status is None:
            self._looking = self._actor.look.remote()
        else:
            self._end(status)

    def _end(self, status: int) -> None:
        self.returncode = status
        self._log.close()
        self._ray.kill(self._actor)


class RayEngine:
    """Runs cells on a Ray cluster, a CPU each.

    Args:
        jobs: at a time, also where the cluster has fewer CPUs: those wait, and an autoscaler sees them; none: as many
            as it has CPUs, now and when nodes come or go.
        address: of the cluster; none: one of this machine, which :meth:`close` ends.
        command: the ``ddpg`` command; where it begins with this interpreter, a node takes its own.
        interval: seconds between the files that come back.

    Raises:
        UsageError: Ray is not installed.
        EnvironmentFault: no cluster can be reached or started.
    """

    def __init__(
        self,
        jobs: int | None = None,
        address: str | None = None,
        command: Sequence[str] = COMMAND,
        interval: float = INTERVAL,
    ):
        self._ray, self._owned = connect_to_ray(address, jobs or available_cores())
        self._kind = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(RemoteCell)
        self._jobs, self._interval = jobs, interval
        self._command = [None if word == sys.executable else word for word in command]
        self._size, self._sized = 1, -_FRESH

    def slots(self) -> int:
        """Return the jobs, or the cluster's CPUs."""
        if self._jobs is not None:
            return self._jobs
        if time.monotonic() - self._sized >= _FRESH:
            self._sized = time.monotonic()
            self._size = max(1, int(self._ray.cluster_resources().get("CPU", 0)))
        return self._size

    def start(self, place: CellFolder) -> RemoteProcess:
        """Send a cell to the cluster."""
        files = ChangeTracker(place.folder).changes()
        actor = self._kind.remote(place.cell, self._command, cell_environment(1), os.getcwd(), files, self._interval)
        return RemoteProcess(self._ray, actor, place)

    def close(self) -> None:
        """End the cluster if it was started here."""
        if self._owned:
            self._ray.shutdown()
