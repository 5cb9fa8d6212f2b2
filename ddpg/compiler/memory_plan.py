"""Memory plan: an offset in one block for every value that kernels pass on; dead values' memory is reused."""

import dataclasses
from collections.abc import Sequence

from ddpg.compiler.ir import Node, Program
from ddpg.compiler.schedule import Kernel, materialized, members_of, sources

ALIGNMENT = 16  # floats: a cache line, and the widest vector


@dataclasses.dataclass(frozen=True)
class MemoryPlan:
    """Offsets in floats.

    Attributes:
        variables: offset of each variable, by index.
        values: offsets of constants and stored values, by ``id`` of the node.
        size: of the block.
    """

    variables: tuple[int, ...]
    values: dict[int, int]
    size: int


def plan_memory(steps: Sequence[Kernel], outputs: Sequence[Node], sizes: Sequence[int], behind: int = 0) -> MemoryPlan:
    """Place variables of ``sizes`` and, not before ``behind``, tables and what ``steps`` leave in memory."""
    top = 0
    variables = []
    for size in sizes:
        variables.append(top)
        top += round_to_cache_lines(size)
    top = max(top, behind)
    values: dict[int, int] = {}
    last: dict[int, int] = {}
    kept = {id(value) for value in materialized(steps, outputs)}
    for index, step in enumerate(steps):
        for item in members_of(step):
            for argument in (source.base for source in sources(item, kept)):
                last[id(argument)] = index
                if argument.kind == "const" and id(argument) not in values:
                    values[id(argument)] = top
                    top += round_to_cache_lines(argument.size)
    last |= {id(output.base): len(steps) for output in outputs}
    free: dict[int, list[int]] = {}
    ending: dict[int, list[Node]] = {}
    for index, step in enumerate(steps):
        for value in members_of(step):
            if not isinstance(value, Node) or id(value) not in kept:
                continue
            size = round_to_cache_lines(value.size)
            if free.get(size):
                values[id(value)] = free[size].pop()
            else:
                values[id(value)] = top
                top += size
            ending.setdefault(last[id(value)], []).append(value)
        # Only now: no two arguments of one step share memory.
        for value in ending.pop(index, ()):
            free.setdefault(round_to_cache_lines(value.size), []).append(values[id(value)])
    return MemoryPlan(tuple(variables), values, top)


@dataclasses.dataclass(frozen=True)
class Scratch:
    """Memory that threads need, in the block behind the planned values; offsets in floats.

    Attributes:
        meeting: counters of the barrier.
        packed: what each has of a product's second argument, ``packed_size`` floats.
        packed_size: see ``packed``.
        partial: each one's part of sums, ``partial_size`` floats.
        partial_size: see ``partial``.
        size: of the whole block.
    """

    meeting: int
    packed: int
    packed_size: int
    partial: int
    partial_size: int
    size: int


def plan_scratch(layout: MemoryPlan, workers: int, packed: int, partial: int) -> Scratch:
    """Place what ``workers`` need: ``packed`` and ``partial`` floats for each."""
    meeting = layout.size
    packed_at = meeting + 2 * ALIGNMENT
    packed_size, partial_size = round_to_cache_lines(packed), round_to_cache_lines(partial)
    partial_at = packed_at + workers * packed_size
    size = partial_at + workers * partial_size
    return Scratch(meeting, packed_at, packed_size, partial_at, partial_size, size)


def constants_of(program: Program, layout: MemoryPlan) -> list[tuple[int, Node]]:
    """Return the constant matrices that are read, and where they live."""
    return [(layout.values[id(value)], value) for value in program.constants if id(value) in layout.values]


def round_to_cache_lines(size: int) -> int:
    """Return a size in whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT
