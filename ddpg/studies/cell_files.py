"""Transfer a cell's files as bytes when it runs where its folder is not.

A folder that is written from elsewhere is at any moment one that ``ddpg resume`` goes on with: tables are never behind
the checkpoints beside them, and a checkpoint has its manifest last, as where it is removed it loses that first.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ddpg.checkpoints.manifest import MANIFEST
from ddpg.runs import run_config

_TRIES = 5
_Stamp = tuple[int, int]  # bytes, and nanoseconds of the last change


class FileChanges(NamedTuple):
    """What is new in a folder: files by their path in it, and those that are not there any more."""

    files: dict[str, bytes]
    gone: list[str]


class ChangeTracker:
    """Tells what has changed in a folder since it told last; a run may be writing there.

    Files whose names begin with a dot are left out: locks, and what is not whole yet.

    Args:
        folder: of a cell.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._told: dict[str, _Stamp] = {}

    def changes(self) -> FileChanges:
        """Return what has changed; nothing where the folder would not stand still."""
        for _ in range(_TRIES):
            try:
                stamps = self._stamps()
                # Checkpoints first: tables may then be ahead of them, as after a kill.
                new = [name for name in sorted(stamps, key=_is_table) if self._told.get(name) != stamps[name]]
                files = {name: (self._folder / name).read_bytes() for name in new}
                after = self._stamps()
            except FileNotFoundError:  # let go of meanwhile
                continue
            if all(after.get(name) == stamp for name, stamp in stamps.items() if not _is_table(name)):
                gone = [name for name in self._told if name not in stamps]
                self._told = stamps
                return FileChanges(files, gone)
        return FileChanges({}, [])

    def mark(self) -> None:
        """Take what is there now for told."""
        self._told = self._stamps()

    def _stamps(self) -> dict[str, _Stamp]:
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
    """Bring a folder to what another one is.

    Args:
        folder: of the cell here; made where it is not there.
        changes: of an :class:`Outbox` of the cell elsewhere.
    """
    _remove(folder, [name for name in changes.files if _is_manifest(name)])
    for name in sorted(changes.files, key=_turn):
        _write(folder / name, changes.files[name])
    _remove(folder, sorted(changes.gone, key=lambda name: not _is_manifest(name)))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".txt":  # a log: who holds it, holds this very file
        path.write_bytes(data)
        return
    aside = path.with_name(f".{path.name}.ddpg-writing")
    aside.write_bytes(data)
    aside.replace(path)


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        path = folder / name
        path.unlink(missing_ok=True)
        if path.parent != folder and path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()


def _turn(name: str) -> int:
    """Return when a file is put in place: a run is none without its description, a checkpoint without its manifest."""
    return 3 if Path(name).name == run_config.CONFIG else 2 if _is_manifest(name) else 0 if _is_table(name) else 1


def _is_table(name: str) -> bool:
    return "checkpoints" not in Path(name).parts


def _is_manifest(name: str) -> bool:
    return Path(name).name == MANIFEST
