"""A matrix product of a shape known now, as LLVM's text: what BLAS does, without what it does for all shapes.

C = A·B is computed tile by tile: some rows of C by some columns, which stay in registers while the inner dimension
runs. The columns of B that a tile needs are packed side by side first, so that they are read in a row; of a transposed
A likewise its rows. (K. Goto and R. van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008.)
"""

import dataclasses
from collections.abc import Sequence

from ddpg.native.functions import FLAGS, Lines


@dataclasses.dataclass(frozen=True)
class Registers:
    """What the machine has: floats in a vector, and how many rows and vectors of a tile fit its registers."""

    width: int
    rows: int
    vectors: int = 2


def registers(features: str) -> Registers:
    """Return those of a machine with LLVM's ``features``."""
    known = features.split(",")
    if "+avx512f" in known:
        return Registers(16, 12)
    return Registers(8, 6) if "+avx2" in known else Registers(4, 6)


class ProductFunction:
    """C = A·B as a function ``(a, b, c, scratch)``, either argument given transposed.

    Attributes:
        text: the functions it consists of.
        scratch: floats that it needs.
    """

    def __init__(self, name: str, shape: tuple[int, int, int], transposed: tuple[bool, bool], machine: Registers):
        self._name, self._machine = name, machine
        self._rows, self._columns, self._inner = shape
        self._one_transposed, self._other_transposed = transposed
        self._texts: list[str] = []
        self._main = Lines()
        self._loops = 0
        panel = machine.width * machine.vectors
        self.scratch = self._inner * panel + (self._rows * self._inner if self._one_transposed else 0)
        self._main.label("entry")
        a = "%a"
        if self._one_transposed:
            a = self._main.add(f"getelementptr float, ptr %scratch, i64 {self._inner * panel}")
            self._turn(a)
        whole, rest = divmod(self._columns, panel)
        if whole:
            self._panels(a, whole, panel)
        start = whole * panel
        while rest:
            width = max(size for size in (panel // 2, 8, 4, 2, 1) if size <= rest)
            self._panel(a, str(start), width)
            start, rest = start + width, rest - width
        self._main.do("ret void")
        self._texts.append(_function(name, ("a", "b", "c", "scratch"), self._main))
        self.text = "\n\n".join(self._texts)

    def _turn(self, goal: str) -> None:
        """Write A, given as [inner, rows], as [rows, inner]."""
        name = f"{self._name}.turn"
        self._texts.append(_turning(name, self._inner, self._rows, self._rows, self._inner))
        self._main.do(f"call void @{name}(ptr %a, ptr {goal})")

    def _panels(self, a: str, count: int, panel: int) -> None:
        first, loop, after = self._block(), self._block(), self._block()
        main = self._main
        main.do(f"br label %{first}")
        main.label(first)
        main.do(f"br label %{loop}")
        main.label(loop)
        index = f"%{loop}.i"
        main.do(f"{index} = phi i64 [0, %{first}], [{index}.next, %{loop}]")
        self._panel(a, main.add(f"mul nuw nsw i64 {index}, {panel}"), panel)
        main.do(f"{index}.next = add nuw nsw i64 {index}, 1")
        main.do(f"br i1 {main.add(f'icmp eq i64 {index}.next, {count}')}, label %{after}, label %{loop}")
        main.label(after)

    def _panel(self, a: str, column: str, width: int) -> None:
        """Compute ``width`` columns of C from ``column`` on."""
        main = self._main
        step = self._inner if self._other_transposed else 1
        source = main.add(f"getelementptr float, ptr %b, i64 {main.add(f'mul i64 {column}, {step}')}")
        goal = main.add(f"getelementptr float, ptr %c, i64 {column}")
        name = f"{self._name}.panel{width}"
        if f"@{name}(" not in "".join(self._texts):
            self._texts.append(self._panel_function(name, width))
        main.do(f"call void @{name}(ptr {a}, ptr {source}, ptr {goal}, ptr %scratch)")

    def _panel_function(self, name: str, width: int) -> str:
        """Pack ``width`` columns of B, then go down the rows of A and C, a tile at a time."""
        if self._other_transposed:
            self._texts.append(_turning(f"{name}.pack", width, self._inner, self._inner, width))
        else:
            self._texts.append(_copying(f"{name}.pack", self._inner, width, self._columns))
        lines = Lines()
        lines.label("entry")
        lines.do(f"call void @{name}.pack(ptr %b, ptr %packed)")
        whole, rest = divmod(self._rows, self._machine.rows)
        for count, rows, start in ((whole, self._machine.rows, 0), (1, rest, whole * self._machine.rows)):
            if not count or not rows:
                continue
            self._texts.append(self._tile(f"{name}.tile{rows}", rows, width))
            before, loop, after = f"before{rows}", f"loop{rows}", f"after{rows}"
            lines.do(f"br label %{before}")
            lines.label(before)
            lines.do(f"br label %{loop}")
            lines.label(loop)
            lines.do(f"%i{rows} = phi i64 [0, %{before}], [%n{rows}, %{loop}]")
            row = lines.add(f"add i64 {lines.add(f'mul i64 %i{rows}, {rows}')}, {start}")
            a = lines.add(f"getelementptr float, ptr %a, i64 {lines.add(f'mul i64 {row}, {self._inner}')}")
            c = lines.add(f"getelementptr float, ptr %c, i64 {lines.add(f'mul i64 {row}, {self._columns}')}")
            lines.do(f"call void @{name}.tile{rows}(ptr {a}, ptr %packed, ptr {c})")
            lines.do(f"%n{rows} = add nuw nsw i64 %i{rows}, 1")
            over = lines.add(f"icmp eq i64 %n{rows}, {count}")
            lines.do(f"br i1 {over}, label %{after}, label %{loop}")
            lines.label(after)
        lines.do("ret void")
        return _function(name, ("a", "b", "c", "packed"), lines)

    def _tile(self, name: str, rows: int, width: int) -> str:
        """Return the function of ``rows`` by ``width`` numbers of C, kept in registers over the inner dimension."""
        lane = min(width, self._machine.width)
        vector, vectors = f"<{lane} x float>", width // lane
        lines = Lines()
        lines.label("entry")
        lines.do("br label %loop")
        lines.label("loop")
        lines.do("%k = phi i64 [0, %entry], [%next, %loop]")
        sums = {(row, part): f"%c{row}.{part}" for row in range(rows) for part in range(vectors)}
        for total in sums.values():
            lines.do(f"{total} = phi {vector} [zeroinitializer, %entry], [{total}.next, %loop]")
        at = lines.add(f"mul nuw nsw i64 %k, {width}")
        parts = []
        for part in range(vectors):
            place = lines.add(f"getelementptr float, ptr %b, i64 {lines.add(f'add i64 {at}, {part * lane}')}")
            parts.append(lines.add(f"load {vector}, ptr {place}, align 4"))
        for row in range(rows):
            place = lines.add(f"getelementptr float, ptr %a, i64 {lines.add(f'add i64 %k, {row * self._inner}')}")
            one = lines.add(f"load float, ptr {place}")
            first = lines.add(f"insertelement {vector} poison, float {one}, i32 0")
            spread = lines.add(f"shufflevector {vector} {first}, {vector} poison, <{lane} x i32> zeroinitializer")
            for part in range(vectors):
                total = sums[row, part]
                product = lines.add(f"fmul {FLAGS} {vector} {spread}, {parts[part]}")
                lines.do(f"{total}.next = fadd {FLAGS} {vector} {total}, {product}")
        lines.do("%next = add nuw nsw i64 %k, 1")
        lines.do(f"%over = icmp eq i64 %next, {self._inner}")
        lines.do("br i1 %over, label %end, label %loop")
        lines.label("end")
        for (row, part), total in sums.items():
            place = lines.add(f"getelementptr float, ptr %c, i64 {row * self._columns + part * lane}")
            lines.do(f"store {vector} {total}.next, ptr {place}, align 4")
        lines.do("ret void")
        return _function(name, ("a", "b", "c"), lines)

    def _block(self) -> str:
        self._loops += 1
        return f"block{self._loops}"


def _function(name: str, parameters: Sequence[str], lines: Lines) -> str:
    given = ", ".join(f"ptr noalias %{parameter}" for parameter in parameters)
    return "\n".join([f"define internal void @{name}({given}) noinline nounwind {{", *lines.lines, "}"])


def _copying(name: str, rows: int, columns: int, stride: int) -> str:
    """Return a function that copies ``rows`` of ``columns`` numbers, ``stride`` apart, one behind the other."""
    lines = Lines()
    lines.label("entry")
    lines.do("br label %loop")
    lines.label("loop")
    lines.do("%i = phi i64 [0, %entry], [%next, %loop]")
    source = lines.add(f"getelementptr float, ptr %b, i64 {lines.add(f'mul i64 %i, {stride}')}")
    goal = lines.add(f"getelementptr float, ptr %to, i64 {lines.add(f'mul i64 %i, {columns}')}")
    value = lines.add(f"load <{columns} x float>, ptr {source}, align 4")
    lines.do(f"store <{columns} x float> {value}, ptr {goal}, align 4")
    lines.do("%next = add nuw nsw i64 %i, 1")
    lines.do(f"br i1 {lines.add(f'icmp eq i64 %next, {rows}')}, label %end, label %loop")
    lines.label("end")
    lines.do("ret void")
    return _function(name, ("b", "to"), lines)


def _turning(name: str, rows: int, columns: int, stride: int, goal_stride: int) -> str:
    """Return a function that transposes ``rows`` of ``columns`` numbers, in blocks of 8 by 8 where they fit."""
    lines = Lines()
    lines.label("entry")
    blocks = []
    for row_start, row_count, size in _pieces(rows):
        for column_start, column_count, width in _pieces(columns):
            blocks.append((row_start, row_count, size, column_start, column_count, width))
    for index, (row_start, row_count, size, column_start, column_count, width) in enumerate(blocks):
        side = 8 if size == width == 8 else 1
        lines.do(f"br label %rows{index}.before")
        lines.label(f"rows{index}.before")
        lines.do(f"br label %rows{index}")
        lines.label(f"rows{index}")
        row_steps, column_steps = row_count * size // side, column_count * width // side
        lines.do(f"%r{index} = phi i64 [0, %rows{index}.before], [%r{index}.next, %rows{index}.end]")
        lines.do(f"br label %columns{index}")
        lines.label(f"columns{index}")
        lines.do(f"%c{index} = phi i64 [0, %rows{index}], [%c{index}.next, %columns{index}]")
        row = lines.add(f"add i64 {lines.add(f'mul i64 %r{index}, {side}')}, {row_start}")
        column = lines.add(f"add i64 {lines.add(f'mul i64 %c{index}, {side}')}, {column_start}")
        source = lines.add(f"add i64 {lines.add(f'mul i64 {row}, {stride}')}, {column}")
        goal = lines.add(f"add i64 {lines.add(f'mul i64 {column}, {goal_stride}')}, {row}")
        if side == 1:
            value = lines.add(f"load float, ptr {lines.add(f'getelementptr float, ptr %b, i64 {source}')}")
            lines.do(f"store float {value}, ptr {lines.add(f'getelementptr float, ptr %to, i64 {goal}')}")
        else:
            _turn_block(lines, source, goal, stride, goal_stride)
        lines.do(f"%c{index}.next = add nuw nsw i64 %c{index}, 1")
        over = lines.add(f"icmp eq i64 %c{index}.next, {column_steps}")
        lines.do(f"br i1 {over}, label %rows{index}.end, label %columns{index}")
        lines.label(f"rows{index}.end")
        lines.do(f"%r{index}.next = add nuw nsw i64 %r{index}, 1")
        over = lines.add(f"icmp eq i64 %r{index}.next, {row_steps}")
        lines.do(f"br i1 {over}, label %after{index}, label %rows{index}")
        lines.label(f"after{index}")
    lines.do("ret void")
    return _function(name, ("b", "to"), lines)


def _pieces(length: int) -> list[tuple[int, int, int]]:
    """Return start, count and size of what ``length`` consists of: eights, then ones."""
    whole, rest = divmod(length, 8)
    return [piece for piece in ((0, whole, 8), (whole * 8, rest, 1)) if piece[1]]


def _turn_block(lines: Lines, source: str, goal: str, stride: int, goal_stride: int) -> None:
    """Transpose 8 by 8 numbers in registers: pairs, then fours, then halves change places."""
    rows = []
    for row in range(8):
        at = lines.add(f"add i64 {source}, {row * stride}")
        rows.append(lines.add(f"load <8 x float>, ptr {lines.add(f'getelementptr float, ptr %b, i64 {at}')}, align 4"))
    for distance in (1, 2, 4):
        new = list(rows)
        for row in range(8):
            if row & distance:
                continue
            one, other = rows[row], rows[row | distance]
            low = [index if not index & distance else 8 + index - distance for index in range(8)]
            high = [index + distance if not index & distance else 8 + index for index in range(8)]
            for place, mask in ((row, low), (row | distance, high)):
                chosen = ", ".join(f"i32 {index}" for index in mask)
                new[place] = lines.add(f"shufflevector <8 x float> {one}, <8 x float> {other}, <8 x i32> <{chosen}>")
        rows = new
    for column in range(8):
        at = lines.add(f"add i64 {goal}, {column * goal_stride}")
        place = lines.add(f"getelementptr float, ptr %to, i64 {at}")
        lines.do(f"store <8 x float> {rows[column]}, ptr {place}, align 4")
