"""Compare returns in five Gym tasks with published values, by environment steps and by multiply-adds per step.

Published values are for v4 environments, and most come from the middle of runs of a million steps, long before learning
rates fall. So our recipe has two rows: before its cooldown, where a longer run would have the same return, and after.
The study ``gym_v4`` is read as the published runs are: in v4, midway through runs that are planned for a million steps.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.learning.long_form import Cell
from benchmarks.learning.midway import return_at
from benchmarks.learning.normalised import REFERENCES, RESAMPLES, normalised
from benchmarks.learning.tables import span

OPERATIONS = Path(__file__).parents[1] / "results" / "operations.json"  # counted by benchmarks.speed.roofline
PUBLISHED = Path(__file__).parents[1] / "results" / "gym_published.csv"
STEPS = (100_000, 300_000, 1_000_000)
BEFORE_COOLDOWN = 0.8  # share of a run up to which the rates of `plus` are constant
ANY_TIME, KNOWN = "any time", "budget known"
V4_STUDY, V4 = "gym_v4", "presets, any time, v4"
# Our recipes: whether their learning rates fall to 0 at the end, and the recipe whose operations were counted.
RECIPES = {"plus": (True, "plus"), "plus_averaged": (True, "plus"), "td3": (False, "td3"), "ddpg": (False, "ddpg")}


class Agent(NamedTuple):
    """The scores and the cost of one agent.

    Attributes:
        scores: normalised returns by number of environment steps, averaged over the five tasks.
        hopper: the last evaluation on Hopper as a share of the run's largest, averaged over seeds.
        gmac: billions of multiply-adds per step of HalfCheetah.
        seeds: the number of seeds per task.
        interval: the 95 % bootstrap interval of the score; published values have none.
    """

    scores: dict[int, float]
    hopper: float | None
    gmac: float | None
    seeds: str
    interval: tuple[float, float] | None = None


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
            returns = {env_id: [return_at(cell, step) for cell in own] for env_id, own in runs.items()}
            last = holds if share == 1 else None
            agent = Agent({step: _mean(returns)}, last, gmac(counted), seeds, _interval(returns))
            found[f"`{recipe}`, {when}"] = agent
    if all((returns := v4_returns(cells)).values()):
        found[V4] = Agent(
            {STEPS[0]: _mean(returns)}, None, gmac("plus"), span(map(len, returns.values())), _interval(returns)
        )
    return found


def v4_returns(cells: Sequence[Cell]) -> dict[str, list[float]]:
    """Return the presets' returns in v4 after 100,000 steps, a seed each, by the id of the v5 environment."""
    found: dict[str, list[float]] = {env_id: [] for env_id in REFERENCES}
    for cell in cells:
        if cell.study == V4_STUDY and cell.reached >= STEPS[0]:
            found[cell.env_id.replace("-v4", "-v5")].append(return_at(cell, STEPS[0]))
    return found


def v4_table(cells: Sequence[Cell]) -> str:
    """Return the returns in each v4 task after 100,000 steps: of each of our seeds, and published means."""
    tasks = [env_id.removesuffix("-v5") for env_id in REFERENCES]
    lines = [f"| after {STEPS[0]:,} steps | {' | '.join(tasks)} |", "|---" * (len(tasks) + 1) + "|"]
    mine = v4_returns(cells)
    lines += [f"| presets, each seed | {' | '.join(_listed(returns) for returns in mine.values())} |"]
    lines += [f"| ... their mean | {' | '.join(_listed([np.mean(own)]) if own else '' for own in mine.values())} |"]
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["measure"], row["steps"]) == ("return", str(STEPS[0]))]
    for method in _names(rows):
        means = {row["task"]: float(row["value"]) for row in rows if row["method"] == method}
        lines.append(f"| {method} | {' | '.join(_listed([means[task]]) for task in tasks)} |")
    return "\n".join(lines)


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
        scores = [f"{agent.scores[steps]:.2f}" if steps in agent.scores else "" for steps in STEPS]
        if name in mine and (early := min(agent.scores)) not in STEPS:
            scores[0] += f"{agent.scores[early]:.2f} at {early:,}"
        if agent.interval:
            scores[0] += f" ({agent.interval[0]:.2f} to {agent.interval[1]:.2f})"
        others = ("" if number is None else f"{number:.2f}" for number in (agent.gmac, agent.hopper))
        lines.append([name, agent.seeds, *scores, *others])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *lines))


def v4_sentence(cells: Sequence[Cell]) -> str:
    """Return README's sentence about the presets in v4, beside published agents; empty until every task has a run."""
    mine = ours(cells).get(V4)
    if mine is None or mine.interval is None:
        return ""
    low, high = mine.interval
    others = [f"{name} {agent.scores[STEPS[0]]:.2f}" for name, agent in published().items() if STEPS[0] in agent.scores]
    return (
        f"In the v4 environments, {STEPS[0]:,} steps into runs planned for a million, as most published values are "
        f"read, the presets have a normalised mean of {mine.scores[STEPS[0]]:.2f} ({low:.2f} to {high:.2f}) over five "
        f"tasks, with {mine.seeds} seeds each and {mine.gmac:.2f} billion multiply-adds a step "
        f"([table](docs/learning.md#in-the-same-environments)). Published: {', '.join(others)}."
    )


def points(cells: Sequence[Cell]) -> dict[str, Agent]:
    """Return the agents that have a score after at most 100,000 steps and a count of multiply-adds, by name."""
    agents = {**published(), **ours(cells)}
    return {name: agent for name, agent in agents.items() if agent.gmac and min(agent.scores, default=0) <= STEPS[0]}


def front(agents: Mapping[str, Agent]) -> list[str]:
    """Return the names of the agents that score higher than all cheaper ones (the Pareto front), cheapest first."""
    best, found = -np.inf, []
    for name, agent in sorted(agents.items(), key=lambda item: (item[1].gmac, -first_score(item[1]))):
        if first_score(agent) > best:
            best = first_score(agent)
            found.append(name)
    return found


def first_score(agent: Agent) -> float:
    """Return the score at the smallest number of steps."""
    return agent.scores[min(agent.scores)]


def _is_included(cell: Cell) -> bool:
    return cell.study in ("table", "averaged") and cell.finished


def _mean(returns: Mapping[str, Sequence[float]]) -> float:
    return float(np.mean([normalised(env_id, own).mean() for env_id, own in returns.items()]))


def _interval(returns: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Return the ends of the mean's 95 % percentile bootstrap interval, with seeds resampled within each task."""
    generator = np.random.default_rng(0)
    tasks = [normalised(env_id, own) for env_id, own in returns.items()]
    drawn = [task[generator.integers(0, len(task), (RESAMPLES, len(task)))].mean(1) for task in tasks]
    low, high = np.percentile(np.mean(drawn, axis=0), [2.5, 97.5])
    return float(low), float(high)


def _listed(returns: Sequence[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in returns)


def _names(rows: Sequence[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _agent(rows: Sequence[dict[str, str]]) -> Agent:
    scores = {}
    for steps in STEPS:
        here = [row for row in rows if row["steps"] == str(steps)]
        returns = {f"{row['task']}-v5": [float(row["value"])] for row in here if row["measure"] == "return"}
        if returns.keys() == REFERENCES.keys():
            scores[steps] = _mean(returns)
        elif scored := [float(row["value"]) for row in here if row["measure"] == "normalised"]:
            scores[steps] = scored[0]

    def one(measure: str, task: str) -> float | None:
        named = [float(row["value"]) for row in rows if (row["measure"], row["task"]) == (measure, task)]
        return named[0] if named else None

    seeds = span(int(row["seeds"]) for row in rows if row["measure"] == "return")
    return Agent(scores, one("last / largest", "Hopper"), one("GMAC a step", "HalfCheetah"), seeds)
