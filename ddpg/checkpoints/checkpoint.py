"""Write and read checkpoints: directories of plain data, written to a staging directory and renamed into place.

    manifest.json           kind, configuration, spaces, counters, dtype and shape of every array, SHA-256 of every file
    <group>.safetensors     arrays by name

Reading executes no code: safetensors and JSON hold data only. A process killed at any moment leaves either the old
directory or the new one. Checksums reveal a flipped byte, in the manifest too. Everything that :func:`read` returns has
the types, ranges and sizes that :mod:`ddpg.checkpoints.manifest` checks.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.checkpoints import arrays as array_files
from ddpg.checkpoints import manifest as manifests
from ddpg.checkpoints import target_dir
from ddpg.checkpoints.atomic_write import write_durably
from ddpg.checkpoints.manifest import MANIFEST
from ddpg.errors import FileFault, UsageError, brief

Groups = dict[str, dict[str, np.ndarray]]
# A run's checkpoints without the replay memory (ddpg/runs/recorder.py): best evaluation, end of offline learning, and
# the better of the end of offline learning and the end of the run.
NAMED = ("best", "offline", "better")


def write(path: str | Path, manifest: dict[str, Any], groups: Groups) -> Path:
    """Write a checkpoint at ``path``: a new path, an empty directory, or over an earlier checkpoint.

    Everything is first written to a staging directory beside ``path``, array by array, and flushed to disk, so a full
    disk or a killed process leaves the earlier checkpoint intact. Replacing takes two renames; between them
    :func:`read` finds the earlier one.

    Args:
        path: the directory.
        manifest: the fields of :mod:`ddpg.checkpoints.manifest`, except those that describe the files.
        groups: for each file, its arrays by name.

    Returns:
        The path.

    Raises:
        UsageError: if anything else is at ``path``, or :func:`read` would refuse the result, because a field is out of
            range or an array holds NaN. Nothing is written or removed then.
    """
    path = Path(path)
    target_dir.check_target(path)
    for group, arrays in groups.items():
        array_files.check_finite(group, arrays)
    files = {f"{group}.safetensors": arrays for group, arrays in groups.items()}
    manifest = {**manifest, "arrays": {group: array_files.describe(arrays) for group, arrays in groups.items()}}
    manifests.seal({**manifest, "sha256": dict.fromkeys(files, "0" * 64)})  # refuses early what could not be read again
    target = target_dir.resolved(path)  # while the working directory is replaced, relative paths lead nowhere
    staging, backup = target_dir.staging_path(target), target_dir.backup_path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    target_dir.remove_staging(staging)
    try:
        staging.mkdir()
        checksums = {name: array_files.write(staging / name, arrays) for name, arrays in files.items()}
        write_durably(staging / MANIFEST, [manifests.seal({**manifest, "sha256": checksums})])
        _sync_directory(staging)
        target_dir.check_target(target)  # refuses to replace a file that has appeared there meanwhile
    except BaseException:
        target_dir.remove_staging(staging)
        raise
    target_dir.replace_target(staging, target, backup)
    _sync_directory(target.parent)
    target_dir.remove_staging(backup)
    return path


def read(path: str | Path, *, only: set[str] | None = None) -> tuple[dict[str, Any], Groups]:
    """Read the checkpoint at ``path``; ``only`` names the groups of arrays to read, by default all.

    Raises:
        UsageError: if there is no checkpoint, it has another format, a file is damaged, or a value is one that no agent
            could have saved.
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
    """Return the checkpoint that ``path`` refers to: itself, or one in a run directory.

    Args:
        path: a checkpoint, or a run directory with ``checkpoints/<timesteps>/``.
        which: in a run directory: ``"latest"``, one of :data:`NAMED`, or a number of timesteps.

    Raises:
        UsageError: if ``path`` is neither, the run has no such checkpoint, or ``path`` is another checkpoint than the
            one that ``which`` names.
    """
    path = Path(path)
    if _is_checkpoint(path):
        if brief(which, quotes=False) not in ("latest", path.name):
            raise UsageError(
                f"checkpoint={brief(which)}: {path} is one checkpoint already; leave the option out, or give the run "
                "directory instead"
            )
        return path
    folder = path / "checkpoints"
    numbered = target_dir.numbered(folder, MANIFEST)
    if which == "latest" and numbered:
        return numbered[-1]
    if which in NAMED and _is_checkpoint(folder / which):
        return folder / which
    chosen = [entry for entry in numbered if str(int(entry.name)) == str(which)]
    if chosen:
        return chosen[0]
    if str(path).startswith("zoo:"):
        raise UsageError(f"{path} is a policy alone, without critic and replay memory; use ddpg.load_policy('{path}')")
    if not path.exists():
        raise UsageError(f"no checkpoint or run directory at {brief(str(path))}; give one such as runs/Pendulum-v1/1")
    have = [entry.name for entry in numbered] + [name for name in NAMED if (folder / name).exists()]
    if not have and (path / "config.json").exists():
        raise UsageError(
            f"{path} is a run directory that has no checkpoint yet, so there is nothing to load; bring its folder "
            "checkpoints back if it had one, or train again"
        )
    raise UsageError(
        f"{path} has no checkpoint {brief(which)}; it has {', '.join(have) if have else 'none'}"
        + ("" if folder.exists() else f": it is not a run directory{_instead(path)}")
    )


def _instead(path: Path) -> str:
    """Return a hint if ``path`` is an exported policy, or one that names a run if it is a directory of several runs."""
    if (path / "policy.json").is_file():
        return " but an exported policy, which has no environment: ddpg.load_policy loads one of format numpy"
    runs = [entry for entry in path.iterdir() if (entry / "checkpoints").is_dir()] if path.is_dir() else []
    return f"; it holds runs, so name one, such as {max(runs, key=lambda run: run.stat().st_mtime)}" if runs else ""


def _read_manifest(path: Path) -> tuple[dict[str, Any], dict[str, manifests.Table], Path]:
    if not (path / MANIFEST).exists() and (target_dir.backup_path(path) / MANIFEST).exists():
        path = target_dir.backup_path(path)
    try:
        return *manifests.read(path / MANIFEST), path
    except FileNotFoundError:
        raise UsageError(f"no checkpoint at {brief(str(path))}: it has no {MANIFEST}") from None


def _sync_directory(path: Path) -> None:
    if os.name == "nt":
        return  # Windows cannot open a directory; its renames are journalled
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_checkpoint(path: Path) -> bool:
    return (path / MANIFEST).exists() or (target_dir.backup_path(path) / MANIFEST).exists()
