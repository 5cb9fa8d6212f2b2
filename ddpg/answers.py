"""stdout for what a command answers alone: whatever else is printed goes to stderr."""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def stdout_kept(enabled: bool = True) -> Iterator[None]:
    """Let what is printed inside go to stderr: by Python, by libraries in C, by processes that begin here.

    Nothing is done where not ``enabled``, or without a stdout.
    """
    if not enabled or sys.stdout is None:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        _point_at_stderr()
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def nothing_more() -> None:
    """Let what is printed while this process ends go to stderr: what C held back, what objects say when they go."""
    if sys.stdout is not None:
        sys.stdout.flush()
        _point_at_stderr()


def _point_at_stderr() -> None:
    if sys.stderr is not None:
        os.dup2(2, 1)
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)  # as after ``2>&-``
    os.dup2(nowhere, 1)
    os.close(nowhere)
