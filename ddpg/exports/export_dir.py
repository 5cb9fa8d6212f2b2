"""Where an export may be written: only another export is ever replaced, and only by a complete one."""

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ddpg.checkpoints import safe_json
from ddpg.checkpoints.target_dir import is_litter
from ddpg.errors import UsageError

MARK = "ddpg-paths policy"  # in every export, so that it can be told from other files
ABOUT = "policy.json"
ACT = "act.py"

_LARGEST = 1 << 30  # bytes of a file that is searched for the mark
_NAMES = {ABOUT, ACT, "__pycache__", "policy.safetensors", "saved_model.pb", "fingerprint.pb", "variables", "assets"}


def check_export_path(path: Path) -> None:
    """Refuse a path where something else than an export would be lost, or stand in the way.

    Raises:
        UsageError: a symbolic link, a file or a directory that is no export, the working directory, or a file where a
            folder is needed.
    """
    if path.is_symlink():
        raise _refusal(path, f"is a symbolic link to {os.readlink(path)!r}")
    if path.is_dir():
        _check_directory(path)
    elif path.exists() and not _is_marked_file(path):
        raise _refusal(path, "is a file of something else")
    for parent in path.absolute().parents:
        if parent.exists():
            if not parent.is_dir():
                raise _refusal(path, f"cannot be made, since {str(parent)!r} is a file")
            break


@contextlib.contextmanager
def write_aside(path: Path) -> Iterator[Path]:
    """Yield a path beside ``path`` to write to; what is there when the block ends takes the place of ``path``.

    Where the block raises, what it wrote is removed and ``path`` stays as it was.
    """
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.ddpg-", dir=target.parent))
    try:
        yield folder / target.name
        check_export_path(path)  # what came there in the meantime stays, too
        _put(folder / target.name, target)
    finally:
        shutil.rmtree(folder)


def _put(complete: Path, target: Path) -> None:
    """Rename a complete export to ``target``; what is there goes only when that is done, or comes back."""
    if not target.exists():
        complete.rename(target)
        return
    # A folder of its own, in which no name is taken; it stays where the former export can neither go nor come back.
    folder = Path(tempfile.mkdtemp(prefix=f".{target.name}.ddpg-", dir=target.parent))
    former = folder / target.name
    try:
        target.rename(former)
        complete.rename(target)
    except BaseException:
        if former.exists():
            former.rename(target)
        folder.rmdir()
        raise
    shutil.rmtree(folder)


def is_export(about: Any) -> bool:
    """Tell whether the values of a :data:`ABOUT` are those of an export."""
    return isinstance(about, dict) and about.get("made_by") == MARK


def _check_directory(path: Path) -> None:
    names = [name for name in sorted(os.listdir(path)) if not is_litter(name)]
    if path.samefile(os.curdir):  # whoever works in it would be left in a directory that is no more
        raise _refusal(path, "is the working directory")
    if not names:
        return
    foreign = [name for name in names if name not in _NAMES]
    try:
        about = safe_json.read_json(path / ABOUT)
        ours = is_export(about)
        # Somebody may have written into it what a robot needs besides.
        if ours and ACT in names and hashlib.sha256((path / ACT).read_bytes()).hexdigest() != about.get("act_sha256"):
            foreign.append(f"{ACT}, which was changed")
    except (OSError, UsageError):
        ours = False
    if not ours or foreign:
        raise _refusal(path, f"is a directory that holds {(foreign or names)[0]!r}")


def _is_marked_file(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= _LARGEST and MARK.encode() in path.read_bytes()


def _refusal(path: Path, what: str) -> UsageError:
    return UsageError(
        f"{str(path)!r} {what}; a policy is written to a path where nothing is, to an empty directory, or over another "
        "exported policy: name a new one"
    )
