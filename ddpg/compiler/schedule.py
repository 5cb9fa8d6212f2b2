"""Order and fuse the IR into kernels: fused loops, matrix products and concatenations; choose what to rematerialize.

A value that only its own loop reads never reaches memory. Variables are written in place, so a write waits for every
reader of the old value.
"""

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from ddpg.compiler.ir import COMPUTED, REDUCED, Node, Program, Shape, Stmt, Unsupported, Write


@dataclasses.dataclass(eq=False)
class FusedLoop:
    """Elementwise functions, slices, reductions and writes over the same elements, computed in one pass.

    Attributes:
        space: rows and columns of the iteration.
        members: statements, in the order in which each element computes them.
    """

    space: Shape
    members: list[Stmt]


Kernel = FusedLoop | Node  # a value: a product or a join


def schedule(program: Program, outputs: Sequence[Node]) -> list[Kernel]:
    """Return the kernels that the writes and ``outputs`` need, ordered so that neighbours fuse.

    Raises:
        Unsupported: if no order reads every variable before it is overwritten.
    """
    waiting = _needed(program.stmts, outputs)
    order = _Order(waiting)
    steps: list[Kernel] = []
    loop: FusedLoop | None = None
    while waiting:
        item = next((item for item in waiting if loop and order.joins(item, loop)), None)
        if item is None:
            loop = None
            ready = [item for item in waiting if order.ready(item)]
            if not ready:
                raise Unsupported("a variable's old value is needed after its new one")
            item = next((item for item in ready if not _loops(item)), ready[0])
            if _loops(item):
                loop = FusedLoop(_space(item), [])
                steps.append(loop)
            else:
                assert isinstance(item, Node)
                steps.append(item)
        if loop:
            loop.members.append(item)
        order.done(item, loop)
        waiting.remove(item)
    return steps


def members_of(step: Kernel) -> list[Stmt]:
    """Return the statements of a kernel."""
    return step.members if isinstance(step, FusedLoop) else [step]


def inputs_of(item: Stmt) -> tuple[Node, ...]:
    """Return the nodes that a statement reads."""
    return (item.value,) if isinstance(item, Write) else item.inputs


class _Order:
    """What is done, and what has to be before an item may follow."""

    def __init__(self, items: Sequence[Stmt]):
        self._done: set[int] = set()
        self._loop_of: dict[int, FusedLoop | None] = {}
        self._writes = {(item.variable, item.version): item for item in items if isinstance(item, Write)}
        self._readers: dict[tuple[int, int], list[Stmt]] = {}
        for item in items:
            for argument in inputs_of(item):
                if argument.base.kind == "var_read":
                    self._readers.setdefault(argument.base.detail, []).append(item)

    def done(self, item: Stmt, loop: FusedLoop | None) -> None:
        """Record that ``item`` is scheduled, in ``loop``."""
        self._done.add(id(item))
        self._loop_of[id(item)] = loop

    def ready(self, item: Stmt) -> bool:
        """Tell whether everything before ``item`` is done."""
        return all(id(earlier) in self._done for earlier, _ in self._before(item))

    def joins(self, item: Stmt, loop: FusedLoop) -> bool:
        """Tell whether ``item`` may be computed in ``loop``, the last step, place by place with what is there."""
        if not _loops(item) or _space(item) != loop.space:
            return False
        for earlier, in_place in self._before(item):
            if id(earlier) not in self._done:
                return False
            if self._loop_of[id(earlier)] is loop and not in_place:
                return False
        return True

    def _before(self, item: Stmt) -> Iterator[tuple[Stmt, bool]]:
        """Yield what has to be done before, and whether the same place of it suffices."""
        windowed = isinstance(item, Node) and item.kind == "slice"
        for argument in inputs_of(item):
            same = argument.kind != "reshape" and not windowed and argument.shape == _space(item)
            base = argument.base
            if base.kind in COMPUTED:
                yield base, same and not is_sum(base)
            elif base.kind == "var_read":
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


def _needed(items: Sequence[Stmt], outputs: Sequence[Node]) -> list[Stmt]:
    """Return the writes, and the values that they or the outputs are made of."""
    needed = {id(output.base) for output in outputs}
    for item in reversed(items):
        if isinstance(item, Write) or id(item) in needed:
            needed |= {id(item), *(id(argument.base) for argument in inputs_of(item))}
    return [item for item in items if id(item) in needed]


def is_sum(value: Node) -> bool:
    """Tell whether a node is a reduction."""
    return value.kind in REDUCED


def _loops(item: Stmt) -> bool:
    return isinstance(item, Write) or item.kind in ("elementwise", "slice", *REDUCED)


def _space(item: Stmt) -> Shape:
    if isinstance(item, Write):
        return item.value.shape
    return item.inputs[0].shape if item.kind in REDUCED else item.shape


CHEAP = {"add", "sub", "mul", "neg", "relu", "max", "min", "copy"}  # as fast as reading a number
MOST = 8  # of them, to get one number again


def materialized(steps: Sequence[Kernel], outputs: Iterable[Node]) -> list[Node]:
    """Return the computed values that are kept in memory, in the order of computing.

    They are those that something outside their own loop reads, but for what a few cheap operations on one other value
    that is there give again: writing it would cost more.
    """
    home = {id(member): step for step in steps if isinstance(step, FusedLoop) for member in step.members}
    kept = {id(value.base) for value in outputs}
    needed = set(kept)  # in memory itself
    for step in steps:
        for item in members_of(step):
            for argument in inputs_of(item):
                inside = home.get(id(argument.base)) is step and isinstance(step, FusedLoop)
                if not inside or argument.kind == "reshape" or is_sum(argument):
                    kept.add(id(argument.base))
                in_place = isinstance(step, FusedLoop) and argument.shape == step.space and not _windows(item)
                if not in_place or argument.kind == "reshape":
                    needed.add(id(argument.base))
    values = [item for step in steps for item in members_of(step) if isinstance(item, Node) and id(item) in kept]
    order = _AccessOrder(steps)
    for value in values:
        if id(value) not in needed and order.can_rematerialize(value, kept):
            kept.remove(id(value))
    return [value for value in values if id(value) in kept]


def sources(item: Stmt, kept: Collection[int]) -> Iterator[Node]:
    """Yield what computing ``item`` reads, or what is there where an argument is computed again."""
    for argument in inputs_of(item):
        if argument.kind == "elementwise" and id(argument) not in kept:
            yield from sources(argument, kept)
        else:
            yield argument


class _AccessOrder:
    """When values are read, and variables overwritten."""

    def __init__(self, steps: Sequence[Kernel]):
        self._read: dict[int, int] = {}  # the last step that does
        self._overwritten: dict[tuple[int, int], int] = {}
        for index, step in enumerate(steps):
            for item in members_of(step):
                self._read |= {id(argument.base): index for argument in inputs_of(item)}
                if isinstance(item, Write):
                    self._overwritten[item.variable, item.version] = index

    def can_rematerialize(self, value: Node, kept: Collection[int]) -> bool:
        """Tell whether ``value`` may be computed where it is read, and take note of what that reads."""
        operations, read = self._operations(value, kept, self._read[id(value)])
        if operations > MOST or len({id(source) for source in read if source.shape == value.shape}) != 1:
            return False
        for source in read:
            self._read[id(source.base)] = max(self._read.get(id(source.base), 0), self._read[id(value)])
        return True

    def _operations(self, value: Node, kept: Collection[int], until: int) -> tuple[float, list[Node]]:
        """Return how many operations give ``value``, infinite where it cannot be, and what they read."""
        if value.kind != "elementwise" or value.detail not in CHEAP:
            return math.inf, []
        operations = 1.0
        read: list[Node] = []
        for argument in value.inputs:
            base = argument.base
            if argument.kind == "literal":
                continue
            if base.kind == "var_read" and self._overwritten.get(base.detail, math.inf) <= until:
                return math.inf, []
            if base.kind in COMPUTED and id(base) not in kept:
                more, other = self._operations(argument, kept, until)
                operations, read = operations + more, [*read, *other]
            else:
                read.append(argument)
        return operations, read


def _windows(item: Stmt) -> bool:
    return isinstance(item, Node) and item.kind == "slice"
