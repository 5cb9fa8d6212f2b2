"""Tabulate each recipe's return after parts of its steps, to choose a recipe for a small budget."""

import dataclasses
from collections.abc import Sequence

from benchmarks import marks
from benchmarks.learning import tables
from benchmarks.learning.long_form import Cell
from ddpg.studies.comparison import Estimate, estimate

SHARES = (0.1, 0.2, 0.4, 0.6, 1.0)  # of the planned steps of the table's runs


def table(cells: Sequence[Cell]) -> str:
    """Return a row for each environment and recipe, a column for each share: return over seeds, with its interval.

    A return is from the first evaluation at or after the share's step.
    """
    groups = [finished for group in tables.groups(cells, "table") if (finished := [c for c in group if c.finished])]
    if not groups:
        return tables.nothing("table")
    steps = [round(share * groups[0][0].planned_steps) for share in SHARES]
    lines = []
    for group in groups:
        texts = [str(_rounded([_at(cell, step) for cell in group])) for step in steps]
        lines.append([group[0].env_id, group[0].recipe, *texts])
    return marks.table(["environment", "recipe", *(f"after {step:,}" for step in steps)], lines, len(steps))


def _at(cell: Cell, step: int) -> float:
    return float(cell.returns[int((cell.steps >= step).argmax())])


def _rounded(returns: Sequence[float]) -> Estimate:
    return Estimate(*(float(round(value)) for value in dataclasses.astuple(estimate(returns, "iqm"))))
