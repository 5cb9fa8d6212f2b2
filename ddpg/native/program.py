"""What an update computes, as values and writes: what :mod:`ddpg.native.translate` makes of a graph.

Every value is a float32 matrix ``(rows, columns)`` of a shape known now; a vector ``[n]`` is ``(1, n)``, a scalar
``(1, 1)``. Equal values are one value.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Shape = tuple[int, int]

ROWS, COLUMNS, ALL = "rows", "columns", "all"  # what a sum runs over


class NoTranslation(Exception):
    """The graph holds what programs do not know; says what."""


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
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
    arguments: tuple["Value", ...] = ()
    detail: Any = None

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return self.shape[0] * self.shape[1]

    @property
    def base(self) -> "Value":
        """The value whose memory it is."""
        value = self
        while value.kind == "view":
            value = value.arguments[0]
        return value


@dataclasses.dataclass(frozen=True, eq=False)
class Write:
    """A variable gets a value: ``version`` counts the writes to it before this one."""

    variable: int
    version: int
    value: Value


Item = Value | Write
REDUCED = ("sums", "largest")
COMPUTED = ("map", "window", "product", "join", *REDUCED)


class Program:
    """Values in an order in which they can be computed, and the writes between them.

    Attributes:
        items: computed values and writes.
        versions: how often each variable is written.
    """

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.versions: dict[int, int] = {}
        self._known: dict[tuple, Value] = {}

    @property
    def tables(self) -> list[Value]:
        """The constant matrices."""
        return [value for value in self._known.values() if value.kind == "table"]

    # -- leaves ---------------------------------------------------------------------------------------

    def field(self, name: str, shape: Shape) -> Value:
        """Return a part of the minibatch."""
        return self._value("field", shape, (), name)

    def stored(self, variable: int, shape: Shape) -> Value:
        """Return a variable as it is after the writes so far."""
        return self._value("stored", shape, (), (variable, self.versions.get(variable, 0)))

    def literal(self, number: float) -> Value:
        """Return one number."""
        return self._value("literal", (1, 1), (), float(np.float32(number)))

    def constant(self, array: np.ndarray) -> Value:
        """Return a constant; where all its numbers are equal it is a literal, repeated where it is used."""
        array = np.asarray(array, np.float32)
        if array.size and (array == array.flat[0]).all():
            return self.literal(array.flat[0])
        return self._value("table", shape_of(array.shape), (), Table(array))

    # -- computed -------------------------------------------------------------------------------------

    def map(self, operation: str, *arguments: Value) -> Value:
        """Return a function of each place's numbers."""
        shape = max(argument.shape[0] for argument in arguments), max(argument.shape[1] for argument in arguments)
        simple = _simplified(operation, arguments, shape)
        return simple or self._value("map", shape, arguments, operation)

    def spread(self, argument: Value, shape: Shape) -> Value:
        """Return a smaller matrix repeated to a shape; what only maps read need not be."""
        return argument if argument.shape == shape else self._value("map", shape, (argument,), "same")

    def copied(self, argument: Value) -> Value:
        """Return the same numbers in memory of their own."""
        return self._value("map", argument.shape, (argument,), "same")

    def window(self, argument: Value, row: int, column: int, shape: Shape) -> Value:
        """Return a part of a matrix."""
        if shape == argument.shape:
            return argument
        return self._value("window", shape, (argument,), (row, column))

    def sums(self, argument: Value, over: str) -> Value:
        """Return sums over the rows, the columns, or everything."""
        rows, columns = argument.shape
        if (over == ROWS and rows == 1) or (over == COLUMNS and columns == 1) or argument.size == 1:
            return argument
        if rows == 1 or columns == 1:
            over = ALL
        shape = {ROWS: (1, columns), COLUMNS: (rows, 1), ALL: (1, 1)}[over]
        return self._value("sums", shape, (argument,), over)

    def largest(self, argument: Value) -> Value:
        """Return the largest number of each row."""
        rows, columns = argument.shape
        return argument if columns == 1 else self._value("largest", (rows, 1), (argument,), COLUMNS)

    def product(self, one: Value, other: Value, one_transposed: bool, other_transposed: bool) -> Value:
        """Return the matrix product; one with a vector is a sum of products, which loops do better than BLAS."""
        rows, inner = one.shape[::-1] if one_transposed else one.shape
        columns = other.shape[0] if other_transposed else other.shape[1]
        if columns == 1 and not one_transposed:
            return self.sums(self.map("mul", one, self.view(other, (1, inner))), COLUMNS)
        if columns == 1:
            return self.view(self.sums(self.map("mul", one, self.view(other, (inner, 1))), ROWS), (rows, 1))
        if inner == 1:
            return self.map("mul", self.view(one, (rows, 1)), self.view(other, (1, columns)))
        return self._value("product", (rows, columns), (one, other), (one_transposed, other_transposed))

    def join(self, arguments: tuple[Value, ...]) -> Value:
        """Return matrices side by side."""
        rows, columns = arguments[0].shape[0], sum(argument.shape[1] for argument in arguments)
        in_memory = tuple(self.copied(part) if part.kind == "literal" else part for part in arguments)
        return self._value("join", (rows, columns), in_memory)

    def view(self, argument: Value, shape: Shape) -> Value:
        """Return the same numbers in another shape."""
        if argument.shape == shape:
            return argument
        base = argument.base
        return base if base.shape == shape else self._value("view", shape, (base,))

    def write(self, variable: int, value: Value) -> None:
        """Give a variable a value, from here on."""
        version = self.versions.get(variable, 0)
        self.items.append(Write(variable, version, value))
        self.versions[variable] = version + 1

    def _value(self, kind: str, shape: Shape, arguments: tuple[Value, ...], detail: Any = None) -> Value:
        key = kind, shape, tuple(map(id, arguments)), detail
        if key not in self._known:
            self._known[key] = value = Value(kind, shape, arguments, detail)
            if kind in COMPUTED:
                self.items.append(value)
        return self._known[key]


class Table:
    """A constant array, equal to one of the same numbers."""

    def __init__(self, array: np.ndarray):
        self.array = np.ascontiguousarray(array)
        self._key = self.array.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def shape_of(shape: tuple[int, ...]) -> Shape:
    """Return the rows and columns of a tensor's shape; above rank 2, of its rows flattened."""
    if not shape:
        return 1, 1
    return (1, shape[0]) if len(shape) == 1 else (shape[0], math.prod(shape[1:]))


_FOLDED: dict[str, Callable] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
_NEUTRAL = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0}


def _simplified(operation: str, arguments: tuple[Value, ...], shape: Shape) -> Value | None:
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


def folded(program: Program, operation: str, *arguments: Value) -> Value:
    """Return :meth:`Program.map`, computed now where all arguments are literals."""
    if operation in _FOLDED and all(argument.kind == "literal" for argument in arguments):
        return program.literal(_FOLDED[operation](*(np.float32(argument.detail) for argument in arguments)))
    return program.map(operation, *arguments)
