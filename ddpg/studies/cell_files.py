"""Copy a cell's files between machines, so that the copy can be resumed at any moment.

Files are written in an order that ``ddpg resume`` can rely on: tables are never older than the checkpoints beside them;
a checkpoint's manifest is written last and removed first.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ddpg.checkpoints.manifest import MANIFEST
from ddpg.runs import run_config

_ATTEMPTS = 5
_Timestamp = tuple[int, int]  # size in bytes, modification time in nanoseconds


class FileChanges(NamedTuple):
    """Changes in a folder: new or changed files by relative path, and the paths of removed ones."""

    files: dict[str, bytes]
    removed: list[str]


class ChangeTracker:
    """Finds what has changed in a folder since the last call; a run may be writing there meanwhile.

    Files whose names begin with a dot are ignored: locks and unfinished files.

    Args:
        folder: a cell's folder.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._sent: dict[str, _Timestamp] = {}

    def changes(self) -> FileChanges:
        """Return what has changed; nothing if the folder kept changing while it was read."""
        for _ in range(_ATTEMPTS):
            try:
                stamps = self._timestamps()
                # Checkpoints are read first: tables may then be newer, as after a kill.
                new = [name for name in sorted(stamps, key=_is_table) if self._sent.get(name) != stamps[name]]
                files = {name: (self._folder / name).read_bytes() for name in new}
                after = self._timestamps()
            except FileNotFoundError:  # removed meanwhile
                continue
            if all(after.get(name) == stamp for name, stamp in stamps.items() if not _is_table(name)):
                removed = [name for name in self._sent if name not in stamps]
                self._sent = stamps
                return FileChanges(files, removed)
        return FileChanges({}, [])

    def mark_sent(self) -> None:
        """Count everything that is there now as sent."""
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
    """Apply to a folder the changes made in its copy.

    Args:
        folder: the cell's folder here; created if missing.
        changes: from the :class:`ChangeTracker` of the other copy.
    """
    _remove(folder, [name for name in changes.files if _is_manifest(name)])
    for name in sorted(changes.files, key=_write_order):
        _write(folder / name, changes.files[name])
    _remove(folder, sorted(changes.removed, key=lambda name: not _is_manifest(name)))


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".txt":  # a log is locked by file: a new file would not be
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


def _write_order(name: str) -> int:
    """Return the rank of a file: a checkpoint counts from its manifest on, a run from its configuration on."""
    return 3 if Path(name).name == run_config.CONFIG else 2 if _is_manifest(name) else 0 if _is_table(name) else 1


def _is_table(name: str) -> bool:
    return "checkpoints" not in Path(name).parts


def _is_manifest(name: str) -> bool:
    return Path(name).name == MANIFEST
