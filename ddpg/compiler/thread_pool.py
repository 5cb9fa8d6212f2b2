"""Threads that run the entry function together, and an online autotuner: threaded or serial, by recent timings.

Ctrl-C raises ``KeyboardInterrupt`` between any two steps of the main thread's Python, also within the methods and locks
of a ``ThreadPoolExecutor``. One of the functions would then wait for others that never come, on a core, without end.
What is called between here is C, which is not interrupted, and what is left undone is made up for.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from typing import Any


class ThreadPool:
    """Threads that wait for work until this object is gone.

    Args:
        count: how many.
        name: of the threads, before their number.
    """

    def __init__(self, count: int, name: str):
        self._tasks: SimpleQueue = SimpleQueue()
        for number in range(count):
            threading.Thread(target=_serve, args=(self._tasks,), name=f"{name}-{number}", daemon=True).start()
        weakref.finalize(self, _dismiss, self._tasks, count)

    def together(self, function: Callable[..., Any], calls: Sequence[tuple]) -> None:
        """Make calls of a function at the same time, the first here; return when all have ended.

        Where this is interrupted, all of them have ended too.

        Args:
            function: a native one, which raises nothing.
            calls: the arguments of each, no more than there are helpers and one.
        """
        here, others = calls[0], calls[1:]
        waiting = iter(others)
        ended: list[None] = []
        over: SimpleQueue = SimpleQueue()

        def help_out() -> None:
            call = next(waiting, None)
            if call is not None:
                function(*call)
                ended.append(None)
                if len(ended) == len(others):
                    over.put(None)

        begun = False
        try:
            for _ in others:
                self._tasks.put(help_out)
            begun = True
            function(*here)
            over.get()
        except BaseException:
            for _ in others:  # how many had been asked is not known; one too many finds nothing to do
                self._tasks.put(help_out)
            if not begun:
                function(*here)
            if len(ended) < len(others):
                over.get()
            raise


def _serve(tasks: SimpleQueue) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # and what it was about, while there is nothing to do


def _dismiss(tasks: SimpleQueue, count: int) -> None:
    for _ in range(count):
        tasks.put(None)


FIRST, LONGEST = 0.5, 8.0  # seconds after which the slower way is tried again: twice as many every time it is slower
TRIED, HOPELESS = 15, 10  # pieces by which it is tried, but not where the first took so many times as long


class Autotuner:
    """Chooses by how long each way took lately.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._took: list[float | None] = [None, None]
        self._again, self._wait = clock(), FIRST

    def parts(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield ``(way, how many)`` for ``count`` pieces of work, which are done before the next is asked for."""
        if None in self._took or self._clock() >= self._again:
            best = self._best
            for some in (1, min(count - 1, TRIED)):
                yield from self._timed(1 - best, some)
                count -= some
                if count == 0 or self._is_hopeless(1 - best):
                    break
            if best == self._best:
                self._put_off(min(2 * self._wait, LONGEST))
        if count:
            yield from self._timed(self._best, count)

    @property
    def _best(self) -> int:
        together, alone = self._took
        return int(alone is not None and (together is None or alone < together))

    def _is_hopeless(self, way: int) -> bool:
        took, other = self._took[way], self._took[1 - way]
        return took is not None and other is not None and took > HOPELESS * other

    def _timed(self, way: int, count: int) -> Iterator[tuple[int, int]]:
        best, start = self._best, self._clock()
        yield way, count
        self._took[way] = (self._clock() - start) / count
        if best != self._best:
            self._put_off(FIRST)

    def _put_off(self, wait: float) -> None:
        self._wait, self._again = wait, self._clock() + wait


INTRAOP = "TF_NUM_INTRAOP_THREADS"  # TensorFlow's own setting, by which processes side by side share the cores


def available_cores() -> int:
    """Return the cores that this process may use; jobs side by side share them by TensorFlow's own setting."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = os.cpu_count() or 1
    asked = os.environ.get(INTRAOP, "")
    return min(cores, int(asked)) if asked.isdigit() and int(asked) else cores
