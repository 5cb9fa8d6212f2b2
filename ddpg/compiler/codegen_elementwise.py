"""LLVM code of one fused loop: what each element reads, computes and writes."""

import math
from collections.abc import Iterator, Sequence

from ddpg.compiler.ir import ALL, COLUMNS, REDUCED, ROWS, Node, Shape, Stmt, Write
from ddpg.compiler.llvm_builder import FunctionBuilder, float_literal
from ddpg.compiler.math_codegen import FUNCTIONS, ZERO
from ddpg.compiler.memory_plan import ALIGNMENT, MemoryPlan
from ddpg.compiler.schedule import FusedLoop, sources

_BEGINNING = {"reduce_sum": ZERO, "reduce_max": float_literal(-math.inf)}


def buffer_name(base: Node) -> str:
    """Return a name for the memory of a value: one variable has one, whatever its version."""
    if base.kind == "var_read":
        return f"variable {base.detail[0]}"
    return f"input {base.detail}" if base.kind == "input" else f"value {id(base)}"


class ElementwiseFunction:
    """A loop as a function of the memories that it touches, and of the part of it to do.

    Where rows and columns do not matter it goes through all places in a row. It is parted by rows, or where there is
    one row by its places.

    Attributes:
        parameters: those memories in order, by name, with a value that lives there.
        length: rows, or places of the one row, to part it by.
        multiple: that parts should be of.
        unit: what the function counts in each of them.
        totals: sums over its parts: each needs memory of its own for each of them.
        text: the function.
    """

    def __init__(self, name: str, loop: FusedLoop, layout: MemoryPlan):
        self.parameters: dict[str, Node] = {}
        self._layout = layout
        self._registers: dict[int, str] = {}
        self._written: dict[tuple[int, int], str] = {}
        self._own: dict[str, int] = {}  # columns of what is touched at its own rows alone
        self._beyond: set[str] = set()
        self._stored: set[str] = set()
        self._flat = _is_flat(loop, layout)
        self._shape = rows, self._columns = loop.space
        self._by_places = self._flat and rows == 1
        self.length, self.multiple = (self._columns, ALIGNMENT) if self._by_places else (rows, 1)
        self.unit = self._columns if self._flat and not self._by_places else 1
        self._sums = [member for member in loop.members if isinstance(member, Node) and member.kind in REDUCED]
        self.totals = [total for total in self._sums if total.detail != COLUMNS]
        self._lines = lines = FunctionBuilder()
        for index, total in enumerate(self._sums):
            if total.detail == ROWS:
                zeroed = f"ptr {self._pointer(total)}, i8 0, i64 {4 * total.size}, i1 false"
                lines.do(f"call void @llvm.memset.p0.i64({zeroed})")
            else:
                lines.do(f"%sum{index} = alloca float")
                lines.store(ZERO, f"%sum{index}", 0)
        self._body(loop)
        for index, total in enumerate(self._sums):
            if total.detail == ALL:
                lines.store(lines.load(f"%sum{index}", 0), self._pointer(total), 0)
        pointers = [f"p{index}" for index in range(len(self.parameters))]
        self.text = lines.function(name, pointers, ("low", "high"))

    def touching(self, low: int, high: int) -> Iterator[tuple[str, int, int, bool]]:
        """Yield the memories, floats of them, and whether they are written, that a part touches."""
        for key, value in self.parameters.items():
            if key in self._beyond:
                yield key, 0, value.base.size, key in self._stored
            else:
                yield key, low * self._own[key], high * self._own[key], key in self._stored

    def _body(self, loop: FusedLoop) -> None:
        lines = self._lines
        with lines.loop("%low", "%high") as self._i:
            if self._flat:
                self._j, self._at = "0", self._i
                self._members(loop.members)
                return
            row = lines.times(self._i, self._columns)
            by_row = [(index, total) for index, total in enumerate(self._sums) if total.detail == COLUMNS]
            for index, total in by_row:
                lines.store(_BEGINNING[total.kind], f"%sum{index}", 0)
            with lines.loop(0, self._columns) as self._j:
                self._at = lines.add(f"add nsw i64 {row}, {self._j}")
                self._members(loop.members)
            for index, total in by_row:
                lines.store(lines.load(f"%sum{index}", 0), self._pointer(total), self._i)

    def _members(self, members: Sequence[Stmt]) -> None:
        for member in members:
            if isinstance(member, Write):
                value = self._read(member.value)
                self._written[member.variable, member.version + 1] = value
                key = f"variable {member.variable}"
                self._lines.store(value, self._parameter(key, member.value), self._at)
                self._touch(key, self._shape, stored=True)
            elif member.kind in REDUCED:
                self._sum(member)
            else:
                self._map(member)

    def _sum(self, member: Node) -> None:
        lines, value = self._lines, self._read(member.inputs[0])
        self._touch(buffer_name(member), member.shape, stored=True)
        if member.detail == ROWS:
            total = lines.at(self._pointer(member), self._j)
        else:
            total = f"%sum{next(index for index, other in enumerate(self._sums) if other is member)}"
        so_far = lines.load(total, 0)
        add = lines.larger if member.kind == "reduce_max" else lines.accumulate
        lines.store(add(so_far, value), total, 0)

    def _map(self, member: Node) -> None:
        if member.kind == "slice":
            value = self._window(member)
        else:
            value = FUNCTIONS[member.detail](self._lines, *map(self._read, member.inputs))
        self._registers[id(member)] = value
        if id(member) in self._layout.values:
            self._lines.store(value, self._pointer(member), self._at)
            self._touch(buffer_name(member), self._shape, stored=True)

    def _window(self, member: Node) -> str:
        (source,), (row, column) = member.inputs, member.detail
        lines = self._lines
        start = lines.times(lines.add(f"add i64 {self._i}, {row}"), source.shape[1])
        self._touch(buffer_name(source.base), (0, 0))
        return lines.load(self._pointer(source), start, column, self._j)

    def _read(self, value: Node) -> str:
        if value.kind == "literal":
            return float_literal(value.detail)
        if value.kind == "var_read" and value.detail in self._written:
            return self._written[value.detail]
        if value.kind == "elementwise" and id(value) not in self._registers and id(value) not in self._layout.values:
            self._registers[id(value)] = FUNCTIONS[value.detail](self._lines, *map(self._read, value.inputs))
        if id(value) not in self._registers:
            self._registers[id(value)] = self._lines.load(self._pointer(value), self._place(value.shape))
            self._touch(buffer_name(value.base), value.shape)
        return self._registers[id(value)]

    def _touch(self, key: str, shape: Shape, stored: bool = False) -> None:
        """Take note of what is touched: of a matrix with the loop's rows, or places, each part has its own."""
        columns = 1 if self._by_places else shape[1]
        own = shape == self._shape if self._by_places else shape[0] == self._shape[0]
        if not own or self._own.setdefault(key, columns) != columns:
            self._beyond.add(key)
        if stored:
            self._stored.add(key)

    def _place(self, shape: Shape) -> str:
        if shape == (1, 1):
            return "0"
        if shape == self._shape:
            return self._at
        return self._j if shape[0] == 1 else self._i

    def _pointer(self, value: Node) -> str:
        return self._parameter(buffer_name(value.base), value)

    def _parameter(self, key: str, value: Node) -> str:
        self.parameters.setdefault(key, value)
        return f"%p{list(self.parameters).index(key)}"


def concat_function(name: str, step: Node) -> str:
    """Return the function of some rows of matrices side by side; its last pointer is the result's."""
    lines, before = FunctionBuilder(), 0
    for index, part in enumerate(step.inputs):
        _, columns = part.shape
        with lines.loop("%low", "%high") as row, lines.loop(0, columns) as column:
            value = lines.load(f"%p{index}", lines.times(row, columns), column)
            lines.store(value, "%out", lines.times(row, step.shape[1]), before, column)
        before += columns
    return lines.function(name, [*(f"p{index}" for index in range(len(step.inputs))), "out"], ("low", "high"))


def _is_flat(loop: FusedLoop, layout: MemoryPlan) -> bool:
    """Tell whether every place stands for itself: rows and columns do not matter then."""
    for member in loop.members:
        if isinstance(member, Node) and (member.kind == "slice" or (member.kind in REDUCED and member.detail != ALL)):
            return False
        if any(source.shape not in (loop.space, (1, 1)) for source in sources(member, layout.values)):
            return False
    return True
