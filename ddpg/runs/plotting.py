"""Plots of training runs: learning curves over seeds, and a run's returns with its diagnostics, also as numbers."""

import itertools
import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from ddpg.checkpoints import atomic_write
from ddpg.errors import FileFault, UsageError, printable
from ddpg.progress import format_number, print_to_stderr
from ddpg.runs import run_directory
from ddpg.runs.curves import MEASURES, Curve
from ddpg.runs.found_runs import Run
from ddpg.runs.listing import table
from ddpg.runs.tables import read_table

# Okabe and Ito's palette, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000", "#B8A800")
_LARGEST = 1e300  # that is drawn; Matplotlib's ticks overflow if an axis is longer than the largest float
_SUFFIX = "_weight_norm"  # every network has a column with this suffix, so it finds the networks
_LINES = ("-", "-.", ":")  # for more curves than colours; dashes mean something else in the diagnostics
# For each panel below the returns: measure, title, label of the y axis, whether that axis is logarithmic.
_PANELS = (
    ("dormant_share", "Dormant units (score ≤ 0.025; dashed: never active)", "share of hidden units", False),
    ("feature_rank", "Effective rank of the last hidden layer", "srank", False),
    ("weight_norm", "Norm of all weights", "L2 norm", False),
    ("gradient_norm", "Norm of the gradient of one minibatch", "L2 norm", True),
    ("effective_learning_rate", "Effective learning rate: norm of one step / norm of the weights", "ratio", True),
)

_MOMENTS = 4  # of the run, as far apart as possible
_OF_NETWORKS: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(("dormant_share", "dead_share"), "{:.0%}".format),
    **dict.fromkeys(("feature_rank", "weight_norm", "gradient_norm", "effective_learning_rate"), format_number),
}


def plot_curves(curves: Sequence[Curve], path: str | Path, against: str = "steps", measure: str = "iqm") -> Path:
    """Plot learning curves into an image file, a panel for every environment, and return its path.

    Returns that are infinite, NaN or beyond ±1e300 are not drawn, and a line on stderr says so.

    Args:
        curves: the curves, from :func:`ddpg.runs.curves.learning_curves`.
        path: a ``.png``, ``.pdf`` or ``.svg``.
        against, measure: as given to :func:`ddpg.runs.curves.learning_curves`.

    Raises:
        UsageError: if the file's ending is unknown, or its directory does not exist.
    """
    path = atomic_write.check_figure(path)
    by_env: dict[str, list[Curve]] = {}
    for curve in curves:
        by_env.setdefault(curve.env_id, []).append(curve)
    labels = list(dict.fromkeys(curve.label for curve in curves))
    columns = min(3, len(by_env))
    rows = math.ceil(len(by_env) / columns)
    width = 2.4 + 4.8 * columns
    legends = [_legend(own, int(14 * width / columns)) for own in by_env.values()]
    lines = max((sum(label.count("\n") + 1 for label in legend) for legend in legends), default=0)
    height = 0.6 + (3.6 + 0.17 * max(0, lines - 4)) * rows  # room for legends of more than four lines
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes, (name, own), legend in zip(panels, by_env.items(), legends, strict=False):
        for index, (curve, colour, label) in enumerate(zip(own, _colours(own, labels), legend, strict=True)):
            marker = "o" if len(curve.times) == 1 else None
            low, centre, high = map(drawable, (curve.low, curve.centre, curve.high))
            if left_out := int(np.isnan(centre).sum()):
                what = f"{left_out} of {len(centre)} returns are infinite, NaN or beyond ±{_LARGEST:g}, and not drawn"
                print_to_stderr(printable(f"{name}, {curve.label}: {what}"))
            _draw_band(axes, curve.times, low, high, colour, 0.2)
            axes.plot(curve.times, centre, _line(index), color=colour, linewidth=1.6, marker=marker, label=label)
        axes.set_title(textwrap.fill(name, 44))
        axes.set_xlabel("timesteps" if against == "steps" else "seconds of training")
        axes.set_ylabel("evaluation return")
        whole = against == "steps"
        # More than five labels such as 1,000,000 overlap.
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10], integer=whole))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.grid(alpha=0.3)
        below = axes.transAxes + ScaledTranslation(0, -38 / 72, figure.dpi_scale_trans)  # so it never covers a curve
        axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=below)
    for axes in panels[len(by_env) :]:
        axes.set_axis_off()
    if any(curve.seeds > 1 for curve in curves):
        figure.supxlabel(f"line: {MEASURES[measure]} of the seeds; band: its 95 % bootstrap interval", fontsize=8)
    return atomic_write.write_figure(path, figure)


def _draw_band(axes: Axes, times: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str, alpha: float) -> None:
    """Draw the intervals of a curve as a band; a band of one time would have no width, so there it is a bar."""
    if len(times) == 1:
        axes.vlines(times, low, high, color=colour, alpha=0.5, linewidth=4)
    else:
        axes.fill_between(times, low, high, color=colour, alpha=alpha, linewidth=0)


def _line(index: int) -> str:
    """Return the line style of curve ``index`` of a panel, another one when the colours begin anew."""
    return _LINES[index // len(COLOURS) % len(_LINES)]


def _legend(curves: Sequence[Curve], width: int) -> list[str]:
    """Return the legend entry of each curve of a panel, wrapped to at most ``width`` characters.

    Runs of two recipes differ in many options, so an unwrapped entry can be wider than the figure, and Matplotlib would
    not draw it.
    """
    texts = (f"{curve.label} ({curve.seeds} seed{'s' * (curve.seeds != 1)})" for curve in curves)
    texts = (text.replace("$", r"\$") for text in texts)  # Matplotlib reads what is between two of them as a formula
    return ["\n".join(textwrap.wrap(text, width, break_on_hyphens=False)) for text in texts]


def _colours(curves: Sequence[Curve], labels: Sequence[str]) -> list[str]:
    """Return the colours of a panel's curves; ``labels`` are those of all panels.

    A label has the same colour in every panel. With more labels than colours, each panel begins with the first colour
    instead.
    """
    if len(labels) > len(COLOURS):
        return list(itertools.islice(itertools.cycle(COLOURS), len(curves)))
    return [COLOURS[labels.index(curve.label)] for curve in curves]


def plot_learning_curve(run: Path, title: str) -> Path:
    """Plot training and evaluation returns against timesteps into ``learning_curve.png``.

    Training returns are those of every episode, with exploration noise, and their running mean. Evaluation returns are
    means without noise, with a 95 % confidence interval.
    """
    figure = Figure(figsize=(7.2, 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    episodes = read_table(run / "episodes.csv")
    if episodes:
        steps, returns = numbers_of(episodes, "timesteps"), numbers_of(episodes, "return")
        axes.plot(steps, returns, ".", markersize=3, color="tab:blue", alpha=0.35, label="training episode")
        if len(episodes) > 5:  # otherwise the mean is a single point
            mean_steps, means = _running_mean(steps, returns)
            axes.plot(mean_steps, means, color="tab:blue", linewidth=1.5, label="training, running mean")
    evaluations = read_table(run / "evaluations.csv")
    if evaluations:
        names = ("timesteps", "mean_return", "ci95_low", "ci95_high")
        steps, means, low, high = (numbers_of(evaluations, name) for name in names)
        if "min_return" in evaluations[-1]:  # runs of older versions lack this column
            least, most = (numbers_of(evaluations, name) for name in ("min_return", "max_return"))
            low, high = np.fmax(low, least), np.fmin(high, most)  # clips Student's interval to the observed returns
        _draw_band(axes, steps, low, high, "tab:orange", 0.25)
        label = f"evaluation without noise, mean of {evaluations[-1].get('episodes') or 'some'} episodes and 95 % CI"
        axes.plot(steps, means, "o-", markersize=4, color="tab:orange", label=label)
    axes.set_title(textwrap.fill(title, 60))
    axes.set_xlabel("timesteps")
    axes.set_ylabel("return (undiscounted sum of rewards)")
    axes.grid(alpha=0.3)
    axes.locator_params(axis="x", integer=True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    if episodes or evaluations:
        figure.legend(loc="outside lower center", ncols=2, fontsize=8)  # below the axes, so it covers no return
    return atomic_write.write_figure(run / run_directory.PICTURE, figure)


def numbers_of(rows: Sequence[dict[str, str]], name: str) -> np.ndarray:
    """Return a column of a table for a picture; NaN where a cell is empty, or holds a number that cannot be drawn."""
    return drawable(np.array([float(row.get(name) or "nan") for row in rows]))


def drawable(values: np.ndarray) -> np.ndarray:
    """Return the values with NaN, which is not drawn, in place of infinite numbers and of those beyond ±1e300."""
    return np.where(np.abs(values) <= _LARGEST, values, np.nan)


def _running_mean(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean over a window of a tenth of the episodes, 5 to 100 of them, at each window's end."""
    window = int(np.clip(len(values) // 10, 5, 100))
    means = np.convolve(values, np.full(window, 1 / window), mode="valid")
    return steps[window - 1 :], means


def plot_diagnostics(run: Run, path: str | Path) -> Path:
    """Plot a run's returns and diagnostics into an image file, one panel below the other, and return its path.

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
    saturated = [row for row in read_table(run.path / "metrics.csv") if row.get("actions_saturated")]
    panels = 2 + bool(saturated) + len(_PANELS)
    figure = Figure(figsize=(8.2, 1.2 + 2.1 * panels), dpi=110, layout="constrained")
    returns, estimates, *others = figure.subplots(panels, 1, sharex=True)
    _draw_returns(returns, run)
    _draw_values(estimates, rows, "Q(s, μ(s))" if "actor" in networks else "max Q(s, ·)")
    if saturated:
        _draw_saturation(others[0], saturated)
    steps = numbers_of(rows, "timesteps")
    for axes, (measure, title, label, logarithmic) in zip(others[-len(_PANELS) :], _PANELS, strict=True):
        for index, (colour, network) in enumerate(zip(itertools.cycle(COLOURS), networks, strict=False)):
            values, name = numbers_of(rows, f"{network}_{measure}"), network.replace("_", " ")
            axes.plot(steps, values, _line(index), color=colour, linewidth=1.3, label=name)
            if measure == "dormant_share":
                axes.plot(steps, numbers_of(rows, f"{network}_dead_share"), "--", color=colour, linewidth=1.0)
        if logarithmic:
            axes.set_yscale("log")
        _finish(axes, title, label)
    others[-1].set_xlabel("timesteps", fontsize=9)
    others[-1].locator_params(axis="x", integer=True)
    others[-1].xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    document = run.document
    heading = f"{document['algorithm']} on {run.env_id}, seed {document['seed']}"
    figure.suptitle(textwrap.fill(heading, 72))
    return atomic_write.write_figure(path, figure)


def diagnostics_of(run: Run) -> list[dict[str, str]]:
    """Return the rows of a run's ``diagnostics.csv``.

    Raises:
        UsageError: if there are none; a :class:`FileFault` if the file is damaged or has no column of a network.
    """
    path = run.path / run_directory.DIAGNOSTICS
    rows = read_table(path)
    if not rows:
        why = "it has no row yet" if path.exists() else "train with --diagnose to have them written"
        raise UsageError(f"{run.path} has no diagnostics to draw: {why}")
    if not any(name.endswith(_SUFFIX) for name in rows[0]):
        raise FileFault(f"{path} is damaged (it has no column of a network); move it away")
    return rows


def _draw_returns(axes: Axes, run: Run) -> None:
    episodes = read_table(run.path / "episodes.csv")
    if episodes:
        steps, returns = numbers_of(episodes, "timesteps"), numbers_of(episodes, "return")
        axes.plot(steps, returns, ".", markersize=2.5, color=COLOURS[0], alpha=0.35, label="training episode")
    if run.rows:
        axes.plot(run.steps, drawable(run.returns), "o-", markersize=3.5, color=COLOURS[4], label="evaluation, mean")
    _finish(axes, "Return", "sum of rewards")


def _draw_values(axes: Axes, rows: Sequence[dict[str, str]], estimate: str) -> None:
    steps = numbers_of(rows, "timesteps")
    for colour, name, label in (
        (COLOURS[3], "q_value", estimate),
        (COLOURS[6], "discounted_return", "discounted return from s on"),
    ):
        axes.plot(steps, numbers_of(rows, name), color=colour, linewidth=1.3, label=label)
    _finish(axes, "Critic's estimate and what was obtained", "env units")


def _draw_saturation(axes: Axes, metrics: Sequence[dict[str, str]]) -> None:
    steps, shares = numbers_of(metrics, "timesteps"), numbers_of(metrics, "actions_saturated")
    axes.plot(steps, shares, color=COLOURS[0], linewidth=1.3, label="actor")
    axes.set_ylim(-0.05, 1.05)
    _finish(axes, "Actions at a bound (beyond 99 % of the half-range)", "share")


def _finish(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_ylabel(label, fontsize=8)
    axes.tick_params(which="both", labelsize=8)  # both: also between the powers of ten of a logarithmic axis
    axes.grid(alpha=0.3)
    points = [np.isfinite(line.get_ydata()).sum() for line in axes.get_lines()]
    for line, count in zip(axes.get_lines(), points, strict=True):
        if count == 1:  # a line of one point has no length
            line.set(marker="o", markersize=3.5)
    if any(points):
        axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))  # beside the axes, so it covers no curve


def diagnosis_text(run: Run) -> str:
    """Return a line for each measure: at a quarter, a half, three quarters and the end of the run so far.

    The names are those of the columns of ``diagnostics.csv``, of ``evaluations.csv`` (``mean_return``: of the last
    evaluation until then) and of ``metrics.csv`` (``actions_saturated``).

    Raises:
        UsageError: as :func:`diagnostics_of`.
    """
    rows = diagnostics_of(run)
    chosen = [rows[number - 1] for number in sorted({-(-len(rows) * k // _MOMENTS) for k in range(1, _MOMENTS + 1)})]
    steps = [int(row["timesteps"]) for row in chosen]
    metrics = read_table(run.path / "metrics.csv")
    lines = [["timesteps", *(f"{step:,}" for step in steps)]]

    def add(name: str, found: Sequence[dict[str, str]], form: Callable[[float], str] = format_number) -> None:
        cells = [row.get(name) for row in found]
        if any(cells):
            lines.append([name, *(form(float(cell)) if cell else "" for cell in cells)])

    add("mean_return", [_until(run.rows, step, "mean_return") for step in steps])
    add("q_value", chosen)
    add("discounted_return", chosen)
    add("actions_saturated", [_until(metrics, step, "actions_saturated") for step in steps], "{:.0%}".format)
    for measure, form in _OF_NETWORKS.items():
        for name in rows[0]:
            if name.endswith(f"_{measure}"):
                add(name, chosen, form)
    return table(lines, numbers=lines[0][1:])


def _until(rows: Sequence[dict[str, str]], step: int, name: str) -> dict[str, str]:
    """Return the last row until ``step`` that has a number in column ``name``, or an empty one."""
    return next((row for row in reversed(rows) if int(row["timesteps"]) <= step and row.get(name)), {})
