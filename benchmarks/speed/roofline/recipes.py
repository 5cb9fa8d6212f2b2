"""Compare the operations of each recipe's compiled update with the minimum that the algorithm needs, without a clock.

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

from benchmarks import marks
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
PLAIN = "ddpg"  # the recipe with which others are compared


class Counter:
    """Replaces a compiled update: schedules every kind of update and counts its cost, but compiles nothing."""

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
        """Return memory that stands in for the variables."""
        return np.zeros(1, np.float32)


def count_update(config: Any, observations: int, actions: int) -> dict[str, float]:
    """Return the cost of an update, averaged over its kinds, and the minimum.

    Raises:
        Unsupported: if the compiler does not support the update.
    """
    pair = spaces.Box(-np.inf, np.inf, (observations,)), spaces.Box(-1, 1, (actions,))
    with mock.patch.object(native, "CompiledUpdate", Counter):
        learner: Any = DDPG(pair, dataclasses.replace(config, compiler="native"), seed=0).updater.learner
    every = config.policy_delay
    kinds = collections.Counter(learner._which(made) for made in range(every))
    costs = learner._compiled.costs

    def mean(part: Callable[[Cost], float]) -> float:
        return sum(times * part(costs[kind]) for kind, times in kinds.items()) / every

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


def count_recipes() -> dict[str, dict[str, float]]:
    """Count the operations of every recipe's update, at HalfCheetah's sizes."""
    found = {}
    for name in RECIPES:
        config = DDPGConfig(**{**read_recipe(name), "buffer_size": 1_000})
        found[name] = count_update(config, *SIZES)
    return found


def counts_table(found: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table of each recipe's counts, per update and per environment step, with the minimum."""
    heads = ["", *found]
    rows = [[title, *(text(each, found[PLAIN]) for each in found.values())] for title, text in _ROWS.items()]
    return marks.table(heads, rows)


def _mega(name: str, step: bool = False) -> Callable[[Mapping, Mapping], str]:
    return lambda each, plain: f"{each[name] * (each['updates_per_step'] if step else 1) / 1e6:,.1f}"


def _relative(name: str) -> Callable[[Mapping, Mapping], str]:
    return lambda each, plain: (
        f"{each[name] * each['updates_per_step'] / (plain[name] * plain['updates_per_step']):.2f}"
    )


_ROWS: dict[str, Callable[[Mapping, Mapping], str]] = {
    "minibatch size, updates per step": lambda each, plain: f"{each['batch_size']}, {each['updates_per_step']:g}",
    "matrix products per update": lambda each, plain: f"{each['products']:.1f}",
    "MFLOP of products per update": _mega("product_flop"),
    "... minimum": _mega("least_flop"),
    "... counted / minimum": lambda each, plain: f"{each['product_flop'] / each['least_flop']:.3f}",
    "passes per update": lambda each, plain: f"{each['passes']:.1f}",
    "MFLOP of passes per update": _mega("pass_flop"),
    "MB of passes per update": _mega("pass_bytes"),
    "... minimum ": _mega("least_pass_bytes"),
    "MFLOP of products per step": _mega("product_flop", step=True),
    f"... relative to `{PLAIN}`": _relative("product_flop"),
    f"... minimum, relative to that of `{PLAIN}`": _relative("least_flop"),
    "MB of passes per step": _mega("pass_bytes", step=True),
    f"... relative to `{PLAIN}` ": _relative("pass_bytes"),
}
