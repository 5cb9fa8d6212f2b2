"""Write the LLVM function of one fused loop, which reads, computes and writes each element in turn; and of a concat."""

import math
from collections.abc import Iterator, Sequence

from ddpg.compiler.ir import ALL, COLUMNS, REDUCED, ROWS, Node, Shape, Stmt, Write
from ddpg.compiler.llvm_builder import FunctionBuilder, float_literal
from ddpg.compiler.math_codegen import FUNCTIONS, ZERO
from ddpg.compiler.memory_plan import ALIGNMENT, MemoryPlan
from ddpg.compiler.schedule import FusedLoop, sources

_INITIAL = {"reduce_sum": ZERO, "reduce_max": float_literal(-math.inf)}


def buffer_name(base: Node) -> str:
    """Return a name for the buffer that holds a value; all versions of a variable share one."""
    if base.kind == "var_read":
        return f"variable {base.detail[0]}"
    return f"input {base.detail}" if base.kind == "input" else f"value {id(base)}"


class ElementwiseFunction:
    """A fused loop as ``NAME(float* buffer..., low, high)``, which computes the rows, or elements, from low to high.

    A loop in which every element is read and written at the same position is flat: one index runs over all elements.
    Shards of a loop are ranges of its rows; of a flat loop over one row, ranges of its elements.

    Attributes:
        parameters: the buffers it accesses, in order, by name; each with a value that lives there.
        length: number of rows, or of elements of the one row, to split into shards.
        multiple: the size of shards is a multiple of this.
        unit: what ``low`` and ``high`` advance for each of ``length``.
        totals: sums over several rows: each shard needs memory for its partial sums of them.
        text: LLVM's text.
    """

    def __init__(self, name: str, loop: FusedLoop, plan: MemoryPlan):
        self.parameters: dict[str, Node] = {}
        self._plan = plan
        self._registers: dict[int, str] = {}
        self._written: dict[tuple[int, int], str] = {}
        self._own_columns: dict[str, int] = {}  # of buffers of which a row of the loop accesses its own row alone
        self._whole: set[str] = set()  # buffers of which a shard may access any row
        self._stored: set[str] = set()
        self._flat = _is_flat(loop, plan)
        self._shape = rows, self._columns = loop.space
        self._by_elements = self._flat and rows == 1
        self.length, self.multiple = (self._columns, ALIGNMENT) if self._by_elements else (rows, 1)
        self.unit = self._columns if self._flat and not self._by_elements else 1
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

    def accesses(self, low: int, high: int) -> Iterator[tuple[str, int, int, bool]]:
        """Yield buffer, first float, end and whether it is written, for each range that a shard accesses."""
        for buffer, value in self.parameters.items():
            if buffer in self._whole:
                yield buffer, 0, value.base.size, buffer in self._stored
            else:
                columns = self._own_columns[buffer]
                yield buffer, low * columns, high * columns, buffer in self._stored

    def _body(self, loop: FusedLoop) -> None:
        lines = self._lines
        with lines.loop("%low", "%high") as self._i:
            if self._flat:
                self._j, self._element = "0", self._i
                self._members(loop.members)
                return
            row = lines.times(self._i, self._columns)
            by_row = [(index, total) for index, total in enumerate(self._sums) if total.detail == COLUMNS]
            for index, total in by_row:
                lines.store(_INITIAL[total.kind], f"%sum{index}", 0)
            with lines.loop(0, self._columns) as self._j:
                self._element = lines.add(f"add nsw i64 {row}, {self._j}")
                self._members(loop.members)
            for index, total in by_row:
                lines.store(lines.load(f"%sum{index}", 0), self._pointer(total), self._i)

    def _members(self, members: Sequence[Stmt]) -> None:
        for member in members:
            if isinstance(member, Write):
                value = self._read(member.value)
                self._written[member.variable, member.version + 1] = value
                buffer = f"variable {member.variable}"
                self._lines.store(value, self._parameter(buffer, member.value), self._element)
                self._record_access(buffer, self._shape, stored=True)
            elif member.kind in REDUCED:
                self._reduce(member)
            else:
                self._compute(member)

    def _reduce(self, member: Node) -> None:
        lines, value = self._lines, self._read(member.inputs[0])
        self._record_access(buffer_name(member), member.shape, stored=True)
        if member.detail == ROWS:
            total = lines.at(self._pointer(member), self._j)
        else:
            total = f"%sum{next(index for index, other in enumerate(self._sums) if other is member)}"
        so_far = lines.load(total, 0)
        add = lines.larger if member.kind == "reduce_max" else lines.accumulate
        lines.store(add(so_far, value), total, 0)

    def _compute(self, member: Node) -> None:
        if member.kind == "slice":
            value = self._slice(member)
        else:
            value = FUNCTIONS[member.detail](self._lines, *map(self._read, member.inputs))
        self._registers[id(member)] = value
        if id(member) in self._plan.values:
            self._lines.store(value, self._pointer(member), self._element)
            self._record_access(buffer_name(member), self._shape, stored=True)

    def _slice(self, member: Node) -> str:
        (source,), (row, column) = member.inputs, member.detail
        lines = self._lines
        start = lines.times(lines.add(f"add i64 {self._i}, {row}"), source.shape[1])
        self._record_access(buffer_name(source.base), (0, 0))
        return lines.load(self._pointer(source), start, column, self._j)

    def _read(self, value: Node) -> str:
        if value.kind == "literal":
            return float_literal(value.detail)
        if value.kind == "var_read" and value.detail in self._written:
            return self._written[value.detail]
        if value.kind == "elementwise" and id(value) not in self._registers and id(value) not in self._plan.values:
            self._registers[id(value)] = FUNCTIONS[value.detail](self._lines, *map(self._read, value.inputs))
        if id(value) not in self._registers:
            self._registers[id(value)] = self._lines.load(self._pointer(value), self._position(value.shape))
            self._record_access(buffer_name(value.base), value.shape)
        return self._registers[id(value)]

    def _record_access(self, buffer: str, shape: Shape, stored: bool = False) -> None:
        """Record an access: a matrix with the loop's rows, or elements, is split into shards as the loop is."""
        columns = 1 if self._by_elements else shape[1]
        own = shape == self._shape if self._by_elements else shape[0] == self._shape[0]
        if not own or self._own_columns.setdefault(buffer, columns) != columns:
            self._whole.add(buffer)
        if stored:
            self._stored.add(buffer)

    def _position(self, shape: Shape) -> str:
        if shape == (1, 1):
            return "0"
        if shape == self._shape:
            return self._element
        return self._j if shape[0] == 1 else self._i

    def _pointer(self, value: Node) -> str:
        return self._parameter(buffer_name(value.base), value)

    def _parameter(self, buffer: str, value: Node) -> str:
        self.parameters.setdefault(buffer, value)
        return f"%p{list(self.parameters).index(buffer)}"


def concat_function(name: str, kernel: Node) -> str:
    """Return the function ``(input..., out, low, high)`` that copies rows of matrices side by side."""
    lines, before = FunctionBuilder(), 0
    for index, part in enumerate(kernel.inputs):
        _, columns = part.shape
        with lines.loop("%low", "%high") as row, lines.loop(0, columns) as column:
            value = lines.load(f"%p{index}", lines.times(row, columns), column)
            lines.store(value, "%out", lines.times(row, kernel.shape[1]), before, column)
        before += columns
    return lines.function(name, [*(f"p{index}" for index in range(len(kernel.inputs))), "out"], ("low", "high"))


def _is_flat(loop: FusedLoop, plan: MemoryPlan) -> bool:
    """Tell whether each element depends only on the same element of its inputs, and on scalars."""
    for member in loop.members:
        if isinstance(member, Node) and (member.kind == "slice" or (member.kind in REDUCED and member.detail != ALL)):
            return False
        if any(source.shape not in (loop.space, (1, 1)) for source in sources(member, plan.values)):
            return False
    return True
