"""The gradient laboratory's picture: one update as a graph of boxes, once for every path.

What is drawn comes from the traced edges alone (:func:`ddpg.gradients.flow.trace`): a forward edge where one
tensor feeds another, an arrow back where ``tf.gradients`` finds a gradient, a bar where one arrives and stops.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch

from ddpg.gradients.flow import START

FORWARD, TRAINED, PASSING, STOPPED = "0.72", "#1668b8", "#e08a1e", "#cc1f1f"

DATA = ("s", "a", "r", "next_s")


class Box(NamedTuple):
    """Where a node stands, in units of the panel, and what is written in it."""

    x: float
    y: float
    text: str


WEIGHTS = {"actor": "θ", "critic": "φ", "target_actor": "θ′", "target_critic": "φ′"}

_TD = {
    "s": Box(0.4, 5.6, "s"),
    "a": Box(0.4, 4.4, "a"),
    "r": Box(0.4, 3.1, "r"),
    "next_s": Box(0.4, 1.4, "s′"),
    "q": Box(5.0, 5.0, "critic\nQ(s, a)"),
    "next_mu": Box(2.45, 1.4, "actor\nμ(s′)"),
    "next_q": Box(5.25, 1.4, "critic\nQ(s′, μ(s′))"),
    "y": Box(7.3, 2.0, "y"),
    "fed_y": Box(8.5, 3.4, "fed y"),
    START: Box(9.5, 5.0, "start of\nbackward"),
}

_POLICY = {
    "s": Box(0.4, 4.2, "s"),
    "mu": Box(2.4, 4.2, "actor\na = μ(s)"),
    "action_gradient": Box(4.9, 1.6, "critic\n∇ₐQ(s, a)"),
    "bounding": Box(7.4, 1.6, "bounding\nof ∇ₐQ"),
    START: Box(9.5, 4.2, "start of\nbackward"),
}

# Where Q(s, μ(s)) itself is differentiated, the bounding stands between μ and Q.
_POLICY_THROUGH_Q = _POLICY | {
    "bounding": Box(5.0, 4.2, "bounding,\nbackwards"),
    "q": Box(7.3, 1.8, "critic\nQ(s, a)"),
}

_NOTES = """Every arrow is tf.gradients' answer on the real graph, its number the norm over the minibatch.

A bar stands where a gradient arrives and does not pass: a stop, a fed value, a given start.
Orange is what backward would reach, had the path asked gradients for those weights.
Arrows into data (s, a, r, s′) are left out.

θ, φ: weights of actor and critic; θ′, φ′: of their targets."""


def draw_paths(report: Mapping[str, Any], title: str, path: str | Path, bounding: str) -> Path:
    """Draw a panel for every TD path, and one for every policy path under ``bounding``.

    Args:
        report: what :func:`ddpg.paths.compare_paths` returned.
        title: of the whole.
        path: the PNG to write; 1400 pixels wide.
        bounding: which of the report's boundings.

    Returns:
        ``path``.
    """
    td, policy = report["td"], [row for row in report["policy"] if row["bounding"] == bounding]
    columns = 2
    count = [-(-len(td) // columns), -(-(len(policy) + 1) // columns)]  # the last cell holds the notes
    figure = Figure(figsize=(14, 1.1 + 3.9 * sum(count)), dpi=100)
    FigureCanvasAgg(figure)
    height = figure.get_figheight()
    grid = figure.add_gridspec(
        sum(count),
        columns,
        left=0.015,
        right=0.985,
        bottom=0.15 / height,
        top=1 - 0.85 / height,
        wspace=0.03,
        hspace=0.1,
    )
    figure.suptitle(title, fontsize=15, y=1 - 0.25 / height)
    figure.legend(
        handles=_legend(), loc="upper center", bbox_to_anchor=(0.5, 1 - 0.42 / height), ncols=4, frameon=False
    )
    for rows, first, kind in ((td, 0, "td_target"), (policy, count[0], "policy_gradient")):
        for index, row in enumerate(rows):
            axes = figure.add_subplot(grid[first + index // columns, index % columns])
            label = f"{kind} = {row['path']}" + (f", bounding = {row['bounding']}" if "bounding" in row else "")
            draw_panel(axes, row["edges"], label)
    notes = figure.add_subplot(grid[-1, -1], frame_on=False, xticks=[], yticks=[])
    notes.text(0.04, 0.5, _NOTES, fontsize=11.5, va="center", wrap=True, linespacing=1.5)
    figure.draw_without_rendering()  # arrows end at the boxes' borders, which only drawing places
    figure.savefig(path)
    return Path(path)


def draw_panel(axes: Axes, edges: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw the edges of one traced backward pass."""
    axes.set(xlim=(-0.2, 10.5), ylim=(-0.9, 7.9))
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color("0.85")
    axes.set_title(title, fontsize=12, loc="left", y=0.96, va="top", x=0.015, family="monospace")
    boxes = _boxes(edges)
    drawn = {}
    for edge in edges:
        for end in (edge["source"], edge["destination"]):
            place = _place(boxes, end, edge["destination"])
            if place not in drawn:
                drawn[place] = _write(axes, place, end)
    for edge in edges:
        ends = [_place(boxes, edge[end], edge["destination"]) for end in ("source", "destination")]
        _draw_edge(axes, ends, [drawn[place] for place in ends], edge)


def _boxes(edges: Sequence[Mapping[str, Any]]) -> dict[str, Box]:
    """Return the boxes of the nodes that occur, with what the edges say about them written in."""
    names = {edge[end] for edge in edges for end in ("source", "destination")}
    sources = {(edge["source"], edge["destination"]) for edge in edges}
    layout = _TD if "next_q" in names else _POLICY_THROUGH_Q if "q" in names else _POLICY
    boxes = {name: box for name, box in layout.items() if name in names}
    if ("target_actor", "next_mu") in sources:
        boxes["next_mu"] = boxes["next_mu"]._replace(text="target actor\nμ′(s′)")
    if ("target_critic", "next_q") in sources:
        boxes["next_q"] = boxes["next_q"]._replace(text="target critic\nQ′(s′, μ′(s′))")
    return boxes


def _place(boxes: Mapping[str, Box], name: str, destination: str) -> Box:
    """Return the box of a node; weights stand at the box they feed, once for each."""
    if name not in WEIGHTS:
        return boxes[name]
    box = boxes[destination]
    return Box(box.x, box.y + (1.75 if box.y > 3 else -1.75), WEIGHTS[name])


def _draw_edge(axes: Axes, ends: Sequence[Box], patches: Sequence[Patch], edge: Mapping[str, Any]) -> None:
    start, end = (np.array([box.x, box.y]) for box in ends)
    bend = 0.36 if (edge["source"], edge["destination"]) == ("next_s", "next_q") else 0.0  # over μ(s′)
    style = {"connectionstyle": f"arc3,rad={-bend}", "shrinkA": 2, "shrinkB": 2, "arrowstyle": "-|>"}
    borders = {"patchA": patches[0], "patchB": patches[1]}
    axes.add_patch(FancyArrowPatch(start, end, mutation_scale=9, color=FORWARD, linewidth=1, **style, **borders))
    length = np.linalg.norm(end - start)
    along = (end - start) / length
    across = np.array([-along[1], along[0]])
    middle = (start + end) / 2 + bend / 2 * length * across
    if edge["stopped"]:
        bar = np.array([middle - 0.32 * across, middle + 0.32 * across])
        axes.plot(*bar.T, color=STOPPED, linewidth=5, solid_capstyle="butt", zorder=4)
    if edge["norm"] is None or edge["source"] in DATA:
        return
    color, line = (TRAINED, "-") if edge["trained"] else (PASSING, (0, (3, 1.5)))
    beside = abs(across[0]) > 0.35  # a steep edge's number stands to its right, another's above it
    outwards = across * np.sign(across[0] if beside else across[1])
    aside = 0.17 * outwards
    borders = {"patchA": patches[1], "patchB": patches[0]}
    look = {"mutation_scale": 14, "color": color, "linewidth": 2.2, "linestyle": line}
    axes.add_patch(FancyArrowPatch(end + aside, start + aside, **look, **style, **borders))
    axes.text(
        *(middle + 0.32 * outwards),
        f"{edge['norm']:.3g}",
        color=color,
        fontsize=10.5,
        fontweight="bold",
        ha="left" if beside else "center",
        va="center" if beside else "bottom",
        zorder=6,
    )


def _write(axes: Axes, box: Box, name: str) -> Patch:
    face = "#f3f3f3" if name in DATA else "#fff3d6" if name == START else "#e4f0e2" if name in WEIGHTS else "white"
    shape = "circle,pad=0.25" if name in WEIGHTS else "round,pad=0.35"
    style = {"boxstyle": shape, "facecolor": face, "edgecolor": "0.35", "linewidth": 1}
    text = axes.text(box.x, box.y, box.text, ha="center", va="center", fontsize=11, bbox=style, zorder=5)
    return text.get_bbox_patch()


def _legend() -> list[Line2D]:
    return [
        Line2D([], [], color=FORWARD, linewidth=1, label="forward"),
        Line2D([], [], color=TRAINED, linewidth=2.2, label="gradient that trains (its norm)"),
        Line2D([], [], color=PASSING, linewidth=2.2, linestyle=(0, (3, 1.5)), label="gradient nobody asked for"),
        Line2D([], [], color=STOPPED, linewidth=0, marker="|", markersize=13, markeredgewidth=4, label="stopped"),
    ]
