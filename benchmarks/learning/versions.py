"""Compare the versions of `plus` over the table's five tasks, by the mean and by the interquartile mean."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import marks
from benchmarks.learning import long_form, normalised
from benchmarks.learning.long_form import Cell
from ddpg.progress import format_number
from ddpg.studies.comparison import Estimate

RESULTS = Path(__file__).parents[1] / "results"
FORMER = {
    "one update per step, minibatch 256, r ≥ 1/3": "plus_single.csv",
    "three updates per step, minibatch 96, r ≥ 1/3": "plus_limited.csv",
}
TODAY = "current: three updates per step, minibatch 96, no lower limit of r"


def scores(cells: Sequence[Cell]) -> dict[str, np.ndarray]:
    """Return the normalised final returns of `plus` in the table's tasks, by environment."""
    finals: dict[str, list[float]] = {}
    for cell in cells:
        if cell.study == "table" and cell.recipe == "plus" and cell.finished and cell.env_id in normalised.REFERENCES:
            finals.setdefault(cell.env_id, []).append(cell.final)
    return {env_id: normalised.normalised(env_id, values) for env_id, values in finals.items()}


def table(cells: Sequence[Cell], folder: Path = RESULTS) -> str:
    """Return a row for each version.

    Args:
        cells: the runs of the current version.
        folder: the folder with the files of earlier versions.
    """
    versions = {name: long_form.read(folder / file) for name, file in FORMER.items()} | {TODAY: cells}
    lines = []
    for name, runs in versions.items():
        found = scores(runs)
        if found:
            every = np.concatenate([*found.values()])
            interval = Estimate(*normalised.across_tasks(found))
            lines.append([name, str(len(every)), format_number(float(every.mean())), str(interval)])
    return marks.table(["`plus`, final return, normalised", "runs", "mean", "interquartile mean"], lines)
