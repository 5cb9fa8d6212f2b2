"""Draw where gradients flow, as a graph of boxes for each path.

Only traced edges are drawn (:func:`ddpg.laboratory.flow.trace_flow`): a forward edge if one tensor feeds another, an
arrow back if ``tf.gradients`` finds a gradient, a bar if a gradient arrives and is stopped.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch

from ddpg.checkpoints import atomic_write
from ddpg.errors import UsageError, brief
from ddpg.interaction.validation import validate_path, validate_text
from ddpg.laboratory.flow import START

DATA = ("s", "a", "r", "next_s")


class NodeBox(NamedTuple):
    """Position of a node in the panel, and its text."""

    x: float
    y: float
    text: str


_SYMBOLS = {"actor": "θ", "critic": "φ", "target_actor": "θ′", "target_critic": "φ′"}
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

_TD = {
    "s": NodeBox(0.35, 5.4, "s"),
    "a": NodeBox(0.35, 4.0, "a"),
    "next_s": NodeBox(0.35, 0.9, "s′"),
    "q": NodeBox(4.9, 4.7, "critic\nQ(s, a)"),
    "next_mu": NodeBox(2.05, 0.9, "actor\nμ(s′)"),
    "next_q": NodeBox(5.3, 0.9, "critic\nQ(s′, μ(s′))"),
    "r": NodeBox(8.45, -1.1, "r"),
    "y": NodeBox(8.45, 0.9, "y"),
    "fed_y": NodeBox(8.8, 2.75, "fed y"),
    START: NodeBox(9.25, 4.7, "start of\nbackward"),
}

_JOINT = _TD | {
    "joint": NodeBox(4.95, 5.6, "critic, in one pass\nQ(s, a), Q(s′, μ(s′))"),
    START: NodeBox(9.25, 5.6, "start of\nbackward"),
}

_POLICY = {
    "s": NodeBox(0.35, 4.5, "s"),
    "mu": NodeBox(2.2, 4.5, "actor\na = μ(s)"),
    "action_gradient": NodeBox(4.7, 1.5, "critic\n∇ₐQ(s, a)"),
    "bounding": NodeBox(7.3, 1.5, "bounding\nof ∇ₐQ"),
    "a": NodeBox(9.5, -0.4, "replayed\na"),  # for a behaviour-cloning term
    START: NodeBox(9.35, 4.5, "start of\nbackward"),
}

# If a path differentiates Q(s, μ(s)) itself, the bounding is between μ and Q.
_POLICY_THROUGH_Q = _POLICY | {
    "mu": NodeBox(1.95, 4.5, "actor\na = μ(s)"),
    "bounding": NodeBox(6.2, 4.5, "bounding,\nbackwards"),
    "q": NodeBox(7.45, 1.5, "critic\nQ(s, a)"),
    "a": NodeBox(9.6, 1.2, "replayed\na"),
}


def layout_nodes(edges: Sequence[Mapping[str, Any]]) -> dict[str, NodeBox]:
    """Return the boxes of the nodes in ``edges``; their texts depend on the edges."""
    names = {edge[end] for edge in edges for end in ("source", "destination")}
    sources = {(edge["source"], edge["destination"]) for edge in edges}
    further = sorted(name for name in names if name.startswith(("next_q_", "joint_")))
    if "joint" in names:
        layout = _JOINT
    elif "next_q" in names:
        layout = _TD
    else:
        layout = _POLICY_THROUGH_Q if "q" in names else _POLICY
    for encoded, mu, state in (("encoded", "mu", "s"), ("next_encoded", "next_mu", "s′")):
        if encoded in names:  # between state and actor; the actor, and what it feeds, makes room
            x = {encoded: 1.5, mu: 2.9} if "joint" in names else {encoded: 1.7, mu: 3.55}
            if layout is _TD:
                x["next_q"] = 6.35
            elif layout is _POLICY_THROUGH_Q:
                x |= {encoded: 1.55, mu: 3.1, "bounding": 6.3}
            layout = layout | {encoded: layout[mu]._replace(text=f"encoder\nf({state})")}
            layout = layout | {name: layout[name]._replace(x=place) for name, place in x.items()}
    if "next_q" in names and "joint" in names:  # y comes from a second pass: move the first one up to make room
        layout = layout | {name: layout[name]._replace(y=6.3) for name in ("joint", START)}
    boxes = {name: box for name, box in layout.items() if name in names}
    for name in further:
        first = layout[name.rpartition("_")[0]]
        same = [other for other in further if other.rpartition("_")[0] == name.rpartition("_")[0]]
        room = 1.8 if first.y < 3 else -1.8 if "next_q" in names else -2.6
        height = first.y + room * (same.index(name) + 1) / len(same)
        text = first.text.replace("Q(", f"Q{_subscript(name)}(")
        boxes[name] = NodeBox(first.x + (0 if first.y < 3 else 0.7), height, text)
    if further:
        for name in {*(other.rpartition("_")[0] for other in further), "q"} & boxes.keys():
            boxes[name] = boxes[name]._replace(text=boxes[name].text.replace("Q(", "Q₁("))
        boxes["y"] = boxes["y"]._replace(text="y, of\nthe least")
    if "q" not in names and ("a", "bounding") in sources:  # what is bounded has a term from the replayed actions
        of = "bounding of ∇ₐQ\nand cloning" if "action_gradient" in names else "bounding of\nthe cloning term"
        boxes["bounding"] = boxes["bounding"]._replace(text=of)
    if ("target_actor", "next_mu") in sources:
        boxes["next_mu"] = boxes["next_mu"]._replace(text="target actor\nμ′(s′)")
    if ("target_critic", "next_encoded") in sources:
        boxes["next_encoded"] = boxes["next_encoded"]._replace(text="target\nencoder\nf′(s′)")
    for name in [name for name in boxes if name.startswith("next_q")]:
        if (f"target_critic{name.removeprefix('next_q')}", name) in sources:
            mu = "μ′" if ("target_actor", "next_mu") in sources else "μ"
            text = boxes[name].text.replace("critic", "target critic").replace("(s′, μ(", f"′(s′, {mu}(")
            boxes[name] = boxes[name]._replace(text=text)
    return boxes


def is_weights(name: str) -> bool:
    """Return whether a node is a group of weights."""
    return name.rstrip("_0123456789") in _SYMBOLS


def node_box(boxes: Mapping[str, NodeBox], name: str, destination: str) -> NodeBox:
    """Return the box of a node; weights are drawn beside each box that they feed."""
    if not is_weights(name):
        return boxes[name]
    box, symbol = boxes[destination], _SYMBOLS[name.rstrip("_0123456789")]
    text = f"{symbol[0]}{_subscript(name)}{symbol[1:]}"
    if destination == START:  # at the panel's right border; the numbers of actor and critic need room beside them
        return NodeBox(box.x - (1.5 if symbol[0] == "θ" else 3.2), box.y + 2.1, text)
    if _subscript(name):
        return NodeBox(box.x + 2.1, box.y + 0.6, text)
    return NodeBox(box.x, box.y + (2.1 if box.y > 3 else -2.1), text)


def _number(name: str) -> int:
    """Return the number of the critic that a node or a group of weights is of, 1 if it has none."""
    return int(name[len(name.rstrip("_0123456789")) + 1 :] or 1)


def _subscript(name: str) -> str:
    return str(_number(name)).translate(_SUBSCRIPTS) if _number(name) > 1 else ""


FORWARD, TRAINED, PASSING, STOPPED = "0.72", "#1668b8", "#e08a1e", "#cc1f1f"

COLUMNS = 2
DRAWN_CRITICS = 2  # more have no room, and each further one is connected as the second


_NOTES = """An arrow back is tf.gradients' answer on the real graph. Its number is the
L2 norm of the gradient with respect to the box or the weights that it
points at, over the whole minibatch.

A bar stands where a gradient arrives and does not pass: a stop, a fed
value, a number given as the start. Orange is what backward would reach
as well, had the path asked for it. Arrows into data are left out.

s, a, r, s′  data: state, action, reward, next state
y  TD target; fed y: the same, through a placeholder
Q, μ  critic and actor; φ, θ  their weights
Q′, μ′, φ′, θ′  the same of their targets
∇ₐQ  Q's gradient for the action; bounding keeps the action in its box"""


def draw_paths(
    report: Mapping[str, Any], path: str | Path, bounding: str = "inverting", title: str | None = None
) -> Path:
    """Draw a panel for every TD path, and one for every policy path under ``bounding``, into a PNG.

    Args:
        report: from :func:`ddpg.compare_paths`.
        path: the file to write; 1400 pixels wide.
        bounding: which of the report's boundings.
        title: of the figure; ``None``: a default with the seed.

    Returns:
        ``path``.

    Raises:
        UsageError: if an argument has the wrong type, the file cannot be a figure, or the report lacks the bounding.
    """
    if not isinstance(report, Mapping) or not {"seed", "td", "policy"} <= {*report}:
        raise UsageError(f"report={brief(report)} must be a report of compare_paths")
    path = atomic_write.check_figure(validate_path(path))
    bounding = validate_text(bounding, "bounding", "a name")
    title = title if title is None else validate_text(title, "title", "a text, or None")
    return atomic_write.write_figure(path, paths_figure(report, bounding, title))


def paths_figure(report: Mapping[str, Any], bounding: str, title: str | None) -> Figure:
    """Return the figure of :func:`draw_paths`."""
    td, policy = report["td"], [row for row in report["policy"] if row["bounding"] == bounding]
    if not policy and report["policy"]:
        measured = list(dict.fromkeys(row["bounding"] for row in report["policy"]))
        raise UsageError(f"bounding={brief(bounding)} is not in the report, which has {', '.join(measured)}")
    td_rows, policy_rows = -(-len(td) // COLUMNS), -(-(len(policy) + 1) // COLUMNS)  # the last cell holds the notes
    figure, grid = _canvas(td_rows + policy_rows, title or f"Where gradients flow, seed {report['seed']}")
    for rows, first, kind in ((td, 0, "td_target"), (policy, td_rows, "policy_gradient")):
        for index, row in enumerate(rows):
            axes = figure.add_subplot(grid[first + index // COLUMNS, index % COLUMNS])
            draw_panel(axes, row, kind)
    notes = figure.add_subplot(grid[-1, -1], frame_on=False, xticks=[], yticks=[])
    notes.text(0.02, 0.5, _NOTES, fontsize=10, va="center", linespacing=1.45)
    figure.draw_without_rendering()  # arrows end at the boxes' borders, whose positions are known only after drawing
    return figure


def draw_update(report: Mapping[str, Any], path: str | Path, title: str | None = None) -> Path:
    """Draw both steps of an update, traced by :func:`ddpg.laboratory.flow.trace_update`, like :func:`draw_paths`."""
    path = atomic_write.check_figure(validate_path(path))
    figure, grid = _canvas(1, title or f"Where gradients flow in one update, seed {report['seed']}")
    for column, (step, label) in enumerate({"critic": "the critic's step", "actor": "the actor's step"}.items()):
        remark = f"not traced: {', '.join(report['not_traced'])}" if report["not_traced"] and not column else ""
        draw_edges(figure.add_subplot(grid[0, column]), report[step], label, remark)
    figure.draw_without_rendering()
    return atomic_write.write_figure(path, figure)


def _fit_text(text: Any, width: float) -> None:
    """Make the font of a matplotlib text smaller until it is at most ``width`` pixels wide."""
    while (extent := text.get_window_extent().width) > width:  # again, because letters are rounded to pixels
        text.set_fontsize(text.get_fontsize() * min(width / extent, 0.99))


def _canvas(rows: int, title: str) -> tuple[Figure, GridSpec]:
    """Return a figure with title and legend, and its grid of cells."""
    height = 0.95 + 3.6 * rows
    figure = Figure(figsize=(11.2, height), dpi=125)
    FigureCanvasAgg(figure)
    edges = {"left": 0.012, "right": 0.988, "bottom": 0.12 / height, "top": 1 - 0.83 / height}
    grid = figure.add_gridspec(rows, COLUMNS, **edges, wspace=0.025, hspace=0.05)
    _fit_text(
        figure.suptitle(title, fontsize=14, y=1 - 0.1 / height, va="top", parse_math=False), 0.97 * figure.bbox.width
    )
    figure.legend(
        handles=_legend(),
        loc="upper center",
        bbox_to_anchor=(0.5, 1 - 0.38 / height),
        ncols=4,
        frameon=False,
        fontsize=11,
    )
    return figure, grid


def draw_panel(axes: Axes, row: Mapping[str, Any], kind: str) -> None:
    """Draw the traced backward pass of one path, ``row``; ``kind`` is the option that chooses the path."""
    label = f"{kind} = {row['path']}" + (f", bounding = {row['bounding']}" if "bounding" in row else "")
    difference = row["difference"]
    draw_edges(axes, row["edges"], label, "" if difference["from"] == row["path"] else _verdict(difference))
    if row.get("bfloat16") is not None:  # reports of earlier versions lack it
        error = f"in bfloat16\noff by {row['bfloat16']['relative_norm']:.1%}"
        axes.text(0.985, 0.03, error, transform=axes.transAxes, fontsize=10, ha="right", color="0.25")


def draw_edges(axes: Axes, edges: Sequence[Mapping[str, Any]], label: str, remark: str = "") -> None:
    """Draw a traced backward pass, titled ``label``, with a ``remark`` below; of further critics the second alone."""
    axes.set(xlim=(-0.2, 10.5), ylim=(-1.85, 9.0), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_color("0.8")
    above: dict[str, Any] = {"transform": axes.transAxes, "va": "top", "parse_math": False}  # names may hold dollars
    heads = [
        axes.text(0.015, 0.965, label, **above, fontsize=11.5, family="monospace"),
        axes.text(0.015, 0.885, remark, **above, fontsize=10, color="0.25"),
    ]
    critics = max(map(_number, (end for edge in edges for end in (edge["source"], edge["destination"]))), default=1)
    if critics > DRAWN_CRITICS:
        edges = [
            edge for edge in edges if max(_number(edge[end]) for end in ("source", "destination")) <= DRAWN_CRITICS
        ]
        left_out = f"{DRAWN_CRITICS} of {critics} critics drawn;\nthe others are as the second"
        axes.text(0.985, 0.965, left_out, transform=axes.transAxes, fontsize=10, ha="right", va="top", color="0.25")
    for text in heads:
        _fit_text(text, (0.7 if critics > DRAWN_CRITICS else 0.97) * axes.bbox.width)
    boxes = layout_nodes(edges)
    drawn = {}
    for edge in edges:
        for end in (edge["source"], edge["destination"]):
            place = node_box(boxes, end, edge["destination"])
            if place not in drawn:
                drawn[place] = _write(axes, place, end)
    for edge in edges:
        ends = [node_box(boxes, edge[end], edge["destination"]) for end in ("source", "destination")]
        _draw_edge(axes, ends, [drawn[place] for place in ends], edge)


def _verdict(difference: Mapping[str, Any]) -> str:
    """Return a sentence on whether a path's gradient equals that of its reference."""
    if difference["equal"]:
        return f"the same gradient as {difference['from']}"
    percent = 100 * difference["max_relative"]
    size = f"{percent:.0f}%" if percent >= 1 else f"{percent:.1g}%"
    return f"not the gradient of {difference['from']}: off by up to {size} of its largest value"


# Edges that would run through a box: above μ(s′), and above μ(s).
_BENDS = {("next_s", "next_q"): 0.36, ("s", START): 0.3}


def _draw_edge(axes: Axes, ends: Sequence[NodeBox], patches: Sequence[Patch], edge: Mapping[str, Any]) -> None:
    start, end = (np.array([box.x, box.y]) for box in ends)
    bend = _BENDS.get((edge["source"], edge["destination"]), 0.0)
    axes.add_patch(_arrow(start, end, patches, bend, mutation_scale=9, color=FORWARD, linewidth=1))
    length = np.linalg.norm(end - start)
    along = (end - start) / length
    across = np.array([-along[1], along[0]])
    middle = _middle(axes, start, end, bend)
    if edge["stopped"]:
        bar = np.array([middle - 0.32 * across, middle + 0.32 * across])
        axes.plot(*bar.T, color=STOPPED, linewidth=5, solid_capstyle="butt", zorder=4)
    if edge["norm"] is None or edge["source"] in DATA:
        return
    color, line = (TRAINED, "-") if edge["trained"] else (PASSING, (0, (3, 1.5)))
    beside = abs(across[0]) > 0.6  # the number is to the right of a steep edge, and above any other
    outwards = across * np.sign(across[0] if beside else across[1])
    offset = 0.17 * outwards
    look = {"mutation_scale": 14, "color": color, "linewidth": 2.2, "linestyle": line}
    axes.add_patch(_arrow(end + offset, start + offset, patches[::-1], bend, **look))
    above = 0.5 if is_weights(edge["source"]) else 0.36  # beside the box of a second critic its number has less room
    x, y = middle + (0.45 if beside else above) * outwards
    axes.text(
        x,
        y,
        _short(edge["norm"]),
        color=color,
        fontsize=10.5,
        fontweight="bold",
        ha="left" if beside else "center",
        va="center" if beside else "bottom",
        zorder=6,
    )


def _short(number: float) -> str:
    """Return three digits, or two where that takes more than the seven characters for which boxes leave room."""
    text = f"{number:.3g}"
    return text if len(text) <= 7 else f"{number:.1e}"


def _middle(axes: Axes, start: np.ndarray, end: np.ndarray, bend: float) -> np.ndarray:
    """Return the point halfway along an arrow, whose bend is measured on the paper, not in the axes' units."""
    tail, head = axes.transData.transform([start, end])
    across = np.array([tail[1] - head[1], head[0] - tail[0]])
    return axes.transData.inverted().transform((tail + head) / 2 + bend / 2 * across)


def _arrow(tail: np.ndarray, head: np.ndarray, borders: Sequence[Patch], bend: float, **look: Any) -> FancyArrowPatch:
    """Return an arrow from the border of one patch to that of the next, curved by ``bend``."""
    return FancyArrowPatch(
        (tail[0], tail[1]),
        (head[0], head[1]),
        patchA=borders[0],
        patchB=borders[1],
        connectionstyle=f"arc3,rad={-bend}",
        shrinkA=2,
        shrinkB=2,
        arrowstyle="-|>",
        **look,
    )


def _write(axes: Axes, box: NodeBox, name: str) -> Patch:
    face = "#f3f3f3" if name in DATA else "#fff3d6" if name == START else "#e4f0e2" if is_weights(name) else "white"
    shape = "circle,pad=0.25" if is_weights(name) else "round,pad=0.35"
    style = {"boxstyle": shape, "facecolor": face, "edgecolor": "0.35", "linewidth": 1}
    text = axes.text(box.x, box.y, box.text, ha="center", va="center", fontsize=10.5, bbox=style, zorder=5)
    patch = text.get_bbox_patch()
    assert patch is not None, "a text with a bbox has a patch"
    return patch


def _legend() -> list[Line2D]:
    return [
        Line2D([], [], color=FORWARD, linewidth=1, label="forward"),
        Line2D([], [], color=TRAINED, linewidth=2.2, label="gradient that trains (its norm)"),
        Line2D([], [], color=PASSING, linewidth=2.2, linestyle=(0, (3, 1.5)), label="gradient nobody asked for"),
        Line2D([], [], color=STOPPED, linewidth=0, marker="|", markersize=13, markeredgewidth=4, label="stopped"),
    ]
