"""Write the report of a tuning: all evaluations, the best options, the comparison and a figure."""

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ddpg.checkpoints import atomic_write
from ddpg.config.imports import is_reference, references_in
from ddpg.config.options import as_toml
from ddpg.errors import FileFault
from ddpg.progress import format_number
from ddpg.runs.commands import allow_import_flags, as_argument
from ddpg.runs.curves import format_option
from ddpg.runs.plotting import drawable
from ddpg.studies.comparison import Comparison, Estimate, compare, estimate, verdict
from ddpg.studies.study import Group
from ddpg.studies.study_folder import CellFolder, folders_of
from ddpg.studies.study_report import evaluation_values, markdown_table, write_table
from ddpg.studies.trials import Trial
from ddpg.studies.tuning import TuningOutcome
from ddpg.studies.tuning_plan import FIRST_FRESH_SEED, TuningPlan

RESULTS, BEST, COMPARISON, TEXT, FIGURE = "results.csv", "best.toml", "comparison.csv", "tuning.md", "history.png"
_COLUMNS = ("trial", "state", "seed", "step", "measure", "value")


@dataclasses.dataclass(frozen=True)
class TuningReport:
    """The files of a report, and the result of the comparison.

    Attributes:
        compared: mean and interval of each configuration whose cells have all finished.
        comparison_of_best: the comparison of the best trial with the preset, once both have finished.
        verdict: a sentence that says whether the best trial beats the preset.
        unread: a line for every run whose evaluations are left out because their table is damaged or lost.
    """

    results: Path
    text: Path
    best: Path | None
    comparison: Path | None
    figure: Path | None
    compared: dict[str, Estimate]
    comparison_of_best: Comparison | None
    verdict: str
    unread: list[str]


def write_tuning_report(root: Path, plan: TuningPlan, tuned: TuningOutcome, words: Sequence[str]) -> TuningReport:
    """Write the results so far, and the ``words`` of the command, into the tuning's folder.

    The evaluations of a run whose table is damaged are left out. The values of trials are those of the journal.
    """
    cells = _ReadCells(root)
    write_table(root / RESULTS, (*_COLUMNS, *plan.space), [*_rows(cells, plan, tuned)])
    returns = {group.configuration: _last_returns(cells, group) for group in tuned.compared}
    finished = {name: found for name, found in returns.items() if found is not None}
    compared = {name: estimate([*found.values()], "mean") for name, found in finished.items()}
    against = compare(*finished.values()) if len(finished) == 2 else None
    sentence, unread = _sentence(plan, tuned, finished, against, cells), [*cells.unread]
    comparison = best = figure = None
    if against is not None and against.difference is not None:
        told = compared | {"difference": against.difference, "probability_of_improvement": against.improvement}
        rows = [{"configuration": name, "seeds": against.seeds, **vars(one)} for name, one in told.items()]
        comparison = root / COMPARISON
        write_table(comparison, tuple(rows[0]), rows)
    else:
        (root / COMPARISON).unlink(missing_ok=True)  # an earlier one may be of another best trial
    if tuned.best is not None:
        best = root / BEST
        atomic_write.write_text(best, _best(best, plan, tuned.best, tuned.trials, words, sentence))
        figure = _history(root / FIGURE, plan, tuned.trials)
    atomic_write.write_text(root / TEXT, _text(plan, tuned, compared, sentence, words, unread))
    return TuningReport(root / RESULTS, root / TEXT, best, comparison, figure, compared, against, sentence, unread)


class _ReadCells:
    """The cells of a tuning that can be read.

    Attributes:
        unread: for each cell that cannot be read, a line that says why, and the cell's configuration.
    """

    def __init__(self, root: Path):
        self._root = root
        self.unread: dict[str, str] = {}

    def of(self, group: Group) -> Iterator[tuple[CellFolder, list[dict[str, str]]]]:
        """Yield the cells of a group that can be read, each with the rows of its evaluations."""
        for folder in folders_of(self._root, [group]):
            try:
                rows = folder.evaluations
                if not rows and folder.stage is None:
                    raise FileFault(f"{folder.run}/evaluations.csv has no evaluation, although the run has finished")
            except FileFault as fault:
                self.unread[str(fault)] = group.configuration
            else:
                yield folder, rows


def _rows(cells: _ReadCells, plan: TuningPlan, tuned: TuningOutcome) -> Iterator[dict[str, Any]]:
    """Yield the rows of the trials' evaluations (up to pruning) and values, and of the comparison's evaluations."""
    for trial in tuned.trials:
        told = {name: _cell(value) for name, value in trial.changes.items()}
        named = {"trial": trial.number, "state": trial.state, **told}
        judged = None if trial.state == "complete" else max(trial.returns, default=0)
        if judged != 0:
            yield from _of_group(cells, plan, plan.trial(trial.number, trial.changes), named, judged)
        yield named | {"measure": "objective", "value": "" if trial.value is None else repr(trial.value)}
    for group in tuned.compared:
        told = {name: _cell(group.options[name]) for name in plan.space}
        yield from _of_group(cells, plan, group, {"trial": group.configuration, "state": "compared", **told}, None)


def _of_group(
    cells: _ReadCells, plan: TuningPlan, group: Group, named: dict[str, Any], until: int | None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the evaluations of a group's cells, up to the one numbered ``until`` if that is given."""
    for folder, rows in cells.of(group):
        for row in rows:
            if until is None or plan.nth(int(row["timesteps"])) <= until:
                yield from evaluation_values(row, named | {"seed": folder.cell.seed, "step": row["timesteps"]})


def _last_returns(cells: _ReadCells, group: Group) -> dict[int, float] | None:
    """Return the last evaluations by seed, or ``None`` if a cell has not finished yet or cannot be read."""
    found = {folder.cell.seed: rows for folder, rows in cells.of(group) if folder.stage is None}
    if [*found] != group.seeds:
        return None
    return {seed: float(rows[-1]["mean_return"]) for seed, rows in found.items()}


def _sentence(
    plan: TuningPlan,
    tuned: TuningOutcome,
    finished: dict[str, dict[int, float]],
    against: Comparison | None,
    cells: _ReadCells,
) -> str:
    if against is not None:
        best, preset = finished
        return verdict(best, f"the {preset}", against)
    if tuned.best is None:
        return "No trial has reached its end: there is no best one."
    if plan.trial(tuned.best.number, tuned.best.changes).options == plan.preset:
        return "The best is the preset itself."
    if not tuned.fresh_seeds:
        return "The best was not compared with the preset (--fresh-seeds 0)."
    if {*cells.unread.values()} & {group.configuration for group in tuned.compared}:
        return "The best cannot be compared with the preset, because a table of the comparison is damaged."
    return "The best has not been compared with the preset yet."


def _best(
    file: Path, plan: TuningPlan, best: Trial, trials: Sequence[Trial], words: Sequence[str], sentence: str
) -> str:
    group = plan.trial(best.number, best.changes)
    varied = {name: group.options[name] for name in plan.space}
    rest = {name: value for name, value in group.options.items() if name not in varied}
    value = format_number(best.value) if best.value is not None else "none"
    steps = ["--total-timesteps", str(group.total_timesteps)]
    own = ["--algorithm", group.algorithm] if is_reference(group.algorithm) else []
    own += allow_import_flags(*references_in([group.algorithm, *group.options.values()]))
    train = ["ddpg", "train", group.env_id, *steps, *group.source.flags(), *own, "--config", as_argument(file)]
    lines = [
        f"Found by: {shlex.join(words)}",
        f"Trial {best.number} of {len(trials)} ({_counts(trials)}), on {_seeds(plan.base.seeds)}: mean "
        f"evaluation return {value} after {plan.base.total_timesteps:,} steps.",
        f"Verdict: {sentence}",
        f"Use: {shlex.join(train)}",
    ]
    head = "".join(f"# {line}\n" for line in lines)
    return f"{head}\n# What was varied.\n{as_toml(varied)}\n# What was not.\n{as_toml(rest)}"


def _text(
    plan: TuningPlan,
    tuned: TuningOutcome,
    compared: dict[str, Estimate],
    sentence: str,
    words: Sequence[str],
    unread: Sequence[str],
) -> str:
    base = plan.base
    lines = [
        f"# {base.algorithm} in {base.name}, tuned",
        "",
        f"`{shlex.join(words)}`",
        "",
        f"{_number(len(tuned.trials), 'trial')} ({_counts(tuned.trials)}) of {_number(base.total_timesteps, 'step')}, "
        f"each on {_seeds(base.seeds)}, evaluated every {_number(base.evaluation_interval, 'step')} over "
        f"{_number(base.evaluation_episodes, 'episode')}; sampler's seed {plan.tuning_seed}. "
        + (
            "Trial 0 is the base configuration."
            if tuned.base_first
            else "The base configuration is not in the search space, and was not tried."
        ),
        "",
    ]
    if tuned.stopped is not None:
        lines += [f"Stopped: {tuned.stopped}", ""]
    lines += [f"**{sentence}**", ""]
    if unread:
        lines += [f"Evaluations of these runs are left out of {RESULTS}:", "", *(f"- {line}" for line in unread), ""]
    if compared:
        lines += [f"Mean return of the last evaluation on seeds from {FIRST_FRESH_SEED} on, which no trial had:", ""]
        rows = [[name, str(estimate)] for name, estimate in compared.items()]
        lines += [markdown_table(["configuration", "mean and its 95 % bootstrap interval"], rows), ""]
    rows = []
    for trial in sorted(tuned.trials, key=_rank):
        value = "" if trial.value is None else format_number(trial.value)
        why = (trial.reason or "").replace("|", "\\|")
        options = (_short(trial.changes[name]) for name in plan.space)
        rows.append([str(trial.number), trial.state, value, *options, why])
    return "\n".join([*lines, markdown_table(["trial", "state", "value", *plan.space, "why"], rows), ""])


def _rank(trial: Trial) -> tuple[bool, float, int]:
    complete = trial.state == "complete" and trial.value is not None
    return not complete, -(trial.value or 0.0) if complete else 0.0, trial.number


def _counts(trials: Sequence[Trial]) -> str:
    states = [trial.state for trial in trials]
    return ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _cell(value: Any) -> str:
    return "none" if value is None else format_option(value)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else _cell(value)


def _history(path: Path, plan: TuningPlan, trials: Sequence[Trial]) -> Path:
    """Plot the value of every trial and the best value so far."""
    figure = Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    found = [(trial.state, trial.number, trial.value) for trial in trials if trial.value is not None]
    (numbers, values), pruned = (
        drawable(np.array([point for was, *point in found if was == state]).reshape(-1, 2).T)
        for state in ("complete", "pruned")
    )
    axes.step(numbers, np.fmax.accumulate(values), where="post", color="#0072B2", label="best so far")
    axes.plot(numbers, values, "o", markersize=4, color="#0072B2", label="trial that reached its end")
    if pruned.size:
        axes.plot(*pruned, "x", markersize=5, color="#D55E00", label="trial pruned, where it was")
    axes.set_title(f"Tuning {plan.base.algorithm} in {plan.base.name}: {plan.base.total_timesteps:,} steps a trial")
    axes.set_xlabel("trial")
    axes.set_ylabel("mean evaluation return (sum of rewards)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return atomic_write.write_figure(path, figure)
