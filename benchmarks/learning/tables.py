"""Make the Markdown tables of docs/learning.md and docs/learning/ from the committed runs."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import marks
from benchmarks.learning import ladder, normalised
from benchmarks.learning.long_form import Cell
from ddpg.progress import format_number
from ddpg.studies import study_report
from ddpg.studies.comparison import Estimate, estimate

PEER_STUDY, PEER = "stable_baselines", "Stable-Baselines3 TD3"
STRONGER_STUDY = "stronger"  # the kind of benchmarks.speed that measures the same algorithms
LONG = "long", "long_averaged", "long_preactivation"
# Studies with runs of presets, in the order of docs/learning/environments.md; "plus_swimming_mean" is Swimmer's preset.
OF_PRESETS = "landing", "walking", "swimmer", "others", "regulator", "first"
PRESETS = "preset", "plus_swimming_mean"
BUDGETS = (0.1, 0.2, 0.4, 0.6, 1.0)  # shares of the planned steps of the table's runs
LAST_SHARE = 0.2  # share of a run at its end, whose evaluations show how stable the return is


def row_of(cells: Sequence[Cell], label: str | None = None) -> dict[str, Any]:
    """Return the table's row for the seeds of one recipe in one environment."""
    finished = [cell for cell in cells if cell.finished]
    finals, returns = [cell.final for cell in finished], [cell.returns for cell in finished]
    first = cells[0]
    return study_report.table_row(first.env_id, label or first.recipe, first.planned_steps, finals, returns, len(cells))


def groups(cells: Sequence[Cell], *studies: str) -> list[list[Cell]]:
    """Return the cells of studies grouped by environment, then by recipe, in the file's order."""
    chosen = [cell for study in studies for cell in cells if cell.study == study]
    keys = {(cell.env_id, cell.study, cell.recipe): None for cell in chosen}
    order = list(dict.fromkeys(env_id for env_id, *_ in keys))
    return [
        [cell for cell in chosen if (cell.env_id, cell.study, cell.recipe) == key]
        for key in sorted(keys, key=lambda key: order.index(key[0]))
    ]


def table(cells: Sequence[Cell], *studies: str) -> str:
    """Return the table of studies: final and largest return over seeds, for each environment and recipe."""
    rows = [row_of(group) for group in groups(cells, *studies)]
    return f"{study_report.markdown(rows)}\n\n{study_report.NOTE}" if rows else nothing(studies[0])


def holding(cells: Sequence[Cell], *studies: str) -> str:
    """Return a table of how well runs hold their return, for each environment and recipe with a finished seed."""
    rows = [row for row in (row_of(group) for group in groups(cells, *studies)) if row["seeds"]]
    return f"{study_report.holding_markdown(rows)}\n\n{study_report.HOLDING_NOTE}" if rows else nothing(studies[0])


def beside(cells: Sequence[Cell]) -> str:
    """Return a table of our TD3 and the peer's, in each environment where the peer was measured, with all our seeds."""
    rows = []
    for peer in groups(cells, PEER_STUDY):
        env_id = peer[0].env_id
        own = [cell for cell in cells if cell.study in ("table", "beside") and cell.key[1:3] == (env_id, "td3")]
        rows += [row_of(group) for group in (own, peer) if group]
    return f"{study_report.markdown(rows)}\n\n{study_report.NOTE}" if rows else nothing(PEER_STUDY)


def across(cells: Sequence[Cell]) -> str:
    """Return a table over tasks: each recipe's normalised final and largest return in the tasks that it finished."""
    found: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        if cell.study == "table" and cell.finished and cell.env_id in normalised.REFERENCES:
            found.setdefault(cell.recipe, {}).setdefault(cell.env_id, []).append(cell)
    if not found:
        return nothing("table")
    count = len(normalised.REFERENCES)
    lines = []
    for recipe, tasks in found.items():
        texts = []
        for value in (lambda cell: cell.final, _largest):
            scores = {env_id: normalised.normalised(env_id, [*map(value, own)]) for env_id, own in tasks.items()}
            texts.append(str(Estimate(*normalised.across_tasks(scores))))
        runs = sum(map(len, tasks.values()))
        number = str(count) if len(tasks) == count else f"{len(tasks)} of {count}"
        lines.append([recipe, number, str(runs), *texts])
    return marks.table(["recipe", "tasks", "runs", "final, normalised", "largest, normalised"], lines)


def seconds(cells: Sequence[Cell]) -> str:
    """Return the minutes of training over the finished seeds, for every recipe where a peer was measured."""
    where = {cell.env_id for cell in cells if cell.study == PEER_STUDY}
    rows = []
    for group in groups(cells, "table", PEER_STUDY):
        took = [float(cell.seconds[-1]) / 60 for cell in group if cell.finished]
        if group[0].env_id in where and took:
            texts = " to ".join(dict.fromkeys((format_number(round(min(took), 1)), format_number(round(max(took), 1)))))
            rows.append([group[0].env_id, group[0].recipe, f"{group[0].planned_steps:,}", texts])
    if not rows:
        return nothing(PEER_STUDY)
    return marks.table(["environment", "configuration", "steps", "minutes of training"], rows)


def ladder_table(cells: Sequence[Cell]) -> str:
    """Return the ladder as a table: a row for each rung, columns for each environment."""
    places = ladder.environments(cells)
    if not places:
        return nothing(ladder.STUDY)
    heads = ["rung", "option", *(f"{env_id}, {end}" for env_id in places for end in ("final", "last five", "largest"))]
    lines = []
    for rung in ladder.RUNGS:
        page = f"[{rung.page}](../options/{rung.page}.md)" if rung.page else ""
        texts = [text for env_id in places for text in _ends(ladder.cells_of(rung, cells, env_id))]
        lines.append([rung.label, page, *texts])
    return f"{marks.table(heads, lines)}\n\nSeeds below {ladder.SEEDS}. {study_report.NOTE}"


def rung_of(cells: Sequence[Cell], page: str) -> str:
    """Return a line for each rung that adds a page's option, with returns before and after; empty without such runs."""
    lines = []
    for before, rung in zip(ladder.RUNGS, ladder.RUNGS[1:], strict=False):
        if rung.page != page:
            continue
        for env_id in ladder.environments(cells):
            rows = [_rung(one, cells, env_id) for one in (before, rung)]
            if all(row and row["seeds"] for row in rows):
                old, new = (study_report.told(row, "final") for row in rows if row)
                seeds = " and ".join(study_report.seeds_of(row) for row in rows if row)
                lines.append(
                    f"- *{rung.label}*, {env_id}: final return {old} before, {new} with it "
                    f"({seeds} seeds, {rows[1]['steps']:,} steps)."  # type: ignore[index]  # no row is None here
                )
    return "\n".join(["In our [ladder](../learning/ladder.md):", "", *lines]) if lines else ""


def recipe_of(cells: Sequence[Cell], recipe: str) -> str:
    """Return the table of one recipe, from every study that has it."""
    rows = [row_of(group) for group in groups(cells, "table", "long", "others", "box2d") if group[0].recipe == recipe]
    return f"{study_report.markdown(rows)}\n\n{study_report.NOTE}" if rows else ""


def by_seed(cells: Sequence[Cell], study: str) -> str:
    """Return a row for each finished run of a study: its final return, and the mean and minimum in its last fifth."""
    lines = []
    for group in groups(cells, study):
        lines += [_seed_row(cell) for cell in group if cell.finished]
        missing = [str(cell.seed) for cell in group if not cell.finished]
        lines += [[group[0].env_id, ", ".join(missing), "not finished", "", "", ""]] if missing else []
    if not lines:
        return nothing(study)
    heads = ["environment", "seed", "steps", "final return", "mean from 80 % on", "lowest from 80 % on"]
    return marks.table(heads, lines)


def of_presets(cells: Sequence[Cell]) -> str:
    """Return a row for each environment whose preset has finished runs: the final return of every seed."""
    lines = []
    for group in groups(cells, *OF_PRESETS):
        done = [cell for cell in group if cell.finished and cell.recipe in PRESETS]
        if done:
            returns = ", ".join(format_number(cell.final) for cell in sorted(done, key=lambda cell: cell.seed))
            lines.append([done[0].env_id, f"{done[0].planned_steps:,}", returns])
    if not lines:
        return nothing(OF_PRESETS[0])
    return marks.table(["environment", "steps", "final return of every seed"], lines)


def _seed_row(cell: Cell) -> list[str]:
    late = cell.returns[cell.steps >= (1 - LAST_SHARE) * cell.planned_steps]
    texts = (format_number(round(float(value), 1)) for value in (cell.final, late.mean(), late.min()))
    return [cell.env_id, str(cell.seed), f"{cell.planned_steps:,}", *texts]


def budget(cells: Sequence[Cell]) -> str:
    """Return each recipe's return over seeds, with its interval, after parts of its steps, for choosing a recipe."""
    done = [finished for group in groups(cells, "table") if (finished := [cell for cell in group if cell.finished])]
    if not done:
        return nothing("table")
    steps = [round(share * done[0][0].planned_steps) for share in BUDGETS]
    lines = []
    for group in done:
        found = [dataclasses.astuple(estimate([cell.return_at(step) for cell in group], "iqm")) for step in steps]
        lines.append([group[0].env_id, group[0].recipe, *(str(Estimate(*map(_whole, ends))) for ends in found)])
    return marks.table(["environment", "recipe", *(f"after {step:,}" for step in steps)], lines, len(steps))


def _whole(value: float) -> float:
    return float(round(value))


def front(cells: Sequence[Cell]) -> str:
    """Return README's table of final returns with intervals: a row for each environment, a column for each recipe."""
    chosen = groups(cells, "table", PEER_STUDY)
    if not any(cell.finished for group in chosen for cell in group):
        return "No runs yet."
    recipes = list(dict.fromkeys(group[0].recipe for group in chosen))
    steps = max(cell.planned_steps for group in chosen for cell in group)
    rows = {(group[0].env_id, group[0].recipe): row_of(group) for group in chosen}
    lines = [
        [env_id, *(_brief(rows.get((env_id, recipe))) for recipe in recipes)]
        for env_id in dict.fromkeys(env_id for env_id, _ in rows)
    ]
    return marks.table([f"{steps:,} steps", *recipes], lines)


def span(numbers: Iterable[int]) -> str:
    """Return the smallest and the largest of the numbers, ``2 to 3``, or ``2`` if they are equal; "" for none."""
    found = sorted({*numbers})
    return " to ".join(dict.fromkeys(map(str, (*found[:1], *found[-1:]))))


def nothing(study: str) -> str:
    """Return the text that stands in for the table of a study without runs."""
    return f"No runs of the study `{study}` yet."


def _ends(cells: Sequence[Cell]) -> list[str]:
    """Return a rung's final return, mean of the last five evaluations and largest return, over its finished seeds."""
    finished = [cell for cell in cells if cell.finished]
    ends = ([value(cell) for cell in finished] for value in (lambda cell: cell.final, lambda cell: cell.late, _largest))
    return [str(estimate(values, "iqm")) for values in ends]


def _largest(cell: Cell) -> float:
    return float(cell.returns.max())


def _rung(rung: ladder.Rung, cells: Sequence[Cell], env_id: str) -> dict[str, Any] | None:
    own = ladder.cells_of(rung, cells, env_id)
    return row_of(own, rung.label) if own else None


def _brief(row: dict[str, Any] | None) -> str:
    """Return the final return over seeds, with its interval and the number of seeds in brackets."""
    if row is None or not row["seeds"]:
        return ""
    final, low, high = (format_number(round(row[key])) for key in ("final", "final_low", "final_high"))
    seeds = study_report.seeds_of(row)
    return f"{final} ({low} to {high}; {seeds} seed{'' if seeds == '1' else 's'})"
