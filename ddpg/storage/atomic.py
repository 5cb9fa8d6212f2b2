"""Small files that are whole at any moment: written aside, flushed to the disk, renamed into place."""

import os
from pathlib import Path

from ddpg.errors import about


def write_text(path: Path, text: str) -> None:
    """Replace the file at ``path`` by ``text``; a kill or a full disk leaves the old one or the new one."""
    aside = path.with_name(f".{path.name}.ddpg-writing")
    try:
        with about(path), aside.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    os.replace(aside, path)
