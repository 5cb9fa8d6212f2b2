"""Write the report of a study: results in long form, a table over seeds, learning curves."""

import csv
import dataclasses
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.checkpoints import atomic_write
from ddpg.errors import FileFault, UsageError, file_faults
from ddpg.progress import format_number
from ddpg.runs.curves import Holding, holding, learning_curves
from ddpg.runs.found_runs import Run, read_run
from ddpg.runs.lock import one_at_a_time
from ddpg.runs.plotting import plot_curves
from ddpg.runs.tables import read_table
from ddpg.studies.comparison import NO_ESTIMATE, Estimate, compare, compare_over_environments, estimate
from ddpg.studies.study import FILES, Group
from ddpg.studies.study_folder import EVALUATED, CellFolder, folders_of

NOTE = "Interquartile mean over the seeds of finished cells, with its 95 % bootstrap interval."
HOLDING_NOTE = (
    "Last / largest: the last evaluation as a share of the run's largest. Dips: of the evaluations after the first at "
    "80 % of the largest, the share below 60 % of it. All counted from the first evaluation's return where that is "
    "below 0. Means over the seeds of finished cells, with 95 % bootstrap intervals."
)
COMPARISON_NOTE = (
    "Final returns against those of {reference}, on the seeds that both have finished: the mean of the differences by "
    "seed, and the probability that a run is better than one of {reference} (above 0.5: better), each with its 95 % "
    "bootstrap interval."
)
ALL = "all environments"
_RUNS = ("environment", "configuration", "steps", "seeds")


def table_row(
    env: str, config: str, steps: int, finals: Sequence[float], returns: Sequence[np.ndarray], asked: int
) -> dict[str, Any]:
    """Return a row of the table.

    Args:
        env, config: the environment's id and the configuration's name.
        steps: environment steps of each run.
        finals: the last evaluation of each finished seed (env units).
        returns: all evaluations of each (env units).
        asked: number of seeds in the study.

    Returns:
        ``env``, ``config``, ``steps`` and the numbers of seeds. For ``final`` and ``maximum``: the interquartile mean
        and the ends of its 95 % bootstrap interval, ``_low`` and ``_high`` (Agarwal et al. 2021, arXiv 2108.13264); NaN
        if no seed has finished. For ``kept`` and ``dips`` (:mod:`ddpg.runs.curves`): the mean over the seeds that have
        them, its interval, and the number of those seeds, ``_seeds``; the mean rather than the interquartile mean, so
        that a single run that forgets counts.
    """
    row: dict[str, Any] = {"env": env, "config": config, "steps": steps, "seeds": len(finals), "seeds_asked": asked}
    row |= _columns("final", estimate(finals, "iqm"))
    row |= _columns("maximum", estimate([float(run.max()) for run in returns], "iqm"))
    held = [holding(run) for run in returns]
    for name in Holding._fields:
        known = [value for value in (getattr(one, name) for one in held) if not np.isnan(value)]
        row |= _columns(name, estimate(known, "mean"))
        row[f"{name}_seeds"] = len(known)
    return row


def _columns(name: str, found: Estimate) -> dict[str, float]:
    """Return the columns of an estimate and of the two ends of its interval."""
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of cells."""
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(cells)} |" for cells in rows)])


def holding_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return ``kept`` and ``dips`` of rows of :func:`table_row` as a Markdown table."""
    heads = [*_RUNS, "last / largest", "dips"]
    return markdown_table(heads, [[*_runs(row), _held(row, "kept"), _held(row, "dips")] for row in rows])


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return ``final`` and ``maximum`` of rows of :func:`table_row` as a Markdown table."""
    heads = [*_RUNS, "final return", "largest return"]
    return markdown_table(heads, [[*_runs(row), told(row, "final"), told(row, "maximum")] for row in rows])


def _runs(row: dict[str, Any]) -> list[str]:
    """Return the cells of a row under the heads :data:`_RUNS`."""
    return [row["env"], row["config"], f"{row['steps']:,}", seeds_of(row)]


def compared(finals: Sequence[tuple[str, str, Mapping[int, float]]]) -> list[dict[str, Any]]:
    """Return the rows that compare every configuration with the first one of the first environment.

    Args:
        finals: environment, configuration, and final returns by seed.

    Returns:
        For each environment in which both have finished a common seed: ``env``, ``config``, ``reference``, ``seeds``,
        the mean ``difference`` by seed and the probability of ``improvement``, with the ends of their 95 % bootstrap
        intervals, ``_low`` and ``_high``. A configuration with several environments has one more row, with its
        improvement over all of them. There ``env`` is :data:`ALL`, and the difference is NaN, because returns of
        different environments cannot be added.
    """
    reference = finals[0][1]
    base = {env: by_seed for env, config, by_seed in finals if config == reference}
    rows = []
    for config in dict.fromkeys(config for _, config, _ in finals if config != reference):
        pairs = {env: (mine, base[env]) for env, name, mine in finals if name == config and env in base}
        found = {env: compare(*pair) for env, pair in pairs.items()}
        found[ALL] = compare_over_environments([*pairs.values()])
        for env, one in found.items():
            if one is not None:
                rows.append(
                    {"env": env, "config": config, "reference": reference, "seeds": one.seeds}
                    | _columns("difference", one.difference or NO_ESTIMATE)
                    | _columns("improvement", one.improvement)
                )
    return rows


def comparison_markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of :func:`compared` as a Markdown table."""
    heads = ("environment", "configuration", "seeds", f"final return minus {rows[0]['reference']}'s", "improvement")
    cells = []
    for row in rows:
        difference = "" if row["env"] == ALL else told(row, "difference")
        improvement = told(row, "improvement")
        if row["seeds"] == 1:  # one seed has no interval
            difference, improvement = format_number(row["difference"]), "one seed"
        cells.append([row["env"], row["config"], str(row["seeds"]), difference, improvement])
    return markdown_table(heads, cells)


def seeds_of(row: dict[str, Any]) -> str:
    """Return the number of finished seeds of a row as text: ``3``, or ``2 of 3``."""
    return str(row["seeds"]) if row["seeds"] == row["seeds_asked"] else f"{row['seeds']} of {row['seeds_asked']}"


def told(row: dict[str, Any], name: str) -> str:
    """Return ``final``, ``maximum``, ``kept`` or ``dips`` of a row with its interval, as text.

    The text is ``none yet`` for a row without finished seeds, and ``n/a`` for a measure that no finished run has.
    """
    found = Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"])
    return "n/a" if row["seeds"] and np.isnan(found.mean) else str(found)


def _held(row: dict[str, Any], name: str) -> str:
    """Return ``kept`` or ``dips`` of a row as text, with the number of seeds that have it if not all have."""
    count = row[f"{name}_seeds"]
    return told(row, name) + (f", of {count} seed{'s' * (count > 1)}" if 0 < count < row["seeds"] else "")


def write_table(path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as a CSV file; NaN and missing values are empty."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: "" if value != value else value for name, value in row.items()})
    atomic_write.write_text(path, text.getvalue())


COLUMNS = ("env", "config", "seed", "step", "measure", "value")
_LOGGED = {"training_seconds": "seconds", "compile_seconds": "compile_seconds", "steps_per_second": "fps"}


@dataclasses.dataclass(frozen=True)
class Report:
    """The rows of a report's tables, the tables as Markdown, and its files.

    Attributes:
        files: paths of ``results``, ``table``, ``comparison``, ``text`` and ``figure``; ``None`` for a file that could
            not be written, for ``comparison`` also if nothing can be compared yet, and for ``figure`` also if there is
            nothing to draw.
        unread: a line for every cell that is left out because a file of its run is damaged.
        unwritten: a line for every file that could not be written.
    """

    rows: list[dict[str, Any]]
    comparisons: list[dict[str, Any]]
    markdown: str
    files: dict[str, Path | None]
    unread: list[str]
    unwritten: list[str]


def write_report(root: Path, groups: Sequence[Group]) -> Report:
    """Write the results of a study so far into its folder.

    ``results.csv`` has all evaluations, including those of running cells; the tables cover only finished cells
    (:func:`table_row`, :func:`compared`). With ``final_episodes`` the last evaluation is the one after training. A cell
    with a damaged file is left out, and so is a file of the report that cannot be written, as in a read-only folder. If
    another process writes a report of the same study, it is waited for.
    """
    with one_at_a_time(root):
        return _write_report(root, groups)


def _write_report(root: Path, groups: Sequence[Group]) -> Report:
    runs, values, unread = _read_cells(root, groups)
    unwritten: list[str] = []
    files: dict[str, Path | None] = dict.fromkeys(("results", "table", "comparison", "text", "figure"))

    def write(name: str, writer: Callable[[Path], object], has_rows: bool = True) -> None:
        """Write a file, or remove the one of an earlier report if there is nothing to write."""
        path = root / getattr(FILES, name)
        try:
            with file_faults("the printed report is complete"):
                if has_rows:
                    writer(path)
                    files[name] = path
                elif path.exists():
                    path.unlink()
        except UsageError as fault:  # of a picture also that a directory is in its place
            unwritten.append(str(fault))

    write("results", lambda path: write_table(path, COLUMNS, values))
    ends = [_ends([(p, run) for p, run in runs.items() if p.cell.group == group]) for group in groups]
    rows = [
        table_row(group.name, group.configuration, group.total_timesteps, [*last.values()], returns, len(group.seeds))
        for group, (last, returns) in zip(groups, ends, strict=True)
    ]
    write("table", lambda path: write_table(path, tuple(rows[0]), rows))
    comparisons = compared([(group.name, group.configuration, end[0]) for group, end in zip(groups, ends, strict=True)])
    text = f"{markdown(rows)}\n\n{NOTE}\n\n{holding_markdown(rows)}\n\n{HOLDING_NOTE}\n"
    write("comparison", lambda path: write_table(path, tuple(comparisons[0]), comparisons), bool(comparisons))
    if comparisons:
        note = COMPARISON_NOTE.format(reference=comparisons[0]["reference"])
        text += f"\n{comparison_markdown(comparisons)}\n\n{note}\n"
    write("text", lambda path: atomic_write.write_text(path, text))
    drawn = any(run.rows for run in runs.values())
    names = [folder.cell.group.configuration for folder in runs]
    write("figure", lambda path: plot_curves(learning_curves([*runs.values()], names=names), path), drawn)
    return Report(rows, comparisons, text, files, unread, unwritten)


def _read_cells(root: Path, groups: Sequence[Group]) -> tuple[dict[CellFolder, Run], list[dict[str, Any]], list[str]]:
    """Return the cells' newest runs, their values in long form, and a line for each cell that is left out."""
    runs: dict[CellFolder, Run] = {}
    values, unread = [], []
    for folder in folders_of(root, groups):
        if (path := folder.run) is not None:
            try:
                run = read_run(path)
                run = dataclasses.replace(run, rows=folder.up_to_goal(run.rows))
                if not run.rows and folder.stage is None:
                    raise FileFault(f"{path / 'evaluations.csv'} is missing, although its run has finished; restore it")
                values += [*_values(folder, run)]  # the list is complete before any row is added
            except FileFault as error:
                unread.append(f"{error}; or remove {path}, and the study trains that cell again")
            else:
                runs[folder] = run
    return runs, values, unread


def _values(folder: CellFolder, run: Run) -> Iterator[dict[str, Any]]:
    """Yield the rows of a cell in long form."""
    cell = folder.cell
    names = {"env": cell.group.name, "config": cell.group.configuration, "seed": cell.seed}
    metrics = read_table(run.path / "metrics.csv")
    seconds = run.times("seconds").tolist() if metrics else [None] * len(run.rows)
    for row, second in zip(run.rows, seconds, strict=True):
        at = {**names, "step": int(row["timesteps"])}
        yield from evaluation_values(row, at)
        if second is not None:
            yield {**at, "measure": "training_seconds", "value": f"{second:.6g}"}
    for name, column in _LOGGED.items():
        if metrics and metrics[-1].get(column):
            at = {**names, "step": int(metrics[-1]["timesteps"])}
            yield {**at, "measure": f"last_{name}", "value": metrics[-1][column]}
    for name, value in folder.evaluated.items():
        yield {**names, "step": cell.group.total_timesteps, "measure": f"final_{name}", "value": repr(value)}


def evaluation_values(row: dict[str, str], at: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the values of a row of ``evaluations.csv`` in long form; ``at`` has the columns that say where it was."""
    yield from ({**at, "measure": f"evaluation_{name}", "value": row[name]} for name in EVALUATED if row.get(name))


def _ends(runs: Sequence[tuple[CellFolder, Run]]) -> tuple[dict[int, float], list[np.ndarray]]:
    """Return the last evaluations by seed, and all evaluations of each, for the finished cells among ``runs``."""
    finished = [(folder, run) for folder, run in runs if folder.stage is None and run.rows]
    last = {folder.cell.seed: float(folder.evaluated.get("mean_return", run.returns[-1])) for folder, run in finished}
    return last, [run.returns for _, run in finished]
