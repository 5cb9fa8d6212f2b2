"""NumPy's BLAS on one thread, for products that are done sooner than a second thread is put to sleep again.

OpenBLAS divides a product of eight rows among all cores, and its threads then wait for the next one without leaving
their cores: for a tenth of a second, in which the updates' own threads would need them.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

import threadpoolctl


class Library(Protocol):
    """A BLAS of this process: :class:`threadpoolctl.LibController`."""

    num_threads: int | None

    def set_num_threads(self, num_threads: int) -> None:
        """Let calls from now on take so many threads."""


class OneThread:
    """Blocks in which libraries take one thread, in any number of threads at the same time.

    Args:
        libraries: of which those that take one thread anyway are left alone.
    """

    def __init__(self, libraries: Sequence[Library]):
        self._libraries = libraries
        self._before: list[tuple[Library, int]] = []
        self._lock, self._inside = threading.Lock(), 0

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Take one thread within the block; behind the last such block the libraries take what they took before."""
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before = [(each, count) for each in self._libraries if (count := each.num_threads or 1) > 1]
                for library, _ in self._before:
                    library.set_num_threads(1)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    for library, count in self._before:
                        library.set_num_threads(count)


@functools.cache
def _of_this_process() -> OneThread:
    return OneThread(threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers)


def one_thread() -> contextlib.AbstractContextManager[None]:
    """Let NumPy's BLAS take one thread within the block."""
    return _of_this_process().block()
