"""Write the LLVM functions of a matrix product of known shape: register tiles, packing, transposition.

C = A·B is computed in tiles of some rows by some columns of C, which stay in registers during the loop over the inner
dimension. The columns of B that a tile needs are packed first, so that they are contiguous and fill whole vectors; if
one tile has all rows, B is read only once, in place. Numbers of A are read one at a time, so a transposed A is read in
place too. Large products, such as those of a convolution's patches, are computed in blocks of rows and of the inner
dimension that stay in the cache.
(K. Goto and R. van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008.)
"""

import abc
import dataclasses
from collections.abc import Callable, Iterable

from ddpg.compiler.llvm_builder import ELEMENTWISE, FunctionBuilder

BLOCK = 8  # rows and columns of a block that is transposed in registers
LARGE = 1024  # rows, or numbers along the inner dimension, up to which a product is one block
BLOCK_ROWS, BLOCK_INNER = 128, 128  # of the blocks of a larger product


@dataclasses.dataclass(frozen=True)
class RegisterFile:
    """A machine's registers: floats in a vector, and the rows and vectors of the largest tile that fits.

    Attributes:
        width, rows, vectors: as above.
        bfloat16: whether the machine has AVX512-BF16, which multiplies pairs of bfloat16 numbers.
        amx: whether it has AMX, too, which multiplies tiles of them.
    """

    width: int
    rows: int
    vectors: int = 2
    bfloat16: bool = False
    amx: bool = False

    @property
    def panel(self) -> int:
        """Columns of a tile."""
        return self.width * self.vectors

    def panel_of(self, rows: int) -> int:
        """Columns of a tile of ``rows`` rows; a single row is wider, so that its sums do not wait for each other."""
        return 8 * self.width if rows == 1 else self.panel


def register_file(features: str) -> RegisterFile:
    """Return the registers of a machine with LLVM's ``features``."""
    known = features.split(",")
    if "+avx512f" in known:
        bfloat16 = "+avx512bf16" in known
        return RegisterFile(16, 14, bfloat16=bfloat16, amx=bfloat16 and {"+amx-tile", "+amx-bf16"} <= {*known})
    return RegisterFile(8, 6) if "+avx2" in known else RegisterFile(4, 6)


class GemmFunctions(abc.ABC):
    """C = A·B, either input given transposed: ``NAME.N(a, b, c, packed)`` computes N rows of C.

    Args:
        name: prefix of the functions' names.
        shape: rows, columns, and the inner dimension.
        transposed: whether A and B are given transposed.
        machine: the machine's registers.
        parts: the numbers of rows N.
        adds: whether the product is added to C, instead of written there (float32 only).

    Attributes:
        text: the functions.
        packed: floats that each worker needs to pack its rows of A or columns of B.
    """

    def __init__(
        self,
        name: str,
        shape: tuple[int, int, int],
        transposed: tuple[bool, bool],
        machine: RegisterFile,
        parts: Iterable[int],
        adds: bool = False,
    ):
        self._machine, self._adds = machine, adds
        self._rows, self._columns, self._inner = shape
        self._transposed, self._other_transposed = transposed
        self._texts: dict[str, str] = {}
        counts = sorted(set(parts))
        self.packed = max(map(self._floats_to_pack, counts))
        for rows in counts:
            self._write(f"{name}.{rows}", rows)
        self.text = "\n\n".join(self._texts.values())

    @abc.abstractmethod
    def _floats_to_pack(self, rows: int) -> int:
        """Return the floats of memory that the function for ``rows`` rows of C needs at ``packed``."""

    @abc.abstractmethod
    def _write(self, name: str, rows: int) -> None:
        """Write the function for ``rows`` rows of C, and those that it calls, into ``_texts``."""

    def _by_panels(
        self,
        lines: FunctionBuilder,
        name: str,
        width: int,
        function: Callable[[str, int], str],
        pointers: tuple[str, str],
        rest_in_powers_of_two: bool = False,
    ) -> None:
        """Call, for each panel of ``width`` columns of C and for the rest, a function ``(a, b, c, packed)``.

        Args:
            lines, name: the function that calls them.
            width: columns of a panel.
            function: writes a panel's function, given its name and columns.
            pointers: the panels' ``a`` and ``packed``.
            rest_in_powers_of_two: whether the rest is several panels of 2ⁿ columns, instead of one.
        """

        def panel(column: str | int, width: int) -> None:
            source = lines.at("%b", lines.times(column, self._inner if self._other_transposed else 1))
            of_width = f"{name}.panel{width}"
            if of_width not in self._texts:
                self._texts[of_width] = function(of_width, width)
            a, packed = pointers
            lines.do(f"call void @{of_width}(ptr {a}, ptr {source}, ptr {lines.at('%c', column)}, ptr {packed})")

        with lines.loop(0, self._columns // width) as index:
            panel(lines.times(index, width), width)
        start = self._columns // width * width
        while rest := self._columns - start:
            some = 1 << (rest.bit_length() - 1) if rest_in_powers_of_two else rest
            panel(start, some)
            start += some


class Float32GemmFunctions(GemmFunctions):
    """A product of float32 numbers: columns of B are packed, A is read in place."""

    element = "float"  # of A, as a tile reads it

    def _floats_to_pack(self, rows: int) -> int:
        heights = [height for _, height, _ in _blocks(rows, BLOCK_ROWS)]
        return _blocks(self._inner, BLOCK_INNER)[0][1] * max(map(self._machine.panel_of, heights))

    def _write(self, name: str, rows: int) -> None:
        down, along = _blocks(rows, BLOCK_ROWS), _blocks(self._inner, BLOCK_INNER)
        if len(down) == len(along) == 1:
            self._texts[name] = self._block_function(name, rows, self._inner, self._adds)
            return
        lines, (row_apart, apart) = FunctionBuilder(), self._strides(rows)
        for high, height, top in down:
            with lines.loop(0, high) as index:
                row = lines.add(f"add nsw i64 {lines.times(index, height)}, {top}")
                for deep, depth, start in along:
                    adds = self._adds or start > 0
                    block = f"{name}.{height}x{depth}{'.adds' * adds}"
                    if block not in self._texts:
                        self._texts[block] = self._block_function(block, height, depth, adds)
                    with lines.loop(0, deep) as other:
                        inner = lines.add(f"add nsw i64 {lines.times(other, depth)}, {start}")
                        place = lines.add(f"add nsw i64 {lines.times(row, row_apart)}, {lines.times(inner, apart)}")
                        a = lines.at("%a", place)
                        b = lines.at("%b", lines.times(inner, 1 if self._other_transposed else self._columns))
                        c = lines.at("%c", lines.times(row, self._columns))
                        lines.do(f"call void @{block}(ptr {a}, ptr {b}, ptr {c}, ptr %packed)")
        self._texts[name] = lines.function(name, ("a", "b", "c", "packed"))

    def _block_function(self, name: str, rows: int, depth: int, adds: bool) -> str:
        """Compute ``rows`` rows of C, or, if it ``adds``, add to them; ``depth`` is the inner dimension."""
        lines = FunctionBuilder()
        # If B is read in place, columns beyond the last belong to the next row; packed ones only pad a vector.
        self._by_panels(
            lines,
            name,
            self._machine.panel_of(rows),
            lambda panel, width: self._panel_function(panel, (rows, width, depth), adds),
            ("%a", "%packed"),
            rest_in_powers_of_two=not self._packs(rows),
        )
        return lines.function(name, ("a", "b", "c", "packed"))

    def _packs(self, rows: int) -> bool:
        """Return whether columns of B are packed for ``rows`` rows of C."""
        return self._other_transposed or sum(count for count, _, _ in tiles_of(rows, self._machine.rows)) > 1

    def _panel_function(self, name: str, shape: tuple[int, int, int], adds: bool = False) -> str:
        """Compute a panel of C, ``shape``: rows, columns, inner size. Its tiles' heights differ by at most one row."""
        rows, width, depth = shape
        lines = FunctionBuilder()
        source, stride, lanes = self._columns_of_b(lines, name, shape)
        strides = self._strides(rows)
        for count, height, start in tiles_of(rows, self._machine.rows):
            tile = f"{name}.tile{height}"
            self._texts[tile] = self._tile(tile, (height, width, depth), lanes, stride, strides, adds)
            with lines.loop(0, count) as index:
                row = lines.add(f"add i64 {lines.times(index, height)}, {start}")
                a = lines.at("%a", lines.times(row, strides[0]))
                c = lines.at("%c", lines.times(row, self._columns))
                lines.do(f"call void @{tile}(ptr {a}, ptr {source}, ptr {c})")
        return lines.function(name, ("a", "b", "c", "packed"))

    def _tile(
        self, name: str, shape: tuple[int, int, int], lanes: int, stride: int, strides: tuple[int, int], adds: bool
    ) -> str:
        """Compute a tile of C, ``shape``: rows, columns, inner size; ``stride`` is B's, ``strides`` are A's."""
        rows, width, depth = shape
        vector, parts = f"<{lanes} x {self.element}>", range(-(-width // lanes))
        valid = [min(lanes, width - part * lanes) for part in parts]
        lines = FunctionBuilder()
        sums = {(row, part): f"%c{row}.{part}" for row in range(rows) for part in parts}
        first_sums = dict.fromkeys(sums, "zeroinitializer")
        if adds:
            first_sums = {
                (row, part): load_first(lines, valid[part], lanes, "%c", row * self._columns + part * lanes)
                for row, part in sums
            }
        lines.do("br label %loop")
        lines.label("loop")
        lines.do("%k = phi i64 [0, %entry], [%next, %loop]")
        for place, total in sums.items():
            lines.do(f"{total} = phi <{lanes} x float> [{first_sums[place]}, %entry], [{total}.next, %loop]")
        start = lines.times("%k", stride)
        columns = [self._numbers(lines, lines.load("%b", start, part * lanes, type_=vector)) for part in parts]
        column = lines.times("%k", strides[1])
        for row in range(rows):
            one = lines.load("%a", column, row * strides[0], type_=self.element)
            first = lines.add(f"insertelement {vector} poison, {self.element} {one}, i32 0")
            repeated = lines.add(f"shufflevector {vector} {first}, {vector} poison, <{lanes} x i32> zeroinitializer")
            numbers = self._numbers(lines, repeated)
            for part in parts:
                self._accumulate(lines, vector, sums[row, part], numbers, columns[part])
        lines.do("%next = add nuw nsw i64 %k, 1")
        lines.do(f"%over = icmp eq i64 %next, {depth}")
        lines.do("br i1 %over, label %end, label %loop")
        lines.label("end")
        for (row, part), total in sums.items():
            store_first(lines, f"{total}.next", (valid[part], lanes), "%c", row * self._columns + part * lanes)
        return lines.function(name, ("a", "b", "c"))

    def _strides(self, rows: int) -> tuple[int, int]:
        """Return the distances of A's rows and of its columns, as tiles read them for ``rows`` rows of C."""
        return (1, self._rows) if self._transposed else (self._inner, 1)

    def _columns_of_b(self, lines: FunctionBuilder, name: str, shape: tuple[int, int, int]) -> tuple[str, int, int]:
        """Pack B's columns for a panel of ``shape`` if needed; return their address, stride, and lanes of a vector."""
        rows, width, depth = shape
        lanes = min(self._machine.width, 1 << (width - 1).bit_length())
        if not self._packs(rows):
            return "%b", self._columns, lanes
        pack, stride = f"{name}.pack", -(-width // lanes) * lanes
        if self._other_transposed:
            self._texts[pack] = _transpose_function(pack, (width, depth), self._inner, stride)
        else:
            self._texts[pack] = _copy_function(pack, (depth, width), self._columns, stride, lanes)
        lines.do(f"call void @{pack}(ptr %b, ptr %packed)")
        return "%packed", stride, lanes

    def _numbers(self, lines: FunctionBuilder, vector: str) -> str:
        """Return a vector that was loaded as the numbers that are multiplied."""
        return vector

    def _accumulate(self, lines: FunctionBuilder, vector: str, total: str, one: str, other: str) -> None:
        """Add the product of two vectors to the sums ``total``, under the name ``total.next``."""
        product = lines.add(f"fmul {ELEMENTWISE} {vector} {one}, {other}")
        lines.do(f"{total}.next = fadd {ELEMENTWISE} {vector} {total}, {product}")


def _blocks(length: int, size: int) -> list[tuple[int, int, int]]:
    """Return count, size and start of the blocks, the first one by itself, that make up ``length``."""
    if length <= LARGE:
        return [(1, length, 0)]
    whole, rest = divmod(length, size)
    return [block for block in ((1, size, 0), (whole - 1, size, size), (1, rest, whole * size)) if all(block[:2])]


def tiles_of(rows: int, most: int) -> list[tuple[int, int, int]]:
    """Return count, height and first row of the tiles, of at most two heights, that make up ``rows``."""
    tiles = -(-rows // most)
    height, higher = divmod(rows, tiles)
    both = (higher, height + 1, 0), (tiles - higher, height, higher * (height + 1))
    return [each for each in both if each[0]]


def transposed_registers(lines: FunctionBuilder, rows: list[str], vector: str) -> list[str]:
    """Transpose 2ⁿ vectors of as many lanes, by swapping off-diagonal blocks of size 1, then 2, 4, ..."""
    size, distance = len(rows), 1
    while distance < size:
        new = list(rows)
        for index in range(size):
            if index & distance:
                continue
            one, other = rows[index], rows[index | distance]
            low = [place if not place & distance else size + place - distance for place in range(size)]
            high = [place + distance if not place & distance else size + place for place in range(size)]
            for place, mask in ((index, low), (index | distance, high)):
                chosen = ", ".join(f"i32 {from_}" for from_ in mask)
                new[place] = lines.add(f"shufflevector {vector} {one}, {vector} {other}, <{size} x i32> <{chosen}>")
        rows, distance = new, 2 * distance
    return rows


def load_first(lines: FunctionBuilder, count: int, lanes: int, pointer: str, *offsets: str | int) -> str:
    """Load ``count`` floats, at most ``lanes``, into a vector of ``lanes`` floats; the others are 0."""
    if count <= 0:
        return "zeroinitializer"
    if count >= lanes:
        return lines.load(pointer, *offsets, type_=f"<{lanes} x float>")
    some = f"<{count} x float>"
    value = lines.load(pointer, *offsets, type_=some)
    mask = ", ".join(f"i32 {place if place < count else count}" for place in range(lanes))
    return lines.add(f"shufflevector {some} {value}, {some} zeroinitializer, <{lanes} x i32> <{mask}>")


def store_first(
    lines: FunctionBuilder, value: str, sizes: tuple[int, int], pointer: str, *offsets: str | int, type_: str = "float"
) -> None:
    """Store the first numbers of a vector; ``sizes``: how many to store, and how many the vector has."""
    count, lanes = sizes
    whole, some = f"<{lanes} x {type_}>", f"<{count} x {type_}>"
    if count < lanes:
        mask = ", ".join(f"i32 {place}" for place in range(count))
        value = lines.add(f"shufflevector {whole} {value}, {whole} poison, <{count} x i32> <{mask}>")
    lines.store(value, pointer, *offsets, type_=some)


def _copy_function(name: str, shape: tuple[int, int], stride: int, goal_stride: int, lanes: int) -> str:
    """Return a function ``(b, to)`` that copies rows to contiguous memory.

    Rows are ``stride`` numbers apart. Copied ones are padded with zeros to ``goal_stride``, a multiple of ``lanes``.
    """
    lines, (rows, columns) = FunctionBuilder(), shape
    with lines.loop(0, rows) as row:
        source, goal = lines.at("%b", lines.times(row, stride)), lines.at("%to", lines.times(row, goal_stride))
        for start in range(0, columns, lanes):
            value = load_first(lines, columns - start, lanes, source, start)
            lines.store(value, goal, start, type_=f"<{lanes} x float>")
    return lines.function(name, ("b", "to"))


def _transpose_function(name: str, shape: tuple[int, int], stride: int, goal_stride: int) -> str:
    """Return a function ``(b, to)`` that transposes rows by columns of numbers, in blocks of 8 by 8.

    Rows are ``stride`` numbers apart, those of the result ``goal_stride``; what is beyond them is undefined.
    """
    lines, (rows, columns) = FunctionBuilder(), shape
    wide, narrow = divmod(columns, BLOCK)
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        if first + BLOCK > goal_stride:
            _transpose_scalar(lines, (first, 0), (count, columns), stride, goal_stride)
            break
        with lines.loop(0, wide) as other:
            _transpose_block(lines, (first, lines.times(other, BLOCK)), count, stride, goal_stride)
        _transpose_scalar(lines, (first, wide * BLOCK), (count, narrow), stride, goal_stride)
    return lines.function(name, ("b", "to"))


def _transpose_scalar(
    lines: FunctionBuilder, start: tuple, shape: tuple[int, int], stride: int, goal_stride: int
) -> None:
    """Transpose the rest that does not fill a block, one number at a time."""
    with lines.loop(0, shape[0]) as one, lines.loop(0, shape[1]) as other:
        row = lines.add(f"add i64 {one}, {start[0]}")
        column = lines.add(f"add i64 {other}, {start[1]}")
        value = lines.load("%b", lines.times(row, stride), column)
        lines.store(value, "%to", lines.times(column, goal_stride), row)


def _transpose_block(lines: FunctionBuilder, start: tuple[int, str], count: int, stride: int, goal_stride: int) -> None:
    """Transpose 8 by 8 numbers in registers; rows from ``count`` on do not exist and count as 0."""
    row, column = start
    vector = f"<{BLOCK} x float>"
    source = lines.at("%b", row * stride, column)
    goal = lines.at("%to", lines.times(column, goal_stride), row)
    rows = [
        lines.load(source, index * stride, type_=vector) if index < count else "zeroinitializer"
        for index in range(BLOCK)
    ]
    rows = transposed_registers(lines, rows, vector)
    for index in range(BLOCK):
        lines.store(rows[index], goal, index * goal_stride, type_=vector)
