"""Where a program's numbers live: one block, in which what is no longer read makes room; workers' scratch behind it."""

import dataclasses
from collections.abc import Sequence

from ddpg.native.memory import in_memory, sources
from ddpg.native.program import Program, Value
from ddpg.native.schedule import Step, members_of

ALIGNMENT = 16  # floats: a cache line, and the widest vector


@dataclasses.dataclass(frozen=True)
class Layout:
    """Offsets in floats.

    Attributes:
        variables: of each variable, in its order.
        values: of tables and computed values, by ``id``.
        size: of the block.
    """

    variables: tuple[int, ...]
    values: dict[int, int]
    size: int


def lay_out(steps: Sequence[Step], outputs: Sequence[Value], sizes: Sequence[int], behind: int = 0) -> Layout:
    """Place variables of ``sizes`` and, not before ``behind``, tables and what ``steps`` leave in memory."""
    top = 0
    variables = []
    for size in sizes:
        variables.append(top)
        top += rounded(size)
    top = max(top, behind)
    values: dict[int, int] = {}
    last: dict[int, int] = {}
    kept = {id(value) for value in in_memory(steps, outputs)}
    for index, step in enumerate(steps):
        for item in members_of(step):
            for argument in (source.base for source in sources(item, kept)):
                last[id(argument)] = index
                if argument.kind == "table" and id(argument) not in values:
                    values[id(argument)] = top
                    top += rounded(argument.size)
    last |= {id(output.base): len(steps) for output in outputs}
    free: dict[int, list[int]] = {}
    ending: dict[int, list[Value]] = {}
    for index, step in enumerate(steps):
        for value in members_of(step):
            if not isinstance(value, Value) or id(value) not in kept:
                continue
            size = rounded(value.size)
            if free.get(size):
                values[id(value)] = free[size].pop()
            else:
                values[id(value)] = top
                top += size
            ending.setdefault(last[id(value)], []).append(value)
        # Only now: no two arguments of one step share memory.
        for value in ending.pop(index, ()):
            free.setdefault(rounded(value.size), []).append(values[id(value)])
    return Layout(tuple(variables), values, top)


@dataclasses.dataclass(frozen=True)
class Scratch:
    """What workers need in the block, behind its layout; offsets in floats.

    Attributes:
        meeting: where they meet.
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


def scratch_behind(layout: Layout, workers: int, packed: int, partial: int) -> Scratch:
    """Place what ``workers`` need: ``packed`` and ``partial`` floats for each."""
    meeting = layout.size
    packed_at = meeting + 2 * ALIGNMENT
    packed_size, partial_size = rounded(packed), rounded(partial)
    partial_at = packed_at + workers * packed_size
    size = partial_at + workers * partial_size
    return Scratch(meeting, packed_at, packed_size, partial_at, partial_size, size)


def tables(program: Program, layout: Layout) -> list[tuple[int, Value]]:
    """Return the constant matrices that are read, and where they live."""
    return [(layout.values[id(value)], value) for value in program.tables if id(value) in layout.values]


def rounded(size: int) -> int:
    """Return a size in whole cache lines."""
    return -(-size // ALIGNMENT) * ALIGNMENT
