"""Count the operations, bytes and kernels of one update in its compiled program, without a clock."""

import dataclasses
from collections.abc import Sequence

from ddpg.compiler.ir import Node, Write
from ddpg.compiler.schedule import FusedLoop, Kernel, materialized, members_of, sources

FLOAT = 4  # bytes


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product of ``[rows, inner]`` and ``[inner, columns]``; either can be stored transposed."""

    rows: int
    inner: int
    columns: int
    transposed: tuple[bool, bool]

    @property
    def flop(self) -> int:
        """Number of multiplications and additions."""
        return 2 * self.rows * self.inner * self.columns

    @property
    def bytes(self) -> int:
        """Bytes of both arguments and of the result."""
        return FLOAT * (self.rows * self.inner + self.inner * self.columns + self.rows * self.columns)


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of one update.

    Attributes:
        products: its matrix products.
        passes: number of its other kernels: fused elementwise loops, each one pass over memory, and concatenations.
        pass_flop: operations of passes: one per element of an elementwise kernel and per term of a sum.
        pass_bytes: bytes that passes read and write.
    """

    products: tuple[Product, ...]
    passes: int
    pass_flop: int
    pass_bytes: int

    @property
    def product_flop(self) -> int:
        """Operations of all products."""
        return sum(product.flop for product in self.products)

    @property
    def product_bytes(self) -> int:
        """Bytes of all products, if each reads and writes its matrices once."""
        return sum(product.bytes for product in self.products)


def cost(steps: Sequence[Kernel], outputs: Sequence[Node]) -> Cost:
    """Return the cost of an update's schedule, which computes ``outputs``."""
    kept = {id(value) for value in materialized(steps, outputs)}
    products = tuple(_product(step) for step in steps if isinstance(step, Node) and step.kind == "matmul")
    passes = [step for step in steps if isinstance(step, FusedLoop) or step.kind != "matmul"]
    flop = sum(_flop(item) for step in passes for item in members_of(step))
    return Cost(products, len(passes), flop, FLOAT * sum(_accessed_floats(step, kept) for step in passes))


def _product(step: Node) -> Product:
    rows, columns = step.shape
    inner = step.inputs[0].shape[0 if step.detail[0] else 1]
    return Product(rows, inner, columns, step.detail)


def _flop(item: Node | Write) -> int:
    if isinstance(item, Write) or item.kind in ("concat", "slice"):
        return 0
    if item.kind == "reduce_sum":
        return item.inputs[0].size
    return 0 if item.detail == "copy" else item.size


def _accessed_floats(step: Kernel, kept: set[int]) -> int:
    """Return how many floats a pass reads and writes; a float that it reads several times counts once."""
    own = {id(item) for item in members_of(step)}
    read: dict[int, int] = {}
    written = 0
    for item in members_of(step):
        for argument in sources(item, kept):
            base = argument.base
            if base.kind != "literal" and id(base) not in own:
                read[id(base)] = min(
                    base.size, item.value.size if isinstance(item, Write) else max(base.size, item.size)
                )
        if isinstance(item, Write):
            written += item.value.size
        elif id(item) in kept:
            written += item.size
    return sum(read.values()) + written
