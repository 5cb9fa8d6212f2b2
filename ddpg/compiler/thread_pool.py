"""Threads that run the entry function together, and an autotuner that chooses threaded or serial by recent timings.

Ctrl-C raises ``KeyboardInterrupt`` between any two bytecodes of the main thread, even inside the methods and locks of a
``ThreadPoolExecutor``. Then a worker that has started would wait at a barrier forever for one that never starts. So the
main thread only calls C functions, which are not interrupted, and after an interrupt it starts the missing calls.
"""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

CONTROL_GROUP = Path("/sys/fs/cgroup")  # Linux: this container's limits


class ThreadPool:
    """``count`` threads that wait for work until this object is deleted; their names begin with ``name``."""

    def __init__(self, count: int, name: str):
        self._tasks: SimpleQueue = SimpleQueue()
        for number in range(count):
            threading.Thread(target=_serve, args=(self._tasks,), name=f"{name}-{number}", daemon=True).start()
        weakref.finalize(self, _dismiss, self._tasks, count)

    def run_all(self, function: Callable[..., Any], calls: Sequence[tuple]) -> None:
        """Call a function several times at once, the first time in this thread; return when all calls have ended.

        All calls have ended even if this raises ``KeyboardInterrupt``.

        Args:
            function: a native function, which raises no exceptions.
            calls: the arguments of each call; at most one more than there are threads.
        """
        here, others = calls[0], calls[1:]
        waiting = iter(others)
        ended: list[None] = []
        all_ended: SimpleQueue = SimpleQueue()

        def run_next() -> None:
            call = next(waiting, None)
            if call is not None:
                function(*call)
                ended.append(None)
                if len(ended) == len(others):
                    all_ended.put(None)

        queued = False
        try:
            for _ in others:
                self._tasks.put(run_next)
            queued = True
            function(*here)
            all_ended.get()
        except BaseException:
            for _ in others:  # some tasks may be queued already; a surplus task finds no call left
                self._tasks.put(run_next)
            if not queued:
                function(*here)
            if len(ended) < len(others):
                all_ended.get()
            raise


def _serve(tasks: SimpleQueue) -> None:
    while (task := tasks.get()) is not None:
        task()
        del task  # do not keep its arguments alive while waiting


def _dismiss(tasks: SimpleQueue, count: int) -> None:
    for _ in range(count):
        tasks.put(None)


FIRST_WAIT, LONGEST_WAIT = 0.5, 8.0  # seconds until the slower way is tried again; doubled each time it is slower
TRIAL, HOPELESS = 15, 10  # updates of a trial; if its first update takes HOPELESS times as long, the trial ends
FORGOTTEN = 0.9  # factor by which the usual number of updates shrinks at a call with fewer updates


class Autotuner:
    """Chooses the faster of two ways to run updates, 0 (threaded) and 1 (serial), by recent timings with ``clock``."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._took: list[float | None] = [None, None]
        self._next_trial, self._wait = clock(), FIRST_WAIT
        self._usual = 0.0

    def split(self, count: int) -> Iterator[tuple[int, int]]:
        """Yield ``(way, number)`` of updates, ``count`` in total; the caller runs each part before it gets the next.

        A call with far fewer updates than usual, such as the last 1 of 33, is not timed: waking the threads takes a
        large part of its time, and the update may be of a longer kind.
        """
        self._usual = max(float(count), FORGOTTEN * self._usual)
        if 2 * count < self._usual and None not in self._took:
            yield self._best, count
            return
        if None in self._took or self._clock() >= self._next_trial:
            best = self._best
            for some in (1, min(count - 1, TRIAL)):
                yield from self._timed(1 - best, some)
                count -= some
                if count == 0 or self._is_hopeless(1 - best):
                    break
            if best == self._best:
                self._put_off(min(2 * self._wait, LONGEST_WAIT))
        if count:
            yield from self._timed(self._best, count)

    @property
    def _best(self) -> int:
        threaded, serial = self._took
        return int(serial is not None and (threaded is None or serial < threaded))

    def _is_hopeless(self, way: int) -> bool:
        took, other = self._took[way], self._took[1 - way]
        return took is not None and other is not None and took > HOPELESS * other

    def _timed(self, way: int, count: int) -> Iterator[tuple[int, int]]:
        best, start = self._best, self._clock()
        yield way, count
        self._took[way] = (self._clock() - start) / count
        if best != self._best:
            self._put_off(FIRST_WAIT)

    def _put_off(self, wait: float) -> None:
        self._wait, self._next_trial = wait, self._clock() + wait


INTRAOP = "TF_NUM_INTRAOP_THREADS"  # TensorFlow's setting, which divides the cores among processes


def available_cores() -> int:
    """Return the number of cores available to this process, at most TensorFlow's setting for its threads.

    A container's quota of processor time counts in whole cores: threads beyond it would be stopped in each period.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # some systems lack this function
        cores = os.cpu_count() or 1
    setting = os.environ.get(INTRAOP, "")
    return min(cores, int(setting) if setting.isdigit() and int(setting) else cores, *_container_quotas())


def _container_quotas() -> Iterator[int]:
    """Yield the whole cores, at least 1, that Linux's control groups of either version leave this container."""
    for files in ("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"):
        with contextlib.suppress(OSError, ValueError):  # another system, another version, or no quota
            quota, period = (int(word) for file in files for word in (CONTROL_GROUP / file).read_text("ascii").split())
            if quota > 0:
                yield max(1, quota // period)
