"""The order of a program: loops that compute many values in one pass, and products and joins between them.

What a loop computes for itself alone never reaches memory. A variable is written in place, so a write waits for
whatever still reads what was there before.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from ddpg.native.program import COMPUTED, REDUCED, Item, NoTranslation, Program, Shape, Value, Write


@dataclasses.dataclass(eq=False)
class Loop:
    """Maps, windows, sums and writes over the same places, computed in one pass.

    Attributes:
        space: rows and columns to go through.
        members: in the order in which each place computes them.
    """

    space: Shape
    members: list[Item]


Step = Loop | Value  # a value: a product or a join


def schedule(program: Program, outputs: Sequence[Value]) -> list[Step]:
    """Return what writes and ``outputs`` need, in an order that fuses what it can.

    Raises:
        NoTranslation: no order is right.
    """
    waiting = _needed(program.items, outputs)
    order = _Order(waiting)
    steps: list[Step] = []
    loop: Loop | None = None
    while waiting:
        item = next((item for item in waiting if loop and order.joins(item, loop)), None)
        if item is None:
            loop = None
            ready = [item for item in waiting if order.ready(item)]
            if not ready:
                raise NoTranslation("a variable's old value is needed after its new one")
            item = next((item for item in ready if not _loops(item)), ready[0])
            if _loops(item):
                loop = Loop(_space(item), [])
                steps.append(loop)
            else:
                assert isinstance(item, Value)
                steps.append(item)
        if loop:
            loop.members.append(item)
        order.done(item, loop)
        waiting.remove(item)
    return steps


def members_of(step: Step) -> list[Item]:
    """Return what a step computes."""
    return step.members if isinstance(step, Loop) else [step]


def arguments_of(item: Item) -> tuple[Value, ...]:
    """Return what an item reads."""
    return (item.value,) if isinstance(item, Write) else item.arguments


class _Order:
    """What is done, and what has to be before an item may follow."""

    def __init__(self, items: Sequence[Item]):
        self._done: set[int] = set()
        self._loop_of: dict[int, Loop | None] = {}
        self._writes = {(item.variable, item.version): item for item in items if isinstance(item, Write)}
        self._readers: dict[tuple[int, int], list[Item]] = {}
        for item in items:
            for argument in arguments_of(item):
                if argument.base.kind == "stored":
                    self._readers.setdefault(argument.base.detail, []).append(item)

    def done(self, item: Item, loop: Loop | None) -> None:
        """Take note that ``item`` follows, in ``loop``."""
        self._done.add(id(item))
        self._loop_of[id(item)] = loop

    def ready(self, item: Item) -> bool:
        """Tell whether everything before ``item`` is done."""
        return all(id(earlier) in self._done for earlier, _ in self._before(item))

    def joins(self, item: Item, loop: Loop) -> bool:
        """Tell whether ``item`` may be computed in ``loop``, the last step, place by place with what is there."""
        if not _loops(item) or _space(item) != loop.space:
            return False
        for earlier, in_place in self._before(item):
            if id(earlier) not in self._done:
                return False
            if self._loop_of[id(earlier)] is loop and not in_place:
                return False
        return True

    def _before(self, item: Item) -> Iterator[tuple[Item, bool]]:
        """Yield what has to be done before, and whether the same place of it suffices."""
        windowed = isinstance(item, Value) and item.kind == "window"
        for argument in arguments_of(item):
            same = argument.kind != "view" and not windowed and argument.shape == _space(item)
            base = argument.base
            if base.kind in COMPUTED:
                yield base, same and not is_sum(base)
            elif base.kind == "stored":
                variable, version = base.detail
                if version:
                    yield self._writes[variable, version - 1], same
        if isinstance(item, Write):
            for reader in self._readers.get((item.variable, item.version), ()):
                # A reader that shares the write's loop has its space, which is the variable's own shape: a view, a
                # window or a repeated matrix would have another. So it reads each place before that is written.
                if reader is not item:
                    yield reader, True
            if item.version:
                yield self._writes[item.variable, item.version - 1], True


def _needed(items: Sequence[Item], outputs: Sequence[Value]) -> list[Item]:
    """Return the writes, and the values that they or the outputs are made of."""
    needed = {id(output.base) for output in outputs}
    for item in reversed(items):
        if isinstance(item, Write) or id(item) in needed:
            needed |= {id(item), *(id(argument.base) for argument in arguments_of(item))}
    return [item for item in items if id(item) in needed]


def is_sum(value: Value) -> bool:
    """Tell a sum, or a largest number, of many places."""
    return value.kind in REDUCED


def _loops(item: Item) -> bool:
    return isinstance(item, Write) or item.kind in ("map", "window", *REDUCED)


def _space(item: Item) -> Shape:
    if isinstance(item, Write):
        return item.value.shape
    return item.arguments[0].shape if item.kind in REDUCED else item.shape
