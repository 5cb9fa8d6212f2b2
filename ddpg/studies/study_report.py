"""What a study has found: all numbers in long form, a table over seeds, learning curves."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.runs import directory
from ddpg.runs.curves import Run, learning_curves, read_run
from ddpg.runs.plotting import plot_curves
from ddpg.storage import atomic
from ddpg.studies.study import Group, cells_of
from ddpg.studies.study_folder import Place
from ddpg.studies.study_table import NOTE, markdown, table_row, write_table

RESULTS, TABLE, TEXT, FIGURE = "results.csv", "table.csv", "table.md", "curves.png"
COLUMNS = ("env", "config", "seed", "step", "measure", "value")
_EVALUATED = ("mean_return", "std_return", "mean_length", "success_rate")
_LOGGED = {"training_seconds": "seconds", "compile_seconds": "compile_seconds", "steps_per_second": "fps"}


@dataclasses.dataclass(frozen=True)
class Report:
    """The files of a report, and the rows of its table."""

    rows: list[dict[str, Any]]
    results: Path
    table: Path
    text: Path
    figure: Path | None


def write_report(root: Path, groups: Sequence[Group]) -> Report:
    """Write what the cells of a study have found so far into its folder.

    ``results.csv`` has everything that was evaluated, of cells under way too. The table is of finished cells alone: the
    interquartile mean over seeds of the last evaluation and of the largest one, with 95 % bootstrap intervals
    (Agarwal et al. 2021, arXiv 2108.13264). Where the study asks for ``final_episodes``, the last evaluation is that of
    those.

    Args:
        root: the study's folder.
        groups: its cells.
    """
    places = [Place(root, cell) for cell in cells_of(groups)]
    runs = {place: read_run(place.run) for place in places if place.run is not None}
    values = [row for place, run in runs.items() for row in _values(place, run)]
    write_table(root / RESULTS, COLUMNS, values)
    rows = [_row(group, [(p, run) for p, run in runs.items() if p.cell.group == group]) for group in groups]
    write_table(root / TABLE, tuple(rows[0]), rows)
    atomic.write_text(root / TEXT, f"{markdown(rows)}\n\n{NOTE}\n")
    figure = None
    if any(run.rows for run in runs.values()):
        names = [place.cell.group.configuration for place in runs]
        figure = plot_curves(learning_curves([*runs.values()], names=names), root / FIGURE)
    return Report(rows, root / RESULTS, root / TABLE, root / TEXT, figure)


def _values(place: Place, run: Run) -> Iterator[dict[str, Any]]:
    """Yield the rows of a cell in long form."""
    cell = place.cell
    names = {"env": cell.group.name, "config": cell.group.configuration, "seed": cell.seed}
    metrics = directory.read_table(run.path / "metrics.csv")
    seconds = run.times("seconds") if metrics else np.zeros(len(run.rows))
    for row, second in zip(run.rows, seconds, strict=True):
        at = {**names, "step": int(row["timesteps"])}
        yield from ({**at, "measure": f"evaluation_{name}", "value": row[name]} for name in _EVALUATED if row.get(name))
        yield {**at, "measure": "training_seconds", "value": f"{second:.6g}"}
    for name, column in _LOGGED.items():
        if metrics and metrics[-1].get(column):
            at = {**names, "step": int(metrics[-1]["timesteps"])}
            yield {**at, "measure": f"last_{name}", "value": metrics[-1][column]}
    final = place.evaluated
    for name in _EVALUATED:
        if name in final:
            yield {**names, "step": cell.group.total_timesteps, "measure": f"final_{name}", "value": repr(final[name])}


def _row(group: Group, runs: Sequence[tuple[Place, Run]]) -> dict[str, Any]:
    """Return a row of the table: what the finished cells of a group say together."""
    finished = [(place, run) for place, run in runs if place.stage is None and run.rows]
    last = [float(place.evaluated.get("mean_return", run.returns[-1])) for place, run in finished]
    most = [float(run.returns.max()) for _, run in finished]
    return table_row(group.name, group.configuration, group.total_timesteps, last, most, len(group.seeds))
