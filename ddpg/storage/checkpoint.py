"""Checkpoints: a directory of plain data, written aside and renamed into place.

    manifest.json           what it is, the configuration, the spaces, counters, SHA-256 of every file
    <group>.safetensors     arrays by name

Reading one executes nothing: safetensors and JSON hold data only. A kill at any moment leaves either the
old directory or the new one; a flipped byte is refused by its checksum.
"""

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from ddpg.errors import UsageError
from ddpg.storage import place
from ddpg.storage.place import MANIFEST

FORMAT = 1

Groups = dict[str, dict[str, np.ndarray]]


def write(path: str | Path, manifest: dict[str, Any], groups: Groups) -> Path:
    """Write a checkpoint at ``path``: where nothing is, in an empty directory, or in place of a checkpoint.

    Everything is written to a directory beside it and flushed to the disk first, so a full disk or a kill
    leaves what was there before. Replacing takes two renames; between them :func:`read` finds the old one.

    Returns:
        The path.

    Raises:
        UsageError: anything else is at ``path``; nothing is written or removed then.
    """
    path = Path(path)
    place.check(path)
    target = path.resolve()  # a working directory that is replaced has no name for a moment
    aside, old = place.aside(target), place.old(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    place.remove(aside)
    try:
        aside.mkdir()
        files = {f"{group}.safetensors": _serialised(arrays) for group, arrays in groups.items()}
        checksums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        document = {"format": FORMAT, **manifest, "sha256": checksums}
        files[MANIFEST] = json.dumps(document, indent=1).encode()
        for name, data in files.items():
            _write_through(aside / name, data)
        _sync_directory(aside)
        place.check(target)  # what came there in the meantime stays, too
    except BaseException:
        place.remove(aside)
        raise
    place.put(aside, target, old)
    _sync_directory(target.parent)
    place.remove(old)
    return path


def read(path: str | Path, *, only: set[str] | None = None) -> tuple[dict[str, Any], Groups]:
    """Read the checkpoint at ``path``; of its groups, only those named.

    Raises:
        UsageError: nothing there, not a checkpoint, a newer format, or a damaged file.
    """
    manifest, path = _read_manifest(Path(path))
    groups = {}
    for name, expected in manifest["sha256"].items():
        group = name.removesuffix(".safetensors")
        if only is not None and group not in only:
            continue
        if not re.fullmatch(r"[\w.-]+\.safetensors", name):
            raise UsageError(f"checkpoint {path} names a file {name!r} outside itself; it was tampered with")
        try:
            data = (path / name).read_bytes()
        except FileNotFoundError:
            raise UsageError(f"checkpoint {path} lacks its file {name}; take another checkpoint") from None
        if hashlib.sha256(data).hexdigest() != expected:
            raise UsageError(f"checkpoint {path} is damaged: {name} does not match its checksum; take another one")
        try:
            groups[group] = safetensors.load(data)
        except SafetensorError as error:
            raise UsageError(f"checkpoint {path} is damaged: {name} is not safetensors ({error})") from None
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
    numbered = sorted((int(entry.name), entry) for entry in _entries(folder) if entry.name.isdigit())
    if which == "latest" and numbered:
        return numbered[-1][1]
    if which == "best" and _is_there(folder / "best"):
        return folder / "best"
    chosen = [entry for steps, entry in numbered if str(steps) == str(which)]
    if chosen:
        return chosen[0]
    if not path.exists():
        raise UsageError(f"no checkpoint or run directory at {str(path)!r}; give one such as runs/Pendulum-v1/1")
    have = [entry.name for _, entry in numbered] + ["best"] * (folder / "best").exists()
    raise UsageError(
        f"{path} has no checkpoint {which!r}; it has {', '.join(have) if have else 'none'}"
        + ("" if folder.exists() else ": it is not a run directory")
    )


def describe_space(space: gym.spaces.Space) -> dict[str, Any]:
    """Return a Box, a Discrete, or a Tuple or OneOf of them as JSON values. Infinite bounds become ``null``."""
    if isinstance(space, gym.spaces.Discrete):
        return {"type": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, (gym.spaces.Tuple, gym.spaces.OneOf)):
        return {"type": type(space).__name__, "spaces": [describe_space(part) for part in space.spaces]}
    if not isinstance(space, gym.spaces.Box):
        raise UsageError(f"space {space} is no Box, Discrete, Tuple or OneOf; a checkpoint cannot describe it")

    def bounds(values: np.ndarray) -> list:
        return [float(value) if np.isfinite(value) else None for value in values.reshape(-1)]

    return {
        "type": "Box",
        "shape": list(space.shape),
        "dtype": str(space.dtype),
        "low": bounds(space.low),
        "high": bounds(space.high),
    }


def restore_space(description: dict[str, Any]) -> gym.spaces.Space:
    """Return the space of :func:`describe_space`."""
    if description["type"] == "Discrete":
        return gym.spaces.Discrete(description["n"], start=description["start"])
    if description["type"] in ("Tuple", "OneOf"):
        kind = gym.spaces.Tuple if description["type"] == "Tuple" else gym.spaces.OneOf
        return kind([restore_space(part) for part in description["spaces"]])
    shape, dtype = tuple(description["shape"]), np.dtype(description["dtype"])
    low = np.array([-np.inf if value is None else value for value in description["low"]]).reshape(shape)
    high = np.array([np.inf if value is None else value for value in description["high"]]).reshape(shape)
    return gym.spaces.Box(low.astype(dtype), high.astype(dtype), shape, dtype)


def _read_manifest(path: Path) -> tuple[dict[str, Any], Path]:
    if not (path / MANIFEST).exists() and (place.old(path) / MANIFEST).exists():
        path = place.old(path)
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise UsageError(f"no checkpoint at {str(path)!r}: it has no {MANIFEST}") from None
    except (ValueError, NotADirectoryError) as error:
        raise UsageError(f"{path / MANIFEST} is not readable as JSON ({error}); take another checkpoint") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("sha256"), dict):
        raise UsageError(f"{path / MANIFEST} is not the manifest of a checkpoint")
    if manifest.get("format") != FORMAT:
        raise UsageError(
            f"checkpoint {path} has format {manifest.get('format')!r}, this version reads {FORMAT}; "
            "load it with the version of ddpg-paths that wrote it"
        )
    return manifest, path


def _serialised(arrays: dict[str, np.ndarray]) -> bytes:
    # safetensors writes the memory as it lies, whatever the strides say.
    return safetensors.save({name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()})


def _write_through(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
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
    return (path / MANIFEST).exists() or (place.old(path) / MANIFEST).exists()


def _entries(folder: Path) -> list[Path]:
    return [entry for entry in folder.iterdir() if (entry / MANIFEST).exists()] if folder.is_dir() else []
