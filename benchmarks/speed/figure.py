"""Draw the figure of training speed: our steps/s divided by each package's."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.packages import OURS
from benchmarks.speed.summary import Line, summarise

COLOURS = {1: "#9db8d2", 2: "#2f6690"}  # by cores
KIND = "training"
TICKS = (0.25, 0.5, 1, 2, 5, 10, 20, 50, 100)


def draw(rows: Sequence[dict], path: Path) -> None:
    """Draw a panel per task as a PNG: bars are ratios of medians, whiskers the other package's minimum and maximum."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    lines = [line for line in summarise(rows) if line.kind == KIND]
    tasks = list(dict.fromkeys(line.task for line in lines))
    peers = [peer for peer in dict.fromkeys(line.peer for line in lines) if peer != OURS]
    figure, panels = plt.subplots(
        1, max(1, len(tasks)), figsize=(13, 1.6 + 0.42 * len(peers)), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, task in zip(panels[0], tasks, strict=False):
        _panel(panel, [line for line in lines if line.task == task], peers)
        panel.set_title(f"{task}\nours: {_ours(lines, task)}", fontsize=10)
    panels[0][0].set_yticks(range(len(peers)), peers)
    panels[0][0].invert_yaxis()
    figure.legend(
        handles=[plt.Rectangle((0, 0), 1, 1, color=COLOURS[cores]) for cores in COLOURS],
        labels=["pinned to 1 core", "2 cores"],
        loc="outside upper right",
        ncols=2,
        frameon=False,
    )
    figure.suptitle(
        "Our training speed divided by each package's, one update per step (above 1: ours is faster)", x=0.4
    )
    figure.supxlabel("our steps/s / their steps/s (log scale); whiskers: their minimum and maximum", fontsize=10)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)


def _panel(panel, lines: Sequence[Line], peers: Sequence[str]) -> None:
    cores = sorted({line.cores for line in lines})
    thick = 0.8 / max(1, len(cores))
    for line in lines:
        if line.ratio is None or line.ratios is None or line.peer == OURS:
            continue
        place = peers.index(line.peer) + (cores.index(line.cores) - (len(cores) - 1) / 2) * thick
        low, high = line.ratio - line.ratios[0], line.ratios[1] - line.ratio
        panel.barh(place, line.ratio - 1, thick, left=1, color=COLOURS.get(line.cores, "grey"))
        panel.errorbar(line.ratio, place, xerr=[[low], [high]], fmt="none", ecolor="black", elinewidth=1, capsize=2)
        faster = line.ratio >= 1
        panel.annotate(
            f"{line.ratio:.{1 if line.ratio >= 1.95 else 2}f}×",
            (line.ratios[1] if faster else line.ratios[0], place),
            xytext=(5 if faster else -5, 0),
            textcoords="offset points",
            ha="left" if faster else "right",
            va="center",
            fontsize=8,
        )
    panel.axvline(1, color="black", linewidth=1)
    panel.set_xscale("log")
    ticks = [tick for tick in TICKS if tick <= 1 or tick <= 2 * panel.get_xlim()[1]]
    panel.set_xticks(ticks, [f"{tick:g}×" for tick in ticks])
    panel.minorticks_off()
    panel.margins(x=0.2)
    panel.spines[["top", "right"]].set_visible(False)


def _ours(lines: Sequence[Line], task: str) -> str:
    found = [line for line in lines if line.task == task and line.peer == OURS and line.spreads]
    rates = (
        f"{line.spreads['steps_per_second'].median:,.0f} on {line.cores} core{'s' * (line.cores > 1)}" for line in found
    )
    return f"{', '.join(rates)}, steps/s" if found else "not measured"
