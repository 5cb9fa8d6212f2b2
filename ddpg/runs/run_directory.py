"""The run directory ``runs/<env>/<n>/`` with all files of one training run: create it, clean it up, find checkpoints.

config.json           environment, seed, options, versions, command
metrics.csv           training metrics, one row per logging interval
episodes.csv          every training episode
evaluations.csv       deterministic evaluations during training
diagnostics.csv       with ``diagnose``: the state of the networks, one row per logging interval
events.out.tfevents.* the same data for TensorBoard, under Stable-Baselines3's tags
checkpoints/<steps>/  the latest checkpoints; also best/, and in a fine-tuned run offline/ and better/
learning_curve.png    plot of the training and evaluation returns
"""

import contextlib
import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ddpg.checkpoints import checkpoint, target_dir
from ddpg.errors import FileFault, UsageError, brief
from ddpg.exports.zoo import is_zoo, read_entry
from ddpg.runs import run_config

DIAGNOSTICS = "diagnostics.csv"
PICTURE = "learning_curve.png"
_STAGING_PREFIX = ".ddpg-begun-"
KEEP_CHECKPOINTS = 2
_LEFTOVER = re.compile(r"\.(?P<name>.+)\.ddpg-(writing|old)")
_ABANDONED_AFTER = 24 * 3600  # seconds; making a run directory takes a few


def create(root: str | Path, env_id: str, config: dict[str, Any], save: Callable[[Path], Any]) -> Path:
    """Create and return the next free ``root/env_id/<n>``; several processes may do so at the same time.

    The directory gets ``config.json`` and the checkpoint of step 0, which ``save(path)`` writes. It is built under a
    temporary name and renamed when it is complete.
    """
    parent = Path(root) / env_id
    parent.mkdir(parents=True, exist_ok=True)
    _sweep_abandoned(parent)
    temporary = parent / f"{_STAGING_PREFIX}{uuid.uuid4().hex}"
    temporary.mkdir()
    try:
        run_config.write(temporary, config)
        save(temporary / "checkpoints" / "0")
        return _numbered(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _numbered(temporary: Path) -> Path:
    parent = temporary.parent
    number = 1 + max((int(entry.name) for entry in parent.iterdir() if entry.name.isdecimal()), default=0)
    while True:
        try:
            return temporary.rename(parent / str(number))
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            number += 1


def check_root(root: str | Path) -> None:
    """Refuse a ``root`` in which no run directory could be made, or in which commands would not look for one.

    Raises:
        UsageError: if ``root`` is not UTF-8, or is in the folder of a run or in a checkpoint.
        FileFault: if ``root``, or the nearest directory above it that exists, is not a directory or cannot be written
            to.
    """
    check_utf8(root, "root")
    path = Path(root).absolute()
    there = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
    if not there.is_dir():
        raise FileFault(f"root={str(root)!r}: {str(there)!r} is not a directory; name another one")
    if hasattr(os, "statvfs") and os.statvfs(there).f_flag & os.ST_RDONLY:
        raise FileFault(f"root={str(root)!r}: {str(there)!r} is on a read-only file system (EROFS); name another one")
    if not os.access(there, os.W_OK | os.X_OK):
        raise FileFault(f"root={str(root)!r}: {str(there)!r} is not yours to write to; name another one")
    for folder in (whole := target_dir.resolved(path), *whole.parents):
        if (run := _is_run(folder)) or target_dir.is_checkpoint(folder):
            what = "run" if run else "checkpoint"
            raise UsageError(f"root={str(root)!r} is in the {what} {str(folder)!r}; name a folder outside it")


def _is_run(folder: Path) -> bool:
    try:
        run_config.read(folder)
    except (FileNotFoundError, FileFault):  # also a config.json of something else
        return False
    return True


def check_utf8(path: str | Path, what: str) -> None:
    """Refuse a path that TensorFlow, which writes a run's event files, cannot open.

    Raises:
        UsageError: if ``path`` is not UTF-8.
    """
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(f"{what}={brief(str(path))} is not UTF-8, as TensorFlow's files must be; rename it") from None


def _sweep_abandoned(parent: Path) -> None:
    for entry in parent.glob(f"{_STAGING_PREFIX}*"):
        with contextlib.suppress(FileNotFoundError):  # another process has renamed its directory in the meantime
            if not entry.is_symlink() and time.time() - entry.lstat().st_mtime > _ABANDONED_AFTER:
                shutil.rmtree(entry, ignore_errors=True)


def refuse_zoo(path: str | Path) -> None:
    """Refuse ``zoo:NAME`` where a run is expected.

    Raises:
        UsageError: if ``path`` is that; if the zoo has no such policy, the message says so.
    """
    name = str(path)
    if is_zoo(name):
        raise UsageError(
            f"{brief(name)} is a trained policy, not a run: it has no curves and cannot go on learning; for the "
            f"command that trained it: ddpg zoo {read_entry(name).name}"
        )


def read_config(run: str | Path) -> dict[str, Any]:
    """Read ``config.json``.

    Raises:
        UsageError: if ``run`` is not a run directory; a :class:`FileFault` if the file is damaged.
    """
    try:
        return run_config.read(Path(run))
    except FileNotFoundError:
        refuse_zoo(run)
        raise UsageError(f"{str(run)!r} is not a run directory{_found_instead(Path(run))}") from None


def _found_instead(path: Path) -> str:
    """Return what is at ``path`` in place of a run, and what to give."""
    if not (path / target_dir.MANIFEST).is_file():
        return f": it has no {run_config.CONFIG}; give one such as runs/Pendulum-v1/1"
    run = path.parent.parent
    if (run / run_config.CONFIG).is_file():
        return f" but a checkpoint of {str(run)!r}; give that, to evaluate or record with --checkpoint {path.name}"
    return (
        " but a saved agent, which does not know its environment; in Python, give DDPG.load or DQN.load of it, and an "
        "environment, to ddpg.evaluate or ddpg.record"
    )


def checkpoints(run: str | Path) -> list[Path]:
    """Return the numbered checkpoints of a run, the oldest first."""
    return target_dir.numbered(Path(run) / "checkpoints", target_dir.MANIFEST)


def prune_checkpoints(run: Path) -> None:
    """Delete all numbered checkpoints but the newest :data:`KEEP_CHECKPOINTS`."""
    for path in checkpoints(run)[:-KEEP_CHECKPOINTS]:
        target_dir.remove_staging(path)


def remove_later(run: Path, step: int) -> None:
    """Delete the checkpoints after ``step``, from which the run goes on; ``best`` stays until the next evaluation."""
    for path in checkpoints(run):
        if int(path.name) > step:
            target_dir.remove_staging(path)
    for path in (run / "checkpoints" / name for name in ("offline", "better")):
        with contextlib.suppress(UsageError):  # there is none, or it is damaged
            if checkpoint.read(path, only=set())[0]["num_timesteps"] > step:
                target_dir.remove_staging(path)


def remove_unfinished(run: Path) -> None:
    """Remove the unfinished files of a killed process from a run directory; restore checkpoints it was replacing."""
    for entry in [*run.glob(".*.ddpg-writing")]:
        if entry.is_file() and not entry.is_symlink():
            entry.unlink()
    folder = run / "checkpoints"
    if not folder.is_dir() or folder.is_symlink():
        return
    for entry in sorted(folder.iterdir()):
        left = _LEFTOVER.fullmatch(entry.name)
        if left is None:
            # A half-deleted checkpoint (its manifest goes first) would block a new one with the same name.
            if entry.name.isdecimal() and not (entry / target_dir.MANIFEST).exists():
                target_dir.remove_staging(entry)
            continue
        target = folder / left["name"]
        if entry == target_dir.backup_path(target) and not target.exists() and (entry / target_dir.MANIFEST).exists():
            entry.rename(target)
        else:
            target_dir.remove_staging(entry)
