"""Order and fuse the IR into kernels: fused loops, matrix products and concatenations; choose what to rematerialize.

A value that only its own loop reads never reaches memory. Variables are written in place, so a write waits for every
reader of the old value.
"""

import bisect
import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Sequence

from ddpg.compiler.ir import COMPUTED, MOVED, REDUCED, Node, Program, Shape, Stmt, Unsupported, Write


@dataclasses.dataclass(eq=False)
class FusedLoop:
    """Elementwise functions, slices, reductions and writes, ``members``, over the same rows and columns, its ``space``.

    One pass computes them: each element in the order of the members.
    """

    space: Shape
    members: list[Stmt]


Kernel = FusedLoop | Node  # a node: a matrix product, a convolution, a concatenation or a transposition


def schedule(program: Program, outputs: Sequence[Node]) -> list[Kernel]:
    """Return the kernels that the writes and ``outputs`` need, ordered so that neighbours fuse.

    Raises:
        Unsupported: if no order reads every variable before it is overwritten.
    """
    order = _Order(needed(program.stmts, outputs))
    kernels: list[Kernel] = []
    loop: FusedLoop | None = None
    while order.waiting:
        ready = order.ready()
        if not ready:
            raise Unsupported("a variable's old value is needed after its new one")
        stmt = next((stmt for stmt in ready if loop and order.joins(stmt, loop)), None)
        if stmt is None:
            loop = None
            stmt = next((stmt for stmt in ready if not _is_fusible(stmt)), ready[0])
            if _is_fusible(stmt):
                loop = FusedLoop(_space(stmt), [])
                kernels.append(loop)
            else:
                assert isinstance(stmt, Node)
                kernels.append(stmt)
        if loop:
            loop.members.append(stmt)
        order.done(stmt, loop)
    return kernels


def members_of(kernel: Kernel) -> list[Stmt]:
    """Return the statements of a kernel."""
    return kernel.members if isinstance(kernel, FusedLoop) else [kernel]


def inputs_of(stmt: Stmt) -> tuple[Node, ...]:
    """Return the nodes that a statement reads."""
    return (stmt.value,) if isinstance(stmt, Write) else stmt.inputs


class _Order:
    """The statements scheduled so far, of which ``waiting`` are left, and those that could be next."""

    def __init__(self, stmts: Sequence[Stmt]):
        self.waiting = len(stmts)
        self._loop_of: dict[int, FusedLoop | None] = {}
        self._writes = {(stmt.variable, stmt.version): stmt for stmt in stmts if isinstance(stmt, Write)}
        self._readers: dict[tuple[int, int], list[Stmt]] = {}
        for stmt in stmts:
            for source in inputs_of(stmt):
                if source.base.kind == "var_read":
                    self._readers.setdefault(source.base.detail, []).append(stmt)
        self._stmts = stmts
        self._place = {id(stmt): place for place, stmt in enumerate(stmts)}
        self._before = {id(stmt): [*self._dependencies(stmt)] for stmt in stmts}
        earlier = {id(stmt): {id(one) for one, _ in self._before[id(stmt)]} for stmt in stmts}
        self._missing = {key: len(keys) for key, keys in earlier.items()}
        self._after: dict[int, list[int]] = {id(stmt): [] for stmt in stmts}
        for key, keys in earlier.items():
            for one in keys:
                self._after[one].append(key)
        self._ready = [place for place, stmt in enumerate(stmts) if not self._missing[id(stmt)]]

    def ready(self) -> list[Stmt]:
        """Return the statements whose dependencies are all scheduled, in the program's order."""
        return [self._stmts[place] for place in self._ready]

    def done(self, stmt: Stmt, loop: FusedLoop | None) -> None:
        """Record that a statement is scheduled, in ``loop`` if given."""
        self.waiting -= 1
        self._loop_of[id(stmt)] = loop
        self._ready.remove(self._place[id(stmt)])
        for key in self._after[id(stmt)]:
            self._missing[key] -= 1
            if not self._missing[key]:
                bisect.insort(self._ready, self._place[key])

    def joins(self, stmt: Stmt, loop: FusedLoop) -> bool:
        """Return whether ``stmt``, which is ready, can be computed in ``loop``, element by element with its members."""
        return (
            _is_fusible(stmt)
            and _space(stmt) == loop.space
            and all(in_place or self._loop_of[id(earlier)] is not loop for earlier, in_place in self._before[id(stmt)])
        )

    def _dependencies(self, stmt: Stmt) -> Iterator[tuple[Stmt, bool]]:
        """Yield each dependency of ``stmt``, and whether an element of ``stmt`` needs only the same element of it."""
        is_moved = _is_moved(stmt)
        for source in inputs_of(stmt):
            same = source.kind != "reshape" and not is_moved and source.shape == _space(stmt)
            base = source.base
            if base.kind in COMPUTED:
                yield base, same and base.kind not in REDUCED
            elif base.kind == "var_read":
                variable, version = base.detail
                if version:
                    yield self._writes[variable, version - 1], same
        if isinstance(stmt, Write):
            for reader in self._readers.get((stmt.variable, stmt.version), ()):
                # A reader in the write's own loop has the loop's space, which is the variable's shape; readers of a
                # reshaped, sliced or broadcast variable do not. So it reads each element before it is overwritten.
                if reader is not stmt:
                    yield reader, True
            if stmt.version:
                yield self._writes[stmt.variable, stmt.version - 1], True


def needed(stmts: Sequence[Stmt], outputs: Sequence[Node]) -> list[Stmt]:
    """Return the writes, and the values that they or the outputs depend on."""
    ids = {id(output.base) for output in outputs}
    for stmt in reversed(stmts):
        if isinstance(stmt, Write) or id(stmt) in ids:
            ids |= {id(stmt), *(id(source.base) for source in inputs_of(stmt))}
    return [stmt for stmt in stmts if id(stmt) in ids]


def _is_fusible(stmt: Stmt) -> bool:
    return isinstance(stmt, Write) or stmt.kind in ("elementwise", *MOVED, *REDUCED)


def _space(stmt: Stmt) -> Shape:
    if isinstance(stmt, Write):
        return stmt.value.shape
    return stmt.inputs[0].shape if stmt.kind in REDUCED else stmt.shape


CHEAP = {"add", "sub", "mul", "neg", "relu", "max", "min", "copy"}  # as fast as reading a number from memory
MAX_OPERATIONS = 8  # cheap operations that may be repeated to avoid storing a value


def materialized(kernels: Sequence[Kernel], outputs: Iterable[Node]) -> list[Node]:
    """Return the computed values that are stored, in order of computation.

    These are the values that are read outside their own loop, except for those that a few cheap operations compute
    again from one other stored value (rematerialization): storing them would cost more.
    """
    home = {id(member): kernel for kernel in kernels if isinstance(kernel, FusedLoop) for member in kernel.members}
    stored = {id(value.base) for value in outputs}
    in_memory = set(stored)  # values that must not be rematerialized
    for kernel in kernels:
        for stmt in members_of(kernel):
            for source in inputs_of(stmt):
                inside = home.get(id(source.base)) is kernel and isinstance(kernel, FusedLoop)
                if not inside or source.kind in ("reshape", *REDUCED):
                    stored.add(id(source.base))
                in_place = isinstance(kernel, FusedLoop) and source.shape == kernel.space and not _is_moved(stmt)
                if not in_place or source.kind == "reshape":
                    in_memory.add(id(source.base))
    values = [
        stmt for kernel in kernels for stmt in members_of(kernel) if isinstance(stmt, Node) and id(stmt) in stored
    ]
    order = _AccessOrder(kernels)
    for value in values:
        if id(value) not in in_memory and order.can_rematerialize(value, stored):
            stored.remove(id(value))
    return [value for value in values if id(value) in stored]


def sources(stmt: Stmt, stored: Collection[int]) -> Iterator[Node]:
    """Yield the nodes that ``stmt`` reads from memory, including those read to rematerialize its inputs."""
    for source in inputs_of(stmt):
        if source.kind == "elementwise" and id(source) not in stored:
            yield from sources(source, stored)
        else:
            yield source


class _AccessOrder:
    """The last kernel that reads each value, and the kernel that overwrites each version of a variable."""

    def __init__(self, kernels: Sequence[Kernel]):
        self._last_read: dict[int, int] = {}
        self._overwritten: dict[tuple[int, int], int] = {}
        for index, kernel in enumerate(kernels):
            for stmt in members_of(kernel):
                self._last_read |= {id(source.base): index for source in inputs_of(stmt)}
                if isinstance(stmt, Write):
                    self._overwritten[stmt.variable, stmt.version] = index

    def can_rematerialize(self, value: Node, stored: Collection[int]) -> bool:
        """Return whether ``value`` can be computed where it is read; if so, extend the lifetimes of its inputs."""
        operations, read = self._operations(value, stored, self._last_read[id(value)])
        if operations > MAX_OPERATIONS or len({id(source) for source in read if source.shape == value.shape}) != 1:
            return False
        for source in read:
            self._last_read[id(source.base)] = max(self._last_read.get(id(source.base), 0), self._last_read[id(value)])
        return True

    def _operations(self, value: Node, stored: Collection[int], until: int) -> tuple[float, list[Node]]:
        """Return the number of operations that compute ``value``, infinite if it must be stored, and their inputs."""
        if value.kind != "elementwise" or value.detail not in CHEAP:
            return math.inf, []
        operations = 1.0
        read: list[Node] = []
        for source in value.inputs:
            base = source.base
            if source.kind == "literal":
                continue
            if base.kind == "var_read" and self._overwritten.get(base.detail, math.inf) <= until:
                return math.inf, []
            if base.kind in COMPUTED and id(base) not in stored:
                more, other = self._operations(source, stored, until)
                operations, read = operations + more, [*read, *other]
            else:
                read.append(source)
        return operations, read


def _is_moved(stmt: Stmt) -> bool:
    return isinstance(stmt, Node) and stmt.kind in MOVED
