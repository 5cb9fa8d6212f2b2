"""Locks that keep two processes from writing the same run directory, and show whether a run is alive.

A cell of a study that runs on another machine holds no lock here; its log is locked instead.
"""

import contextlib
import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import filelock

from ddpg.checkpoints import safe_json
from ddpg.errors import FileFault, UsageError, with_filename

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

LOG = "log.txt"  # the log of a study's cell, beside its run
_LOCK, _OWNER = ".lock", ".owner.json"


def directory_id(path: Path) -> tuple[int, int] | None:
    """Return a number pair that a directory keeps when it is renamed; ``None`` if there is no such directory."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def run_lock(run: Path) -> Iterator[None]:
    """Lock ``run`` until the block ends; the operating system releases the lock of a process that dies.

    Raises:
        UsageError: if another process holds the lock; the message names that process.
    """
    lock, locked = filelock.FileLock(run / _LOCK), directory_id(run)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise UsageError(f"{run} is in use by {_owner(run)}; wait until it ends, or stop it") from None
    try:
        owner = {"pid": os.getpid(), "command": " ".join(sys.argv), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        with with_filename(run / _OWNER):
            (run / _OWNER).write_text(json.dumps(owner), encoding="utf-8")
        yield
    finally:
        with contextlib.suppress(OSError):  # the disk may have become read-only
            if directory_id(run) == locked:  # it may have been renamed, and another one made in its place
                (run / _OWNER).unlink(missing_ok=True)
        lock.release()


def is_run_locked(run: Path) -> bool | None:
    """Return whether a process holds the lock of ``run``; ``None`` if unknown, for example without permission.

    Writes nothing, so it works for folders of other users and on read-only disks.
    """
    try:
        if not (run / _OWNER).exists():
            return False
        return _is_locked(run / _LOCK)
    except FileNotFoundError:
        return False
    except (OSError, FileFault):
        return None


def was_killed_holding(folder: Path) -> bool:
    """Return whether a process died while it held the lock of ``folder``; ``False`` if that is unknown.

    The lock's owner is noted only while the lock is held, so a folder that is about to be locked is none of these.
    """
    return (folder / _OWNER).exists() and is_run_locked(folder) is False


def _is_locked(path: Path) -> bool:
    if fcntl is None:
        lock = filelock.FileLock(path)
        try:
            lock.acquire(blocking=False)
        except filelock.Timeout:
            return True
        lock.release()
        return False
    with safe_json.open_regular_file(path) as (file, _):
        return _is_flocked(file)


def _is_flocked(file: BinaryIO) -> bool:
    try:  # a shared lock, so that another process that checks at the same time does not take us for the owner
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):  # the lock is held
            return True
        raise
    return False


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Wait until no other process is in such a block for ``folder``, which may be read-only or hold a locked run."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # the file system may have no locks
            if fcntl is not None:
                descriptor = os.open(folder, os.O_RDONLY)
                stack.callback(os.close, descriptor)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def lock_cell_log(log: Path) -> BinaryIO:
    """Open and lock a cell's log; the cell counts as running until every process that holds this file has closed it.

    The cell's output goes to another file object of the same log: programs that its environment starts inherit the
    output and may outlive the cell, and must not hold the lock.
    """
    file = log.open("ab")
    with contextlib.suppress(OSError):  # the file system may have no locks
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def is_cell_running(log: Path) -> bool:
    """Return whether a process holds the log that :func:`lock_cell_log` locked."""
    if fcntl is None or not log.is_file():
        return False
    try:
        with log.open("rb") as file:
            return _is_flocked(file)
    except OSError:  # a file system without locks, or a folder that we may not read
        return False


def _owner(run: Path) -> str:
    try:
        owner = safe_json.read_json(run / _OWNER)
        return safe_json.one_line(f"process {owner['pid']} since {owner['since']} ({owner['command']})")
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
