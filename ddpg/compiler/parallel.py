"""Run a kernel's shards on all threads, or all shards on one, with bit-identical results.

Both split a kernel into the same shards and add partial sums in the same order.
"""

import contextlib
import itertools
from collections.abc import Iterator, Sequence

from ddpg.compiler.access_ranges import AccessRange, conflict
from ddpg.compiler.llvm_builder import FunctionBuilder
from ddpg.compiler.memory_plan import ALIGNMENT

SPINS = 2000  # looks at the others before a worker offers its core to them

Part = tuple[str | int, str | int, str | int]


# Everyone waits here for everyone: the last one to come lets all go on. Two counters, a cache line each.
BARRIER = f"""
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


def split_evenly(length: int, workers: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Return ``(low, high)`` of ``length`` for each worker that has a part of it, in multiples."""
    part = -(-length // (workers * multiple)) * multiple
    return [(low, min(low + part, length)) for low in range(0, length, part)] if part else []


class SerialShards:
    """One thread runs the shards of all ``workers``.

    Args:
        main: where calls are written.
        workers: how many parts a step has.
        meeting: not used.
    """

    def __init__(self, main: FunctionBuilder, workers: int, meeting: int):
        self._main, self._workers, self._meeting = main, workers, meeting

    def ready(self, touching: Sequence[Sequence[AccessRange]]) -> None:
        """Wait until each worker may touch ``touching``, of the first worker, the second and so on."""

    def parts(self, length: int, multiple: int = 1) -> Iterator[Part]:
        """Yield ``(worker, low, high)`` for the parts of ``length``."""
        for worker, (low, high) in enumerate(split_evenly(length, self._workers, multiple)):
            yield worker, low, high

    @contextlib.contextmanager
    def first(self) -> Iterator[str | int]:
        """Let the first worker do what is added inside."""
        yield 0

    def end(self) -> None:
        """Wait until all is done."""


class ParallelShards(SerialShards):
    """The workers run the same function at the same time; ``%worker`` is which.

    A barrier stands only where a thread would touch memory that another touched since the last one, unless both only
    read. Kernels that are split by rows need none between them, and each thread's rows stay in its core's cache.

    Args:
        main: where calls are written.
        workers: how many.
        meeting: where in the block they meet.
    """

    def __init__(self, main: FunctionBuilder, workers: int, meeting: int):
        super().__init__(main, workers, meeting)
        self._touched: list[list[AccessRange]] = [[] for _ in range(workers)]

    def ready(self, touching: Sequence[Sequence[AccessRange]]) -> None:
        """See :meth:`SerialShards.ready`."""
        if any(
            conflict(now, before)
            for worker, other in itertools.permutations(range(self._workers), 2)
            for now in (touching[worker] if worker < len(touching) else ())
            for before in self._touched[other]
        ):
            self.end()
        for touched, now in zip(self._touched, touching, strict=False):
            touched.extend(now)

    def parts(self, length: int, multiple: int = 1) -> Iterator[Part]:
        """See :meth:`SerialShards.parts`; yields once, for the thread that runs the code."""
        main, part = self._main, split_evenly(length, self._workers, multiple)[0][1]
        low = main.times("%worker", part)
        high = main.add(f"call i64 @llvm.smin.i64(i64 {main.add(f'add i64 {low}, {part}')}, i64 {length})")
        with main.when(f"icmp slt i64 {low}, {high}"):
            yield "%worker", low, high

    @contextlib.contextmanager
    def first(self) -> Iterator[str | int]:
        """See :meth:`SerialShards.first`."""
        with self._main.when("icmp eq i64 %worker, 0"):
            yield 0

    def end(self) -> None:
        """See :meth:`SerialShards.end`."""
        place = self._main.at("%block", self._meeting)
        self._main.do(f"call void @meet(ptr {place}, i32 {self._workers - 1})")
        self._touched = [[] for _ in range(self._workers)]
