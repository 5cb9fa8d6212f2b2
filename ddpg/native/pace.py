"""Which of two ways of doing the same is the faster one now, where cores may be busy with other work."""

import time
from collections.abc import Callable, Iterator

FIRST, LONGEST = 0.5, 8.0  # seconds after which the slower way is tried again: twice as many every time it is slower
TRIED, HOPELESS = 15, 10  # pieces by which it is tried, but not where the first took so many times as long


class Pace:
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
