"""Who does the parts of a step: workers at the same time, each its own, or one alone all of them, one after the other.

The parts are the same, and so are the numbers to the last bit.
"""

import contextlib
from collections.abc import Iterator

from ddpg.native.layout import ALIGNMENT
from ddpg.native.text import Lines

SPINS = 2000  # looks at the others before a worker offers its core to them

Part = tuple[str | int, str | int, str | int]

# Everyone waits here for everyone: the last one to come lets all go on. Two counters, a cache line each.
MEETING = f"""
declare i32 @sched_yield()

define internal void @meet(ptr %place, i32 %others) noinline nounwind {{
entry:
  %count = getelementptr i32, ptr %place, i64 {ALIGNMENT}
  %round = load atomic i32, ptr %place acquire, align 4
  %here = atomicrmw add ptr %count, i32 1 acq_rel
  %last = icmp eq i32 %here, %others
  br i1 %last, label %open, label %wait
open:
  store atomic i32 0, ptr %count monotonic, align 4
  %opened = atomicrmw add ptr %place, i32 1 acq_rel
  ret void
wait:
  %spins = phi i32 [0, %entry], [%more, %still]
  %now = load atomic i32, ptr %place acquire, align 4
  %same = icmp eq i32 %now, %round
  br i1 %same, label %still, label %go
still:
  %more = add i32 %spins, 1
  %tired = icmp ugt i32 %spins, {SPINS}
  br i1 %tired, label %yield, label %wait
yield:
  %given = call i32 @sched_yield()
  br label %again
again:
  %later = load atomic i32, ptr %place acquire, align 4
  %unchanged = icmp eq i32 %later, %round
  br i1 %unchanged, label %yield, label %go
go:
  ret void
}}"""


class Alone:
    """One does the parts of all ``workers``.

    Args:
        main: where calls are written.
        workers: how many parts a step has.
        meeting: not used.
    """

    def __init__(self, main: Lines, workers: int, meeting: int):
        self._main, self._workers, self._meeting = main, workers, meeting

    def parts(self, length: int, multiple: int) -> Iterator[Part]:
        """Yield ``(worker, low, high)`` for the parts of ``length``, in multiples; afterwards all are done."""
        part = self._part(length, multiple)
        for worker in range(self._workers):
            low, high = worker * part, min((worker + 1) * part, length)
            if low < high:
                yield worker, low, high

    def how_many(self, length: int, multiple: int) -> int:
        """Return how many workers have a part."""
        part = self._part(length, multiple)
        return -(-length // part) if part else 0

    @contextlib.contextmanager
    def one(self, which: int, meeting: bool = True) -> Iterator[str | int]:
        """Let one of the workers do what is added inside, and all wait for it, but where there is no ``meeting``."""
        yield which

    def _part(self, length: int, multiple: int) -> int:
        return -(-length // (self._workers * multiple)) * multiple


class Together(Alone):
    """The workers run the same function at the same time; ``%worker`` is which.

    Args:
        main: where calls are written.
        workers: how many.
        meeting: where in the block they meet.
    """

    def parts(self, length: int, multiple: int) -> Iterator[Part]:
        """See :meth:`Alone.parts`; yields once, for whoever it is."""
        main, part = self._main, self._part(length, multiple)
        low = main.times("%worker", part)
        high = main.add(f"call i64 @llvm.smin.i64(i64 {main.add(f'add i64 {low}, {part}')}, i64 {length})")
        with main.when(f"icmp slt i64 {low}, {high}"):
            yield "%worker", low, high
        self._meet()

    @contextlib.contextmanager
    def one(self, which: int, meeting: bool = True) -> Iterator[str | int]:
        """See :meth:`Alone.one`."""
        with self._main.when(f"icmp eq i64 %worker, {which}"):
            yield which
        if meeting:
            self._meet()

    def _meet(self) -> None:
        place = self._main.at("%block", self._meeting)
        self._main.do(f"call void @meet(ptr {place}, i32 {self._workers - 1})")
