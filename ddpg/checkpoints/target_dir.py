"""Where a checkpoint may be written: only an earlier checkpoint is ever replaced, and no other file is removed."""

import os
from pathlib import Path

from ddpg.checkpoints import safe_json
from ddpg.checkpoints.manifest import ARRAY_FILE, MANIFEST
from ddpg.errors import UsageError

_ALLOWED = "a checkpoint is written to a new path, to an empty directory, or over another checkpoint"
_NAMES = {".DS_Store", "Thumbs.db", "desktop.ini"}


def is_litter(name: str) -> bool:
    """Return whether file managers of macOS or Windows give this name to files that they create on their own."""
    return name in _NAMES or name.startswith("._")


def names_in(folder: Path) -> list[str]:
    """Return the sorted names in a directory, without the files that file managers create on their own."""
    return [name for name in sorted(os.listdir(folder)) if not (is_litter(name) and _is_file(folder / name))]


def numbered(folder: Path, holding: str = "") -> list[Path]:
    """Return a folder's entries whose names are numbers and that hold a file of that name, in order of the numbers."""
    entries = folder.iterdir() if folder.is_dir() else ()
    found = [entry for entry in entries if entry.name.isdecimal() and (entry / holding).exists()]
    return sorted(found, key=lambda entry: (int(entry.name), entry.name))


def resolved(path: Path) -> Path:
    """Return the absolute path without symbolic links, except links to themselves: ``Path.resolve`` can fail there."""
    return Path(os.path.realpath(path))


def staging_path(path: Path) -> Path:
    """Return the directory in which a checkpoint for ``path`` is written until it is complete."""
    return _beside(path, "writing")


def backup_path(path: Path) -> Path:
    """Return the directory to which the checkpoint at ``path`` moves while the new one takes its place."""
    return _beside(path, "old")


def check_can_be_created(path: Path, allowed: str) -> None:
    """Refuse a symbolic link, and a path below a file; ``allowed`` says in the message where writing is possible.

    Raises:
        UsageError: if ``path`` is one of them.
    """
    if path.is_symlink():
        link = os.readlink(path)
        raise UsageError(f"{str(path)!r} is a symbolic link to {link!r}; {allowed}: name its target, or a new path")
    nearest = next((parent for parent in path.absolute().parents if parent.exists()), path)
    if not nearest.is_dir():
        raise UsageError(f"{str(path)!r} is below {str(nearest)!r}, which is a file; {allowed}: name another path")


def check_target(path: Path) -> None:
    """Refuse a path at which saving a checkpoint would fail or destroy something else.

    Raises:
        UsageError: if ``path`` is a file, a symbolic link or a directory with anything but a checkpoint in it, if it
            cannot be created, or if the staging or backup directory beside it holds foreign files.
    """
    check_can_be_created(path, _ALLOWED)
    if path.is_dir():
        _check_directory(path)
    elif path.exists():
        raise _refusal(path, "is a file", "name a directory, such as one beside it")
    target = resolved(path)
    for side in (staging_path(target), backup_path(target)):
        if os.path.lexists(side) and (not _is_directory(side) or (foreign := _foreign(side))):
            holds = f"holds {foreign!r}" if _is_directory(side) else "is no directory"
            raise UsageError(f"{str(side)!r} {holds}, which saving to {str(path)!r} would remove; move it away first")


def is_checkpoint(path: Path) -> bool:
    """Return whether a directory has the manifest of a checkpoint."""
    return _listed(path) is not None


def remove_staging(side: Path) -> None:
    """Remove a staging or backup directory, if it exists and holds nothing but a checkpoint's files."""
    if not _is_directory(side) or _foreign(side):
        return
    (side / MANIFEST).unlink(missing_ok=True)  # first: without it, the rest is no checkpoint
    for name in os.listdir(side):
        (side / name).unlink()
    side.rmdir()


def replace_target(complete: Path, target: Path, backup: Path) -> None:
    """Rename a complete checkpoint to ``target``; an earlier checkpoint there is first renamed to ``backup``."""
    if not target.exists():
        complete.rename(target)
        return
    if any(target.iterdir()):
        remove_staging(backup)
        target.rename(backup)
        complete.rename(target)
        return
    here = target.samefile(os.curdir)
    target.rmdir()
    complete.rename(target)
    if here:  # the old working directory is gone: enter the one that took its place
        os.chdir(target)


def _check_directory(path: Path) -> None:
    names = names_in(path)
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
    """Return the file names that the directory's manifest lists, or ``None`` if it has no manifest of ours."""
    try:
        manifest = safe_json.read_json(path / MANIFEST)
        names = set(manifest["sha256"])
        ours = isinstance(manifest["format"], int) and isinstance(manifest["sha256"], dict)
    except (OSError, ValueError, KeyError, TypeError):  # ValueError includes UsageError
        return None
    return names | {MANIFEST} if ours and all(map(ARRAY_FILE.fullmatch, names)) else None


def _foreign(side: Path) -> str | None:
    """Return a name in ``side`` that no checkpoint has, if any; an interrupted write may have left no manifest."""
    for name in sorted(os.listdir(side)):
        if not (name == MANIFEST or ARRAY_FILE.fullmatch(name) or is_litter(name)) or not _is_file(side / name):
            return name
    return None


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _refusal(path: Path, problem: str, instead: str) -> UsageError:
    return UsageError(f"{str(path)!r} {problem}; {_ALLOWED}: {instead}")


def _beside(path: Path, role: str) -> Path:
    whole = resolved(path)
    if not whole.name:
        raise _refusal(path, "is the root of all directories", "name a new directory in it")
    return whole.with_name(f".{whole.name}.ddpg-{role}")
