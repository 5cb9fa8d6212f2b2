"""Draw return per core-minute: a panel for each environment, a line for each algorithm, time on a logarithmic axis."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.learning.core_minutes import MEASURED, Timed
from ddpg.runs.curves import learning_curves
from ddpg.runs.plotting import COLOURS

OWN_COLOURS = {"plus": COLOURS[0], "plus_averaged": COLOURS[5]}  # ours in blue
PEER_COLOURS = (COLOURS[4], COLOURS[2], COLOURS[3])
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def draw(timed: Sequence[Timed], path: Path, machine: str) -> Path:
    """Draw the compared algorithms and return the picture's path; ``machine`` is the processor of the rates."""
    places = list(dict.fromkeys(one.env_id for one in timed))
    peers = list(dict.fromkeys(one.label for one in timed if not one.own))
    colours = OWN_COLOURS | dict(zip(peers, PEER_COLOURS, strict=False))
    figure = Figure(figsize=(2.4 + 4.8 * len(places), 5.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(places), squeeze=False)[0]
    for axes, env_id in zip(panels, places, strict=True):
        for one in timed:
            if one.env_id == env_id:
                _line(axes, one, colours[one.label])
        _finish(axes, env_id)
    steps = " or ".join(f"{asked:,}" for asked in sorted({one.cells[0].planned_steps for one in timed}))
    figure.suptitle(f"Return per core-minute of training, runs of {steps} steps", fontsize=11)
    figure.supxlabel(
        f"core-minutes: environment steps at the steps/s measured on one pinned core of {machine}\n"
        "line: interquartile mean of the seeds; dot: end of the run\n"
        "band: 95 % bootstrap interval of the mean (of up to three seeds, their range)",
        fontsize=8,
    )
    figure.savefig(path, metadata={"Software": None})
    return path


def _line(axes: Axes, one: Timed, colour: str) -> None:
    (curve,) = learning_curves(one.cells, names=[one.label] * len(one.cells))
    times = [one.core_minutes(step) for step in curve.times]
    seeds = f"{one.seeds} seed{'' if one.seeds == '1' else 's'}"
    style = "--" if one.label == "plus_averaged" else "-"
    label = f"{one.label} ({seeds}; {one.rate:,.0f} steps/s)"
    axes.fill_between(times, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(times, curve.centre, style, color=colour, linewidth=1.6, label=label)
    axes.plot(times[-1], curve.centre[-1], "o", color=colour, markersize=4)


def _finish(axes: Axes, env_id: str) -> None:
    elsewhere = "" if env_id.startswith(MEASURED) else f", at {MEASURED}'s steps/s"
    axes.set_title(f"{env_id}{elsewhere}", fontsize=10)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("core-minutes (log scale)")
    axes.set_ylabel("evaluation return")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14))
