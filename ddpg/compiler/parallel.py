"""Write the code that runs a kernel's shards on all threads, or all shards on one thread, with bit-identical results.

Both ways split a kernel into the same shards and add partial sums in the same order. Threads wait for each other only
where one would read or write memory that another has written since the last barrier, or write memory that another has
read. For this, each kernel declares the ranges of the block that its shards access.
"""

import contextlib
from collections.abc import Container, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ddpg.compiler.codegen_elementwise import ElementwiseFunction, buffer_name
from ddpg.compiler.ir import Node
from ddpg.compiler.llvm_builder import FunctionBuilder
from ddpg.compiler.memory_plan import ALIGNMENT, MemoryPlan, Scratch

SPINS = 2000  # reads of the counter before a waiting thread yields its core

Shard = tuple[str | int, str | int, str | int]  # worker, first row, end row: numbers, or registers of the code


# A barrier of all threads, with two counters, each on its own cache line: arrived threads, and completed rounds.
BARRIER = f"""
declare i32 @sched_yield()

define internal void @barrier(ptr %rounds, i32 %others) noinline nounwind {{
entry:
  %arrived = getelementptr i32, ptr %rounds, i64 {ALIGNMENT}
  %round = load atomic i32, ptr %rounds acquire, align 4
  %before = atomicrmw add ptr %arrived, i32 1 acq_rel
  %last = icmp eq i32 %before, %others
  br i1 %last, label %open, label %wait
open:
  store atomic i32 0, ptr %arrived monotonic, align 4
  %over = atomicrmw add ptr %rounds, i32 1 acq_rel
  ret void
wait:
  %spins = phi i32 [0, %entry], [%more, %still]
  %now = load atomic i32, ptr %rounds acquire, align 4
  %same = icmp eq i32 %now, %round
  br i1 %same, label %still, label %go
still:
  %more = add i32 %spins, 1
  %waited_long = icmp ugt i32 %spins, {SPINS}
  br i1 %waited_long, label %yield, label %wait
yield:
  %yielded = call i32 @sched_yield()
  br label %again
again:
  %later = load atomic i32, ptr %rounds acquire, align 4
  %unchanged = icmp eq i32 %later, %round
  br i1 %unchanged, label %yield, label %go
go:
  ret void
}}"""


def split_evenly(length: int, workers: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Return ``(low, high)`` of each worker's shard of ``length``, in multiples; the last workers can get none."""
    size = -(-length // (workers * multiple)) * multiple
    return [(low, min(low + size, length)) for low in range(0, length, size)] if size else []


class AccessRange(NamedTuple):
    """Floats of the block, from ``start`` up to ``end``, that are read or ``written``."""

    start: int
    end: int
    written: bool


def any_conflict(accesses: Sequence[tuple[int, AccessRange]], earlier: Sequence[tuple[int, AccessRange]]) -> bool:
    """Return whether some worker must not make its accesses before another has made its earlier ones.

    Both hold ranges with the number of the worker; ``earlier`` those accessed since the last barrier.
    """
    if not accesses or not earlier:
        return False
    # All pairs at once: with 64 workers there are thousands of ranges.
    worker, start, end, written = np.array([(worker, *access) for worker, access in accesses]).T[:, :, None]
    other, other_start, other_end, other_written = np.array([(worker, *access) for worker, access in earlier]).T
    overlap = (start < other_end) & (other_start < end)
    return bool(np.any((worker != other) & overlap & ((written | other_written) > 0)))


class AccessRanges:
    """Memory ranges that kernels access in the block. They leave out the minibatch, which is only read."""

    def __init__(self, plan: MemoryPlan, scratch: Scratch):
        self._plan, self._scratch = plan, scratch

    def offset(self, buffer: str, value: Node) -> int | None:
        """Return the offset of a buffer, which holds ``value``, in the block; ``None`` for an input."""
        kind, _, rest = buffer.partition(" ")
        if kind == "input":
            return None
        return self._plan.variables[int(rest)] if kind == "variable" else self._plan.values[id(value.base)]

    def whole(self, value: Node, written: bool = False) -> list[AccessRange]:
        """Return the range of a whole value; none for an input."""
        offset = self.offset(buffer_name(value.base), value)
        return [] if offset is None else [AccessRange(offset, offset + value.base.size, written)]

    def parts(self, kernel: Node, sources: Sequence[Node], count: int, low: int, high: int) -> list[AccessRange]:
        """Return the ranges for reading some of ``count`` equal parts of ``sources``, and writing the result's."""
        accesses = []
        for value in (*sources, kernel):
            offset, size = self.offset(buffer_name(value.base), value), value.size // count
            if offset is not None:
                accesses.append(AccessRange(offset + low * size, offset + high * size, value is kernel))
        return accesses

    def loop(self, loop: ElementwiseFunction, low: int, high: int, without: Container[str] = ()) -> list[AccessRange]:
        """Return the ranges that a shard of a fused loop accesses, except for some buffers."""
        accesses = []
        for buffer, start, end, written in loop.accesses(low, high):
            offset = self.offset(buffer, loop.parameters[buffer])
            if offset is not None and buffer not in without:
                accesses.append(AccessRange(offset + start, offset + end, written))
        return accesses

    def partial_sums(self, worker: int, size: int) -> AccessRange:
        """Return the range where a worker writes its ``size`` floats of partial sums."""
        start = self._scratch.partial + worker * self._scratch.partial_size
        return AccessRange(start, start + size, True)


class Shards:
    """The shards of kernels in a function: one call runs those of all ``workers``, one after another.

    If ``parallel``, all workers call the function at the same time, each with its index ``%worker``, and run their own
    shards. Kernels that are split by rows need no barrier between them, so that each thread's rows stay in its cache.

    Args:
        main: the function to which the code is added.
        workers: number of shards of a kernel.
        barrier: offset of the barrier's counters in the block.
        parallel: see above.
    """

    def __init__(self, main: FunctionBuilder, workers: int, barrier: int, parallel: bool):
        self._main, self._workers, self._barrier, self._parallel = main, workers, barrier, parallel
        self._since_barrier: list[tuple[int, AccessRange]] = []

    def synchronize(self, accesses: Sequence[Sequence[AccessRange]]) -> None:
        """Make each worker wait until its accesses are safe; ``accesses`` holds a list for each worker."""
        if self._parallel:
            by_worker = [(worker, access) for worker, own in enumerate(accesses) for access in own]
            if any_conflict(by_worker, self._since_barrier):
                self.barrier()
            self._since_barrier += by_worker

    def each(self, length: int, multiple: int = 1) -> Iterator[Shard]:
        """Yield each shard of ``length``; the code that is added until the next one runs this shard.

        In parallel this yields once: registers that hold the bounds of the running worker's shard.
        """
        main, shards = self._main, split_evenly(length, self._workers, multiple)
        if not self._parallel:
            for worker, (low, high) in enumerate(shards):
                yield worker, low, high
            return
        size = shards[0][1]
        first = main.times("%worker", size)
        end = main.add(f"call i64 @llvm.smin.i64(i64 {main.add(f'add i64 {first}, {size}')}, i64 {length})")
        with main.when(f"icmp slt i64 {first}, {end}"):
            yield "%worker", first, end

    def only_first(self) -> contextlib.AbstractContextManager[None]:
        """Let only the first worker run the code that is added inside."""
        return self._main.when("icmp eq i64 %worker, 0") if self._parallel else contextlib.nullcontext()

    def barrier(self) -> None:
        """Make each worker wait for all others."""
        if self._parallel:
            address = self._main.at("%block", self._barrier)
            self._main.do(f"call void @barrier(ptr {address}, i32 {self._workers - 1})")
            self._since_barrier = []
