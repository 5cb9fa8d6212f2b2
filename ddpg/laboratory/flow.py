"""Trace the backward pass of a path on its graph, to show where gradients really flow.

A path starts backward by one call of ``compute_gradients(loss, var_list, grad_loss)``, which
:class:`ddpg.laboratory.flow_recorder.FlowRecorder` keeps. :func:`trace_flow` finds which of the named tensors feed
which, and asks ``tf.gradients``, edge by edge, whether a gradient passes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from ddpg.laboratory.flow_recorder import BackwardStart

START = "start"


class Edge(NamedTuple):
    """``source`` feeds ``destination`` in the forward pass.

    Attributes:
        source: a node or a group of weights.
        destination: a node, or :data:`START`.
        gradients: what flows back along this edge alone, as ``tf.gradients`` finds it; ``None``: nothing.
        stopped: a gradient arrives at ``destination`` and does not pass this edge.
        trained: what flows here ends in variables that the path asked gradients for.
    """

    source: str
    destination: str
    gradients: list[tf.Tensor] | None
    stopped: bool
    trained: bool


def edge_norms(session: tf.compat.v1.Session, edges: Sequence[Edge]) -> Callable[[Mapping[tf.Tensor, Any]], list[dict]]:
    """Build the norms of what flows along edges.

    Returns:
        ``feeds -> edges as data``: the fields of :class:`Edge`, with ``norm``, the L2 norm of all its gradients
        together, in their place; ``None`` where nothing flows.
    """
    norms = {place: tf.linalg.global_norm(edge.gradients) for place, edge in enumerate(edges) if edge.gradients}

    def measure(feeds: Mapping[tf.Tensor, Any]) -> list[dict]:
        lengths = session.run(norms, dict(feeds))
        rows = [edge._asdict() for edge in edges]
        for place, row in enumerate(rows):
            del row["gradients"]
            row["norm"] = float(lengths[place]) if place in lengths else None
        return rows

    return measure


def trace_flow(
    nodes: Mapping[str, tf.Tensor],
    weights: Mapping[str, Sequence],
    start: BackwardStart,
    fed: Mapping[str, str] | None = None,
) -> list[Edge]:
    """Find the forward edges between ``nodes``, and the gradient along each of them.

    Args:
        nodes: ``{name: tensor}``.
        weights: ``{group: variables}``.
        start: where backward starts.
        fed: ``{node that is a placeholder: node whose value is fed to it}``: edges through NumPy.
    """
    fed = dict(fed or {})
    names = {tensor.name: name for name, tensor in nodes.items()}
    names |= {variable.handle.name: group for group, variables in weights.items() for variable in variables}
    totals = tf.gradients(start.loss, list(nodes.values()), start.grad_loss)
    arriving = {START: start.grad_loss} | dict(zip(nodes, totals, strict=True))
    edges = []
    for destination in [START, *nodes]:
        if destination == START:
            output, sources = start.loss, _feeding([start.loss, start.grad_loss], names)
        else:
            output = nodes[destination]
            sources = _feeding(output.op.inputs, names) | ({fed[destination]} if destination in fed else set())
        reached = destination == START or arriving[destination] is not None
        inputs = {source: list(weights[source]) if source in weights else [nodes[source]] for source in sorted(sources)}
        found = {}
        if reached and inputs:
            # A gradient through another node belongs to that node's edges, so gradients stop at nodes.
            others = [tensor for name, tensor in nodes.items() if name != destination]
            flat = tf.gradients(
                output, tf.nest.flatten(list(inputs.values())), arriving[destination], stop_gradients=others
            )
            rest = iter(flat)
            found = {source: [next(rest) for _ in tensors] for source, tensors in inputs.items()}
        for source in inputs:
            gradients = [gradient for gradient in found.get(source, []) if gradient is not None] or None
            edges.append(Edge(source, destination, gradients, reached and gradients is None, False))
    asked = {variable.handle.name for variable in start.variables}
    trained = {group for group, variables in weights.items() if asked & {v.handle.name for v in variables}}
    return _mark_trained(edges, trained)


def _feeding(tensors: Sequence, names: Mapping[str, str]) -> set[str]:
    """Return the named tensors that ``tensors`` are computed from without another named one between."""
    found, seen = set(), set()
    waiting = [tensor for tensor in tensors if tensor is not None]
    while waiting:
        tensor = waiting.pop()
        if tensor.name in names:
            found.add(names[tensor.name])
        elif tensor.name not in seen:
            seen.add(tensor.name)
            waiting.extend(tensor.op.inputs)
    return found


def _mark_trained(edges: list[Edge], trained: set[str]) -> list[Edge]:
    """Mark the edges from which a gradient goes on to a group of weights in ``trained``."""
    leading, count = set(trained), -1
    while len(leading) != count:
        count = len(leading)
        leading |= {edge.destination for edge in edges if edge.gradients is not None and edge.source in leading}
    return [edge._replace(trained=edge.gradients is not None and edge.source in leading) for edge in edges]
