"""Write and read checkpoints: directories of plain data, written aside and renamed into place.

    manifest.json           what it is, the configuration, the spaces, counters, tables of arrays, SHA-256 of every file
    <group>.safetensors     arrays by name

Reading one executes nothing: safetensors and JSON hold data only. A kill at any moment leaves either the
old directory or the new one; a flipped byte is refused by its checksum, in the manifest by its own. What
:mod:`ddpg.checkpoints.manifest` says of types, ranges and sizes holds for whatever :func:`read` returns.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.checkpoints import arrays as array_files
from ddpg.checkpoints import manifest as manifests
from ddpg.checkpoints import target_dir
from ddpg.checkpoints.manifest import FORMAT as FORMAT
from ddpg.checkpoints.manifest import MANIFEST
from ddpg.checkpoints.space_json import describe_space as describe_space
from ddpg.checkpoints.space_json import restore_space as restore_space
from ddpg.errors import FileFault, UsageError, brief, with_filename

Groups = dict[str, dict[str, np.ndarray]]


def write(path: str | Path, manifest: dict[str, Any], groups: Groups) -> Path:
    """Write a checkpoint at ``path``: where nothing is, in an empty directory, or in place of a checkpoint.

    Everything is written to a directory beside it, array by array, and flushed to the disk first, so a full disk or
    a kill leaves what was there before. Replacing takes two renames; between them :func:`read` finds the old one.

    Returns:
        The path.

    Args:
        path: where.
        manifest: the fields of :mod:`ddpg.checkpoints.manifest` but those that tell of the files.
        groups: arrays by the name of their file.

    Raises:
        UsageError: anything else is at ``path``, or :func:`read` would refuse what is to be written: a field out of
            its range, NaN in an array. Nothing is written or removed then.
    """
    path = Path(path)
    target_dir.check_target(path)
    for group, arrays in groups.items():
        array_files.check_finite(group, arrays)
    files = {f"{group}.safetensors": arrays for group, arrays in groups.items()}
    manifest = {**manifest, "arrays": {group: array_files.describe(arrays) for group, arrays in groups.items()}}
    manifests.seal({**manifest, "sha256": dict.fromkeys(files, "0" * 64)})  # refuses what cannot be read again
    target = path.resolve()  # a working directory that is replaced has no name for a moment
    aside, old = target_dir.staging_path(target), target_dir.backup_path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    target_dir.remove_staging(aside)
    try:
        aside.mkdir()
        checksums = {name: array_files.write(aside / name, arrays) for name, arrays in files.items()}
        _write_through(aside / MANIFEST, manifests.seal({**manifest, "sha256": checksums}))
        _sync_directory(aside)
        target_dir.check_target(target)  # what came there in the meantime stays, too
    except BaseException:
        target_dir.remove_staging(aside)
        raise
    target_dir.replace_target(aside, target, old)
    _sync_directory(target.parent)
    target_dir.remove_staging(old)
    return path


def read(path: str | Path, *, only: set[str] | None = None) -> tuple[dict[str, Any], Groups]:
    """Read the checkpoint at ``path``; of its groups, only those named.

    Raises:
        UsageError: nothing there, not a checkpoint, another format, a damaged file, or one that says what no agent
            would have saved.
    """
    manifest, tables, path = _read_manifest(Path(path))
    groups = {}
    for group, table in tables.items():
        if only is not None and group not in only:
            continue
        file = path / f"{group}.safetensors"
        try:
            groups[group] = array_files.read(file, table, manifest["sha256"][file.name])
        except FileNotFoundError:
            raise FileFault(f"checkpoint {path} lacks its file {file.name}; take another checkpoint") from None
        if group == "replay":
            array_files.check_position(file, groups[group], manifest["config"]["buffer_size"])
    return manifest, groups


def find(path: str | Path, which: str = "latest") -> Path:
    """Return the checkpoint meant by ``path``: itself, or one of a run directory.

    Args:
        path: a checkpoint, or a run directory with ``checkpoints/<timesteps>/``.
        which: in a run directory: ``"latest"``, ``"best"``, or a number of timesteps.

    Raises:
        UsageError: neither, or no such checkpoint in the run.
    """
    path = Path(path)
    if _is_there(path):
        return path
    folder = path / "checkpoints"
    numbered = sorted((int(entry.name), entry) for entry in _entries(folder) if entry.name.isdecimal())
    if which == "latest" and numbered:
        return numbered[-1][1]
    if which == "best" and _is_there(folder / "best"):
        return folder / "best"
    chosen = [entry for steps, entry in numbered if str(steps) == str(which)]
    if chosen:
        return chosen[0]
    if not path.exists():
        raise UsageError(f"no checkpoint or run directory at {brief(str(path))}; give one such as runs/Pendulum-v1/1")
    have = [entry.name for _, entry in numbered] + ["best"] * (folder / "best").exists()
    raise UsageError(
        f"{path} has no checkpoint {brief(which)}; it has {', '.join(have) if have else 'none'}"
        + ("" if folder.exists() else ": it is not a run directory")
    )


def _read_manifest(path: Path) -> tuple[dict[str, Any], dict[str, manifests.Table], Path]:
    if not (path / MANIFEST).exists() and (target_dir.backup_path(path) / MANIFEST).exists():
        path = target_dir.backup_path(path)
    try:
        return *manifests.read(path / MANIFEST), path
    except FileNotFoundError:
        raise UsageError(f"no checkpoint at {brief(str(path))}: it has no {MANIFEST}") from None


def _write_through(path: Path, data: bytes) -> None:
    with with_filename(path), path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    if os.name == "nt":
        return  # Windows has no handle for a directory; its renames are journalled
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_there(path: Path) -> bool:
    return (path / MANIFEST).exists() or (target_dir.backup_path(path) / MANIFEST).exists()


def _entries(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if (entry / MANIFEST).exists()] if folder.is_dir() else []
