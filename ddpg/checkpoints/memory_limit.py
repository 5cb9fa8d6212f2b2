"""How much memory this process may use."""

import os
import sys
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_UNKNOWN = 1 << 62


def memory_limit() -> int:
    """Return the bytes of memory that this process may have, or more than anything has where nobody says.

    The least of the machine's memory, what is in use or not, the container's limit and the process's own.
    """
    return min(_physical(), _of_container(), _of_process())


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN


def _of_container() -> int:
    for path in _LIMITS:
        try:
            return int(Path(path).read_text(encoding="ascii"))
        except (OSError, ValueError):  # no such limit, or "max"
            continue
    return _UNKNOWN


def _of_process() -> int:
    if sys.platform == "win32":
        return _UNKNOWN
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return _UNKNOWN if soft == resource.RLIM_INFINITY else soft
