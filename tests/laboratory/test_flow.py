"""``trace_flow`` reports the gradient along each single edge of a backward pass, and where gradients stop."""

import pytest
import tensorflow as tf
from matplotlib.figure import Figure
from refusals import refuses

from ddpg import ActorNetwork, Batch, CriticNetwork, UsageError, mlp
from ddpg.laboratory.flow import FlowRecorder, trace_flow
from ddpg.laboratory.picture import draw_edges, layout_nodes

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


@pytest.mark.parametrize("further_terms_first", [False, True])
def test_further_terms_of_a_policy_path_do_not_take_the_names_of_its_own(
    further_terms_first, session, observation_space, action_space
):
    """μ(s′) of a term that keeps successive actions close is not μ(s), and Q of the replayed actions not Q(s, μ(s))."""
    actor = ActorNetwork(observation_space, action_space, network=mlp((4,)))
    critic = CriticNetwork(observation_space, action_space, network=mlp((4,)))
    states, actions, numbers, next_states = (tf.zeros([2, size]) for size in (3, 2, 1, 3))
    recorder = FlowRecorder()
    recorder.listen(actor)
    recorder.listen(critic)
    recorder.begin(Batch(states, actions, numbers, next_states, numbers), ("observations", "actions"))

    def further_terms():
        critic(next_states, actor(next_states))
        critic(states, actions)

    if further_terms_first:
        further_terms()
    mu = actor(states, training=True)
    q = critic(states, mu)
    if not further_terms_first:
        further_terms()
        assert recorder.nodes.keys() == {"s", "a", "mu", "q"}
    assert recorder.nodes["mu"] is mu
    assert recorder.nodes["q"] is q


def test_the_numbers_of_weights_that_feed_the_start_are_inside_the_panel():
    axes = Figure(figsize=(11.2, 4.0), dpi=125).add_axes((0.0, 0.0, 0.485, 1.0))
    edges = [
        {"source": name, "destination": "start", "norm": 1.23e-05, "stopped": False, "trained": True}
        for name in ("actor", "critic")
    ]
    draw_edges(axes, edges, "policy_gradient = mine")
    axes.figure.draw_without_rendering()
    numbers = [text.get_window_extent() for text in axes.texts if text.get_text() == "1.2e-05"]
    assert len(numbers) == 2
    assert all(number.x0 > 0 and number.x1 <= axes.bbox.x1 for number in numbers)
    assert not numbers[0].overlaps(numbers[1])
