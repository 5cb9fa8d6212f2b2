"""Pictures of training runs."""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ddpg.runs import directory


def plot_learning_curve(run: Path, title: str) -> Path:
    """Draw training and evaluation return against environment steps into ``learning_curve.png``.

    Training: every episode with exploration noise, and their running mean. Evaluation: the mean without
    noise, with its 95 % confidence interval.
    """
    figure = Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    episodes = directory.read_table(run / "episodes.csv")
    if episodes:
        steps = np.array([float(row["timesteps"]) for row in episodes])
        returns = np.array([float(row["return"]) for row in episodes])
        axes.plot(steps, returns, ".", markersize=3, color="tab:blue", alpha=0.35, label="training episode")
        mean_steps, means = _running_mean(steps, returns)
        axes.plot(mean_steps, means, color="tab:blue", linewidth=1.5, label="training, running mean")
    evaluations = directory.read_table(run / "evaluations.csv")
    if evaluations:
        column = {name: np.array([float(row[name]) for row in evaluations]) for name in _EVALUATION}
        count = evaluations[-1]["episodes"]
        axes.fill_between(
            column["timesteps"],
            column["ci95_low"],
            column["ci95_high"],
            color="tab:orange",
            alpha=0.25,
            linewidth=0,
        )
        axes.plot(
            column["timesteps"],
            column["mean_return"],
            "o-",
            markersize=4,
            color="tab:orange",
            label=f"evaluation without noise, mean of {count} and 95 % CI",
        )
    axes.set_title(title)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return (undiscounted sum of rewards)")
    axes.grid(alpha=0.3)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if episodes or evaluations:
        axes.legend(loc="lower right", fontsize=8)
    path = run / "learning_curve.png"
    figure.savefig(path)
    return path


_EVALUATION = ("timesteps", "mean_return", "ci95_low", "ci95_high")


def _running_mean(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over a window of a tenth of the episodes, 5 to 100 of them, at each window's end."""
    window = min(len(values), int(np.clip(len(values) // 10, 5, 100)))
    means = np.convolve(values, np.full(window, 1 / window), mode="valid")
    return steps[window - 1 :], means
