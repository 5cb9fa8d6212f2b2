"""One process at a time owns a run directory."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import filelock

from ddpg.errors import UsageError

_LOCK, _OWNER = ".lock", ".owner.json"


@contextlib.contextmanager
def owned(run: Path) -> Iterator[None]:
    """Own ``run`` until the block ends; the operating system takes the lock back from a process that dies.

    Raises:
        UsageError: another process owns it; says which.
    """
    lock = filelock.FileLock(run / _LOCK)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise UsageError(f"{run} is in use by {_owner(run)}; wait until it ends, or stop it") from None
    try:
        about = {"pid": os.getpid(), "command": " ".join(sys.argv), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        (run / _OWNER).write_text(json.dumps(about), encoding="utf-8")
        yield
    finally:
        (run / _OWNER).unlink(missing_ok=True)
        lock.release()


def is_owned(run: Path) -> bool:
    """Tell whether a process owns ``run`` now."""
    if not (run / _OWNER).exists():
        return False
    lock = filelock.FileLock(run / _LOCK)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        return True
    lock.release()
    return False


def _owner(run: Path) -> str:
    try:
        about = json.loads((run / _OWNER).read_text(encoding="utf-8"))
        return f"process {about['pid']} since {about['since']} ({about['command']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
