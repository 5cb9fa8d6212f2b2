"""Machine code kept on disk: what was compiled once starts at once the next time.

Code is read from the user's own cache directory alone, never from a run or a checkpoint: from a directory that is the
user's and that nobody else may write, from files that carry their SHA-256.
"""

import contextlib
import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

import platformdirs

VARIABLE = "DDPG_CACHE"  # a directory instead of the user's; "off": nothing is kept
KEPT = 100  # files; those read or written last
_DIGEST = hashlib.sha256().digest_size
_OURS = re.compile(r"[0-9a-f]{64}(\..*)?")  # a key, or a file that a kill left before it got its name


def read(key: str) -> bytes | None:
    """Return the code kept under ``key``, hexadecimal; ``None`` where there is none, or none to trust."""
    folder = _folder()
    if folder is None:
        return None
    try:
        content = (folder / key).read_bytes()
        os.utime(folder / key)
    except OSError:
        return None
    code = content[_DIGEST:]
    return code if hashlib.sha256(code).digest() == content[:_DIGEST] else None


def write(key: str, code: bytes) -> None:
    """Keep code under ``key``, where a directory can be written; the files used longest ago make room."""
    folder = _folder()
    if folder is None:
        return
    with contextlib.suppress(OSError):
        descriptor, name = tempfile.mkstemp(prefix=f"{key}.", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(name, folder / key)
        except OSError:
            os.unlink(name)
        ours = [path for path in folder.iterdir() if _OURS.fullmatch(path.name)]
        for path in sorted(ours, key=lambda path: path.stat().st_mtime)[:-KEPT]:
            path.unlink()


def _folder() -> Path | None:
    """Return the directory, made where it is not there; ``None`` where there is none, or others may write in it."""
    chosen = os.environ.get(VARIABLE)
    if chosen == "off":
        return None
    try:
        folder = (Path(chosen) if chosen else platformdirs.user_cache_path("ddpg")) / "native"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError):
        return None
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return None if hasattr(os, "getuid") and (status.st_uid != os.getuid() or others) else folder
