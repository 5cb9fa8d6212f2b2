"""What a step of a program touches in its block, part by part: what workers have to wait for is told from it."""

from collections.abc import Container, Sequence
from typing import NamedTuple

from ddpg.native.layout import Layout, Scratch
from ddpg.native.loops import LoopFunction, memory_of
from ddpg.native.program import Value


class Touch(NamedTuple):
    """Floats of the block, from ``start`` up to ``end``, that are read or ``written``."""

    start: int
    end: int
    written: bool


def clash(one: Touch, other: Touch) -> bool:
    """Tell whether two workers may not touch these at the same time."""
    return one.start < other.end and other.start < one.end and (one.written or other.written)


class Touches:
    """What is touched where. The minibatch is only read, and nothing to wait for: it is in no list.

    Args:
        layout: of the block.
        scratch: behind it.
    """

    def __init__(self, layout: Layout, scratch: Scratch):
        self._layout, self._scratch = layout, scratch

    def offset(self, key: str, value: Value) -> int | None:
        """Return where in the block the memory called ``key`` is, in which ``value`` lives; ``None``: not in it."""
        kind, _, rest = key.partition(" ")
        if kind == "field":
            return None
        return self._layout.variables[int(rest)] if kind == "variable" else self._layout.values[id(value.base)]

    def whole(self, value: Value, written: bool = False) -> list[Touch]:
        """Return what is touched by reading or writing all of a value."""
        offset = self.offset(memory_of(value.base), value)
        return [] if offset is None else [Touch(offset, offset + value.base.size, written)]

    def rows(self, step: Value, arguments: Sequence[Value], low: int, high: int) -> list[Touch]:
        """Return what is touched by reading some rows of ``arguments``, and writing those of ``step``."""
        touches = []
        for value in (*arguments, step):
            offset, columns = self.offset(memory_of(value.base), value), value.shape[1]
            if offset is not None:
                touches.append(Touch(offset + low * columns, offset + high * columns, value is step))
        return touches

    def loop(self, loop: LoopFunction, low: int, high: int, without: Container[str] = ()) -> list[Touch]:
        """Return what a part of a loop touches, ``without`` some memories."""
        touches = []
        for key, start, end, written in loop.touching(low, high):
            offset = self.offset(key, loop.parameters[key])
            if offset is not None and key not in without:
                touches.append(Touch(offset + start, offset + end, written))
        return touches

    def part_of_sums(self, worker: int, size: int) -> Touch:
        """Return what is touched where a worker writes its part of sums, ``size`` floats."""
        start = self._scratch.partial + worker * self._scratch.partial_size
        return Touch(start, start + size, True)
