"""Cache machine code on disk, so that the next start does not compile it again.

Code is read only from the user's own cache directory, never from a run or a checkpoint. The directory and the file must
belong to the user, must not be symbolic links, and must not be writable by group or others. The file's length and
SHA-256 must match, because LLVM's loader crashes on truncated code; the hash covers the key too, so that one file
cannot replace another. Code that fails a check is compiled again.
"""

import contextlib
import hashlib
import os
import re
import stat
import tempfile
from pathlib import Path

import platformdirs

VARIABLE = "DDPG_CACHE"  # another directory than the user's cache directory; "off": no cache
KEPT = 100  # files; the least recently used ones are removed
_HEAD = 8 + hashlib.sha256().digest_size  # bytes before the code
_OURS = re.compile(r"[0-9a-f]{64}(\..*)?")  # a key, or the temporary file of a killed process


def read(key: str) -> bytes | None:
    """Return the code stored under ``key``, hexadecimal; ``None`` if there is none, or if it fails a check."""
    folder = _folder()
    if folder is None:
        return None
    try:
        # Do not follow a link, and do not wait for a pipe.
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        with open(os.open(folder / key, flags), "rb") as file:
            status = os.fstat(file.fileno())  # of the open file, even if its name refers to another file by now
            if not (stat.S_ISREG(status.st_mode) and _is_ours(status)):
                return None
            content = file.read()
        os.utime(folder / key)
    except OSError:
        return None
    code = content[_HEAD:]
    return code if code and content[:_HEAD] == _head(key, code) else None


def write(key: str, code: bytes) -> None:
    """Store code under ``key`` if the directory can be written, and remove the least recently used files."""
    folder = _folder()
    if folder is None or not code:
        return
    with contextlib.suppress(OSError):
        descriptor, name = tempfile.mkstemp(prefix=f"{key}.", dir=folder)  # mode 600
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_head(key, code) + code)
            os.replace(name, folder / key)
        except OSError:
            os.unlink(name)
        _make_room(folder)


def _make_room(folder: Path) -> None:
    """Keep the :data:`KEPT` most recently used files and remove the rest, which other processes may remove too."""
    ages = []
    for path in folder.iterdir():
        if _OURS.fullmatch(path.name):
            with contextlib.suppress(FileNotFoundError):
                ages.append((path.lstat().st_mtime, path))
    for _, path in sorted(ages)[:-KEPT]:
        path.unlink(missing_ok=True)


def _head(key: str, code: bytes) -> bytes:
    """Return the code's length, and the SHA-256 of key, length and code."""
    length = len(code).to_bytes(8, "little")
    return length + hashlib.sha256(key.encode() + length + code).digest()


def _is_ours(status: os.stat_result) -> bool:
    """Return whether a file or directory belongs to the user and only the user can write it; always true on Windows."""
    others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not others)


def _folder() -> Path | None:
    """Return the directory, created if missing; ``None`` if the cache is off, or other users can write there."""
    chosen = os.environ.get(VARIABLE)
    if chosen == "off":
        return None
    try:
        folder = (Path(chosen) if chosen else platformdirs.user_cache_path("ddpg")) / "native"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except (OSError, RuntimeError):
        return None
    return folder if stat.S_ISDIR(status.st_mode) and _is_ours(status) else None
