"""How much memory this process may use, so that a checkpoint larger than that is refused before it is read."""

import os
import sys
from pathlib import Path

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_UNKNOWN = 1 << 62


def memory_limit() -> int:
    """Return the bytes of memory that this process may use, or a large sentinel where no limit is known.

    It is the least of the machine's memory (used or free), the container's limit and the process's own limit.
    """
    return min(_machine_memory(), _container_limit(), _process_limit())


def _machine_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN


def _container_limit() -> int:
    for path in _LIMITS:
        try:
            return int(Path(path).read_text(encoding="ascii"))
        except (OSError, ValueError):  # no such limit, or "max"
            continue
    return _UNKNOWN


def _process_limit() -> int:
    if sys.platform == "win32":
        return _UNKNOWN
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return _UNKNOWN if soft == resource.RLIM_INFINITY else soft
