"""Protect the user's files when a policy is exported: only a complete export replaces a path, and only another export.

:func:`check_export_path` refuses every other path, and :func:`write_aside` replaces an export at once.
"""

import contextlib
import glob
import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from ddpg.checkpoints import safe_json
from ddpg.checkpoints.target_dir import check_can_be_created, is_checkpoint, names_in, resolved
from ddpg.errors import UsageError, with_filename

MARK = "ddpg-paths policy"  # in every export, to recognise it
ABOUT = "policy.json"
ACT = "act.py"

_ALLOWED = "a policy is written to a new path, to an empty directory, or over another exported policy"
_LARGEST = 1 << 30  # bytes; larger files are not searched for the mark
_ABANDONED = 24 * 3600  # seconds; an export takes a few, of large networks minutes
POLICY = "policy"  # the name of a policy in C, unless ABOUT has another
_FILES = {ABOUT, "policy.safetensors", "saved_model.pb", "fingerprint.pb"}
# The directories of an export, and the files in each: SavedModels of ours have no assets.
_FOLDERS = {
    "__pycache__": re.compile(r"act\..*\.pyc"),
    "variables": re.compile(r"variables\.(index|data-.*)"),
    "assets": re.compile(r"(?!)"),
}


def code_sha256(name: str = POLICY) -> dict[str, str]:
    """Return the files of code that an export may have, each with the key of its checksum in :data:`ABOUT`."""
    return {ACT: "act_sha256", f"{name}.h": "header_sha256", f"{name}.c": "source_sha256"}


def check_export_path(path: Path) -> None:
    """Refuse a path at which exporting would fail or destroy something else.

    Raises:
        UsageError: if ``path`` is a symbolic link, the working directory, a file or directory that is not an export,
            or a path below a file or inside a checkpoint.
    """
    check_can_be_created(path, _ALLOWED)
    if inside := next(filter(is_checkpoint, resolved(path).parents), None):
        raise UsageError(
            f"{str(path)!r} is in the checkpoint {str(inside)!r}, which with other files in it would be neither "
            "replaced nor removed as training goes on; name a path outside it"
        )
    if path.is_dir():
        _check_directory(path)
    elif path.exists() and not _is_marked_file(path):
        kind = "file that is no export" if path.is_file() else safe_json.kind_of(path.stat().st_mode)
        raise _refusal(path, f"is a {kind}")


@contextlib.contextmanager
def write_aside(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; when the block ends, the export written there replaces ``path``.

    If the block raises, the temporary files are removed and ``path`` stays as it was. An ``OSError`` names ``path``,
    or a file below it, instead of the temporary path.
    """
    target = resolved(path)
    with _parents(target):
        folder = _folder_beside(path)
        temporary = folder / target.name
        try:
            with with_filename(temporary):
                yield temporary
                _flush(temporary)
                check_export_path(path)  # again: a file that has appeared there since must not be replaced
                _replace(temporary, path)
                _sweep_abandoned(target)
        except OSError as error:
            if error.filename is not None:
                error.filename = str(error.filename).replace(str(temporary), str(path))
            raise
        finally:
            shutil.rmtree(folder)


@contextlib.contextmanager
def _parents(target: Path) -> Iterator[None]:
    """Create the missing directories above ``target``, and remove those that are empty at the end of the block."""
    missing = [parent for parent in target.parents if not parent.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()


def _folder_beside(path: Path) -> Path:
    """Create a temporary folder beside ``path``; an ``OSError`` names ``path``."""
    target = resolved(path)
    try:
        return Path(tempfile.mkdtemp(prefix=f".{target.name}.ddpg-", dir=target.parent))
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _sweep_abandoned(target: Path) -> None:
    """Remove the temporary folders that killed exports to ``target`` left; one in use is younger than a day."""
    for folder in target.parent.glob(f".{glob.escape(target.name)}.ddpg-{'[a-z0-9_]' * 8}"):
        with contextlib.suppress(OSError):  # another export has removed it
            if set(os.listdir(folder)) <= {target.name} and time.time() - folder.lstat().st_mtime > _ABANDONED:
                shutil.rmtree(folder)


def _flush(export: Path) -> None:
    """Flush an export's files to disk: a power cut after it was renamed would otherwise leave them empty."""
    for path in (export, *export.rglob("*")):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())


def _replace(complete: Path, path: Path) -> None:
    """Rename a complete export to ``path``: a file replaces an earlier one at once, so ``path`` is never missing.

    An earlier directory is moved away first. It is removed afterwards, or restored if renaming fails.
    """
    target = resolved(path)
    if not target.exists() or (target.is_file() and complete.is_file()):
        complete.replace(target)
        return
    # In a new folder every name is free. The folder stays only if the former export cannot be restored either.
    folder = _folder_beside(path)
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
    """Return whether the parsed :data:`ABOUT` file belongs to an export."""
    return isinstance(about, dict) and about.get("made_by") == MARK


def _check_directory(path: Path) -> None:
    names = names_in(path)
    if path.samefile(os.curdir):  # processes that run in it would be left in a removed directory
        raise _refusal(path, "is the working directory")
    if not names:
        return
    about: dict[str, Any] = {}
    with contextlib.suppress(OSError, UsageError):
        about = safe_json.read_json(path / ABOUT)
    ours = is_export(about)
    own = about.get("name", POLICY) if ours else POLICY
    code = code_sha256(own)
    # What compilers call their output unless told otherwise: the self-test, and an object file.
    built = {"a.out", f"{own}.o"} if about.get("kind") == "c" else set()
    foreign = [problem for name in names if (problem := _foreign(path, name, {*code, *built}))]
    # Edited code is the user's work, such as a controller that drives a robot: it must not be replaced.
    for name in sorted(code.keys() & set(names)) if ours and not foreign else ():
        if hashlib.sha256((path / name).read_bytes()).hexdigest() != about.get(code[name]):
            foreign.append(f"{name}, which was changed")
    if not ours or foreign:
        raise _refusal(path, f"is a directory that holds {(foreign or names)[0]!r}")


def _foreign(path: Path, name: str, code: Collection[str]) -> str | None:
    """Return the part of the entry ``name`` that no export has, with the reason; ``None`` if an export can have it.

    ``code`` are the names of its files of code, and of those that a compiler makes of them.
    """
    entry = path / name
    if entry.is_symlink():
        return f"{name}, which is a symbolic link" if name in {*_FILES, *_FOLDERS, *code} else name
    if name in _FILES or name in code:
        return None if entry.is_file() else f"{name}, which is no file"
    if name not in _FOLDERS:
        return name
    if not entry.is_dir():
        return f"{name}, which is no directory"
    for inner in names_in(entry):
        if not _FOLDERS[name].fullmatch(inner) or (entry / inner).is_symlink() or not (entry / inner).is_file():
            return f"{name}/{inner}"
    return None


def _is_marked_file(path: Path) -> bool:
    return path.is_file() and path.stat().st_size <= _LARGEST and MARK.encode() in path.read_bytes()


def _refusal(path: Path, problem: str) -> UsageError:
    return UsageError(f"{str(path)!r} {problem}; {_ALLOWED}: name a new path")
