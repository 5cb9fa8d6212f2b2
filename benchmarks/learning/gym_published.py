"""Compare returns in five Gym tasks with published values, by environment steps and by multiply-adds per step.

Published values are for v4 environments, and most come from the middle of runs of a million steps, long before learning
rates fall. So our recipe has two rows: before its cooldown, where a longer run would have the same return, and after.
The study ``gym_v4`` is read as the published runs are: in v4, midway through runs that are planned for a million steps.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import marks
from benchmarks.learning.long_form import Cell
from benchmarks.learning.normalised import REFERENCES, RESAMPLES, normalised
from benchmarks.learning.tables import span
from ddpg.runs.curves import holding

OPERATIONS = Path(__file__).parents[1] / "results" / "operations.json"  # counted by benchmarks.speed.roofline
PUBLISHED = Path(__file__).parents[1] / "results" / "gym_published.csv"
STEPS = (100_000, 300_000, 1_000_000)
BEFORE_COOLDOWN = 0.8  # share of a run up to which the rates of `plus` are constant
ANY_TIME, KNOWN = "any time", "budget known"
V4_STUDY, V4 = "gym_v4", "presets, any time, v4"
# Humanoid's preset got the norm before the activation on 2026-11-28, when three runs without it had been made.
V4_BEFORE = {"Humanoid-v4": "averaged"}
# Our recipes: whether their learning rates fall to 0 at the end, and the recipe whose operations were counted.
RECIPES = {"plus": (True, "plus"), "plus_averaged": (True, "plus"), "td3": (False, "td3"), "ddpg": (False, "ddpg")}


class Score(NamedTuple):
    """A normalised return, averaged over the five tasks.

    Attributes:
        mean: over the tasks, and over the seeds of each.
        interval: its 95 % bootstrap interval; ``None`` for published values, and if a task has a single seed.
    """

    mean: float
    interval: tuple[float, float] | None = None


class Agent(NamedTuple):
    """The scores and the cost of one agent.

    Attributes:
        scores: by number of environment steps.
        hopper: the last evaluation on Hopper as a share of the run's largest, averaged over seeds.
        gmac: billions of multiply-adds per step of HalfCheetah.
        seeds: the number of seeds per task.
    """

    scores: dict[int, Score]
    hopper: float | None
    gmac: float | None
    seeds: str


def published(path: Path = PUBLISHED) -> dict[str, Agent]:
    """Return the published agents, by name, in the file's order; a score is left out if a task is missing."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {method: _agent([row for row in rows if row["method"] == method]) for method in _names(rows)}


def ours(cells: Sequence[Cell]) -> dict[str, Agent]:
    """Return our recipes that have a finished seed in each of the five tasks, before and after the cooldown."""
    found = {}
    for recipe, (cools, counted) in RECIPES.items():
        runs = {
            env_id: [cell for cell in cells if (cell.env_id, cell.recipe) == (env_id, recipe) and _is_included(cell)]
            for env_id in REFERENCES
        }
        if not all(runs.values()):
            continue
        asked = next(iter(runs.values()))[0].planned_steps
        seeds = span(map(len, runs.values()))
        holds = float(np.mean([cell.final / cell.returns.max() for cell in runs["Hopper-v5"]]))
        for when, share in ((ANY_TIME, BEFORE_COOLDOWN if cools else 1), (KNOWN, 1))[: 1 + cools]:
            step = round(share * asked)
            returns = {env_id: [cell.return_at(step) for cell in own] for env_id, own in runs.items()}
            last = holds if share == 1 else None
            found[f"`{recipe}`, {when}"] = Agent({step: _score(returns)}, last, gmac(counted), seeds)
    reached = {steps: returns for steps in STEPS if all((returns := v4_returns(cells, steps)).values())}
    if reached:
        counts = {steps: span(map(len, returns.values())) for steps, returns in reached.items()}
        fewer = [f"{seeds} at {steps:,}" for steps, seeds in counts.items() if seeds != counts[STEPS[0]]]
        found[V4] = Agent(
            {steps: _score(returns) for steps, returns in reached.items()},
            None,
            gmac("plus"),
            ", ".join([counts[STEPS[0]], *fewer]),
        )
    return found


def v4_returns(cells: Sequence[Cell], steps: int) -> dict[str, list[float]]:
    """Return the presets' returns in v4 after ``steps`` steps, a seed each, by the id of the v5 environment."""
    return {env_id: [cell.return_at(steps) for cell in own] for env_id, own in _v4_cells(cells, steps).items()}


def v4_table(cells: Sequence[Cell]) -> str:
    """Return the returns in each v4 task at each number of steps that a run has reached."""
    return "\n\n".join(_v4_table(cells, steps) for steps in STEPS if any(v4_returns(cells, steps).values()))


def _v4_cells(cells: Sequence[Cell], steps: int) -> dict[str, list[Cell]]:
    """Return the runs in v4 that have come to ``steps``, by the id of the v5 environment.

    Those of Humanoid have its earlier preset.
    """
    reached = [cell for cell in _v4_reached(cells, steps) if not _has_todays_preset(cell)]
    return {env_id: [cell for cell in reached if cell.env_id == env_id.replace("-v5", "-v4")] for env_id in REFERENCES}


def _v4_reached(cells: Sequence[Cell], steps: int) -> list[Cell]:
    return [cell for cell in cells if cell.study == V4_STUDY and cell.reached >= steps]


def _has_todays_preset(cell: Cell) -> bool:
    """Return whether a run in v4 has the present options of a preset that has changed since the others were made."""
    return cell.recipe != V4_BEFORE.get(cell.env_id, cell.recipe)


def _v4_table(cells: Sequence[Cell], steps: int) -> str:
    """Return rows for our seeds, their mean and how well they hold it, and the published means."""
    tasks = [env_id.removesuffix("-v5") for env_id in REFERENCES]
    mine = v4_returns(cells, steps)
    held = [[holding(cell.returns_until(steps)) for cell in own] for own in _v4_cells(cells, steps).values()]
    rows = {
        "presets, each seed": [_listed(returns) for returns in mine.values()],
        "... their mean": [_listed([np.mean(returns)]) if returns else "" for returns in mine.values()],
        "... last / largest": [_mean_text([one.kept for one in runs]) for runs in held],
        "... dips": [_mean_text([one.dips for one in runs]) for runs in held],
    }
    changed = [cell for cell in _v4_reached(cells, steps) if _has_todays_preset(cell)]
    if changed:
        returns = {task: [cell.return_at(steps) for cell in changed if cell.env_id == f"{task}-v4"] for task in tasks}
        rows["Humanoid's preset today, each seed"] = [_listed(returns[task]) for task in tasks]
    lines = [[name, *row] for name, row in rows.items()]
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["measure"], row["steps"]) == ("return", str(steps))]
    for method in _names(rows):
        means = {row["task"]: float(row["value"]) for row in rows if row["method"] == method}
        lines.append([method, *(_listed([means[task]]) for task in tasks)])
    return marks.table([f"after {steps:,} steps", *tasks], lines)


def gmac(recipe: str) -> float:
    """Return the multiply-adds of matrix products per step of HalfCheetah, in billions."""
    found = json.loads(OPERATIONS.read_text())[recipe]
    return found["product_flop"] * found["updates_per_step"] / 2e9


def table(cells: Sequence[Cell]) -> str:
    """Return a row for each agent: normalised mean by steps, multiply-adds per step, and Hopper's last / largest."""
    heads = ["agent", "seeds per task", *(f"{steps:,}" for steps in STEPS), "GMAC per step", "Hopper, last / largest"]
    mine = ours(cells)
    lines = []
    for name, agent in {**mine, **published()}.items():
        scores = [_with_interval(agent.scores[steps]) if steps in agent.scores else "" for steps in STEPS]
        if name in mine and (early := min(agent.scores)) not in STEPS:
            scores[0] = _with_interval(agent.scores[early], f" at {early:,}")
        others = ("" if number is None else f"{number:.2f}" for number in (agent.gmac, agent.hopper))
        lines.append([name, agent.seeds, *scores, *others])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))


def v4_sentence(cells: Sequence[Cell]) -> str:
    """Return README's sentence about the presets in v4, beside published agents; empty until every task has a run."""
    mine = ours(cells).get(V4)
    if mine is None:
        return ""
    points = " and ".join(f"{steps:,}" for steps in mine.scores)
    means = " and ".join(map(_with_interval, mine.scores.values()))
    others = [f"{name} {_means(agent, mine.scores)}" for name, agent in published().items()]
    return (
        f"In the v4 environments, {points} steps into runs planned for a million, as most published values are "
        f"read, the presets, Humanoid's with its earlier norm, have a normalised mean of {means} over "
        f"five tasks (seeds: {mine.seeds}), at {mine.gmac:.2f} billion multiply-adds a step "
        f"([table](docs/learning.md#in-the-same-environments)). Published: {', '.join(others)}."
    )


def points(cells: Sequence[Cell]) -> dict[str, Agent]:
    """Return the agents that have a score after at most 100,000 steps and a count of multiply-adds, by name."""
    agents = {**published(), **ours(cells)}
    return {name: agent for name, agent in agents.items() if agent.gmac and min(agent.scores, default=0) <= STEPS[0]}


def front(agents: Mapping[str, Agent]) -> list[str]:
    """Return the names of the agents that score higher than all cheaper ones (the Pareto front), cheapest first."""
    best, found = -np.inf, []
    for name, agent in sorted(agents.items(), key=lambda item: (item[1].gmac, -first_score(item[1]).mean)):
        if first_score(agent).mean > best:
            best = first_score(agent).mean
            found.append(name)
    return found


def first_score(agent: Agent) -> Score:
    """Return the score at the smallest number of steps."""
    return agent.scores[min(agent.scores)]


def _is_included(cell: Cell) -> bool:
    return cell.study in ("table", "averaged") and cell.finished


def _mean(returns: Mapping[str, Sequence[float]]) -> float:
    return float(np.mean([normalised(env_id, own).mean() for env_id, own in returns.items()]))


def _score(returns: Mapping[str, Sequence[float]]) -> Score:
    """Return the mean and its 95 % percentile bootstrap interval, with seeds resampled within each task.

    There is no interval if a task has a single seed.
    """
    if min(map(len, returns.values())) == 1:
        return Score(_mean(returns))
    generator = np.random.default_rng(0)
    tasks = [normalised(env_id, own) for env_id, own in returns.items()]
    drawn = [task[generator.integers(0, len(task), (RESAMPLES, len(task)))].mean(1) for task in tasks]
    low, high = np.percentile(np.mean(drawn, axis=0), [2.5, 97.5])
    return Score(_mean(returns), (float(low), float(high)))


def _with_interval(score: Score, at: str = "") -> str:
    low_high = f" ({score.interval[0]:.2f} to {score.interval[1]:.2f})" if score.interval else ""
    return f"{score.mean:.2f}{at}{low_high}"


def _means(agent: Agent, steps: Iterable[int]) -> str:
    return " and ".join(f"{agent.scores[step].mean:.2f}" for step in steps if step in agent.scores)


def _listed(returns: Sequence[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in returns)


def _mean_text(numbers: Sequence[float]) -> str:
    return "" if np.isnan(numbers).all() else f"{np.nanmean(numbers):.2f}"


def _names(rows: Sequence[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _agent(rows: Sequence[dict[str, str]]) -> Agent:
    scores = {}
    for steps in STEPS:
        here = [row for row in rows if row["steps"] == str(steps)]
        returns = {f"{row['task']}-v5": [float(row["value"])] for row in here if row["measure"] == "return"}
        if returns.keys() == REFERENCES.keys():
            scores[steps] = Score(_mean(returns))
        elif scored := [float(row["value"]) for row in here if row["measure"] == "normalised"]:
            scores[steps] = Score(scored[0])

    def one(measure: str, task: str) -> float | None:
        named = [float(row["value"]) for row in rows if (row["measure"], row["task"]) == (measure, task)]
        return named[0] if named else None

    seeds = span(int(row["seeds"]) for row in rows if row["measure"] == "return")
    return Agent(scores, one("last / largest", "Hopper"), one("GMAC a step", "HalfCheetah"), seeds)
