"""Replace small files atomically: written aside, flushed to disk, renamed into place."""

import io
import os
from pathlib import Path
from typing import Any, Protocol

from ddpg.errors import UsageError


class Drawn(Protocol):
    """A figure of matplotlib's."""

    def savefig(self, fname: Any, *, format: str) -> None:
        """Write it to a file."""


def write_text(path: Path, text: str) -> None:
    """Replace the file at ``path`` by ``text``; a kill or a full disk leaves the old one or the new one."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace the file at ``path`` by ``data``, as :func:`write_text`."""
    aside = path.with_name(f".{path.name}.ddpg-writing")
    try:
        with aside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # what was asked for, not the name aside
        raise
    os.replace(aside, path)


def check_figure(path: str | Path) -> Path:
    """Return ``path`` if a picture can be written there.

    Raises:
        UsageError: another kind of file, or no directory for it.
    """
    path = Path(path)
    if path.suffix.lower() not in ("", ".png", ".pdf", ".svg") or not path.absolute().parent.is_dir():
        raise UsageError(f"{str(path)!r} must be a .png, .pdf or .svg in a directory that exists")
    return path


def write_figure(path: Path, figure: Drawn) -> Path:
    """Replace the picture at ``path``, of the format that its name ends with (none: PNG), and return the path."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:].lower() or "png")
    write_bytes(path, drawn.getvalue())
    return path
