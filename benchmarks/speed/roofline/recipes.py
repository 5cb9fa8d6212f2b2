"""What an update of each recipe costs by our compiler's program, beside the least that it needs; no clock.

python -m benchmarks.speed.roofline --count [--json FILE]
"""

import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from gymnasium import spaces

from benchmarks.speed.report import markdown
from benchmarks.speed.roofline.count import Cost, cost
from benchmarks.speed.roofline.least import least
from ddpg import DDPG, DDPGConfig
from ddpg.compiler.lowering import lower
from ddpg.compiler.schedule import schedule
from ddpg.compiler.simplify import simplified
from ddpg.config.presets import RECIPES, read_recipe
from ddpg.learners import native

COUNTS = Path(__file__).parents[2] / "results" / "operations.json"
SIZES = 17, 6  # HalfCheetah's observations and actions
PLAIN = "ddpg"  # the recipe that others are compared with


class Counter:
    """Stands in for a compiled update: schedules every kind of update, and compiles nothing."""

    def __init__(
        self,
        metrics: Sequence,
        fields: Mapping[str, Any],
        variables: Sequence,
        workers: int | None = None,
        kept: Sequence = (),
        others: Sequence = (),
        precision: str = "float32",
    ):
        self.workers = 1
        self.values = [np.zeros(tuple(variable.shape), np.float32) for variable in variables]
        self.costs: list[Cost] = []
        for fetches in ((metrics, kept), *others):
            program, outputs = simplified(*lower([*fetches[0], *fetches[1]], fields, variables, precision))
            self.costs.append(cost(schedule(program, outputs), outputs))

    def span(self, variables: Sequence[int]) -> np.ndarray:
        """Return memory in the place of these variables'."""
        return np.zeros(1, np.float32)


def counted(config: Any, observations: int, actions: int) -> dict[str, float]:
    """Return what an update costs in the mean over its kinds, and the least that it needs.

    Raises:
        Unsupported: if the compiler does not take the update.
    """
    pair = spaces.Box(-np.inf, np.inf, (observations,)), spaces.Box(-1, 1, (actions,))
    with mock.patch.object(native, "CompiledUpdate", Counter):
        learner: Any = DDPG(pair, dataclasses.replace(config, compiler="native"), seed=0).updater.learner
    every = config.policy_delay
    kinds = collections.Counter(learner._which(made) for made in range(every))
    costs = learner._compiled.costs

    def mean(of: Callable[[Cost], float]) -> float:
        return sum(times * of(costs[kind]) for kind, times in kinds.items()) / every

    need = least(config, observations, actions)
    return {
        "products": mean(lambda each: len(each.products)),
        "product_flop": mean(lambda each: each.product_flop),
        "least_flop": need.flop,
        "passes": mean(lambda each: each.passes),
        "pass_flop": mean(lambda each: each.pass_flop),
        "pass_bytes": mean(lambda each: each.pass_bytes),
        "least_pass_bytes": need.pass_bytes,
        "updates_per_step": config.updates_per_step,
        "batch_size": config.batch_size,
    }


def of_recipes() -> dict[str, dict[str, float]]:
    """Return the counts of every recipe of DDPG's, at HalfCheetah's sizes."""
    found = {}
    for name in RECIPES:
        config = DDPGConfig(**{**read_recipe(name), "buffer_size": 1_000})
        found[name] = counted(config, *SIZES)
    return found


def counts_table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Return the counts of each recipe, of an update and of an environment step, beside the least."""
    heads = ["", *found]
    rows = [[title, *(text(each, found[PLAIN]) for each in found.values())] for title, text in _ROWS.items()]
    return markdown(heads, rows)


def _mega(name: str, step: bool = False) -> Callable[[Mapping, Mapping], str]:
    return lambda each, plain: f"{each[name] * (each['updates_per_step'] if step else 1) / 1e6:,.1f}"


def _beside(name: str) -> Callable[[Mapping, Mapping], str]:
    return lambda each, plain: (
        f"{each[name] * each['updates_per_step'] / (plain[name] * plain['updates_per_step']):.2f}"
    )


_ROWS: dict[str, Callable[[Mapping, Mapping], str]] = {
    "minibatch, updates a step": lambda each, plain: f"{each['batch_size']}, {each['updates_per_step']:g}",
    "matrix products of an update": lambda each, plain: f"{each['products']:.1f}",
    "MFLOP of them": _mega("product_flop"),
    "... the least": _mega("least_flop"),
    "... counted / least": lambda each, plain: f"{each['product_flop'] / each['least_flop']:.3f}",
    "passes of an update": lambda each, plain: f"{each['passes']:.1f}",
    "MFLOP of them ": _mega("pass_flop"),
    "MB that they read and write": _mega("pass_bytes"),
    "... the least ": _mega("least_pass_bytes"),
    "MFLOP of products, a step": _mega("product_flop", step=True),
    f"... beside `{PLAIN}`": _beside("product_flop"),
    f"... the least, beside the least of `{PLAIN}`": _beside("least_flop"),
    "MB of passes, a step": _mega("pass_bytes", step=True),
    f"... beside `{PLAIN}` ": _beside("pass_bytes"),
}
