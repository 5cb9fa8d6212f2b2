"""What one update costs by its own program: operations, bytes, kernels and calls; no clock."""

import dataclasses
from collections.abc import Sequence

from ddpg.compiler.ir import Node, Write
from ddpg.compiler.schedule import FusedLoop, Kernel, materialized, members_of, sources

FLOAT = 4  # bytes


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product: ``[rows, inner]`` by ``[inner, columns]``, either given transposed."""

    rows: int
    inner: int
    columns: int
    transposed: tuple[bool, bool]

    @property
    def flop(self) -> int:
        """Multiplications and additions."""
        return 2 * self.rows * self.inner * self.columns

    @property
    def bytes(self) -> int:
        """Both arguments read and the result written, once."""
        return FLOAT * (self.rows * self.inner + self.inner * self.columns + self.rows * self.columns)


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one update.

    Attributes:
        products: all of them.
        passes: loops over places, each one pass over memory, and joins.
        pass_flop: what passes compute: one operation for each place of a map and each term of a sum.
        pass_bytes: what passes read from memory and write there.
    """

    products: tuple[Product, ...]
    passes: int
    pass_flop: int
    pass_bytes: int

    @property
    def product_flop(self) -> int:
        """Of all products."""
        return sum(product.flop for product in self.products)

    @property
    def product_bytes(self) -> int:
        """Of all products, where each reads and writes its matrices once."""
        return sum(product.bytes for product in self.products)


def cost(steps: Sequence[Kernel], outputs: Sequence[Node]) -> Cost:
    """Count what a schedule of one update does; ``outputs`` are what it is asked for."""
    kept = {id(value) for value in materialized(steps, outputs)}
    products = tuple(_product(step) for step in steps if isinstance(step, Node) and step.kind == "matmul")
    passes = [step for step in steps if isinstance(step, FusedLoop) or step.kind != "matmul"]
    flop = sum(_flop(item) for step in passes for item in members_of(step))
    return Cost(products, len(passes), flop, FLOAT * sum(_touched(step, kept) for step in passes))


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


def _touched(step: Kernel, kept: set[int]) -> int:
    """Return the numbers that a pass reads from memory, each once, and writes there."""
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
