"""A matrix product of a shape known now, as LLVM's text: what BLAS does, without what it does for all shapes.

C = A·B is computed tile by tile: some rows of C by some columns, which stay in registers while the inner dimension
runs. The columns of B that a tile needs are packed side by side first, so that they are read in a row; a transposed A
is turned first. (K. Goto and R. van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008.)
"""

import dataclasses

from ddpg.native.text import FLAGS, Lines

BLOCK = 8  # rows and columns that are transposed in registers


@dataclasses.dataclass(frozen=True)
class Registers:
    """What the machine has: floats in a vector, and how many rows and vectors of a tile fit its registers."""

    width: int
    rows: int
    vectors: int = 2

    @property
    def panel(self) -> int:
        """Columns of a tile."""
        return self.width * self.vectors


def registers(features: str) -> Registers:
    """Return those of a machine with LLVM's ``features``."""
    known = features.split(",")
    if "+avx512f" in known:
        return Registers(16, 12)
    return Registers(8, 6) if "+avx2" in known else Registers(4, 6)


class ProductFunctions:
    """C = A·B, either argument given transposed, as functions of which several workers can do parts.

    ``NAME.turn(a, turned, low, high)`` turns blocks of A from ``low`` up to ``high``, ``NAME.panels(a, b, c, packed,
    low, high)`` computes panels of C, and ``NAME.rest(a, b, c, packed)`` what is left of its columns.

    Attributes:
        text: the functions.
        blocks: of A to turn; 0: it is given as it is needed.
        panels: of C.
        rest: columns that are left.
        packed, turned: floats that they need, for each worker and for all.
    """

    def __init__(self, name: str, shape: tuple[int, int, int], transposed: tuple[bool, bool], machine: Registers):
        self._name, self._machine = name, machine
        self._rows, self._columns, self._inner = shape
        self._turned, self._other_transposed = transposed
        self._texts: list[str] = []
        self.panels, self.rest = divmod(self._columns, machine.panel)
        self.packed = self._inner * machine.panel
        self.turned = self._rows * self._inner if self._turned else 0
        self.blocks = -(-self._inner // BLOCK) if self._turned else 0
        if self._turned:
            self._texts.append(turning(f"{name}.turn", self._inner, self._rows, self._rows, self._inner))
        self._write("panels", ("low", "high"))
        self._write("rest", ())
        self.text = "\n\n".join(self._texts)

    def _write(self, part: str, bounds: tuple[str, ...]) -> None:
        lines = Lines()
        if bounds:
            with lines.loop("%low", "%high") as index:
                self._panel(lines, lines.times(index, self._machine.panel), self._machine.panel)
        else:
            start, rest = self.panels * self._machine.panel, self.rest
            while rest:
                width = max(size for size in (self._machine.width, 8, 4, 2, 1) if size <= rest)
                self._panel(lines, start, width)
                start, rest = start + width, rest - width
        self._texts.append(lines.function(f"{self._name}.{part}", ("a", "b", "c", "packed"), bounds))

    def _panel(self, lines: Lines, column: str | int, width: int) -> None:
        """Compute ``width`` columns of C from ``column`` on."""
        source = lines.at("%b", lines.times(column, self._inner if self._other_transposed else 1))
        name = f"{self._name}.panel{width}"
        if not any(f"@{name}(" in text for text in self._texts):
            self._texts.append(self._panel_function(name, width))
        lines.do(f"call void @{name}(ptr %a, ptr {source}, ptr {lines.at('%c', column)}, ptr %packed)")

    def _panel_function(self, name: str, width: int) -> str:
        """Pack ``width`` columns of B, then go down the rows of A and C, a tile at a time."""
        if self._other_transposed:
            self._texts.append(turning(f"{name}.pack", width, self._inner, self._inner, width))
        else:
            self._texts.append(_copying(f"{name}.pack", self._inner, width, self._columns))
        lines = Lines()
        blocks = f", i64 0, i64 {-(-width // BLOCK)}" if self._other_transposed else ""
        lines.do(f"call void @{name}.pack(ptr %b, ptr %packed{blocks})")
        height = self._machine.rows
        whole, rest = divmod(self._rows, height)
        for count, rows, start in ((whole, height, 0), (1, rest, whole * height)):
            if not count or not rows:
                continue
            self._texts.append(self._tile(f"{name}.tile{rows}", rows, width))
            with lines.loop(0, count) as index:
                row = lines.add(f"add i64 {lines.times(index, rows)}, {start}")
                a = lines.at("%a", lines.times(row, self._inner))
                c = lines.at("%c", lines.times(row, self._columns))
                lines.do(f"call void @{name}.tile{rows}(ptr {a}, ptr %packed, ptr {c})")
        return lines.function(name, ("a", "b", "c", "packed"))

    def _tile(self, name: str, rows: int, width: int) -> str:
        """Return the function of ``rows`` by ``width`` numbers of C, kept in registers over the inner dimension."""
        lane = min(width, self._machine.width)
        vector, parts = f"<{lane} x float>", range(width // lane)
        lines = Lines()
        lines.do("br label %loop")
        lines.label("loop")
        lines.do("%k = phi i64 [0, %entry], [%next, %loop]")
        sums = {(row, part): f"%c{row}.{part}" for row in range(rows) for part in parts}
        for total in sums.values():
            lines.do(f"{total} = phi {vector} [zeroinitializer, %entry], [{total}.next, %loop]")
        start = lines.times("%k", width)
        columns = [lines.load("%b", start, part * lane, type_=vector) for part in parts]
        for row in range(rows):
            one = lines.load("%a", "%k", row * self._inner)
            first = lines.add(f"insertelement {vector} poison, float {one}, i32 0")
            spread = lines.add(f"shufflevector {vector} {first}, {vector} poison, <{lane} x i32> zeroinitializer")
            for part in parts:
                product = lines.add(f"fmul {FLAGS} {vector} {spread}, {columns[part]}")
                lines.do(f"{sums[row, part]}.next = fadd {FLAGS} {vector} {sums[row, part]}, {product}")
        lines.do("%next = add nuw nsw i64 %k, 1")
        lines.do(f"%over = icmp eq i64 %next, {self._inner}")
        lines.do("br i1 %over, label %end, label %loop")
        lines.label("end")
        for (row, part), total in sums.items():
            lines.store(f"{total}.next", "%c", row * self._columns + part * lane, type_=vector)
        return lines.function(name, ("a", "b", "c"))


def _copying(name: str, rows: int, columns: int, stride: int) -> str:
    """Return a function that copies ``rows`` of ``columns`` numbers, ``stride`` apart, one behind the other."""
    lines, vector = Lines(), f"<{columns} x float>"
    with lines.loop(0, rows) as row:
        value = lines.load("%b", lines.times(row, stride), type_=vector)
        lines.store(value, "%to", lines.times(row, columns), type_=vector)
    return lines.function(name, ("b", "to"))


def turning(name: str, rows: int, columns: int, stride: int, goal_stride: int) -> str:
    """Return a function ``(b, to, low, high)`` that transposes blocks of 8 of ``rows`` by ``columns`` numbers."""
    lines = Lines()
    whole, rest = divmod(rows, BLOCK)
    wide, narrow = divmod(columns, BLOCK)
    high = lines.add(f"call i64 @llvm.smin.i64(i64 %high, i64 {whole})")
    with lines.loop("%low", high) as block:
        row = lines.times(block, BLOCK)
        with lines.loop(0, wide) as other:
            column = lines.times(other, BLOCK)
            _turn_block(lines, (row, column), stride, goal_stride)
        _turn_each(lines, (row, wide * BLOCK), (BLOCK, narrow), stride, goal_stride)
    if rest:
        with lines.when(f"icmp sgt i64 %high, {whole}"):
            _turn_each(lines, (whole * BLOCK, 0), (rest, columns), stride, goal_stride)
    return lines.function(name, ("b", "to"), ("low", "high"))


def _turn_each(lines: Lines, start: tuple, shape: tuple[int, int], stride: int, goal_stride: int) -> None:
    """Transpose what is no whole block, a number at a time."""
    with lines.loop(0, shape[0]) as one, lines.loop(0, shape[1]) as other:
        row = lines.add(f"add i64 {one}, {start[0]}")
        column = lines.add(f"add i64 {other}, {start[1]}")
        value = lines.load("%b", lines.times(row, stride), column)
        lines.store(value, "%to", lines.times(column, goal_stride), row)


def _turn_block(lines: Lines, start: tuple[str, str], stride: int, goal_stride: int) -> None:
    """Transpose 8 by 8 numbers in registers: pairs, then fours, then halves change places."""
    row, column = start
    vector = f"<{BLOCK} x float>"
    source = lines.at("%b", lines.times(row, stride), column)
    goal = lines.at("%to", lines.times(column, goal_stride), row)
    rows = [lines.load(source, index * stride, type_=vector) for index in range(BLOCK)]
    for distance in (1, 2, 4):
        new = list(rows)
        for index in range(BLOCK):
            if index & distance:
                continue
            one, other = rows[index], rows[index | distance]
            low = [place if not place & distance else BLOCK + place - distance for place in range(BLOCK)]
            high = [place + distance if not place & distance else BLOCK + place for place in range(BLOCK)]
            for place, mask in ((index, low), (index | distance, high)):
                chosen = ", ".join(f"i32 {from_}" for from_ in mask)
                new[place] = lines.add(f"shufflevector {vector} {one}, {vector} {other}, <{BLOCK} x i32> <{chosen}>")
        rows = new
    for index in range(BLOCK):
        lines.store(rows[index], goal, index * goal_stride, type_=vector)
