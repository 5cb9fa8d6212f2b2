"""Memory ranges that each shard of a kernel reads and writes; used to place barriers."""

from collections.abc import Container, Sequence
from typing import NamedTuple

from ddpg.compiler.codegen_elementwise import ElementwiseFunction, buffer_name
from ddpg.compiler.ir import Node
from ddpg.compiler.memory_plan import MemoryPlan, Scratch


class AccessRange(NamedTuple):
    """Floats of the block, from ``start`` up to ``end``, that are read or ``written``."""

    start: int
    end: int
    written: bool


def conflict(one: AccessRange, other: AccessRange) -> bool:
    """Tell whether two workers may not touch these at the same time."""
    return one.start < other.end and other.start < one.end and (one.written or other.written)


class AccessRanges:
    """What is touched where. The minibatch is only read, and nothing to wait for: it is in no list.

    Args:
        layout: of the block.
        scratch: behind it.
    """

    def __init__(self, layout: MemoryPlan, scratch: Scratch):
        self._layout, self._scratch = layout, scratch

    def offset(self, key: str, value: Node) -> int | None:
        """Return where in the block the memory called ``key`` is, in which ``value`` lives; ``None``: not in it."""
        kind, _, rest = key.partition(" ")
        if kind == "input":
            return None
        return self._layout.variables[int(rest)] if kind == "variable" else self._layout.values[id(value.base)]

    def whole(self, value: Node, written: bool = False) -> list[AccessRange]:
        """Return what is touched by reading or writing all of a value."""
        offset = self.offset(buffer_name(value.base), value)
        return [] if offset is None else [AccessRange(offset, offset + value.base.size, written)]

    def rows(self, step: Node, arguments: Sequence[Node], low: int, high: int) -> list[AccessRange]:
        """Return what is touched by reading some rows of ``arguments``, and writing those of ``step``."""
        touches = []
        for value in (*arguments, step):
            offset, columns = self.offset(buffer_name(value.base), value), value.shape[1]
            if offset is not None:
                touches.append(AccessRange(offset + low * columns, offset + high * columns, value is step))
        return touches

    def loop(self, loop: ElementwiseFunction, low: int, high: int, without: Container[str] = ()) -> list[AccessRange]:
        """Return what a part of a loop touches, ``without`` some memories."""
        touches = []
        for key, start, end, written in loop.touching(low, high):
            offset = self.offset(key, loop.parameters[key])
            if offset is not None and key not in without:
                touches.append(AccessRange(offset + start, offset + end, written))
        return touches

    def part_of_sums(self, worker: int, size: int) -> AccessRange:
        """Return what is touched where a worker writes its part of sums, ``size`` floats."""
        start = self._scratch.partial + worker * self._scratch.partial_size
        return AccessRange(start, start + size, True)
