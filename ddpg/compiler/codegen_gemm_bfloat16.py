"""Write the LLVM functions of a matrix product of bfloat16 numbers with float32 sums, for processors with AVX512-BF16.

One instruction multiplies 16 pairs of numbers by 16 pairs and adds both products of each pair to a float32 sum: twice
the products of a float32 instruction. So both matrices are rounded to bfloat16 (to the nearest, ties to even) and
packed in pairs along the inner dimension: A as a whole, B by panels of columns. An odd last number is paired with 0. A
pair takes the space of one float. The matrices themselves stay float32 in memory. (Intel 64 Instruction Set Reference,
VDPBF16PS and VCVTNE2PS2BF16: subnormal arguments and results count as 0, sums round to the nearest.)
"""

from ddpg.compiler.codegen_gemm import Float32GemmFunctions, load_first, store_first, transposed_registers
from ddpg.compiler.llvm_builder import FunctionBuilder

LANES = 16  # float32 sums of an instruction
PAIRS, SUMS, _NUMBERS = "<16 x i32>", "<16 x float>", "<32 x bfloat>"

DECLARATIONS = f"""
declare {SUMS} @llvm.x86.avx512bf16.dpbf16ps.512({SUMS}, {_NUMBERS}, {_NUMBERS})
declare {_NUMBERS} @llvm.x86.avx512bf16.cvtne2ps2bf16.512({SUMS}, {SUMS})"""


class BFloat16GemmFunctions(Float32GemmFunctions):
    """A product of bfloat16 numbers by AVX512-BF16: all of A is packed, B by panels of columns."""

    element = "i32"  # a pair

    @property
    def _pairs(self) -> int:
        """Pairs of numbers along the inner dimension."""
        return -(-self._inner // 2)

    def _floats_to_pack(self, rows: int) -> int:
        return _whole_vectors(self._pairs * rows) + self._pairs * self._machine.panel

    def _write(self, name: str, rows: int) -> None:
        """Pack all N rows of A, then compute C by panels of columns."""
        lines, pack = FunctionBuilder(), f"{name}.pack"
        if self._transposed:
            self._texts[pack] = _interleave_function(pack, self._inner, rows, self._rows, rows)
        else:
            self._texts[pack] = _round_function(pack, rows, self._inner)
        panels = lines.at("%packed", _whole_vectors(rows * self._pairs))
        lines.do(f"call void @{pack}(ptr %a, ptr %packed)")
        self._by_panels(
            lines,
            name,
            self._machine.panel,
            lambda panel, width: self._panel_function(panel, (rows, width, self._pairs)),
            ("%packed", panels),
        )
        self._texts[name] = lines.function(name, ("a", "b", "c", "packed"))

    def _strides(self, rows: int) -> tuple[int, int]:
        return (1, rows) if self._transposed else (self._pairs, 1)

    def _columns_of_b(self, lines: FunctionBuilder, name: str, shape: tuple[int, int, int]) -> tuple[str, int, int]:
        _, width, _ = shape
        pack, padded = f"{name}.pack", _whole_vectors(width)
        if self._other_transposed:
            self._texts[pack] = _transpose_function(pack, width, self._inner, padded)
        else:
            self._texts[pack] = _interleave_function(pack, self._inner, width, self._columns, padded)
        lines.do(f"call void @{pack}(ptr %b, ptr %packed)")
        return "%packed", padded, LANES

    def _numbers(self, lines: FunctionBuilder, vector: str) -> str:
        return lines.add(f"bitcast {PAIRS} {vector} to {_NUMBERS}")

    def _accumulate(self, lines: FunctionBuilder, vector: str, total: str, one: str, other: str) -> None:
        arguments = f"{SUMS} {total}, {_NUMBERS} {one}, {_NUMBERS} {other}"
        lines.do(f"{total}.next = call {SUMS} @llvm.x86.avx512bf16.dpbf16ps.512({arguments})")


def _whole_vectors(size: int) -> int:
    return -(-size // LANES) * LANES


def _rounded(lines: FunctionBuilder, low: str, high: str) -> str:
    """Return the 16 floats of ``low`` and the 16 of ``high`` as 32 bfloat16 numbers."""
    arguments = f"{SUMS} {high}, {SUMS} {low}"
    return lines.add(f"call {_NUMBERS} @llvm.x86.avx512bf16.cvtne2ps2bf16.512({arguments})")


def _pairs_of(lines: FunctionBuilder, numbers: str) -> str:
    return lines.add(f"bitcast {_NUMBERS} {numbers} to {PAIRS}")


def neighbouring_pairs(lines: FunctionBuilder, low: str, high: str) -> str:
    """Return 16 pairs of neighbours in two vectors of 16 floats, of which ``high`` follows ``low``."""
    return _pairs_of(lines, _rounded(lines, low, high))


def interleaved_pairs(lines: FunctionBuilder, low: str, high: str) -> str:
    """Return 16 pairs: of the first numbers of two vectors of 16 floats, of their second numbers, ..."""
    order = ", ".join(f"i32 {place}, i32 {LANES + place}" for place in range(LANES))
    rounded = _rounded(lines, low, high)
    numbers = lines.add(f"shufflevector {_NUMBERS} {rounded}, {_NUMBERS} poison, <{2 * LANES} x i32> <{order}>")
    return _pairs_of(lines, numbers)


def row_pairs(lines: FunctionBuilder, count: int, pointer: str, *offsets: str | int) -> str:
    """Return up to 32 contiguous numbers as 16 pairs."""
    low = load_first(lines, count, LANES, pointer, *offsets)
    high = load_first(lines, count - LANES, LANES, pointer, *offsets, LANES)
    return neighbouring_pairs(lines, low, high)


def _round_function(name: str, rows: int, columns: int) -> str:
    """Return a function ``(b, to)`` that packs pairs of neighbours in ``rows`` by ``columns`` numbers, row by row."""
    lines, pairs = FunctionBuilder(), -(-columns // 2)
    whole, rest = divmod(columns, 2 * LANES)
    with lines.loop(0, rows) as row:
        source, goal = lines.at("%b", lines.times(row, columns)), lines.at("%to", lines.times(row, pairs))
        with lines.loop(0, whole) as block:
            value = row_pairs(lines, 2 * LANES, source, lines.times(block, 2 * LANES))
            lines.store(value, goal, lines.times(block, LANES), type_=PAIRS)
        if rest:
            value = row_pairs(lines, rest, source, whole * 2 * LANES)
            store_first(lines, value, (-(-rest // 2), LANES), goal, whole * LANES, type_="i32")
    return lines.function(name, ("b", "to"))


def _interleave_function(name: str, rows: int, columns: int, stride: int, goal_stride: int) -> str:
    """Return a function ``(b, to)`` that packs every two rows of ``rows`` by ``columns`` numbers as one row of pairs.

    Rows are ``stride`` floats apart, packed ones ``goal_stride`` pairs, of which those beyond ``columns`` are 0.
    """
    lines = FunctionBuilder()
    blocks = -(-goal_stride // LANES)

    def pack(row: str | int, both: bool, block: str | int, count: int, stored: int) -> None:
        source = lines.at("%b", lines.times(row, 2 * stride), lines.times(block, LANES))
        goal = lines.at("%to", lines.times(row, goal_stride), lines.times(block, LANES))
        low = load_first(lines, count, LANES, source, 0)
        high = load_first(lines, count if both else 0, LANES, source, stride)
        store_first(lines, interleaved_pairs(lines, low, high), (stored, LANES), goal, 0, type_="i32")

    def pack_row(row: str | int, both: bool) -> None:
        whole = columns // LANES
        with lines.loop(0, whole) as block:
            pack(row, both, block, LANES, LANES)
        for last in range(whole, blocks):
            pack(row, both, last, columns - last * LANES, min(LANES, goal_stride - last * LANES))

    with lines.loop(0, rows // 2) as row:
        pack_row(row, True)
    if rows % 2:
        pack_row(rows // 2, False)
    return lines.function(name, ("b", "to"))


def _transpose_function(name: str, rows: int, columns: int, goal_stride: int) -> str:
    """Return a function ``(b, to)`` that packs pairs of neighbours in ``rows`` by ``columns`` numbers, transposed.

    Packed rows are ``goal_stride`` pairs apart, of which those beyond ``rows`` are 0.
    """
    lines = FunctionBuilder()
    whole, rest = divmod(columns, 2 * LANES)
    for first in range(0, goal_stride, LANES):
        with lines.loop(0, whole) as block:
            _transpose_block(lines, (first, block), (rows - first, 2 * LANES), columns, goal_stride)
        if rest:
            _transpose_block(lines, (first, whole), (rows - first, rest), columns, goal_stride)
    return lines.function(name, ("b", "to"))


def _transpose_block(
    lines: FunctionBuilder, place: tuple[int, str | int], shape: tuple[int, int], stride: int, goal_stride: int
) -> None:
    """Transpose up to 16 by 16 pairs in registers."""
    row, block = place
    count, columns = shape
    source = lines.at("%b", lines.times(block, 2 * LANES), row * stride)
    goal = lines.at("%to", lines.times(block, LANES * goal_stride), row)
    rows = [
        row_pairs(lines, columns, source, index * stride) if index < count else "zeroinitializer"
        for index in range(LANES)
    ]
    rows = transposed_registers(lines, rows, PAIRS)
    for index in range(-(-columns // 2)):
        lines.store(rows[index], goal, index * goal_stride, type_=PAIRS)
