"""Compare variants of `plus`: two on the same seeds, and earlier versions with the current one."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks import marks
from benchmarks.learning import long_form, normalised
from benchmarks.learning.long_form import Cell
from benchmarks.learning.tables import nothing
from ddpg.progress import format_number
from ddpg.runs.curves import holding
from ddpg.studies.comparison import Estimate

FIRST, LAST = 0.4, 0.8  # shares of a run: after the steep part of learning, before `plus` lowers its learning rates
# Study and recipe of each variant, with its label; the first variant is the baseline.
AVERAGED = {("table", "plus"): "actor", ("averaged", "plus_averaged"): "averaged actor"}
PREACTIVATION = {
    ("averaged", "plus_averaged"): "after the activation",
    ("preactivation", "plus_preactivation"): "before the activation",
}
_PART = f"{100 * FIRST:.0f} to {100 * LAST:.0f} % of the run"
RESULTS = Path(__file__).parents[1] / "results"
FORMER = {
    "one update per step, minibatch 256, r ≥ 1/3": "plus_single.csv",
    "three updates per step, minibatch 96, r ≥ 1/3": "plus_limited.csv",
}
TODAY = "current: three updates per step, minibatch 96, no lower limit of r"


def averaged(cells: Sequence[Cell]) -> str:
    """Compare the averaged actor with the actor itself."""
    return table(cells, "acting network", AVERAGED)


def preactivation(cells: Sequence[Cell]) -> str:
    """Compare batch renormalisation before each activation with batch renormalisation after it."""
    return table(cells, "place of the norm", PREACTIVATION)


def table(cells: Sequence[Cell], heading: str, pair: Mapping[tuple[str, str], str]) -> str:
    """Return a row for each environment and variant, over the seeds that both variants have finished.

    Args:
        cells: all runs.
        heading: the heading of the column with the variants.
        pair: the two variants, such as :data:`AVERAGED`.
    """
    first, second = pair
    own = {
        (key, cell.env_id, cell.seed): cell
        for key in pair
        for cell in cells
        if (cell.study, cell.recipe) == key and cell.finished
    }
    shared: dict[str, list[int]] = {}
    for key, env_id, seed in own:
        if key == second and (first, env_id, seed) in own:
            shared.setdefault(env_id, []).append(seed)
    if not shared:
        return nothing(second[0])
    measures: dict[str, Callable[[Cell], float]] = {
        f"mean return, {_PART}": mean_before_cooldown,
        f"lowest return, {_PART}": lambda cell: float(_before_cooldown(cell).min()),
        "dips": lambda cell: holding(cell.returns).dips,
        "final return": lambda cell: cell.final,
    }
    lines = []
    for env_id, seeds in shared.items():
        for key, label in pair.items():
            runs = [own[key, env_id, seed] for seed in seeds]
            texts = [_mean_and_range([measure(run) for run in runs]) for measure in measures.values()]
            lines.append([env_id, label, str(len(seeds)), *texts])
    return marks.table(["environment", heading, "seeds", *measures], lines)


def scores(cells: Sequence[Cell]) -> dict[str, np.ndarray]:
    """Return the normalised final returns of `plus` in the table's tasks, by environment."""
    finals: dict[str, list[float]] = {}
    for cell in cells:
        if cell.study == "table" and cell.recipe == "plus" and cell.finished and cell.env_id in normalised.REFERENCES:
            finals.setdefault(cell.env_id, []).append(cell.final)
    return {env_id: normalised.normalised(env_id, values) for env_id, values in finals.items()}


def versions(cells: Sequence[Cell], folder: Path = RESULTS) -> str:
    """Return a row for each version.

    Args:
        cells: the runs of the current version.
        folder: the folder with the files of earlier versions.
    """
    of_each = {name: long_form.read(folder / file) for name, file in FORMER.items()} | {TODAY: cells}
    lines = []
    for name, runs in of_each.items():
        found = scores(runs)
        if found:
            every = np.concatenate([*found.values()])
            interval = Estimate(*normalised.across_tasks(found))
            lines.append([name, str(len(every)), format_number(float(every.mean())), str(interval)])
    return marks.table(["`plus`, final return, normalised", "runs", "mean", "interquartile mean"], lines)


def mean_before_cooldown(cell: Cell) -> float:
    """Return the mean of a run's evaluations between the shares :data:`FIRST` and :data:`LAST` of its steps."""
    return float(_before_cooldown(cell).mean())


def _before_cooldown(cell: Cell) -> np.ndarray:
    late = np.asarray(cell.steps) >= round(FIRST * cell.planned_steps)
    return np.asarray(cell.returns)[late & (np.asarray(cell.steps) <= 1.01 * LAST * cell.planned_steps)]


def _mean_and_range(numbers: Sequence[float]) -> str:
    known = [number for number in numbers if not np.isnan(number)]
    if not known:
        return "none yet"
    middle, low, high = (format_number(number) for number in (np.mean(known), min(known), max(known)))
    return middle if low == high else f"{middle} ({low} to {high})"
