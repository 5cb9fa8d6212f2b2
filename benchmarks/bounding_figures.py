"""Show what benchmarks/bounding.py measured: a table, and a picture for each environment, with 95 % intervals.

python benchmarks/bounding_figures.py [--out docs]
"""

import argparse
import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy import stats

RESULTS = Path(__file__).parent / "results"
COLOURS = {"squashing": "tab:blue", "inverting": "tab:orange", "zeroing": "tab:green"}

Rows = list[dict[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the pictures (default: docs)")
    options = parser.parse_args()
    print(table(_read("bounding.csv")))
    rows = _read("bounding_curves.csv")
    for env_id in dict.fromkeys(row["env_id"] for row in rows):
        path = options.out / f"bounding_{env_id.rpartition('/')[2]}.png"
        draw(env_id, [row for row in rows if row["env_id"] == env_id]).savefig(path)
        print(f"wrote {path}")


def table(rows: Rows) -> str:
    """Return Markdown: Student's intervals of the mean over seeds, and Welch's of its difference to inverting's."""
    lines = [
        "| environment | bounding | mean return | inverting is better by | success | seeds |",
        "|---|---|---|---|---|---|",
    ]
    for env_id in dict.fromkeys(row["env_id"] for row in rows):
        runs = {
            bounding: [row for row in rows if (row["env_id"], row["bounding"]) == (env_id, bounding)]
            for bounding in COLOURS
        }
        returns = {bounding: [float(row["mean_return"]) for row in own] for bounding, own in runs.items()}
        for bounding, own in returns.items():
            mean = stats.ttest_1samp(own, 0)
            cells = [env_id.rpartition("/")[2], bounding, _interval(np.mean(own), mean.confidence_interval())]
            better = stats.ttest_ind(returns["inverting"], own, equal_var=False)
            difference = np.mean(returns["inverting"]) - np.mean(own)
            cells.append("" if bounding == "inverting" else _interval(difference, better.confidence_interval()))
            goals = [float(row["success_rate"]) for row in runs[bounding] if row["success_rate"]]
            cells.append(f"{np.median(goals):.0%}" if goals else "")
            cells.append(" ".join(f"{value:.4g}" for value in own))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _interval(mean: float, interval: tuple[float, float]) -> str:
    return f"{mean:.3g} ({interval[0]:.3g} to {interval[1]:.3g})"


def _read(name: str) -> Rows:
    with (RESULTS / name).open(newline="") as file:
        return list(csv.DictReader(file))


def draw(env_id: str, rows: Rows) -> Figure:
    """Return four panels: success, and the three ways in which actions meet their bounds."""
    figure = Figure(figsize=(9.5, 7.2), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 2, sharex=True)
    succeeds = any(row["success_rate"] for row in rows)
    seeds = len({row["seed"] for row in rows})
    for bounding, colour in COLOURS.items():
        own = [row for row in rows if row["bounding"] == bounding]
        goals = [_number(row, "success_rate") if succeeds else _number(row, "mean_return") for row in own]
        _band(axes[0, 0], own, goals, colour, bounding)
        _band(axes[0, 1], own, [_number(row, "actions_outside") for row in own], colour, bounding)
        _band(axes[1, 0], own, [_number(row, "actions_saturated") for row in own], colour, bounding)
        passed = [_number(row, "bounded_gradient_norm") / _number(row, "action_gradient_norm") for row in own]
        _band(axes[1, 1], own, passed, colour, bounding)
    _label(axes[0, 0], "Evaluation without noise", "share of episodes with success" if succeeds else "return")
    _label(axes[0, 1], "Numbers of μ(s) outside the box", "share of the minibatch")
    _label(axes[1, 0], "Numbers of μ(s) within 1 % of a bound, or outside", "share of the minibatch")
    _label(axes[1, 1], "What bounding leaves of ∇ₐQ", "norm after / norm before")
    for panel in axes[1]:
        panel.set_xlabel("environment steps")
        panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes[0, 0].legend(loc="best")
    figure.suptitle(f"{env_id}: three boundings, mean and 95 % band over {seeds} seeds")
    return figure


def _number(row: dict[str, str], name: str) -> float:
    return float(row[name]) if row[name] else np.nan


def _band(axes: Axes, rows: Rows, values: Iterable[float], colour: str, label: str) -> None:
    """Draw the mean over seeds at each evaluation, with Student's 95 % interval of it."""
    by_step: dict[int, list[float]] = {}
    for row, value in zip(rows, values, strict=True):
        if np.isfinite(value):
            by_step.setdefault(int(row["timesteps"]), []).append(value)
    most = max(map(len, by_step.values()), default=0)
    # A vector's runs may end a few steps apart; a step that few seeds share has no interval.
    steps = sorted(step for step, group in by_step.items() if len(group) == most)
    groups = np.array([by_step[step] for step in steps])
    if not steps:
        return
    means = groups.mean(axis=1)
    axes.plot(steps, means, color=colour, label=label)
    if most > 1:
        half = stats.t.ppf(0.975, most - 1) * groups.std(axis=1, ddof=1) / np.sqrt(most)
        axes.fill_between(steps, means - half, means + half, color=colour, alpha=0.2, linewidth=0)


def _label(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, fontsize=11)
    axes.set_ylabel(unit)
    axes.grid(alpha=0.3)


if __name__ == "__main__":
    main()
