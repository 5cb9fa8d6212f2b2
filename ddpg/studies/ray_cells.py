"""Run cells on a Ray cluster, each as an actor with one CPU.

Nodes need no access to the study's folder: a cell's files are sent with its actor, and changes come back through the
object store, periodically and at the end. If the node is lost or the study is killed, the cell resumes from the files
that have come back. Cells are actors rather than tasks, because an actor can be asked to save and end.

Files are written in an order on which ``ddpg resume`` can rely: tables are never older than the checkpoints beside
them, and a checkpoint's manifest is written last and removed first.
"""

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ddpg.checkpoints import atomic_write
from ddpg.checkpoints.manifest import MANIFEST
from ddpg.compiler.thread_pool import available_cores
from ddpg.errors import format_error
from ddpg.runs import run_config
from ddpg.runs.lock import lock_cell_log, run_lock, was_killed_holding
from ddpg.studies.cell_process import COMMAND, CellProcess, Engine, Process
from ddpg.studies.study import Cell
from ddpg.studies.study_folder import CellFolder
from ddpg.workers.ray_workers import connect_to_ray

INTERVAL = 5.0  # seconds between transfers of changed files
_POLL_WAIT = 1.0  # seconds that an actor waits for its process before it replies
_SIZE_MAX_AGE = 2.0  # seconds before the size of the cluster is read again
_ATTEMPTS = 5
_PREFIX = "ddpg-cell-"  # of a cell's folder on its node
_Timestamp = tuple[int, int]  # size in bytes, modification time in nanoseconds


class FileChanges(NamedTuple):
    """Changes in a folder: new or changed files by relative path, and the paths of removed ones."""

    files: dict[str, bytes]
    removed: list[str]


class ChangeTracker:
    """Finds the changes in a cell's folder since the last call, while a run may be writing to it.

    Files whose names begin with a dot (locks and unfinished files) are ignored.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._sent: dict[str, _Timestamp] = {}

    def changes(self) -> FileChanges:
        """Return the changes; none if the folder kept changing while it was read."""
        for _ in range(_ATTEMPTS):
            try:
                stamps = self._timestamps()
                # Checkpoints are read first, so that tables can only be newer, as after a killed process.
                new = [name for name in sorted(stamps, key=_is_table) if self._sent.get(name) != stamps[name]]
                files = {name: (self._folder / name).read_bytes() for name in new}
                after = self._timestamps()
            except FileNotFoundError:  # a file was removed in the meantime
                continue
            if all(after.get(name) == stamp for name, stamp in stamps.items() if not _is_table(name)):
                removed = [name for name in self._sent if name not in stamps]
                self._sent = stamps
                return FileChanges(files, removed)
        return FileChanges({}, [])

    def mark_sent(self) -> None:
        """Count the current files as sent."""
        self._sent = self._timestamps()

    def _timestamps(self) -> dict[str, _Timestamp]:
        found = {}
        for directory, folders, names in os.walk(self._folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                path = Path(directory, name)
                if not name.startswith(".") and path.is_file() and not path.is_symlink():
                    status = path.stat()
                    found[path.relative_to(self._folder).as_posix()] = (status.st_size, status.st_mtime_ns)
        return found


def apply_changes(folder: Path, changes: FileChanges) -> None:
    """Apply to a cell's folder, which is created if it is missing, the changes made in its copy."""
    _remove(folder, [name for name in changes.files if _is_manifest(name)])
    for name in sorted(changes.files, key=_write_order):
        _write(folder / name, changes.files[name])
    _remove(folder, sorted(changes.removed, key=lambda name: not _is_manifest(name)))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".txt":  # the lock of a log belongs to the file, so the log must not be replaced by a new file
        path.write_bytes(data)
        return
    with atomic_write.replacing(path) as temporary:
        temporary.write_bytes(data)


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        path = folder / name
        path.unlink(missing_ok=True)
        if path.parent != folder and path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()


def _write_order(name: str) -> int:
    """Return a file's place in the write order: what makes a checkpoint or a run valid is written after the rest."""
    return 3 if Path(name).name == run_config.CONFIG else 2 if _is_manifest(name) else 0 if _is_table(name) else 1


def _is_table(name: str) -> bool:
    return "checkpoints" not in Path(name).parts


def _is_manifest(name: str) -> bool:
    return Path(name).name == MANIFEST


class RemoteCell:
    """The actor on the cluster that runs one cell.

    Args:
        cell: the cell.
        command: the ``ddpg`` command; ``None`` as a word stands for the node's interpreter.
        cwd: the directory in which the study was started; the cell runs there if it exists on the node.
        files: the cell's files so far.
        interval: seconds between transfers of changed files.
    """

    def __init__(self, cell: Cell, command: Sequence[str | None], cwd: str, files: FileChanges, interval: float):
        self._words = [sys.executable if word is None else word for word in command]
        self._cell, self._files, self._interval = cell, files, interval
        self._cwd = Path(cwd) if Path(cwd).is_dir() else None
        self._process: CellProcess | None = None
        self._sent_at = time.monotonic()
        self._lock = contextlib.ExitStack()  # shows other cells of the node that the folder is in use

    def look(self) -> tuple[int | None, FileChanges]:
        """Wait up to a second, and return the process's status with the changed files, if they are due or it ended."""
        if self._process is None:
            self._begin()
        assert self._process is not None
        self._process.wait(_POLL_WAIT)
        status = self._process.poll()
        if status is None and time.monotonic() - self._sent_at < self._interval:
            return None, FileChanges({}, [])
        changes = self._outbox.changes()
        self._sent_at = time.monotonic()
        if status is not None:
            self._lock.close()
            self._remove_root()
        return status, changes

    def terminate(self) -> None:
        """Ask the process to save and end."""
        if self._process is not None:
            self._process.terminate()

    def _begin(self) -> None:
        _remove_left_folders()
        self._root = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._remove_root = weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
        self._lock.enter_context(run_lock(self._root))
        folder = CellFolder(self._root, self._cell)
        apply_changes(folder.path, self._files)
        folder.path.mkdir(parents=True, exist_ok=True)
        self._files = FileChanges({}, [])
        self._outbox = ChangeTracker(folder.path)
        self._outbox.mark_sent()
        self._process = CellProcess(folder, self._words, threads=1, cwd=self._cwd)


def _remove_left_folders() -> None:
    """Remove this user's folders of cells whose actors were killed; a replay buffer in them takes much space."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            is_own = not hasattr(os, "getuid") or folder.lstat().st_uid == os.getuid()
            if is_own and not folder.is_symlink() and was_killed_holding(folder):
                shutil.rmtree(folder, ignore_errors=True)


class RemoteProcess(Process):
    """The scheduler's handle of a cell on the cluster.

    Args:
        ray: the module.
        actor: a :class:`RemoteCell` on the cluster.
        folder: the cell's folder here, to which its files are copied.
    """

    def __init__(self, ray: Any, actor: Any, folder: CellFolder):
        self._ray, self._actor, self._folder = ray, actor, folder
        self._log = lock_cell_log(folder.log)
        self._started = False
        self._pending_poll = actor.look.remote()

    def poll(self) -> int | None:
        """Store the files that have arrived, and return the cell's status."""
        if self.returncode is None and self._ray.wait([self._pending_poll], timeout=0)[0]:
            self._receive()
        return self.returncode

    def terminate(self) -> None:
        """Ask the cell to save and end; a cell that still waits for a CPU never starts."""
        if self._started:
            self._actor.terminate.remote()
        elif self.returncode is None:
            self._end(-signal.SIGTERM)

    def _receive(self) -> None:
        try:
            status, changes = self._ray.get(self._pending_poll)
        except self._ray.exceptions.RayTaskError as error:  # such as a full disk or a missing package on the node
            self._folder.log_error(f"on its node: {format_error(error.cause)}")
            self._end(1)
            return
        except self._ray.exceptions.RayError as error:
            self.gone = f"its node is gone ({type(error).__name__})"
            self._end(-9)
            return
        self._started = True
        apply_changes(self._folder.path, changes)
        if status is None:
            self._pending_poll = self._actor.look.remote()
        else:
            self._end(status)

    def _end(self, status: int) -> None:
        self.returncode = status
        self._log.close()
        self._ray.kill(self._actor)


class RayEngine(Engine):
    """Runs cells on a Ray cluster, each with one CPU.

    Args:
        jobs: maximum number of cells at a time. If the cluster has fewer CPUs, the remaining cells wait, and an
            autoscaler can see them. ``None``: the current number of CPUs of the cluster.
        address: address of a running cluster; ``None``: a new one on this machine, which :meth:`close` ends.
        command: the ``ddpg`` command; this process's interpreter in it is replaced by the node's.

    Raises:
        UsageError: if Ray is not installed.
        EnvironmentFault: if no cluster can be reached or started.
    """

    def __init__(self, jobs: int | None = None, address: str | None = None, command: Sequence[str] = COMMAND):
        self._ray, self._owned = connect_to_ray(address, jobs or available_cores())
        self._actor_class = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(RemoteCell)
        self._jobs = jobs
        self._command = [None if word == sys.executable else word for word in command]
        self._size, self._size_read_at = 1, -_SIZE_MAX_AGE

    def slots(self) -> int:
        """Return ``jobs``, or the number of the cluster's CPUs."""
        if self._jobs is not None:
            return self._jobs
        if time.monotonic() - self._size_read_at >= _SIZE_MAX_AGE:
            self._size_read_at = time.monotonic()
            self._size = max(1, int(self._ray.cluster_resources().get("CPU", 0)))
        return self._size

    def start(self, folder: CellFolder) -> RemoteProcess:
        """Send a cell to the cluster."""
        files = ChangeTracker(folder.path).changes()
        actor = self._actor_class.remote(folder.cell, self._command, os.getcwd(), files, INTERVAL)
        return RemoteProcess(self._ray, actor, folder)

    def close(self) -> None:
        """End the cluster if this engine started it."""
        if self._owned:
            self._ray.shutdown()
