"""Plan memory: give each value that kernels pass on an offset in one block, and reuse the memory of dead values."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from ddpg.compiler.ir import Node, Program
from ddpg.compiler.schedule import Kernel, materialized, members_of, sources

ALIGNMENT = 16  # floats: a cache line, and the widest vector


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """Offsets in floats: of each variable, by index, and of each constant and stored value, by ``id`` of the node.

    Attributes:
        size: of the planned memory.
    """

    variables: tuple[int, ...]
    values: dict[int, int]
    size: int


def plan_memory(updates: Sequence[tuple[Sequence[Kernel], Sequence[Node]]], sizes: Sequence[int]) -> MemoryPlan:
    """Place the variables, all constants, and the values that the kernels of each kind of update store.

    Kinds of update, each given by its kernels and outputs, share the memory of stored values, because only variables
    keep their values between updates. ``sizes`` are those of the variables, in floats.
    """
    top = 0
    variables = []
    for size in sizes:
        variables.append(top)
        top += round_to_cache_lines(size)
    values: dict[int, int] = {}
    for kernels, outputs in updates:
        for base in (base for _, base in _reads(kernels, outputs) if base.kind == "const"):
            if id(base) not in values:
                values[id(base)] = top
                top += round_to_cache_lines(base.size)
    ends = [_place_stored(kernels, outputs, top, values) for kernels, outputs in updates]
    return MemoryPlan(tuple(variables), values, max(ends))


def _reads(kernels: Sequence[Kernel], outputs: Sequence[Node]) -> Iterator[tuple[int, Node]]:
    """Yield the index of each kernel with each value that it reads from memory."""
    stored = {id(value) for value in materialized(kernels, outputs)}
    for index, kernel in enumerate(kernels):
        for stmt in members_of(kernel):
            for source in sources(stmt, stored):
                yield index, source.base


def _place_stored(kernels: Sequence[Kernel], outputs: Sequence[Node], top: int, values: dict[int, int]) -> int:
    """Place, from ``top`` on, the values that kernels store; return the end."""
    stored = {id(value) for value in materialized(kernels, outputs)}
    last_read = {id(base): index for index, base in _reads(kernels, outputs)}
    last_read |= {id(output.base): len(kernels) for output in outputs}
    free: dict[int, list[int]] = {}
    dying: dict[int, list[Node]] = {}
    for index, kernel in enumerate(kernels):
        for value in members_of(kernel):
            if not isinstance(value, Node) or id(value) not in stored:
                continue
            size = round_to_cache_lines(value.size)
            if free.get(size):
                values[id(value)] = free[size].pop()
            else:
                values[id(value)] = top
                top += size
            dying.setdefault(last_read[id(value)], []).append(value)
        # Freed only after the kernel's results are placed: no two buffers of one kernel share memory.
        for value in dying.pop(index, ()):
            free.setdefault(round_to_cache_lines(value.size), []).append(values[id(value)])
    return top


@dataclasses.dataclass(frozen=True)
class Scratch:
    """Memory that threads need, in the block after the planned values; offsets in floats.

    Attributes:
        barrier: the barrier's counters.
        packed: what workers pack of a product's inputs, ``packed_size`` floats for each.
        partial: the workers' partial sums, ``partial_size`` floats for each.
        size: of the whole block.
    """

    barrier: int
    packed: int
    packed_size: int
    partial: int
    partial_size: int
    size: int


def plan_scratch(plan: MemoryPlan, workers: int, packed: int, partial: int) -> Scratch:
    """Place the barrier's counters, and ``packed`` and ``partial`` floats for each of the workers."""
    packed_at = plan.size + 2 * ALIGNMENT
    packed_size, partial_size = round_to_cache_lines(packed), round_to_cache_lines(partial)
    partial_at = packed_at + workers * packed_size
    size = partial_at + workers * partial_size
    return Scratch(plan.size, packed_at, packed_size, partial_at, partial_size, size)


def constants_of(program: Program, plan: MemoryPlan) -> list[tuple[int, Node]]:
    """Return the constant matrices that are read, with their offsets."""
    return [(plan.values[id(value)], value) for value in program.constants if id(value) in plan.values]


def round_to_cache_lines(size: int) -> int:
    """Return a size in floats, rounded up to whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def aligned_block(size: int) -> np.ndarray:
    """Return an array of zeros that begins at a cache line."""
    block = np.zeros(size + ALIGNMENT, np.float32)
    skipped = -(block.ctypes.data // block.itemsize) % ALIGNMENT
    return block[skipped : skipped + size]
