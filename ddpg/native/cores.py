"""The cores that this process may use. TensorFlow is not imported."""

import os

INTRAOP = "TF_NUM_INTRAOP_THREADS"  # TensorFlow's own setting, by which processes side by side share the cores


def available_cores() -> int:
    """Return the cores that this process may use; jobs side by side share them by TensorFlow's own setting."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = os.cpu_count() or 1
    asked = os.environ.get(INTRAOP, "")
    return min(cores, int(asked)) if asked.isdigit() and int(asked) else cores
