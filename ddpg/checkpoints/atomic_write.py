"""Write files so that a full disk or a killed process does no harm: flushed to disk, and replaced atomically.

A file is replaced by a temporary file in the same directory, which is renamed once it is complete.
"""

import contextlib
import errno
import io
import os
import re
import stat
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ddpg.checkpoints.safe_json import kind_of
from ddpg.errors import UsageError, brief, with_filename

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ABANDONED_AFTER = 86_400  # seconds: far longer than any file takes to write, and any two clocks differ


def write_durably(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Write ``pieces`` to a file and flush it to disk; an ``OSError`` names the file."""
    with with_filename(path), path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def temporary_path(path: Path) -> Path:
    """Return the temporary path for writing the file at ``path``; one left by a killed process is overwritten."""
    name = path.name
    if len(os.fsencode(name)) > 200:  # the prefix and suffix must not push the name beyond 255 bytes
        name = f"{name[:40]}-{zlib.crc32(os.fsencode(name)):08x}"
    return path.with_name(f".{name}.ddpg-writing")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path of this process's own, and rename the file that the block writes there to ``path``.

    If the block raises an exception, the temporary file is deleted and the file at ``path`` stays as it was. An
    ``OSError`` about the temporary file names ``path`` instead. Temporary files of ``path`` that killed processes left
    are deleted a day later.
    """
    _remove_abandoned(path)
    temporary = temporary_path(path.with_name(f"{path.name}.{os.getpid()}"))
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == str(temporary):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


def _remove_abandoned(path: Path) -> None:
    """Remove the temporary files of ``path`` that were last written a day ago.

    Whether their process still exists cannot be asked, since it may be one of another machine that shares the folder.
    """
    name = re.compile(rf"\.{re.escape(path.name)}\.\d+\.ddpg-writing")
    with contextlib.suppress(OSError), os.scandir(path.parent) as entries:
        for entry in filter(lambda entry: name.fullmatch(entry.name), entries):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > _ABANDONED_AFTER:
                os.unlink(entry.path)


def write_text(path: Path, text: str) -> None:
    """Replace the file at ``path`` by ``text``; a killed process or a full disk leaves the old file or the new one."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace the file at ``path`` by ``data``, with the guarantee of :func:`write_text`."""
    with replacing(path) as temporary:
        write_durably(temporary, [data])


def file_to_write(path: Path, what: str = "a file") -> Path:
    """Return the file that a user's ``path`` names: ``path`` itself, or the target of a symbolic link, which stays.

    Renaming a complete file to ``path`` would otherwise replace a device, a pipe or a link. The file need not exist.
    ``what`` says what it can be, for messages.

    Raises:
        UsageError: if there is something else than a regular file.
    """
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    try:
        mode = os.stat(target).st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UsageError(f"{brief(str(path))} is a symbolic link to itself, expected a file to write") from None
        return target  # it is missing, or its directory cannot be read; writing names the reason
    if not stat.S_ISREG(mode):
        advice = f"name {what} in it" if stat.S_ISDIR(mode) else "name another path"
        raise UsageError(f"{brief(str(path))} is a {kind_of(mode)}, expected {what} to write; {advice}")
    return target


def check_figure(path: str | Path) -> Path:
    """Return the file to write, see :func:`file_to_write`, if it can be a figure.

    Raises:
        UsageError: if there is something else than a regular file, the suffix is not .png, .pdf, .svg or empty, or the
            directory does not exist.
    """
    path = file_to_write(Path(path), "a .png, .pdf or .svg file")
    if path.suffix.lower() not in ("", ".png", ".pdf", ".svg") or not path.absolute().parent.is_dir():
        raise UsageError(f"{str(path)!r} must be a .png, .pdf or .svg in a directory that exists")
    return path


def write_figure(path: Path, figure: "Figure") -> Path:
    """Replace the figure at ``path`` in the format of its suffix (PNG without one), and return the path."""
    encoded = io.BytesIO()
    figure.savefig(encoded, format=path.suffix[1:].lower() or "png")
    write_bytes(path, encoded.getvalue())
    return path
