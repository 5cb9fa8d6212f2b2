"""The intermediate representation (IR) of an update: float32 matrices, and writes to variables.

Every value is a float32 matrix ``(rows, columns)`` of a shape known now; a vector ``[n]`` is ``(1, n)``, a scalar
``(1, 1)``. Equal values are one value.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

Shape = tuple[int, int]

ROWS, COLUMNS, ALL = "rows", "columns", "all"  # what a sum runs over


class Unsupported(Exception):
    """The graph holds what programs do not know; says what."""


@dataclasses.dataclass(frozen=True, eq=False)
class Node:
    """A matrix.

    | kind | what it is | detail |
    |---|---|---|
    | field | a part of the minibatch | its name |
    | stored | a variable's value | (variable, how often it was written before) |
    | literal | one number | the number |
    | table | a constant matrix | the array |
    | map | a function of numbers, for each place; smaller arguments are repeated | its name |
    | window | a part of its argument | (first row, first column) |
    | sums | its argument summed | ROWS (to one row), COLUMNS (to one column) or ALL |
    | largest | the largest number of each row | COLUMNS |
    | product | a matrix product of two | whether each is transposed |
    | join | its arguments side by side | |
    | view | its argument's numbers in the same order, in another shape | |
    """

    kind: str
    shape: Shape
    arguments: tuple["Node", ...] = ()
    detail: Any = None

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return self.shape[0] * self.shape[1]

    @property
    def base(self) -> "Node":
        """The value whose memory it is."""
        value = self
        while value.kind == "reshape":
            value = value.arguments[0]
        return value


@dataclasses.dataclass(frozen=True, eq=False)
class Write:
    """A variable gets a value: ``version`` counts the writes to it before this one."""

    variable: int
    version: int
    value: Node


Stmt = Node | Write
REDUCED = ("reduce_sum", "reduce_max")
COMPUTED = ("elementwise", "slice", "matmul", "concat", *REDUCED)


class Program:
    """Values in an order in which they can be computed, and the writes between them.

    Attributes:
        items: computed values and writes.
        versions: how often each variable is written.
    """

    def __init__(self) -> None:
        self.items: list[Stmt] = []
        self.versions: dict[int, int] = {}
        self._known: dict[tuple, Node] = {}

    @property
    def constants(self) -> list[Node]:
        """The constant matrices."""
        return [value for value in self._known.values() if value.kind == "const"]

    # -- leaves ---------------------------------------------------------------------------------------

    def input(self, name: str, shape: Shape) -> Node:
        """Return a part of the minibatch."""
        return self._value("input", shape, (), name)

    def var_read(self, variable: int, shape: Shape) -> Node:
        """Return a variable as it is after the writes so far."""
        return self._value("var_read", shape, (), (variable, self.versions.get(variable, 0)))

    def literal(self, number: float) -> Node:
        """Return one number."""
        return self._value("literal", (1, 1), (), float(np.float32(number)))

    def const(self, array: np.ndarray) -> Node:
        """Return a constant; where all its numbers are equal it is a literal, repeated where it is used."""
        array = np.asarray(array, np.float32)
        if array.size and (array == array.flat[0]).all():
            return self.literal(array.flat[0])
        return self._value("const", shape_of(array.shape), (), ConstTable(array))

    # -- computed -------------------------------------------------------------------------------------

    def elementwise(self, operation: str, *arguments: Node) -> Node:
        """Return a function of each place's numbers."""
        shape = max(argument.shape[0] for argument in arguments), max(argument.shape[1] for argument in arguments)
        simple = _simplify(operation, arguments, shape)
        return simple or self._value("elementwise", shape, arguments, operation)

    def broadcast(self, argument: Node, shape: Shape) -> Node:
        """Return a smaller matrix repeated to a shape; what only maps read need not be."""
        return argument if argument.shape == shape else self._value("elementwise", shape, (argument,), "copy")

    def copy(self, argument: Node) -> Node:
        """Return the same numbers in memory of their own."""
        return self._value("elementwise", argument.shape, (argument,), "copy")

    def slice(self, argument: Node, row: int, column: int, shape: Shape) -> Node:
        """Return a part of a matrix."""
        if shape == argument.shape:
            return argument
        return self._value("slice", shape, (argument,), (row, column))

    def reduce_sum(self, argument: Node, over: str) -> Node:
        """Return sums over the rows, the columns, or everything."""
        rows, columns = argument.shape
        if (over == ROWS and rows == 1) or (over == COLUMNS and columns == 1) or argument.size == 1:
            return argument
        if rows == 1 or columns == 1:
            over = ALL
        shape = {ROWS: (1, columns), COLUMNS: (rows, 1), ALL: (1, 1)}[over]
        return self._value("reduce_sum", shape, (argument,), over)

    def reduce_max(self, argument: Node) -> Node:
        """Return the largest number of each row."""
        rows, columns = argument.shape
        return argument if columns == 1 else self._value("reduce_max", (rows, 1), (argument,), COLUMNS)

    def matmul(self, one: Node, other: Node, one_transposed: bool, other_transposed: bool) -> Node:
        """Return the matrix product; one with a vector is a sum of products, which loops do better than BLAS."""
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

    def concat(self, arguments: tuple[Node, ...]) -> Node:
        """Return matrices side by side."""
        rows, columns = arguments[0].shape[0], sum(argument.shape[1] for argument in arguments)
        in_memory = tuple(self.copy(part) if part.kind == "literal" else part for part in arguments)
        return self._value("concat", (rows, columns), in_memory)

    def reshape(self, argument: Node, shape: Shape) -> Node:
        """Return the same numbers in another shape."""
        if argument.shape == shape:
            return argument
        base = argument.base
        return base if base.shape == shape else self._value("reshape", shape, (base,))

    def write(self, variable: int, value: Node) -> None:
        """Give a variable a value, from here on."""
        version = self.versions.get(variable, 0)
        self.items.append(Write(variable, version, value))
        self.versions[variable] = version + 1

    def _value(self, kind: str, shape: Shape, arguments: tuple[Node, ...], detail: Any = None) -> Node:
        key = kind, shape, tuple(map(id, arguments)), detail
        if key not in self._known:
            self._known[key] = value = Node(kind, shape, arguments, detail)
            if kind in COMPUTED:
                self.items.append(value)
        return self._known[key]


class ConstTable:
    """A constant array, equal to one of the same numbers."""

    def __init__(self, array: np.ndarray):
        self.array = np.ascontiguousarray(array)
        self._key = self.array.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstTable) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def shape_of(shape: tuple[int, ...]) -> Shape:
    """Return the rows and columns of a tensor's shape; above rank 2, of its rows flattened."""
    if not shape:
        return 1, 1
    return (1, shape[0]) if len(shape) == 1 else (shape[0], math.prod(shape[1:]))


_FOLDED: dict[str, Callable] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
_NEUTRAL = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}


def _simplify(operation: str, arguments: tuple[Node, ...], shape: Shape) -> Node | None:
    """Return the argument that the whole is equal to, if one is."""
    if operation not in _NEUTRAL:
        return None
    one, other = arguments
    neutral = _NEUTRAL[operation]
    if other.kind == "literal" and other.detail == neutral and one.shape == shape:
        return one
    if operation in ("add", "mul") and one.kind == "literal" and one.detail == neutral and other.shape == shape:
        return other
    return None


def fold_elementwise(program: Program, operation: str, *arguments: Node) -> Node:
    """Return :meth:`Program.map`, computed now where all arguments are literals."""
    if operation in _FOLDED and all(argument.kind == "literal" for argument in arguments):
        return program.literal(_FOLDED[operation](*(np.float32(argument.detail) for argument in arguments)))
    return program.elementwise(operation, *arguments)


def check_repetition(operation: tf.Operation, output: tf.Tensor) -> None:
    """Refuse inputs that repeat themselves otherwise than a matrix does, once they are rows and columns.

    Raises:
        Unsupported: they do.
    """
    rank = output.shape.rank
    if rank == 2 and operation.type == "Select" and operation.inputs[0].shape.rank == 1:
        raise Unsupported(f"{operation.name}: rows chosen by a vector")  # as version 1 of it does
    if rank is not None and rank <= 2:
        return
    for given in operation.inputs:
        shape = tuple(given.shape) if given.shape.is_fully_defined() and rank is not None else (0,)
        if math.prod(shape) == 1:
            continue
        rows, *columns = [1] * ((rank or 0) - len(shape)) + [*shape]
        same = columns == [*output.shape[1:]] or set(columns) == {1}
        if not same or shape_of(shape) != (rows, math.prod(columns)):
            raise Unsupported(f"{operation.name}: {shape} repeated to {tuple(output.shape)}")


class LoweringContext(Protocol):
    """What is translated so far; see :mod:`ddpg.compiler.lowering`."""

    program: Program

    def value(self, tensor: tf.Tensor) -> Node:
        """Return a tensor's value; it may be smaller than the tensor where it repeats itself."""

    def whole(self, tensor: tf.Tensor) -> Node:
        """Return a tensor's value in the tensor's own shape."""

    def constant_value(self, tensor: tf.Tensor) -> np.ndarray:
        """Return the value of a constant."""

    def variable(self, handle: tf.Tensor) -> int:
        """Return a variable's number."""

    def var_read(self, handle: tf.Tensor) -> Node:
        """Return a variable's value after the writes so far."""
