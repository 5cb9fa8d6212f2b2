"""Simplify a program: rewrite the IR so that it computes the same results with fewer operations.

- **Repetition**: a computation whose inputs are repeated rows is done once, before the repetition.
- **Columns**: only those columns of a product are computed that are read, such as the action's in the gradient of
  [s, a].
- **Rows of zeros**: if a gradient reaches only the first rows of a matrix, the matrix's products and sums are computed
  only for these rows. In the other rows, 0 times infinity is then 0, not NaN.
- **Products of which only sums are read**: the gradients of a scale s and a shift t before a layer, whose input is
  X·s + t, are sums over the rows of X ⊙ (G·Wᵀ) and of G·Wᵀ, where G is the gradient of the layer's output. They follow
  from XᵀG and the sum of G's rows, and so does the gradient of the weights. So G·Wᵀ is not computed.

The last rule adds terms in another order, and once values have overflowed, NaN and infinity can stand in other places;
otherwise a sum keeps its terms and their order, except for zeros. Bits can also differ where different loops are fused,
because a fused product and sum are rounded once, and where several threads split a sum over fewer rows at different
places.
"""

from collections.abc import Mapping, Sequence

from ddpg.compiler.ir import ALL, COLUMNS, CONVOLUTIONS, ROWS, Node, Program, Stmt, Write, fold_elementwise
from ddpg.compiler.schedule import CHEAP, inputs_of, needed

_SAME = ("input", "var_read", "literal", "const", "transpose", *CONVOLUTIONS)  # only their inputs are simplified
# Functions that are 0 where one of these inputs, given by index, is 0.
_ZERO_WHERE = {"copy": (0,), "neg": (0,), "mul": (0, 1), "div": (0,), "relu_gradient": (0,), "tanh_gradient": (1,)}

Columns = tuple[int, int]  # the first one that is read, and the end
_Summed = tuple[Node | None, Node, Node]  # X, G and W of a sum over the rows of X ⊙ (G·Wᵀ), or of G·Wᵀ
_Scaled = tuple[Node, Node, Node]  # X, s and t of a layer's input X·s + t


def simplified(program: Program, outputs: Sequence[Node]) -> tuple[Program, list[Node]]:
    """Return a program with the same writes, and the nodes of the same outputs."""
    rewriter = _Rewriter(program, outputs)
    for stmt in program.stmts:
        if isinstance(stmt, Write):
            rewriter.program.write(stmt.variable, rewriter.value(stmt.value))
        elif not rewriter.upper(stmt):
            rewriter.value(stmt)
    return rewriter.program, [rewriter.value(output) for output in outputs]


class _Rewriter:
    """Builds the new program, and keeps the new node for each node of the old program."""

    def __init__(self, program: Program, outputs: Sequence[Node]):
        self.program = Program(program.precision)
        self._columns = _columns_read(program, outputs)
        self._summed, self._scaled = _summed_products(program, outputs)
        self._values: dict[int, Node] = {}
        self._uppers: dict[int, Node | None] = {}

    def value(self, old: Node) -> Node:
        """Return the new node for ``old``, with only those columns that are read."""
        if id(old) not in self._values:
            upper = self.upper(old)
            self._values[id(old)] = self._rewritten(old) if upper is None else self._filled_up(upper, old.shape[0])
        return self._values[id(old)]

    def upper(self, old: Node) -> Node | None:
        """Return the new node for ``old``'s first rows if all other rows are known to be 0, else ``None``."""
        if id(old) not in self._uppers:
            self._uppers[id(old)] = self._upper(old) if self._is_whole(old) else None
        return self._uppers[id(old)]

    # -- columns --------------------------------------------------------------------------------------

    def _is_whole(self, old: Node) -> bool:
        return self._read(old) == (0, old.shape[1])

    def _read(self, old: Node) -> Columns:
        return self._columns.get(id(old), (0, old.shape[1]))

    def _part(self, old: Node, columns: Columns) -> Node:
        """Return some of ``old``'s columns; a single column is returned whole."""
        new, (low, high), (first, _) = self.value(old), columns, self._read(old)
        if old.shape[1] == 1:
            return new
        return self.program.slice(new, 0, low - first, (old.shape[0], high - low))

    # -- nodes ----------------------------------------------------------------------------------------

    def _rewritten(self, old: Node) -> Node:
        program, detail = self.program, old.detail
        if old.kind in _SAME:
            return program.like(old, *map(self.value, old.inputs))
        if old.kind == "elementwise":
            return self._elementwise(old)
        if old.kind == "matmul":
            return self._matmul(old)
        source = old.inputs[0]
        if old.kind == "reshape":
            return program.reshape(self.value(source), old.shape)
        if old.kind == "slice":
            return program.slice(self.value(source), detail[0], detail[1] - self._read(source)[0], old.shape)
        if old.kind == "reduce_sum":
            return self._sum_of_product(old) if id(old) in self._summed else self._sum(source, detail)
        if old.kind == "reduce_max":
            return program.reduce_max(self.value(source))
        assert old.kind == "concat", old.kind
        return program.concat(tuple(map(self.value, old.inputs)))

    def _sum(self, old: Node, over: str) -> Node:
        upper = self.upper(old) if over in (ROWS, ALL) else None
        return self.program.reduce_sum(self.value(old) if upper is None else upper, over)

    def _elementwise(self, old: Node) -> Node:
        columns = low, high = self._read(old)
        shape = old.shape[0], high - low
        inputs = [_unrepeated(self._part(source, columns)) for source in old.inputs]
        if old.detail != "copy":
            return self.program.broadcast(fold_elementwise(self.program, old.detail, *inputs), shape)
        return self.program.copy(inputs[0]) if inputs[0].shape == shape else self.program.broadcast(inputs[0], shape)

    def _matmul(self, old: Node) -> Node:
        (one, other), (one_transposed, other_transposed) = old.inputs, old.detail
        if id(old) in self._scaled and self._is_whole(old):
            return self._product_of_scaled(*self._scaled[id(old)], other)
        if one_transposed and not other_transposed and (self.upper(other) or self.upper(one)):
            return self._sum_of_outer_products(one, other)
        low, high = self._read(old)
        factor = self.value(other)
        if not other_transposed:
            factor = self.program.slice(factor, 0, low, (factor.shape[0], high - low))
        elif low == 0:
            factor = self.program.reshape(factor, (high, factor.shape[1]))
        else:
            factor = self.program.slice(factor, low, 0, (high - low, factor.shape[1]))
        return self.program.matmul(self.value(one), factor, one_transposed, other_transposed)

    def _sum_of_outer_products(self, one: Node, other: Node) -> Node:
        """Return ``one``ᵀ·``other`` with all columns: a sum over the rows of both, without rows of zeros."""
        zero = self.upper(other) or self.upper(one)
        rows = one.shape[0] if zero is None else zero.shape[0]
        return self.program.matmul(self._head(one, rows), self._head(other, rows), True, False)

    # -- products of which only sums are read ---------------------------------------------------------

    def _sum_of_product(self, old: Node) -> Node:
        """Return the sum over the rows of G·Wᵀ or X ⊙ (G·Wᵀ): a sum over the columns of W ⊙ (the sum of G, or XᵀG)."""
        scaled, gradient, weights = self._summed[id(old)]
        factor = self._sum(gradient, ROWS) if scaled is None else self._sum_of_outer_products(scaled, gradient)
        terms = self.program.elementwise("mul", self.value(weights), factor)
        return self.program.reshape(self.program.reduce_sum(terms, COLUMNS), old.shape)

    def _product_of_scaled(self, scaled: Node, scale: Node, shift: Node, gradient: Node) -> Node:
        """Return (X·s + t)ᵀ·G, which is sᵀ ⊙ XᵀG + tᵀ ⊙ the sum of G's rows."""
        program = self.program
        scale, shift = (program.reshape(self.value(row), (row.shape[1], 1)) for row in (scale, shift))
        product = program.elementwise("mul", self._sum_of_outer_products(scaled, gradient), scale)
        return program.elementwise("add", product, program.elementwise("mul", shift, self._sum(gradient, ROWS)))

    # -- rows of zeros --------------------------------------------------------------------------------

    def _upper(self, old: Node) -> Node | None:
        if old.kind == "reshape":
            return self._upper_of_stack(old)
        if old.kind == "matmul" and not old.detail[0]:
            upper = self.upper(old.inputs[0])
            return upper and self.program.matmul(upper, self.value(old.inputs[1]), *old.detail)
        if old.kind != "elementwise":
            return None
        for place in _ZERO_WHERE.get(old.detail, ()):
            source = old.inputs[place]
            upper = self.upper(source) if source.shape == old.shape else None
            if upper is not None:
                heads = [self._head(each, upper.shape[0]) for each in old.inputs]
                return self.program.elementwise(old.detail, *heads)
        return None

    def _upper_of_stack(self, old: Node) -> Node | None:
        """Return the first of several matrices stacked by rows if the others are 0."""
        stack = old.inputs[0]
        if stack.kind != "concat" or stack.shape[0] != 1 or old.shape[0] == 1:
            return None
        first, *others = (part.base for part in stack.inputs)
        zeros = all(part.detail == "copy" and _is_zero(part.inputs[0]) for part in others)
        return self.value(first) if zeros and first.shape[1] == old.shape[1] and first.shape[0] > 1 else None

    def _head(self, old: Node, rows: int) -> Node:
        """Return the first rows of ``old``; a single row is returned whole."""
        if old.shape[0] == 1:
            return self.value(old)
        upper = self.upper(old)
        if upper is not None and upper.shape[0] == rows:
            return upper
        if old.kind == "elementwise" and old.detail in CHEAP and self._is_whole(old):
            return self.program.elementwise(old.detail, *(self._head(source, rows) for source in old.inputs))
        return self.program.reshape(self._part(old, (0, old.shape[1])), (rows, old.shape[1]))

    def _filled_up(self, upper: Node, rows: int) -> Node:
        """Return ``upper`` with rows of zeros below; if it is a matrix product times a row, the product is padded."""
        if upper.kind == "elementwise" and upper.detail in ("mul", "div", "neg"):
            first, *others = upper.inputs
            if first.kind == "matmul" and first.shape == upper.shape and all(each.shape[0] == 1 for each in others):
                return self.program.elementwise(upper.detail, self.program.pad(first, rows), *others)
        return self.program.pad(upper, rows)


def _columns_read(program: Program, outputs: Sequence[Node]) -> dict[int, Columns]:
    """Return the columns that are read of matrix products, and of elementwise results of products and single rows."""
    narrow: dict[int, bool] = {}

    def is_narrow(node: Stmt) -> bool:
        if isinstance(node, Write):
            return False
        if id(node) not in narrow:
            large = [source for source in node.inputs if source.shape[0] > 1]
            narrow[id(node)] = node.kind == "matmul" or (
                node.kind == "elementwise" and bool(large) and all(map(is_narrow, large))
            )
        return narrow[id(node)]

    read: dict[int, Columns] = {}

    def note(node: Node, low: int, high: int) -> None:
        before = read.get(id(node), (low, high))
        read[id(node)] = min(low, before[0]), max(high, before[1])

    for output in outputs:
        note(output.base, 0, output.base.shape[1])
    for stmt in reversed(program.stmts):
        if not isinstance(stmt, Write) and id(stmt) not in read:
            continue  # its value is not read
        for source in inputs_of(stmt):
            low, high = 0, source.shape[1]
            if isinstance(stmt, Node) and stmt.kind == "slice":
                # At least two columns: a product with a single column would be a sum in a different order.
                low = min(stmt.detail[1], max(source.shape[1] - 2, 0))
                high = max(stmt.detail[1] + stmt.shape[1], min(low + 2, source.shape[1]))
            elif isinstance(stmt, Node) and stmt.kind == "elementwise" and source.shape[1] == stmt.shape[1] > 1:
                low, high = read[id(stmt)] if is_narrow(stmt) else (low, high)
            note(source, low, high)
            if source.base is not source:
                note(source.base, 0, source.base.shape[1])
    return {id(stmt): read[id(stmt)] for stmt in program.stmts if id(stmt) in read and is_narrow(stmt)}


def _summed_products(program: Program, outputs: Sequence[Node]) -> tuple[dict[int, _Summed], dict[int, _Scaled]]:
    """Find the products G·Wᵀ of which only sums over the rows are read, of themselves or of X ⊙ (G·Wᵀ).

    Returns:
        X (``None`` without it), G and W by the id of each sum; X, s and t by the id of each product (X·s + t)ᵀ·G.
    """
    stmts = needed(program.stmts, outputs)
    readers: dict[int, list[Stmt | None]] = {id(output.base): [None] for output in outputs}
    scaled: dict[tuple[int, int], tuple[Node, _Scaled]] = {}
    for stmt in stmts:
        for source in inputs_of(stmt):
            readers.setdefault(id(source.base), []).append(stmt)
        if isinstance(stmt, Node) and stmt.kind == "matmul" and stmt.detail == (True, False):
            affine = _scaled_and_shifted(stmt.inputs[0])
            if affine:
                scaled[id(affine[0]), id(stmt.inputs[1])] = stmt, affine
    sums: dict[int, _Summed] = {}
    products: dict[int, _Scaled] = {}
    for stmt in stmts:
        if isinstance(stmt, Node) and stmt.kind == "matmul" and stmt.detail == (False, True):
            gradient, weights = stmt.inputs
            found = _sums_over_rows(stmt, readers)
            keys = {(id(factor), id(gradient)) for factor in found.values() if factor is not None}
            if keys <= scaled.keys():
                sums |= {key: (factor, gradient, weights) for key, factor in found.items()}
                products |= {id(product): affine for product, affine in map(scaled.__getitem__, keys)}
    return sums, products


def _sums_over_rows(product: Node, readers: Mapping[int, Sequence[Stmt | None]]) -> dict[int, Node | None]:
    """Return X, or ``None`` without it, by the id of each sum over the rows; nothing if there is another reader."""
    found: dict[int, Node | None] = {}
    for reader in readers[id(product)]:
        value, factor, sums = product, None, [reader]
        if isinstance(reader, Node) and reader.detail == "mul" and product in reader.inputs:
            value, factor, sums = reader, reader.inputs[reader.inputs[0] is product], [*readers[id(reader)]]
        for stmt in sums:
            if not isinstance(stmt, Node) or (stmt.kind, stmt.inputs, stmt.detail) != ("reduce_sum", (value,), ROWS):
                return {}
            found[id(stmt)] = factor
    return found


def _scaled_and_shifted(value: Node) -> tuple[Node, Node, Node] | None:
    """Return X, s and t if ``value`` is X·s + t with rows s and t."""
    if value.kind != "elementwise" or value.detail != "add":
        return None
    product, shift = value.inputs
    if product.kind != "elementwise" or product.detail != "mul":
        return None
    scaled, scale = product.inputs
    row = 1, value.shape[1]
    return (scaled, scale, shift) if scaled.shape == value.shape and scale.shape == shift.shape == row else None


def _unrepeated(value: Node) -> Node:
    """Return the node that ``value`` repeats, or ``value`` itself if it is not a repetition."""
    repeats = value.kind == "elementwise" and value.detail == "copy" and value.shape != value.inputs[0].shape
    return value.inputs[0] if repeats else value


def _is_zero(value: Node) -> bool:
    return value.kind == "literal" and value.detail == 0
