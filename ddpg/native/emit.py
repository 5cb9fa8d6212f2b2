"""A scheduled program as LLVM's text."""

from collections.abc import Sequence

from ddpg.native.crew import MEETING, shares
from ddpg.native.entry import Entry, Work, product_key
from ddpg.native.functions import DECLARATIONS
from ddpg.native.layout import Layout, rounded, scratch_behind
from ddpg.native.loops import LoopFunction, join_function
from ddpg.native.product import ProductFunctions, Registers
from ddpg.native.program import Value
from ddpg.native.schedule import Loop, Step

ENTRY = "run"
ALONE = "run_alone"


class Module:
    """A program as text, with an :class:`Entry` ``run``, and ``run_alone`` where several workers share ``run``.

    Args:
        steps: of one update.
        layout: of the block.
        fields: names of the minibatch's parts, and how many numbers of each an update reads.
        outputs: scalars, of which ``sums`` gets the sums over the updates, and what is ``kept`` of each update.
        machine: what its registers hold.
        workers: how many run it at the same time.

    Attributes:
        text: the module.
        size: floats of the block: the layout's, and what steps and workers need besides.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        layout: Layout,
        fields: Sequence[tuple[str, int]],
        outputs: tuple[Sequence[Value], Sequence[Value]],
        machine: Registers,
        workers: int = 1,
    ):
        loops = {i: LoopFunction(f"loop{i}", step, layout) for i, step in enumerate(steps) if isinstance(step, Loop)}
        products: dict[tuple, str] = {}
        made, joins = [], []
        for index, step in enumerate(steps):
            if isinstance(step, Value) and step.kind == "join":
                joins.append(join_function(f"join{index}", step))
            elif isinstance(step, Value) and product_key(step) not in products:
                name, key = f"product{len(products)}", product_key(step)
                parts = [high - low for low, high in shares(step.shape[0], workers)]
                products[key] = name
                made.append(ProductFunctions(name, *key, machine, parts))
        scratch = scratch_behind(
            layout,
            workers,
            packed=max((product.packed for product in made), default=0),
            partial=max((sum(rounded(total.size) for total in loop.totals) for loop in loops.values()), default=0),
        )
        self.size = scratch.size
        work = Work(
            steps=steps,
            layout=layout,
            fields=fields,
            outputs=outputs,
            loops=loops,
            products=products,
            workers=workers,
            scratch=scratch,
        )
        entries = [Entry(ENTRY, work, together=workers > 1).text]
        if workers > 1:
            entries.append(Entry(ALONE, work, together=False).text)
        functions = [*(loop.text for loop in loops.values()), *joins, *(product.text for product in made)]
        self.text = "\n\n".join([DECLARATIONS, MEETING, *functions, *entries])
