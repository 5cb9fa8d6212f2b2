"""Compare the runs of the study ``dmc`` with published values at the same number of environment steps."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.learning.long_form import Cell
from benchmarks.learning.tables import groups, nothing, row_of, span
from benchmarks.marks import table as markdown
from ddpg.progress import format_number
from ddpg.studies import study_report

STUDY = "dmc"
PUBLISHED = Path(__file__).parents[1] / "results" / "control_suite_published.csv"
CONFIGURATIONS = ("preset", "preset_min", "six_updates_n3", "plus", "td3")
# The configurations and the published methods with a column in the tables of tasks. The others ran in a few tasks.
COLUMNS = ("preset", "preset_min", "plus")
BESIDE = ("SimbaV2", "MR.Q", "TD-MPC2", "SAC")
# Easy and medium as in Yarats et al. 2021 (DrQ-v2, arXiv 2107.09645); fish-swim, which they leave out, is in medium.
# The hard tasks are the seven of humanoid and dog, as in SimBa (Lee et al. 2024, arXiv 2410.09754).
GROUPS = {
    "easy": (
        *("ball_in_cup-catch", "cartpole-balance", "cartpole-balance_sparse", "cartpole-swingup", "finger-spin"),
        *("hopper-stand", "pendulum-swingup", "walker-stand", "walker-walk"),
    ),
    "medium": (
        *("acrobot-swingup", "cartpole-swingup_sparse", "cheetah-run", "finger-turn_easy", "finger-turn_hard"),
        *("fish-swim", "hopper-hop", "quadruped-run", "quadruped-walk", "reacher-easy", "reacher-hard", "walker-run"),
    ),
    "hard": (*("dog-run", "dog-stand", "dog-trot", "dog-walk", "humanoid-run", "humanoid-stand", "humanoid-walk"),),
}
# Tasks in which a run can end before it has seen any reward.
SWING_UPS = ("acrobot-swingup", "cartpole-swingup", "cartpole-swingup_sparse", "pendulum-swingup")


def published(path: Path = PUBLISHED) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Return the published returns by method and task, and by method and group, in the file's order.

    A group's mean is computed from its tasks if the file has all of them. Otherwise it is the file's value for the
    group, if there is one.
    """
    tasks: dict[str, dict[str, float]] = {}
    means: dict[str, dict[str, float]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            own = tasks.setdefault(row["method"], {})
            if row["task"]:
                own[row["task"]] = float(row["value"])
            else:
                means.setdefault(row["method"], {})[row["group"]] = float(row["value"])
    for method, values in tasks.items():
        for group, names in GROUPS.items():
            if values.keys() >= {*names}:
                means.setdefault(method, {})[group] = float(np.mean([values[name] for name in names]))
    return tasks, {method: means[method] for method in tasks if method in means}


def by_group(cells: Sequence[Cell], path: Path = PUBLISHED) -> str:
    """Return a row for each of our configurations and each published method: mean returns over each group's tasks.

    Our values are means over tasks of means over finished seeds, and are missing until every task has a finished seed.
    A configuration has a row if it has one of these values.
    """
    rows = []
    for configuration in CONFIGURATIONS:
        own = [_group_mean(cells, configuration, names) for names in GROUPS.values()]
        if any(own):
            rows.append([f"`{configuration}`", *own])
    for method, means in published(path)[1].items():
        texts = [format_number(round(means[group])) if group in means else "" for group in GROUPS]
        rows.append([method, *texts])
    return markdown(["", *(f"{group}, {len(names)} tasks" for group, names in GROUPS.items())], rows)


def by_task(cells: Sequence[Cell], swing_ups: bool = False, path: Path = PUBLISHED) -> str:
    """Return a row for each task: each configuration's final return over its finished seeds, and published means.

    Args:
        cells: the runs.
        swing_ups: whether to return the tasks of :data:`SWING_UPS` or all others.
        path: the published values.
    """
    if not any(cell.study == STUDY for cell in cells):
        return nothing(STUDY)
    rows = {(group[0].env_id, group[0].recipe): row_of(group) for group in groups(cells, STUDY)}
    beside = published(path)[0]
    lines = []
    for group, names in GROUPS.items():
        for name in names:
            if (name in SWING_UPS) == swing_ups:
                ours = [_final(rows.get((env_id(name), configuration))) for configuration in COLUMNS]
                others = [format_number(round(beside[method][name])) for method in BESIDE]
                lines.append([name, group, *ours, *others])
    return markdown(["task", "group", *(f"`{name}`" for name in COLUMNS), *BESIDE], lines)


def env_id(task: str) -> str:
    """Return the id of a task as the study names it."""
    return f"dmc/{task}-v0"


def _group_mean(cells: Sequence[Cell], configuration: str, names: Sequence[str]) -> str:
    finals: dict[str, list[float]] = {}
    planned = 0  # seeds of a task
    for group in groups([cell for cell in cells if cell.recipe == configuration], STUDY):
        done = [cell.final for cell in group if cell.finished]
        if done and group[0].env_id in map(env_id, names):
            finals[group[0].env_id] = done
            planned = max(planned, len(group))
    if len(finals) < len(names):  # no mean: the missing tasks may be the hard ones
        return ""
    mean = format_number(round(float(np.mean([np.mean(values) for values in finals.values()]))))
    seeds = span(map(len, finals.values()))
    return f"{mean} ({seeds}{'' if seeds == str(planned) else f' of {planned}'} seed{'s' * (planned > 1)})"


def _final(row: dict | None) -> str:
    if row is None or not row["seeds"]:
        return "none yet"
    seeds = study_report.seeds_of(row)
    if row["seeds"] == 1:
        return f"{format_number(round(row['final']))} ({seeds} seed{'' if seeds == '1' else 's'})"
    low, high = (format_number(round(row[key])) for key in ("final_low", "final_high"))
    return f"{format_number(round(row['final']))} ({low} to {high}; {seeds} seeds)"
