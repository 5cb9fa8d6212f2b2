"""Write the LLVM functions of a matrix product of bfloat16 numbers on Intel's matrix unit, AMX.

A tile register holds 16 rows of 16 pairs of bfloat16 numbers, or 16 by 16 float32 sums. One instruction adds the
product of a tile of A and a tile of B to a tile of C: 16,384 operations. Both matrices are rounded to bfloat16 (to the
nearest, ties to even) and packed first, in *strips*: 16 rows of A, or 16 columns of B, along the whole inner dimension,
tile after tile. A tile of A has a row for each row of A; one of B has a row for each pair, as the instruction expects.
Numbers beyond a matrix's edge are 0. Two strips of A and two of B are multiplied at a time, with their four tiles of C
in registers. (Intel 64 Instruction Set Reference, TDPBF16PS: subnormal arguments and results count as 0, sums round to
the nearest.)

:class:`SplitAMXGemmFunctions` replaces each float32 number by a sum of two bfloat16 numbers, a ≈ a₁ + a₂, and a·b by
a₁·b₁ + a₁·b₂ + a₂·b₁. What it leaves out, a₂·b₂, is at most 2⁻¹⁶ of a·b, and so are the errors of rounding a₂ and b₂.
(Henry, Tang & Heinecke 2019, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
computations", arXiv 1904.06376.)
"""

import itertools

from ddpg.compiler.codegen_gemm import GemmFunctions, load_first, store_first, transposed_registers
from ddpg.compiler.codegen_gemm_bfloat16 import LANES, PAIRS, SUMS, interleaved_pairs, neighbouring_pairs
from ddpg.compiler.llvm_builder import FunctionBuilder, float_literal

_TILE = LANES * LANES  # pairs or sums of a tile, of four bytes each
_STRIDE = 4 * LANES  # bytes from one row of a packed tile to the next
_STRIPS = 2  # strips of A, and of B, multiplied at a time
_LEFT, _RIGHT = 4, 6  # the first tile registers for A's tiles and for B's; those of C begin at 0

# Palette 1; bytes of a row of each of eight tiles from byte 16 on, rows of each from byte 48 on.
_CONFIGURATION = [1] + 15 * [0] + 8 * [_STRIDE, 0] + 16 * [0] + 8 * [LANES] + 8 * [0]
DECLARATIONS = f"""
@tiles = internal constant [64 x i8] [{", ".join(f"i8 {byte}" for byte in _CONFIGURATION)}], align 64

declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8 immarg)
declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)
declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)
declare void @llvm.x86.tdpbf16ps(i8 immarg, i8 immarg, i8 immarg)"""


class AMXGemmFunctions(GemmFunctions):
    """A product of bfloat16 numbers by AMX: all of A is packed, B by two strips of columns."""

    parts = 1  # bfloat16 numbers that are packed for each number
    products: tuple[tuple[int, int], ...] = ((0, 0),)  # which parts of A and B are multiplied

    @property
    def _part(self) -> int:
        """Floats of memory of one part of a packed strip."""
        return -(-self._inner // (2 * LANES)) * _TILE

    @property
    def _strip(self) -> int:
        """Floats of memory of a packed strip."""
        return self.parts * self._part

    def _part_of(self, lines: FunctionBuilder, numbers: str, part: int) -> str:
        """Return one part of 16 floats, which is then rounded to bfloat16."""
        return numbers

    def _floats_to_pack(self, rows: int) -> int:
        return (-(-rows // LANES) + _STRIPS) * self._strip + _TILE

    def _write(self, name: str, rows: int) -> None:
        """Pack all N rows of A, then compute C by two strips of columns at a time."""
        lines, width = FunctionBuilder(), _STRIPS * LANES
        lines.do("call void @llvm.x86.ldtilecfg(ptr @tiles)")
        pairs_are_rows = self._transposed  # as they are given; a tile of A has them in its columns
        step, stride = (1, self._rows) if self._transposed else (self._inner, self._inner)
        whole, rest = divmod(rows, LANES)
        with lines.loop(0, whole) as index:
            pack = self._pack(f"{name}.pack", LANES, stride, (pairs_are_rows, False))
            source = lines.at("%a", lines.times(index, LANES * step))
            lines.do(f"call void @{pack}(ptr {source}, ptr {lines.at('%packed', lines.times(index, self._strip))})")
        if rest:
            pack = self._pack(f"{name}.pack", rest, stride, (pairs_are_rows, False))
            source, goal = lines.at("%a", whole * LANES * step), lines.at("%packed", whole * self._strip)
            lines.do(f"call void @{pack}(ptr {source}, ptr {goal})")
        after = lines.at("%packed", -(-rows // LANES) * self._strip)
        self._by_panels(
            lines, name, width, lambda panel, width: self._panel_function(panel, rows, width), ("%packed", after)
        )
        lines.do("call void @llvm.x86.tilerelease()")
        self._texts[name] = lines.function(name, ("a", "b", "c", "packed"))

    def _panel_function(self, name: str, rows: int, width: int) -> str:
        """Pack ``width`` columns of B, then compute C by two strips of rows at a time."""
        lines, height = FunctionBuilder(), _STRIPS * LANES
        step, stride = (self._inner, self._inner) if self._other_transposed else (1, self._columns)
        for place, count in enumerate(_strips_of(width)):
            pack = self._pack(f"{name}.pack", count, stride, (not self._other_transposed, True))
            source, goal = lines.at("%b", place * LANES * step), lines.at("%packed", place * self._strip)
            lines.do(f"call void @{pack}(ptr {source}, ptr {goal})")
        whole, rest = divmod(rows, height)
        if whole:
            block = self._block(f"{name}.block", height, width)
            with lines.loop(0, whole) as index:
                a = lines.at("%a", lines.times(index, _STRIPS * self._strip))
                c = lines.at("%c", lines.times(index, height * self._columns))
                lines.do(f"call void @{block}(ptr {a}, ptr %packed, ptr {c})")
        if rest:
            block = self._block(f"{name}.block", rest, width)
            a, c = lines.at("%a", whole * _STRIPS * self._strip), lines.at("%c", whole * height * self._columns)
            lines.do(f"call void @{block}(ptr {a}, ptr %packed, ptr {c})")
        return lines.function(name, ("a", "b", "c", "packed"))

    def _block(self, name: str, rows: int, width: int) -> str:
        """Write the function that computes up to 32 by 32 numbers of C in tile registers; return its name."""
        name, lines = f"{name}{rows}", FunctionBuilder()
        heights, widths = _strips_of(rows), _strips_of(width)
        sums = list(itertools.product(range(len(heights)), range(len(widths))))  # row and column of each tile of C
        for tile in range(len(sums)):
            lines.do(f"call void @llvm.x86.tilezero(i8 {tile})")
        for left, right in self.products:
            with lines.loop(0, self._part // _TILE) as index:
                start = lines.times(index, _TILE)
                for matrix, part, first, count in (
                    ("%a", left, _LEFT, len(heights)),
                    ("%b", right, _RIGHT, len(widths)),
                ):
                    for strip in range(count):
                        source = lines.at(matrix, start, strip * self._strip + part * self._part)
                        lines.do(f"call void @llvm.x86.tileloadd64(i8 {first + strip}, ptr {source}, i64 {_STRIDE})")
                for tile, (row, column) in enumerate(sums):
                    lines.do(f"call void @llvm.x86.tdpbf16ps(i8 {tile}, i8 {_LEFT + row}, i8 {_RIGHT + column})")
        edge = lines.at("%b", _STRIPS * self._strip)
        for tile, (row, column) in enumerate(sums):
            height, columns = heights[row], widths[column]
            goal = lines.at("%c", row * LANES * self._columns + column * LANES)
            if (height, columns) == (LANES, LANES):
                lines.do(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {goal}, i64 {4 * self._columns})")
                continue
            lines.do(f"call void @llvm.x86.tilestored64(i8 {tile}, ptr {edge}, i64 {_STRIDE})")
            for line in range(height):
                value = lines.load(edge, line * LANES, type_=SUMS)
                store_first(lines, value, (columns, LANES), goal, line * self._columns)
        self._texts[name] = lines.function(name, ("a", "b", "c"))
        return name

    def _pack(self, name: str, count: int, stride: int, pairs_are_rows: tuple[bool, bool]) -> str:
        """Write the function ``(b, to)`` that packs a strip of A or B; return its name.

        Args:
            name: the beginning of its name.
            count: rows of A or columns of B in the strip, at most 16.
            stride: numbers from one row of the matrix in memory to the next.
            pairs_are_rows: whether the inner dimension runs over rows: of the matrix in memory, and of a packed tile.
        """
        name = f"{name}{count}"
        if name in self._texts:
            return name
        lines, given, packed = FunctionBuilder(), *pairs_are_rows
        whole, rest = divmod(self._inner, 2 * LANES)

        def numbers(part: int, valid: int, source: str, offset: int) -> str:
            return self._part_of(lines, load_first(lines, valid, LANES, source, offset), part)

        def tile(part: int, index: str | int, inner: int) -> None:
            source = lines.at("%b", lines.times(index, 2 * LANES * (stride if given else 1)))
            goal = lines.at("%to", lines.times(index, _TILE), part * self._part)
            if given:
                rows = [
                    interleaved_pairs(
                        lines,
                        numbers(part, count if 2 * pair < inner else 0, source, 2 * pair * stride),
                        numbers(part, count if 2 * pair + 1 < inner else 0, source, (2 * pair + 1) * stride),
                    )
                    for pair in range(LANES)
                ]
            else:
                rows = [
                    neighbouring_pairs(
                        lines,
                        numbers(part, inner, source, row * stride),
                        numbers(part, inner - LANES, source, row * stride + LANES),
                    )
                    if row < count
                    else "zeroinitializer"
                    for row in range(LANES)
                ]
            if given != packed:
                rows = transposed_registers(lines, rows, PAIRS)
            for row, value in enumerate(rows):
                lines.store(value, goal, row * LANES, type_=PAIRS)

        for part in range(self.parts):
            with lines.loop(0, whole) as index:
                tile(part, index, 2 * LANES)
            if rest:
                tile(part, whole, rest)
        self._texts[name] = lines.function(name, ("b", "to"))
        return name


class SplitAMXGemmFunctions(AMXGemmFunctions):
    """A product of float32 numbers by AMX, each split into two bfloat16 numbers: three of their four products."""

    parts = 2
    products = ((0, 1), (1, 0), (0, 0))  # the small ones first

    def _part_of(self, lines: FunctionBuilder, numbers: str, part: int) -> str:
        """Return the nearest number with 8 significant bits, or the rest (Veltkamp's splitting; Dekker 1971)."""
        factors = ", ".join([f"float {float_literal(2.0**16 + 1)}"] * LANES)
        scaled = lines.add(f"fmul {SUMS} {numbers}, <{factors}>")
        difference = lines.add(f"fsub {SUMS} {scaled}, {numbers}")
        first = lines.add(f"fsub {SUMS} {scaled}, {difference}")
        return lines.add(f"fsub {SUMS} {numbers}, {first}") if part else first


def _strips_of(size: int) -> list[int]:
    """Return the rows or columns in each strip of ``size`` rows or columns."""
    return [min(LANES, size - start) for start in range(0, size, LANES)]
