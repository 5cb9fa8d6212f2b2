"""Where run directories are."""

import os
from collections.abc import Iterator
from pathlib import Path

from ddpg.runs import description


def folders_below(root: Path) -> Iterator[Path]:
    """Yield the directories with a ``config.json`` at ``root`` and below it, each once, the hidden ones left out.

    Links to directories are followed, after all that is there without them: a run has its own name, not a link's.
    """
    seen: set[str] = set()
    waiting = [str(root)]
    for start in waiting:  # which grows
        for folder, names, files in os.walk(start):
            place = os.path.realpath(folder)
            if place in seen:
                names.clear()
                continue
            seen.add(place)
            names[:] = [name for name in names if not name.startswith(".")]
            waiting += [link for name in names if os.path.islink(link := os.path.join(folder, name))]
            if description.CONFIG in files:
                yield Path(folder)
