"""Where a checkpoint may be written: nothing that is not ours is ever removed."""

import os
import re
from pathlib import Path

from ddpg.checkpoints import safe_json
from ddpg.checkpoints.manifest import MANIFEST
from ddpg.errors import UsageError

_NAMES = {".DS_Store", "Thumbs.db", "desktop.ini"}


def is_litter(name: str) -> bool:
    """Tell whether a file manager of macOS or Windows gives such a name to files of its own."""
    return name in _NAMES or name.startswith("._")


_ALLOWED = "a checkpoint is written to a path where nothing is, to an empty directory, or over another checkpoint"
_FILE = re.compile(r"[\w.-]+\.safetensors")


def staging_path(path: Path) -> Path:
    """Return where a checkpoint for ``path`` is written before it is complete."""
    return _beside(path, "writing")


def backup_path(path: Path) -> Path:
    """Return where the checkpoint at ``path`` is kept while the new one takes its place."""
    return _beside(path, "old")


def check_target(path: Path) -> None:
    """Refuse a path where something else than a checkpoint would be lost, or stand in the way.

    Raises:
        UsageError: a file, a symbolic link, a directory that holds anything but a checkpoint, one that cannot be
            made, or a directory beside it that has the name of one of ours and other things in it.
    """
    if path.is_symlink():
        raise _refusal(path, f"is a symbolic link to {os.readlink(path)!r}", "name the directory itself, or a new one")
    if path.is_dir():
        _check_directory(path)
    elif path.exists():
        raise _refusal(path, "is a file", "name a directory, such as one beside it")
    for parent in path.absolute().parents:
        if parent.exists():
            if not parent.is_dir():
                raise _refusal(path, f"cannot be made, since {str(parent)!r} is a file", "name another one")
            break
    target = path.resolve()
    for side in (staging_path(target), backup_path(target)):
        if os.path.lexists(side) and (not _is_directory(side) or (foreign := _foreign(side))):
            holds = f"holds {foreign!r}" if _is_directory(side) else "is no directory"
            raise UsageError(f"{str(side)!r} {holds}, which saving to {str(path)!r} would remove; move it away first")


def remove_staging(side: Path) -> None:
    """Remove a directory beside a checkpoint, if it is there and holds nothing but a checkpoint's files."""
    if not _is_directory(side) or _foreign(side):
        return
    for name in sorted(os.listdir(side), key=lambda name: name != MANIFEST):  # without it, it is no checkpoint
        (side / name).unlink()
    side.rmdir()


def replace_target(complete: Path, target: Path, former: Path) -> None:
    """Rename a complete checkpoint to ``target``; the one that is there goes to ``former``."""
    if not target.exists():
        complete.rename(target)
        return
    if any(target.iterdir()):
        remove_staging(former)
        target.rename(former)
        complete.rename(target)
        return
    here = target.samefile(os.curdir)
    target.rmdir()
    complete.rename(target)
    if here:  # this process stays where it was, by name
        os.chdir(target)


def _check_directory(path: Path) -> None:
    names = [name for name in sorted(os.listdir(path)) if not (is_litter(name) and _is_file(path / name))]
    if not names:
        return
    if path.samefile(os.curdir):
        raise _refusal(path, f"is the working directory and holds {names[0]!r}", "name a new directory in it")
    listed = _listed(path)
    if listed is None:
        run = [name for name in ("config.json", "checkpoints") if name in names]
        if run:
            what, instead = f"is a run directory: it holds {run[0]!r}", "name a new directory outside it"
        else:
            what, instead = f"is a directory that holds {names[0]!r}", "name a new directory, such as one in it"
        raise _refusal(path, what, instead)
    foreign = [name for name in names if name not in listed or not _is_file(path / name)]
    if foreign:
        what = f"is a checkpoint with something else in it, {foreign[0]!r}"
        raise _refusal(path, what, "move that away, or name a new directory")


def _listed(path: Path) -> set[str] | None:
    """Return the names of a checkpoint's files, or ``None`` where the manifest is none of ours."""
    try:
        manifest = safe_json.read_json(path / MANIFEST)
        names = set(manifest["sha256"])
        ours = isinstance(manifest["format"], int) and isinstance(manifest["sha256"], dict)
    except (OSError, ValueError, KeyError, TypeError):  # a UsageError, too
        return None
    return names | {MANIFEST} if ours and all(map(_FILE.fullmatch, names)) else None


def _foreign(side: Path) -> str | None:
    """Return the name of something that no checkpoint holds; one that was cut short need not list its files."""
    for name in sorted(os.listdir(side)):
        if not (name == MANIFEST or _FILE.fullmatch(name) or is_litter(name)) or not _is_file(side / name):
            return name
    return None


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _refusal(path: Path, what: str, instead: str) -> UsageError:
    return UsageError(f"{str(path)!r} {what}; {_ALLOWED}: {instead}")


def _beside(path: Path, role: str) -> Path:
    whole = path.resolve()
    if not whole.name:
        raise _refusal(path, "is the root of all directories", "name a new directory in it")
    return whole.with_name(f".{whole.name}.ddpg-{role}")
