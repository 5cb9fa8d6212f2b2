"""The picture of ``ddpg plot RUN --diagnose``: returns above the state of the networks, on one axis of steps."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ddpg.checkpoints import atomic_write
from ddpg.errors import FileFault, UsageError
from ddpg.runs import run_directory
from ddpg.runs.curves import Run
from ddpg.runs.plotting import COLOURS, numbers_of

_SUFFIX = "_weight_norm"  # of a column that every network has
# Of each panel below the returns: the measure, the title, the y axis, whether that is logarithmic.
_PANELS = (
    ("dormant_share", "Dormant units (score ≤ 0.025; dashed: never active)", "share of hidden units", False),
    ("feature_rank", "Effective rank of the last hidden layer", "srank", False),
    ("weight_norm", "Norm of all weights", "L2 norm", False),
    ("gradient_norm", "Norm of the gradient of one minibatch", "L2 norm", True),
    ("effective_learning_rate", "Effective learning rate: norm of one step / norm of the weights", "ratio", True),
)


def plot_diagnostics(run: Run, path: str | Path) -> Path:
    """Draw a run's returns and diagnostics, a panel each in one column, into a picture; its path is returned.

    Args:
        run: a run that was trained with ``diagnose``.
        path: a ``.png``, ``.pdf`` or ``.svg``.

    Raises:
        UsageError: if the run has no diagnostics, the file's ending is unknown, or its directory does not exist.
        FileFault: if ``diagnostics.csv`` is damaged.
    """
    path = atomic_write.check_figure(path)
    rows = diagnostics_of(run)
    networks = [name.removesuffix(_SUFFIX) for name in rows[0] if name.endswith(_SUFFIX)]
    figure = Figure(figsize=(8.2, 1.2 + 2.1 * (2 + len(_PANELS))), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    returns, values, *others = figure.subplots(2 + len(_PANELS), 1, sharex=True)
    _draw_returns(returns, run)
    _draw_values(values, rows)
    steps = numbers_of(rows, "timesteps")
    for axes, (measure, title, label, logarithmic) in zip(others, _PANELS, strict=True):
        for colour, network in zip(COLOURS, networks, strict=False):
            name = network.replace("_", " ")
            axes.plot(steps, numbers_of(rows, f"{network}_{measure}"), color=colour, linewidth=1.3, label=name)
            if measure == "dormant_share":
                axes.plot(steps, numbers_of(rows, f"{network}_dead_share"), "--", color=colour, linewidth=1.0)
        if logarithmic:
            axes.set_yscale("log")
        _finish(axes, title, label)
    others[-1].set_xlabel("environment steps", fontsize=9)
    others[-1].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    document = run.document
    figure.suptitle(f"{document['algorithm']} on {run.env_id}, seed {document['seed']}")
    return atomic_write.write_figure(path, figure)


def diagnostics_of(run: Run) -> list[dict[str, str]]:
    """Return the rows of a run's ``diagnostics.csv``.

    Raises:
        UsageError: if there are none; a :class:`FileFault` if the file is damaged or has no column of a network.
    """
    path = run.path / run_directory.DIAGNOSTICS
    rows = run_directory.read_table(path)
    if not rows:
        why = "it has no row yet" if path.exists() else "train with --diagnose to have them written"
        raise UsageError(f"{run.path} has no diagnostics to draw: {why}")
    if not any(name.endswith(_SUFFIX) for name in rows[0]):
        raise FileFault(f"{path} is damaged (it has no column of a network); move it away")
    return rows


def _draw_returns(axes: Axes, run: Run) -> None:
    episodes = run_directory.read_table(run.path / "episodes.csv")
    if episodes:
        steps, returns = numbers_of(episodes, "timesteps"), numbers_of(episodes, "return")
        axes.plot(steps, returns, ".", markersize=2.5, color=COLOURS[0], alpha=0.35, label="training episode")
    if run.rows:
        axes.plot(run.steps, run.returns, "o-", markersize=3.5, color=COLOURS[4], label="evaluation, mean")
    _finish(axes, "Return", "sum of rewards")


def _draw_values(axes: Axes, rows: Sequence[dict[str, str]]) -> None:
    steps = numbers_of(rows, "timesteps")
    for colour, name, label in (
        (COLOURS[3], "q_value", "Q(s, μ(s))"),
        (COLOURS[6], "discounted_return", "discounted return from s on"),
    ):
        axes.plot(steps, numbers_of(rows, name), color=colour, linewidth=1.3, label=label)
    _finish(axes, "Critic's estimate and what was obtained", "env units")


def _finish(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_ylabel(label, fontsize=8)
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.3)
    if any(np.isfinite(line.get_ydata()).any() for line in axes.get_lines()):
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))  # beside the curves, never on them
