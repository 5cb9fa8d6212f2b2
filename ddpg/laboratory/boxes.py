"""Where the boxes of the gradient laboratory's pictures stand, and what is written in them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ddpg.laboratory.flow import START

DATA = ("s", "a", "r", "next_s")


class Box(NamedTuple):
    """Where a node stands, in units of the panel, and what is written in it."""

    x: float
    y: float
    text: str


_SYMBOLS = {"actor": "θ", "critic": "φ", "target_actor": "θ′", "target_critic": "φ′"}
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")

_TD = {
    "s": Box(0.35, 5.4, "s"),
    "a": Box(0.35, 4.0, "a"),
    "next_s": Box(0.35, 0.9, "s′"),
    "q": Box(4.9, 4.7, "critic\nQ(s, a)"),
    "next_mu": Box(2.05, 0.9, "actor\nμ(s′)"),
    "next_q": Box(5.3, 0.9, "critic\nQ(s′, μ(s′))"),
    "r": Box(8.45, -1.1, "r"),
    "y": Box(8.45, 0.9, "y"),
    "fed_y": Box(8.8, 2.75, "fed y"),
    START: Box(9.25, 4.7, "start of\nbackward"),
}

_JOINT = _TD | {
    "joint": Box(4.95, 5.6, "critic, in one pass\nQ(s, a), Q(s′, μ(s′))"),
    START: Box(9.25, 5.6, "start of\nbackward"),
}

_POLICY = {
    "s": Box(0.35, 4.5, "s"),
    "mu": Box(2.2, 4.5, "actor\na = μ(s)"),
    "action_gradient": Box(4.7, 1.5, "critic\n∇ₐQ(s, a)"),
    "bounding": Box(7.3, 1.5, "bounding\nof ∇ₐQ"),
    START: Box(9.35, 4.5, "start of\nbackward"),
}

# Where Q(s, μ(s)) itself is differentiated, the bounding stands between μ and Q.
_POLICY_THROUGH_Q = _POLICY | {
    "mu": Box(1.95, 4.5, "actor\na = μ(s)"),
    "bounding": Box(6.2, 4.5, "bounding,\nbackwards"),
    "q": Box(7.45, 1.5, "critic\nQ(s, a)"),
}


def boxes_of(edges: Sequence[Mapping[str, Any]]) -> dict[str, Box]:
    """Return the boxes of the nodes that occur, with what the edges say about them written in."""
    names = {edge[end] for edge in edges for end in ("source", "destination")}
    sources = {(edge["source"], edge["destination"]) for edge in edges}
    further = sorted(name for name in names if name.startswith(("next_q_", "joint_")))
    if "joint" in names:
        layout = _JOINT
    elif "next_q" in names:
        layout = _TD
    else:
        layout = _POLICY_THROUGH_Q if "q" in names else _POLICY
    boxes = {name: box for name, box in layout.items() if name in names}
    for place, name in enumerate(further, start=1):
        first = layout[name.rpartition("_")[0]]
        height = first.y + (1.8 if first.y < 3 else -2.6) * place / len(further)
        text = first.text.replace("Q(", f"Q{_subscript(name)}(")
        boxes[name] = Box(first.x + (0 if first.y < 3 else 0.7), height, text)
    if further:
        first_name = further[0].rpartition("_")[0]
        for name in {first_name, "q"} & boxes.keys():
            boxes[name] = boxes[name]._replace(text=boxes[name].text.replace("Q(", "Q₁("))
        boxes["y"] = boxes["y"]._replace(text="y, of\nthe least")
    if ("target_actor", "next_mu") in sources:
        boxes["next_mu"] = boxes["next_mu"]._replace(text="target actor\nμ′(s′)")
    for name in [name for name in boxes if name.startswith("next_q")]:
        if (f"target_critic{name.removeprefix('next_q')}", name) in sources:
            text = boxes[name].text.replace("critic", "target critic").replace("(s′, μ(", "′(s′, μ′(")
            boxes[name] = boxes[name]._replace(text=text)
    return boxes


def is_weights(name: str) -> bool:
    """Tell whether a node is a group of weights."""
    return name.rstrip("_0123456789") in _SYMBOLS


def place_of(boxes: Mapping[str, Box], name: str, destination: str) -> Box:
    """Return the box of a node; weights stand at the box they feed, once for each."""
    if not is_weights(name):
        return boxes[name]
    box, symbol = boxes[destination], _SYMBOLS[name.rstrip("_0123456789")]
    text = f"{symbol[0]}{_subscript(name)}{symbol[1:]}"
    if _subscript(name):
        return Box(box.x + 2.1, box.y + 0.6, text)
    return Box(box.x, box.y + (2.1 if box.y > 3 else -2.1), text)


def _subscript(name: str) -> str:
    return name[len(name.rstrip("_0123456789")) + 1 :].translate(_SUBSCRIPTS)
