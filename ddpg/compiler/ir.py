"""The compiler's intermediate representation (IR): float32 matrices, and writes to variables.

Every value is a float32 matrix of a fixed shape ``(rows, columns)``; a vector ``[n]`` is ``(1, n)``, a scalar
``(1, 1)``. Equal values are one node (hash consing), so common subexpressions are computed once.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Shape = tuple[int, int]

# The formats to which the arguments of matrix products are rounded; sums and all other values are float32. bfloat16x3
# replaces each number by the sum of two bfloat16 numbers, and adds three products. A product with a vector does not
# count as a matrix product: see Program.matmul.
PRECISIONS = ("float32", "bfloat16", "bfloat16x3")

ROWS, COLUMNS, ALL = "rows", "columns", "all"  # the axes that a reduction sums over


class Unsupported(Exception):
    """The compiler does not support an op, a shape, an order of writes or a precision, which the message names."""


@dataclasses.dataclass(frozen=True)
class Convolution:
    """The sizes of a convolution of B images. Zeros around an image count as part of it, where a filter reaches them.

    Attributes:
        images: (B, height, width, channels).
        filters: (height, width, channels, number of filters).
        outputs: (height, width) of the result, which has a row for each of these positions of each image.
        strides: (vertical, horizontal).
        before: rows of zeros above each image, and columns of zeros to its left.
    """

    images: tuple[int, int, int, int]
    filters: tuple[int, int, int, int]
    outputs: tuple[int, int]
    strides: tuple[int, int]
    before: tuple[int, int]

    @property
    def rows(self) -> int:
        """Rows of the result: one for each position of the filters in each image."""
        return self.images[0] * math.prod(self.outputs)

    @property
    def patch(self) -> int:
        """Numbers of an image under a filter."""
        return math.prod(self.filters[:3])

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width of an image with the zeros around it."""
        sizes = zip(self.images[1:3], self.outputs, self.strides, self.filters, strict=False)
        height, width = (max(size, (out - 1) * stride + reach) for size, out, stride, reach in sizes)
        return height, width


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """One value: a matrix, and how it is computed.

    | kind | value | detail |
    |---|---|---|
    | input | a field of the minibatch | its name |
    | var_read | a variable | (variable's index, number of writes before this read) |
    | literal | one number | the number |
    | const | a constant matrix | the :class:`ConstTable` |
    | elementwise | a function applied to each element; smaller inputs are broadcast | its name |
    | slice | a block of its input | (first row, first column) |
    | pad | its input with rows of zeros below | |
    | reduce_sum | sum of its input | ROWS (result: one row), COLUMNS (one column) or ALL (one number) |
    | reduce_max | maximum of each row | COLUMNS |
    | matmul | product of two matrices | which of the two is transposed, as a pair of bools |
    | concat | its inputs side by side | |
    | transpose | its input, as an array with its axes in another order; the first stays | the axes' sizes and order |
    | convolution | of images with filters: a row per position, a column per filter | the :class:`Convolution` |
    | filter_gradient | its gradient by the filters, from the images and the result's gradient | the same |
    | image_gradient | its gradient by the images, from the filters and the result's gradient | the same |
    | reshape | its input's numbers in the same order, or the first of them, in another shape; shares its memory | |
    """

    kind: str
    shape: Shape
    inputs: tuple["Node", ...] = ()
    detail: Any = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.shape[0] * self.shape[1]

    @property
    def base(self) -> "Node":
        """The node that owns the memory of this value: the node itself, or the first node before its reshapes."""
        value = self
        while value.kind == "reshape":
            value = value.inputs[0]
        return value


@dataclasses.dataclass(frozen=True, eq=False)
class Write:
    """An assignment to a variable; ``version`` is the number of writes to it before this one."""

    variable: int
    version: int
    value: Node


Stmt = Node | Write
REDUCED = ("reduce_sum", "reduce_max")
MOVED = ("slice", "pad")  # each element comes from another position of the input
CONVOLUTIONS = ("convolution", "filter_gradient", "image_gradient")
COMPUTED = ("elementwise", *MOVED, "matmul", "concat", "transpose", *CONVOLUTIONS, *REDUCED)


class Program:
    """Nodes in an order in which they can be computed, with the writes to variables in between.

    Attributes:
        precision: of the arguments of matrix products, see :data:`PRECISIONS`.
        stmts: computed nodes and writes, in order.
        versions: number of writes to each variable so far.
    """

    def __init__(self, precision: str = "float32") -> None:
        self.precision = precision
        self.stmts: list[Stmt] = []
        self.versions: dict[int, int] = {}
        self._known: dict[tuple, Node] = {}

    @property
    def constants(self) -> list[Node]:
        """The constant matrices."""
        return [value for value in self._known.values() if value.kind == "const"]

    # -- leaves ---------------------------------------------------------------------------------------

    def input(self, name: str, shape: Shape) -> Node:
        """Return a field of the minibatch."""
        return self._value("input", shape, (), name)

    def var_read(self, variable: int, shape: Shape) -> Node:
        """Return a variable as it is after the writes so far."""
        return self._value("var_read", shape, (), (variable, self.versions.get(variable, 0)))

    def literal(self, number: float) -> Node:
        """Return a ``(1, 1)`` constant."""
        return self._value("literal", (1, 1), (), float(np.float32(number)))

    def const(self, array: np.ndarray) -> Node:
        """Return a constant matrix; if all its numbers are equal, it becomes a literal, which its readers broadcast."""
        array = np.asarray(array, np.float32)
        if array.size and (array == array.flat[0]).all():
            return self.literal(array.flat[0])
        return self._value("const", shape_of(array.shape), (), ConstTable(array))

    def like(self, another: Node, *inputs: Node) -> Node:
        """Return a node of the same kind, shape and detail as one of another program."""
        return self._value(another.kind, another.shape, inputs, another.detail)

    # -- computed -------------------------------------------------------------------------------------

    def elementwise(self, operation: str, *inputs: Node) -> Node:
        """Return a function applied to each element of its inputs, broadcast to one shape."""
        shape = max(source.shape[0] for source in inputs), max(source.shape[1] for source in inputs)
        simple = _simplify(operation, inputs, shape)
        return simple or self._value("elementwise", shape, inputs, operation)

    def broadcast(self, source: Node, shape: Shape) -> Node:
        """Return a matrix broadcast to a shape; elementwise functions broadcast their inputs themselves."""
        return source if source.shape == shape else self._value("elementwise", shape, (source,), "copy")

    def copy(self, source: Node) -> Node:
        """Return a copy of a matrix in separate memory."""
        return self._value("elementwise", source.shape, (source,), "copy")

    def slice(self, source: Node, row: int, column: int, shape: Shape) -> Node:
        """Return a block of a matrix."""
        if shape == source.shape:
            return source
        return self._value("slice", shape, (source,), (row, column))

    def pad(self, source: Node, rows: int) -> Node:
        """Return a matrix with zeros added below, with ``rows`` rows in total."""
        return self._value("pad", (rows, source.shape[1]), (source,))

    def reduce_sum(self, source: Node, over: str) -> Node:
        """Return sums over the rows, the columns, or everything."""
        rows, columns = source.shape
        if (over == ROWS and rows == 1) or (over == COLUMNS and columns == 1) or source.size == 1:
            return source
        if rows == 1 or columns == 1:
            over = ALL
        shape = {ROWS: (1, columns), COLUMNS: (rows, 1), ALL: (1, 1)}[over]
        return self._value("reduce_sum", shape, (source,), over)

    def reduce_max(self, source: Node) -> Node:
        """Return the maximum of each row."""
        rows, columns = source.shape
        return source if columns == 1 else self._value("reduce_max", (rows, 1), (source,), COLUMNS)

    def matmul(self, one: Node, other: Node, one_transposed: bool, other_transposed: bool) -> Node:
        """Return the matrix product; with a vector, as a sum of products, which a fused loop computes faster."""
        rows, inner = one.shape[::-1] if one_transposed else one.shape
        columns = other.shape[0] if other_transposed else other.shape[1]
        if columns == 1 and not one_transposed:
            return self.reduce_sum(self.elementwise("mul", one, self.reshape(other, (1, inner))), COLUMNS)
        if columns == 1:
            return self.reshape(
                self.reduce_sum(self.elementwise("mul", one, self.reshape(other, (inner, 1))), ROWS), (rows, 1)
            )
        if inner == 1:
            return self.elementwise("mul", self.reshape(one, (rows, 1)), self.reshape(other, (1, columns)))
        return self._value("matmul", (rows, columns), (one, other), (one_transposed, other_transposed))

    def concat(self, inputs: tuple[Node, ...]) -> Node:
        """Return matrices side by side."""
        rows, columns = inputs[0].shape[0], sum(source.shape[1] for source in inputs)
        in_memory = tuple(self.copy(part) if part.kind == "literal" else part for part in inputs)
        return self._value("concat", (rows, columns), in_memory)

    def transpose(self, source: Node, sizes: tuple[int, ...], order: tuple[int, ...], shape: Shape) -> Node:
        """Return an array of some ``sizes`` with its axes in another ``order``, of which the first is 0."""
        return self._value("transpose", shape, (source,), (sizes, order))

    def convolution(self, kind: str, one: Node, other: Node, sizes: Convolution) -> Node:
        """Return a convolution or one of its gradients; see :class:`Node` for the two inputs of each kind."""
        shape = {
            "convolution": (sizes.rows, sizes.filters[3]),
            "filter_gradient": (sizes.patch, sizes.filters[3]),
            "image_gradient": (sizes.images[0], math.prod(sizes.images[1:])),
        }[kind]
        return self._value(kind, shape, (one, other), sizes)

    def reshape(self, source: Node, shape: Shape) -> Node:
        """Return the same numbers, or the first of them, in another shape."""
        if source.shape == shape:
            return source
        base = source.base
        return base if base.shape == shape else self._value("reshape", shape, (base,))

    def write(self, variable: int, value: Node) -> None:
        """Assign a value to a variable; later reads return it."""
        version = self.versions.get(variable, 0)
        self.stmts.append(Write(variable, version, value))
        self.versions[variable] = version + 1

    def _value(self, kind: str, shape: Shape, inputs: tuple[Node, ...], detail: Any = None) -> Node:
        key = kind, shape, tuple(map(id, inputs)), detail
        if key not in self._known:
            self._known[key] = value = Node(kind, shape, inputs, detail)
            if kind in COMPUTED:
                self.stmts.append(value)
        return self._known[key]


class ConstTable:
    """A constant array that compares and hashes by its numbers."""

    def __init__(self, array: np.ndarray):
        self.array = np.ascontiguousarray(array)
        self._key = self.array.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstTable) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def shape_of(shape: tuple[int, ...]) -> Shape:
    """Return a tensor's shape as (rows, columns); above rank 2, all axes but the first are flattened into columns."""
    if not shape:
        return 1, 1
    return (1, shape[0]) if len(shape) == 1 else (shape[0], math.prod(shape[1:]))


_FOLDED: dict[str, Callable] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
_NEUTRAL = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}


def _simplify(operation: str, inputs: tuple[Node, ...], shape: Shape) -> Node | None:
    """Return the input that equals the result (x + 0, x * 1, ...), if there is one."""
    if operation not in _NEUTRAL:
        return None
    one, other = inputs
    neutral = _NEUTRAL[operation]
    if other.kind == "literal" and other.detail == neutral and one.shape == shape:
        return one
    if operation in ("add", "mul") and one.kind == "literal" and one.detail == neutral and other.shape == shape:
        return other
    return None


def fold_elementwise(program: Program, operation: str, *inputs: Node) -> Node:
    """Return :meth:`Program.elementwise`, folded to a literal if all inputs are literals."""
    if operation in _FOLDED and all(source.kind == "literal" for source in inputs):
        return program.literal(_FOLDED[operation](*(np.float32(source.detail) for source in inputs)))
    return program.elementwise(operation, *inputs)


_WITH_GRADIENTS = ("Relu", "Tanh", "Elu", "Selu", "Sigmoid", "Softplus", "Softsign", "Rsqrt", "Sqrt")
_SAME_NAMES = (
    *("Add", "Sub", "Mul", "Neg", "Abs", "Sign", "Square", "Exp", "Log", "Erf", "Erfc", "Equal", "Greater", "Less"),
    *("Select", *_WITH_GRADIENTS),
)
# The IR's functions for TensorFlow's elementwise ops, by type, with the same inputs in the same order.
ELEMENTWISE_OPS: dict[str, str] = {
    **{name: name.lower() for name in _SAME_NAMES},
    **{f"{name}Grad": f"{name.lower()}_gradient" for name in _WITH_GRADIENTS},
    **dict.fromkeys(("AddV2", "BiasAdd"), "add"),
    "RealDiv": "div",
    **dict.fromkeys(("Maximum", "LogicalOr"), "max"),
    "Minimum": "min",
    "LogicalAnd": "mul",
    "GreaterEqual": "greater_equal",
    "LessEqual": "less_equal",
    "SelectV2": "select",
}
