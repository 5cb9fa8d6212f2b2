"""Replace small files atomically: write a temporary file in the same directory, flush it to disk, and rename it."""

import contextlib
import io
import os
from pathlib import Path
from typing import Any, Protocol

from ddpg.errors import UsageError


class Figure(Protocol):
    """The one method of a matplotlib figure that is used here."""

    def savefig(self, fname: Any, *, format: str) -> None:
        """Write the figure to a file."""


def temporary_path(path: Path) -> Path:
    """Return the temporary path for writing the file at ``path``; one left by a killed process is overwritten."""
    return path.with_name(f".{path.name}.ddpg-writing")


def write_text(path: Path, text: str) -> None:
    """Replace the file at ``path`` by ``text``; a killed process or a full disk leaves the old file or the new one."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace the file at ``path`` by ``data``, with the guarantee of :func:`write_text`."""
    temporary = temporary_path(path)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):  # with the name that the caller knows, not the temporary one
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


def check_figure(path: str | Path) -> Path:
    """Return ``path`` if a figure can be written there.

    Raises:
        UsageError: if ``path`` is a directory, its suffix is not .png, .pdf, .svg or empty, or its directory does not
            exist.
    """
    path = Path(path)
    if path.is_dir():
        raise UsageError(f"{str(path)!r} is a directory; name a .png, .pdf or .svg in it")
    if path.suffix.lower() not in ("", ".png", ".pdf", ".svg") or not path.absolute().parent.is_dir():
        raise UsageError(f"{str(path)!r} must be a .png, .pdf or .svg in a directory that exists")
    return path


def write_figure(path: Path, figure: Figure) -> Path:
    """Replace the figure at ``path`` in the format of its suffix (PNG without one), and return the path."""
    encoded = io.BytesIO()
    figure.savefig(encoded, format=path.suffix[1:].lower() or "png")
    write_bytes(path, encoded.getvalue())
    return path
