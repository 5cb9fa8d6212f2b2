"""Draw the pictures of the pages on learning: curves over steps, seconds and core-minutes, and bars of the ladder."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks.learning import core_minutes, gym_published, ladder
from benchmarks.learning.core_minutes import MEASURED, Timed
from benchmarks.learning.long_form import Cell
from benchmarks.learning.tables import LONG as LONG_STUDIES
from benchmarks.learning.tables import PEER_STUDY, groups, row_of
from ddpg.runs.curves import learning_curves
from ddpg.runs.plotting import COLOURS, plot_curves

TABLE, SECONDS, LONG, LADDER, OTHERS, ARITHMETIC, CORE_MINUTES = (
    f"learning_{name}.png" for name in ("table", "seconds", "long", "ladder", "others", "arithmetic", "core_minutes")
)
OWN_COLOURS = {"plus": COLOURS[0], "plus_averaged": COLOURS[5]}  # ours in blue
PEER_COLOURS = (COLOURS[4], COLOURS[2], COLOURS[3])
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)


def draw(cells: Sequence[Cell], folder: Path) -> list[Path]:
    """Draw every picture that has runs into ``folder``; return their paths."""
    drawn = []
    for name, studies in (
        (TABLE, ("table", PEER_STUDY)),
        (LONG, LONG_STUDIES),
        (OTHERS, ("others", "box2d")),
    ):
        chosen = shown(cells, *studies)
        if chosen:
            drawn.append(_curves(chosen, folder / name, "steps"))
    timed = shown(cells, "table", PEER_STUDY)
    where = {cell.env_id for cell in timed if cell.study == PEER_STUDY}
    if where:
        drawn.append(_curves([cell for cell in timed if cell.env_id in where], folder / SECONDS, "seconds"))
    if ladder.environments(cells):
        drawn.append(_ladder(cells, folder / LADDER))
    if gym_published.ours(cells):
        drawn.append(_arithmetic(cells, folder / ARITHMETIC))
    if timed_alike := core_minutes.compared(cells):
        drawn.append(_core_minutes(timed_alike, folder / CORE_MINUTES, core_minutes.machine()))
    return drawn


def shown(cells: Sequence[Cell], *studies: str) -> list[Cell]:
    """Return the runs to draw, in the order of the studies: each recipe's finished seeds, or else unfinished ones."""
    drawn = []
    for group in groups(cells, *studies):
        evaluated = [cell for cell in group if cell.rows]
        drawn += [cell for cell in evaluated if cell.finished] or evaluated
    return drawn


def _curves(cells: Sequence[Cell], path: Path, against: str) -> Path:
    curves = learning_curves(cells, against, names=[cell.recipe for cell in cells])
    return plot_curves(curves, path, against)


def _ladder(cells: Sequence[Cell], path: Path) -> Path:
    """Draw a panel for each environment, with a bar for each rung: final return, its interval, and each seed."""
    places = ladder.environments(cells)
    figure = Figure(figsize=(2.6 + 4.2 * len(places), 1.4 + 0.36 * len(ladder.RUNGS)), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(places), squeeze=False, sharey=True)[0]
    for axes, env_id in zip(panels, places, strict=True):
        _bars(axes, cells, env_id)
    panels[0].set_yticks(range(len(ladder.RUNGS)), [rung.label for rung in ladder.RUNGS])
    panels[0].set_ylim(len(ladder.RUNGS) - 0.5, -0.5)
    steps = max(cell.planned_steps for cell in cells if cell.study == ladder.STUDY)
    figure.suptitle(f"The ladder: one option at a time, {steps:,} steps", fontsize=11)
    legend = "bar: interquartile mean of the seeds; line: its 95 % bootstrap interval; dots: each seed; yellow: recipes"
    figure.supxlabel(legend, fontsize=8)
    figure.savefig(path)
    return path


def _bars(axes: Axes, cells: Sequence[Cell], env_id: str) -> None:
    for place, rung in enumerate(ladder.RUNGS):
        own = [cell for cell in ladder.cells_of(rung, cells, env_id) if cell.finished]
        if not own:
            axes.annotate("none yet", (0.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=8)
            continue
        row = row_of(own)
        ends = [[row["final"] - row["final_low"]], [row["final_high"] - row["final"]]]
        colour = COLOURS[1] if rung.study == "table" else COLOURS[0]  # recipes, or rungs between them
        axes.barh(place, row["final"], height=0.62, color=colour, alpha=0.55)
        axes.errorbar(row["final"], place, xerr=np.maximum(ends, 0), color="black", linewidth=1.2, capsize=3)
        axes.plot([cell.final for cell in own], [place] * len(own), ".", color="black", markersize=4)
    seeds = {len([cell for cell in ladder.cells_of(r, cells, env_id) if cell.finished]) for r in ladder.RUNGS} - {0}
    counts = " to ".join(map(str, dict.fromkeys((min(seeds, default=0), max(seeds, default=0)))))
    axes.set_title(f"{env_id} ({counts} seeds)", fontsize=10)
    axes.set_xlabel("final evaluation return")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.grid(alpha=0.3, axis="x")


def _arithmetic(cells: Sequence[Cell], path: Path) -> Path:
    """Draw returns over multiply-adds per step; a line joins the agents that score higher than all cheaper ones."""
    figure = Figure(figsize=(8, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    agents, theirs = gym_published.points(cells), gym_published.published()
    for name, agent in agents.items():
        score, at_end = gym_published.first_score(agent), name.endswith(gym_published.KNOWN)
        colour = COLOURS[0] if name in theirs else COLOURS[1]
        axes.scatter(agent.gmac, score.mean, color="white" if at_end else colour, edgecolors=colour, zorder=3)
        if score.interval:
            axes.plot([agent.gmac] * 2, score.interval, color=colour, linewidth=1)
    firsts = {name: gym_published.first_score(agent) for name, agent in agents.items()}
    for own in (True, False):
        scores = {name: score.mean for name, score in firsts.items() if own == (name not in theirs)}
        for name, height in _spread(scores).items():
            beside = (agents[name].gmac * 1.06, height + 0.02) if own else (18, height)  # published: in a column
            look = None if own else {"arrowstyle": "-", "color": "0.75", "shrinkA": 0, "shrinkB": 3}
            point = agents[name].gmac, scores[name]
            axes.annotate(name.replace("`", ""), point, beside, fontsize=9, va="center", arrowprops=look)
    at_any_time = {name: agent for name, agent in agents.items() if not name.endswith(gym_published.KNOWN)}
    joined = [agents[name] for name in gym_published.front(at_any_time)]
    xs, ys = [agent.gmac for agent in joined], [gym_published.first_score(agent).mean for agent in joined]
    axes.step(xs, ys, where="post", color="grey", linewidth=1, zorder=1)
    axes.set_xscale("log")
    axes.set(xlim=(0.12, 40), ylim=(0, 1.05))
    ticks = (0.2, 0.5, 1, 2, 5, 10, 20)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("billions of multiply-adds (GMAC) per step of HalfCheetah (log scale)")
    axes.set_ylabel("mean return of five Gym tasks\n(0: random actions, 1: TD3 after a million steps)")
    axes.set_title(
        "Return after 100,000 environment steps over arithmetic per step\n"
        "any time: at constant learning rates (in v5 after 80,000 steps); bars: 95 % bootstrap\n"
        "ours are for v5 unless v4 is named, those of others for v4",
        fontsize=10,
    )
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    return path


def _core_minutes(timed: Sequence[Timed], path: Path, machine: str) -> Path:
    """Draw return per core-minute: a panel for each environment, a line for each algorithm, a logarithmic time axis.

    ``machine`` is the processor of the rates.
    """
    places = list(dict.fromkeys(one.env_id for one in timed))
    peers = list(dict.fromkeys(one.label for one in timed if not one.own))
    colours = OWN_COLOURS | dict(zip(peers, PEER_COLOURS, strict=False))
    figure = Figure(figsize=(2.4 + 4.8 * len(places), 5.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(places), squeeze=False)[0]
    for axes, env_id in zip(panels, places, strict=True):
        for one in timed:
            if one.env_id == env_id:
                _timed_line(axes, one, colours[one.label])
        _finish_panel(axes, env_id)
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


def _timed_line(axes: Axes, one: Timed, colour: str) -> None:
    (curve,) = learning_curves(one.cells, names=[one.label] * len(one.cells))
    times = [one.core_minutes(step) for step in curve.times]
    seeds = f"{one.seeds} seed{'' if one.seeds == '1' else 's'}"
    style = "--" if one.label == "plus_averaged" else "-"
    label = f"{one.label} ({seeds}; {one.rate:,.0f} steps/s)"
    axes.fill_between(times, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(times, curve.centre, style, color=colour, linewidth=1.6, label=label)
    axes.plot(times[-1], curve.centre[-1], "o", color=colour, markersize=4)


def _finish_panel(axes: Axes, env_id: str) -> None:
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


def _spread(heights: Mapping[str, float], least: float = 0.045) -> dict[str, float]:
    """Return heights of labels, moved upwards where they would be less than ``least`` apart."""
    found: dict[str, float] = {}
    for name, height in sorted(heights.items(), key=lambda item: item[1]):
        found[name] = max(height, max(found.values(), default=-1) + least)
    return found
