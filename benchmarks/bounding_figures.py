"""Write the results of benchmarks/bounding.py into docs/results.md, and draw a picture for each environment.

python -m benchmarks.bounding_figures [--out docs]
"""

import argparse
import csv
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy import stats

from benchmarks import marks

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "results.md"
COLOURS = {"squashing": "tab:blue", "inverting": "tab:orange", "zeroing": "tab:green"}

Rows = list[dict[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("docs"), help="folder of results.md and the pictures (default: docs)"
    )
    options = parser.parse_args()
    marks.write(options.out / PAGE.name, tables())
    rows = read("bounding_curves.csv")
    for env_id in dict.fromkeys(row["env_id"] for row in rows):
        path = options.out / f"bounding_{env_id.rpartition('/')[2]}.png"
        draw(env_id, [row for row in rows if row["env_id"] == env_id]).savefig(path)
        print(f"wrote {path}")


def tables() -> dict[str, str]:
    """Return the page's tables of the committed results, by mark."""
    return {"bounding": table(read("bounding.csv"))}


def table(rows: Rows) -> str:
    """Return a Markdown table: means over seeds with Student's intervals, and the gain of inverting with Welch's."""
    lines = []
    for env_id in dict.fromkeys(row["env_id"] for row in rows):
        runs = {
            bounding: [row for row in rows if (row["env_id"], row["bounding"]) == (env_id, bounding)]
            for bounding in COLOURS
        }
        returns = {bounding: [float(row["mean_return"]) for row in own] for bounding, own in runs.items()}
        for bounding, own in returns.items():
            better = "" if bounding == "inverting" else _interval(returns["inverting"], own)
            goals = [float(row["success_rate"]) for row in runs[bounding] if row["success_rate"]]
            success = f"{np.median(goals):.0%}" if goals else ""
            values = " ".join(map(_short, own))
            lines.append([env_id.rpartition("/")[2], bounding, _interval(own), better, success, values])
    heads = ["environment", "bounding", "return", "inverting returns more by", "goals, median seed", "return per seed"]
    return marks.table(heads, lines)


def _interval(values: list[float], others: list[float] = ()) -> str:
    """Return the mean, less that of ``others`` if given, and its 95 % interval (Welch's; Student's without others)."""
    mean, variance, freedom = np.mean(values), np.var(values, ddof=1) / len(values), len(values) - 1
    if len(others):
        parts = variance, np.var(others, ddof=1) / len(others)
        mean, variance = mean - np.mean(others), sum(parts)
        if variance:
            freedom = variance**2 / (parts[0] ** 2 / freedom + parts[1] ** 2 / (len(others) - 1))
    half = stats.t.ppf(0.975, freedom) * np.sqrt(variance)
    return f"{_short(mean)} ({_short(mean - half)} to {_short(mean + half)})"


def _short(value: float) -> str:
    """Return a number with three digits, never as a power of ten."""
    return f"{float(f'{value:.3g}'):.10g}"


def read(name: str) -> Rows:
    """Return the rows of a file of results."""
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def draw(env_id: str, rows: Rows) -> Figure:
    """Return a figure of four panels: success, and what outputs and gradients do at the bounds."""
    figure = Figure(figsize=(9.5, 7.4), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2, sharex=True)
    succeeds = any(row["success_rate"] for row in rows)
    seeds = len({row["seed"] for row in rows})
    for bounding, colour in COLOURS.items():
        own = [row for row in rows if row["bounding"] == bounding]
        goals = [_number(row, "success_rate") if succeeds else _number(row, "mean_return") for row in own]
        passed = [_number(row, "bounded_gradient_norm") / _number(row, "action_gradient_norm") for row in own]
        draw_band(axes[0, 0], own, goals, colour, bounding, most=1.0 if succeeds else None)
        draw_band(axes[0, 1], own, [_number(row, "actions_outside") for row in own], colour, bounding, most=1.0)
        draw_band(axes[1, 0], own, [_number(row, "actions_saturated") for row in own], colour, bounding, most=1.0)
        draw_band(axes[1, 1], own, passed, colour, bounding, most=np.inf)
    _label(axes[0, 0], "Evaluation without noise", "share of episodes with success" if succeeds else "return")
    _label(axes[0, 1], "Outputs μ(s) outside the box", "share of the minibatch")
    _label(axes[1, 0], "Outputs μ(s) within 1 % of a bound, or outside", "share of the minibatch")
    _label(axes[1, 1], "What bounding leaves of ∇ₐQ (tanh not counted)", "norm after / norm before")
    for panel in axes[1]:
        panel.set_xlabel("environment steps (thousands)")
        panel.xaxis.set_major_formatter(lambda value, _: f"{value / 1000:g}")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), ncols=3, loc="outside lower center")
    figure.suptitle(f"{env_id}: three boundings, mean and 95 % band over {seeds} seeds")
    return figure


def _number(row: dict[str, str], name: str) -> float:
    return float(row[name]) if row[name] else np.nan


def draw_band(axes: Axes, rows: Rows, values: Iterable[float], colour: str, label: str, most: float | None) -> None:
    """Draw the mean over seeds at each evaluation with its Student's 95 % interval, within [0, ``most``] if given.

    An evaluation waits for the end of the episode, so seeds have their n-th at slightly different steps: it is drawn at
    their mean.
    """
    seen: Counter[str] = Counter()
    by_number: dict[int, list[tuple[int, float]]] = {}
    for row, value in zip(rows, values, strict=True):
        if np.isfinite(value):
            by_number.setdefault(seen[row["seed"]], []).append((int(row["timesteps"]), value))
        seen[row["seed"]] += 1
    count = max(map(len, by_number.values()), default=0)
    whole = [group for _, group in sorted(by_number.items()) if len(group) == count]  # what has too few has no interval
    if not whole:
        return
    steps, groups = np.array(whole)[..., 0].mean(axis=1), np.array(whole)[..., 1]
    means = groups.mean(axis=1)
    axes.plot(steps, means, color=colour, label=label)
    if count > 1:
        half = stats.t.ppf(0.975, count - 1) * groups.std(axis=1, ddof=1) / np.sqrt(count)
        low, high = means - half, means + half
        if most is not None:
            low, high = np.clip([low, high], 0.0, most)
        axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def _label(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_ylabel(unit)
    axes.grid(alpha=0.3)


if __name__ == "__main__":
    main()
