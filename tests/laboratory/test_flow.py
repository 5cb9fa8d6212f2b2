"""``trace_flow`` reports the gradient along each single edge of a backward pass, and where gradients stop."""

import pytest
import tensorflow as tf
from refusals import refuses

from ddpg import UsageError
from ddpg.laboratory.flow import FlowRecorder, trace_flow
from ddpg.laboratory.picture import layout_nodes

v1 = tf.compat.v1


def trace(session, build, var_names=("w",)):
    """Trace ``build(a, b) -> loss`` for a = w = 3, b = 2a + v and v = 1; return (norm, stopped, trained) by edge."""
    groups = {
        name: [v1.get_variable(name, initializer=value, use_resource=True)] for name, value in (("w", 3.0), ("v", 1.0))
    }
    recorder = FlowRecorder()
    a = recorder.name("a", tf.identity(groups["w"][0].read_value()))
    b = recorder.name("b", 2 * a + groups["v"][0].read_value())
    compute_gradients = recorder.record(v1.train.GradientDescentOptimizer(1.0).compute_gradients)
    pairs = compute_gradients(build(a, b), var_list=[variable for name in var_names for variable in groups[name]])
    edges = trace_flow(recorder.nodes, groups, recorder.starts_of(pairs, "path 'own'"))
    session.run(v1.global_variables_initializer())
    return {
        (edge.source, edge.destination): (edge.gradients and session.run(edge.gradients[0]), edge.stopped, edge.trained)
        for edge in edges
    }


def test_an_edge_carries_only_its_own_gradient(session):
    """L = a·b has ∂L/∂a = b = 7 along a → L, without the path through b, and a = 3 along b → L; w gets the sum."""
    assert trace(session, lambda a, b: a * b) == {
        ("a", "start"): (7.0, False, True),
        ("b", "start"): (3.0, False, True),
        ("a", "b"): (6.0, False, True),
        ("v", "b"): (3.0, False, False),
        ("w", "a"): (13.0, False, True),
    }


def test_nothing_flows_past_a_stop(session):
    assert trace(session, lambda a, b: a * tf.stop_gradient(b)) == {
        ("a", "start"): (7.0, False, True),
        ("b", "start"): (None, True, False),
        ("a", "b"): (None, False, False),
        ("v", "b"): (None, False, False),
        ("w", "a"): (7.0, False, True),
    }


def test_only_edges_to_variables_in_var_list_are_trained(session):
    edges = trace(session, lambda a, b: a * b, var_names=("v",))
    assert {pair for pair, (_, _, trained) in edges.items() if trained} == {("b", "start"), ("v", "b")}


def trace_custom(session, path):
    """Trace a custom path that calls ``tf.gradients``: ``path(a, b, w) -> gradient``, with a = w and b = 2a."""
    w = v1.get_variable("w", initializer=3.0, use_resource=True)
    recorder = FlowRecorder()
    a = recorder.name("a", tf.identity(w.read_value()))
    b = recorder.name("b", 2 * a)
    with recorder.recording([w]):
        pairs = [(path(a, b, w), w)]
    edges = trace_flow(recorder.nodes, {"w": [w]}, recorder.starts_of(pairs, "path 'own'"))
    session.run(v1.global_variables_initializer())
    return {
        (edge.source, edge.destination): edge.stopped if edge.gradients is None else session.run(edge.gradients[0])
        for edge in edges
    }


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        # L = a·b with b = 2a = 6 at a = 3: ∂L/∂a = 6 along a → L, ∂L/∂b = 3 and 2·3 from b on to a.
        (lambda a, b, w: tf.gradients([a * b], [w])[0], (6, 3, 6, 12)),
        (lambda a, b, w: v1.gradients(a * b, w)[0], (6, 3, 6, 12)),
        (lambda a, b, w: tf.gradients(a * b, w, stop_gradients=[b])[0], (6, True, False, 6)),
        (lambda a, b, w: tf.gradients(a * b, w, grad_ys=[tf.constant(5.0)])[0], (30, 15, 30, 60)),
        # Two passes, L = a·b and M = a: 1 is added along a → M.
        (lambda a, b, w: tf.gradients(a * b, w)[0] + tf.gradients(1 * a, w)[0], (7, 3, 6, 13)),
        # Two passes from the same start, as for two variables, and a pass whose result is not used.
        (lambda a, b, w: [tf.gradients(loss := a * b, w)[0], tf.gradients(loss, w)[0]][1], (6, 3, 6, 12)),
        (lambda a, b, w: [tf.gradients(9 * b, w)[0], tf.gradients(a * b, w)[0]][1], (6, 3, 6, 12)),
    ],
    ids=["list", "tf.compat.v1", "held constant", "grad_ys", "two passes", "one start", "unused"],
)
def test_a_path_may_call_gradients_in_any_way(session, path, expected):
    edges = trace_custom(session, path)
    pairs = ("a", "start"), ("b", "start"), ("a", "b"), ("w", "a")
    assert tuple(edges[pair] for pair in pairs) == expected


def test_a_path_whose_start_is_unknown_is_refused_by_name(session):
    optimizer = v1.train.GradientDescentOptimizer(1.0)
    with refuses(UsageError, "'own' tf.gradients compute_gradients actor.optimizer"):
        trace_custom(session, lambda a, b, w: optimizer.compute_gradients(a * b, [w])[0][0])


def test_a_bootstrap_is_labelled_by_the_networks_that_compute_it():
    edges = [{"source": source, "destination": "next_q"} for source in ("next_s", "next_mu", "target_critic")]
    assert layout_nodes(edges)["next_q"].text == "target critic\nQ′(s′, μ(s′))"
    target_actor = {"source": "target_actor", "destination": "next_mu"}
    assert layout_nodes([*edges, target_actor])["next_q"].text == "target critic\nQ′(s′, μ′(s′))"
    assert layout_nodes(edges[:2])["next_q"].text.startswith("critic")
