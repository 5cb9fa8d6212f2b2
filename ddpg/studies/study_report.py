"""Write the report of a study: results in long form, a table over seeds, learning curves."""

import csv
import dataclasses
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.checkpoints import atomic_write
from ddpg.progress import format_number
from ddpg.runs import run_directory
from ddpg.runs.curves import Run, centre_and_interval, learning_curves, read_run
from ddpg.runs.plotting import plot_curves
from ddpg.studies.study import Group, cells_of
from ddpg.studies.study_folder import CellFolder

NOTE = "Interquartile mean over the seeds of finished cells, with its 95 % bootstrap interval."
_ENDS = ("", "_low", "_high")


def table_row(
    env: str, config: str, steps: int, finals: Sequence[float], maxima: Sequence[float], asked: int
) -> dict[str, Any]:
    """Return a row of the table.

    Args:
        env: the environment's id.
        config: the configuration's name.
        steps: environment steps of each run.
        finals: the last evaluation of each finished seed (env units).
        maxima: the largest evaluation of each (env units).
        asked: how many seeds the study has.

    Returns:
        These, and for ``final`` and ``maximum`` the interquartile mean and the ends of its 95 % bootstrap interval,
        ``_low`` and ``_high`` (Agarwal et al. 2021, arXiv 2108.13264); NaN where no seed is finished.
    """
    row: dict[str, Any] = {"env": env, "config": config, "steps": steps, "seeds": len(finals), "seeds_asked": asked}
    for name, seeds in (("final", finals), ("maximum", maxima)):
        row |= {f"{name}{end}": value for end, value in zip(_ENDS, iqm_over_seeds(seeds), strict=True)}
    return row


def iqm_over_seeds(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the interquartile mean over seeds and the ends of its 95 % bootstrap interval; NaN without seeds."""
    if not len(values):
        return (float("nan"),) * 3
    centre, low, high = centre_and_interval(np.array(values)[:, None], "iqm")
    return float(centre[0]), float(low[0]), float(high[0])


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of :func:`table_row` as a Markdown table."""
    heads = ("environment", "configuration", "steps", "seeds", "final return", "largest return")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = (
            row["env"],
            row["config"],
            f"{row['steps']:,}",
            seeds_of(row),
            told(row, "final"),
            told(row, "maximum"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def seeds_of(row: dict[str, Any]) -> str:
    """Return the number of seeds behind a row: ``3``, or ``2 of 3``."""
    return str(row["seeds"]) if row["seeds"] == row["seeds_asked"] else f"{row['seeds']} of {row['seeds_asked']}"


def told(row: dict[str, Any], name: str) -> str:
    """Return ``final`` or ``maximum`` of a row with its interval, as text."""
    centre, low, high = (row[f"{name}{end}"] for end in _ENDS)
    return interval(centre, low, high)


def interval(centre: float, low: float, high: float) -> str:
    """Return a number with its interval, as text; ``none yet`` for NaN."""
    return (
        f"{format_number(centre)} ({format_number(low)} to {format_number(high)})"
        if np.isfinite(centre)
        else "none yet"
    )


def write_table(path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as a CSV file; NaN and missing values are empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: "" if value != value else value for name, value in row.items()})
    atomic_write.write_text(path, text.getvalue())


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
    """Write the results of a study so far into its folder.

    ``results.csv`` has all evaluations, also of running cells. The table covers finished cells only: the interquartile
    mean over seeds of the last and of the largest evaluation, with 95 % bootstrap intervals (Agarwal et al. 2021, arXiv
    2108.13264). With ``final_episodes`` the last evaluation is the one after training.

    Args:
        root: the study's folder.
        groups: its cells.
    """
    folders = [CellFolder(root, cell) for cell in cells_of(groups)]
    runs = {folder: read_run(folder.run) for folder in folders if folder.run is not None}
    values = [row for folder, run in runs.items() for row in _values(folder, run)]
    write_table(root / RESULTS, COLUMNS, values)
    rows = [_row(group, [(p, run) for p, run in runs.items() if p.cell.group == group]) for group in groups]
    write_table(root / TABLE, tuple(rows[0]), rows)
    atomic_write.write_text(root / TEXT, f"{markdown(rows)}\n\n{NOTE}\n")
    figure = None
    if any(run.rows for run in runs.values()):
        names = [folder.cell.group.configuration for folder in runs]
        figure = plot_curves(learning_curves([*runs.values()], names=names), root / FIGURE)
    return Report(rows, root / RESULTS, root / TABLE, root / TEXT, figure)


def _values(folder: CellFolder, run: Run) -> Iterator[dict[str, Any]]:
    """Yield the rows of a cell in long form."""
    cell = folder.cell
    names = {"env": cell.group.name, "config": cell.group.configuration, "seed": cell.seed}
    metrics = run_directory.read_table(run.path / "metrics.csv")
    seconds = run.times("seconds") if metrics else np.zeros(len(run.rows))
    for row, second in zip(run.rows, seconds, strict=True):
        at = {**names, "step": int(row["timesteps"])}
        yield from ({**at, "measure": f"evaluation_{name}", "value": row[name]} for name in _EVALUATED if row.get(name))
        yield {**at, "measure": "training_seconds", "value": f"{second:.6g}"}
    for name, column in _LOGGED.items():
        if metrics and metrics[-1].get(column):
            at = {**names, "step": int(metrics[-1]["timesteps"])}
            yield {**at, "measure": f"last_{name}", "value": metrics[-1][column]}
    final = folder.evaluated
    for name in _EVALUATED:
        if name in final:
            yield {**names, "step": cell.group.total_timesteps, "measure": f"final_{name}", "value": repr(final[name])}


def _row(group: Group, runs: Sequence[tuple[CellFolder, Run]]) -> dict[str, Any]:
    """Return the row of a group in the table, from its finished cells."""
    finished = [(folder, run) for folder, run in runs if folder.stage is None and run.rows]
    last = [float(folder.evaluated.get("mean_return", run.returns[-1])) for folder, run in finished]
    most = [float(run.returns.max()) for _, run in finished]
    return table_row(group.name, group.configuration, group.total_timesteps, last, most, len(group.seeds))
