"""Inverting, zeroing, squashing: values from the rule's table, and each pitfall of the paper's formula."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from conftest import relative_difference
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from ddpg import ActorNetwork, Bounding, CriticNetwork, UsageError, mlp
from ddpg.algorithms.ddpg import td_target
from ddpg.gradients import bounding, policy
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1
LOW, HIGH = np.array([-1.0, 0.5], np.float32), np.array([3.0, 1.0], np.float32)


@functools.cache
def inverting_in_a_session(capped):
    """Return the inverting rule as a function of NumPy arrays; with ``capped`` its last argument is max_factor."""
    with tf.Graph().as_default() as graph:
        inputs = [v1.placeholder(tf.float32, shape) for shape in ([None, 2], [None, 2], [2], [2], [])]
        inverted = bounding.inverting(*inputs[:4], max_factor=inputs[4] if capped else None)
        return v1.Session(graph=graph).make_callable(inverted, inputs)


def inverting(gradient, action, low=LOW, high=HIGH, max_factor=None):
    """Evaluate the rule on NumPy arrays."""
    arrays = (np.asarray(array, np.float32) for array in (gradient, action, low, high, max_factor or 0))
    return inverting_in_a_session(max_factor is not None)(*arrays)


# -- the table: (below, inside, above) × (sign of g), worked out by hand ------------------------------
# Dimension 0 spans [-1, 3] (width 4), dimension 1 spans [0.5, 1] (width 0.5).


@pytest.mark.parametrize(
    ("action", "gradient", "expected"),
    [
        # below: a = (-3, 0.25)
        ((-3.0, 0.25), (2.0, 1.0), (2 * 6 / 4, 1 * 0.75 / 0.5)),  # inwards: amplified by 1.5 and 1.5
        ((-3.0, 0.25), (-2.0, -1.0), (-2 * -2 / 4, -1 * -0.25 / 0.5)),  # outwards: reversed
        # inside: a = (2, 0.6)
        ((2.0, 0.6), (2.0, 1.0), (2 * 1 / 4, 1 * 0.4 / 0.5)),
        ((2.0, 0.6), (-2.0, -1.0), (-2 * 3 / 4, -1 * 0.1 / 0.5)),
        # above: a = (5, 1.5)
        ((5.0, 1.5), (2.0, 1.0), (2 * -2 / 4, 1 * -0.5 / 0.5)),  # outwards: reversed
        ((5.0, 1.5), (-2.0, -1.0), (-2 * 6 / 4, -1 * 1 / 0.5)),  # inwards: amplified
    ],
)
def test_inverting_table(action, gradient, expected):
    np.testing.assert_allclose(inverting([gradient], [action]), [expected], rtol=1e-5)


@pytest.mark.parametrize(("bound", "sign"), [(HIGH, 1.0), (LOW, -1.0)])
def test_inverting_vanishes_at_the_bound_it_points_to(bound, sign):
    np.testing.assert_array_equal(inverting([[sign, sign]], [bound]), [[0, 0]])
    np.testing.assert_allclose(inverting([[-sign, -sign]], [bound]), [[-sign, -sign]])


def test_zeroing_and_identity():
    action = tf.constant([[-1.5, 0.6], [3.0, 0.5], [0.0, 2.0]])
    gradient = tf.constant([[1.0, -2.0], [3.0, 4.0], [-5.0, 6.0]])
    zeroed = bounding.zeroing(gradient, action, LOW, HIGH).numpy()
    np.testing.assert_array_equal(zeroed, [[0, -2], [0, 0], [-5, 0]])
    np.testing.assert_array_equal(bounding.identity(gradient, action, LOW, HIGH), gradient)


floats = st.floats(-100, 100, width=32)


@given(st.tuples(floats, floats), st.tuples(floats, floats))
def test_inverting_points_inwards_outside(action, gradient):
    result = inverting([gradient], [action])[0]
    for a, g, low, high in zip(action, result, LOW, HIGH, strict=True):
        if a > high:
            assert g <= 0
        if a < low:
            assert g >= 0


@given(st.tuples(floats, floats), st.floats(0.5, 10))
def test_max_factor_caps_the_amplification(action, cap):
    result = np.abs(inverting([[1.0, -1.0]], [action], max_factor=cap))
    assert (result <= np.float32(cap)).all()
    assert np.abs(inverting([[-1.0, 0.0]], [[43.0, 0.7]])).max() == 11  # without the cap: (43 + 1)/4


@pytest.mark.parametrize(
    ("action", "gradient", "factors"),
    [
        ((19.0, 8.0), (2.0, 1.0), (-1.5, -1.5)),  # (3 - 19)/4 = -4 and (1 - 8)/0.5 = -14: capped from below
        ((19.0, 8.0), (-2.0, -1.0), (1.5, 1.5)),  # 5 and 15: capped from above
        ((-4.0, 0.25), (-2.0, -1.0), (-0.75, -0.5)),  # within the caps
        ((-9.0, -8.0), (-2.0, -1.0), (-1.5, -1.5)),  # -2 and -17
    ],
)
def test_max_factor_caps_both_signs(action, gradient, factors):
    np.testing.assert_allclose(inverting([gradient], [action], max_factor=1.5), [np.multiply(gradient, factors)])


# -- pitfalls (a) to (h) ------------------------------------------------------------------------------


def networks_of(observation_space, action_space, **actor_options):
    shared = {"network": mlp((16,)), "optimizer": "sgd"}  # no optimizer slots to build
    actor = ActorNetwork(observation_space, action_space, **shared, **actor_options)
    critic = CriticNetwork(observation_space, action_space, **shared)
    return actor, critic


def test_a_sign_convention_picks_the_branch():
    """With the gradient of a loss (opposite sign) the rule would push outwards near a bound."""
    near_high = [[2.9, 0.99]]
    ascent = inverting([[1.0, 1.0]], near_high)
    wrong = -inverting([[-1.0, -1.0]], near_high)
    assert (ascent < 0.03).all()
    assert (wrong > 0.9).all()


def test_b_per_sample_before_the_batch_mean():
    gradients, actions = np.array([[1.0, 0], [-3.0, 0]], np.float32), np.array([[2.0, 0.7], [0.0, 0.7]], np.float32)
    per_sample = inverting(gradients, actions).mean(axis=0)
    averaged_first = inverting([gradients.mean(axis=0)], [actions.mean(axis=0)])[0]
    np.testing.assert_allclose(per_sample[0], (1 * 1 / 4 - 3 * 1 / 4) / 2)
    assert averaged_first[0] == -1 * 2 / 4
    np.testing.assert_allclose(inverting(gradients / 2, actions), inverting(gradients, actions) / 2)  # 1/B commutes


def test_b_actor_inverts_per_sample(observation_space, action_space, session, initialize, rng):
    actor, _ = networks_of(observation_space, action_space, bounding="inverting")
    initialize()
    states, gradients = rng.normal(size=(2, 3)), np.array([[1.0, -2.0], [-3.0, 1.0]])
    actions = actor.predict(states)
    inverted = inverting(gradients, actions, actor.low, actor.high)
    # The output layer's bias gradient is the mean of the pre-activation gradients: g·(half range).
    expected = -(inverted * (actor.high - actor.low) / 2).mean(axis=0)
    np.testing.assert_allclose(actor.get_gradients(states, gradients)[-1], expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["inverting", "zeroing", "squashing"])
def test_c_actions_start_near_the_middle(name, observation_space, action_space, session, initialize, rng):
    actor, _ = networks_of(observation_space, action_space, bounding=name)
    initialize()
    actions = actor.predict(rng.normal(size=(100, 3)))
    middle, half = (actor.high + actor.low) / 2, (actor.high - actor.low) / 2
    assert (np.abs(actions - middle) < 0.05 * half).all()


def test_d_inverting_output_is_linear(observation_space, action_space, session, initialize):
    actor, _ = networks_of(observation_space, action_space, bounding="inverting")
    initialize()
    weights = actor.get_network_params()
    actor.set_network_params([*weights[:-2], 0 * weights[-2], np.array([3.0, -3.0])])
    # middle + half·(±3), well outside: [1 + 2·3, 0.75 − 0.25·3]. tanh would have stopped at the bounds.
    np.testing.assert_allclose(actor.predict(np.zeros((1, 3))), [[7.0, 0.0]], atol=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [([-np.inf, 0], [1, 1], "infinite"), ([0, 0], [1, np.inf], "infinite"), ([0, 1], [1, 1], "zero")],
)
def test_e_infinite_and_empty_bounds_are_refused(observation_space, low, high, word, graph):
    space = gym.spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
    with refuses(UsageError, word):
        ActorNetwork(observation_space, space, bounding="inverting")


def test_e_bounds_are_per_dimension():
    result = inverting([[1.0, 1.0]], [[0.75, 0.75]])
    np.testing.assert_allclose(result, [[2.25 / 4, 0.25 / 0.5]])


def test_f_norm_clipping_commutes_with_neither_inverting_nor_the_batch_mean():
    gradient, action = tf.constant([[6.0, 8.0]]), tf.constant([[2.0, 0.75]])
    before = bounding.inverting(bounding.norm_clipping(gradient, 1.0), action, LOW, HIGH)
    after = bounding.norm_clipping(bounding.inverting(gradient, action, LOW, HIGH), 1.0)
    np.testing.assert_allclose(before, [[0.6 / 4, 0.8 / 2]], rtol=1e-5)
    np.testing.assert_allclose(after, np.array([[1.5, 4.0]]) / np.hypot(1.5, 4.0), rtol=1e-5)
    np.testing.assert_allclose(bounding.norm_clipping(gradient / 100, 1.0), gradient / 100)
    np.testing.assert_allclose(bounding.norm_clipping(gradient, 1.0) / 100, [[0.006, 0.008]], rtol=1e-5)


def test_norm_clipping_leaves_nothing_of_a_gradient_whose_squared_norm_overflows():
    gradient = tf.constant([[3e38, -3e38], [1.9e19, 0.0], [1.7e19, 0.0]])
    np.testing.assert_allclose(bounding.norm_clipping(gradient, 0.5), [[0, 0], [0, 0], [0.5, 0]], rtol=1e-6)


def test_f_actor_clips_before_the_bounding(observation_space, action_space, session, initialize, rng):
    actor, _ = networks_of(observation_space, action_space, bounding="inverting", action_gradient_clip=1.0)
    initialize()
    states = rng.normal(size=(1, 3))
    inverted = inverting([[0.6, 0.8]], actor.predict(states), actor.low, actor.high)
    expected = -(inverted * (actor.high - actor.low) / 2)[0]
    np.testing.assert_allclose(actor.get_gradients(states, [[6.0, 8.0]])[-1], expected, rtol=1e-5)


def test_g_gradient_is_taken_at_the_policys_action(observation_space, action_space, session, initialize, rng):
    """It uses no replayed action: on every path it equals the chain rule computed in NumPy at a = μ(s)."""
    actor, critic = networks_of(observation_space, action_space, bounding="inverting")
    initialize()
    states = rng.normal(size=(8, 3)).astype(np.float32)
    at_policy = actor.get_gradients(states, critic.action_gradients(states, actor.predict(states)))
    elsewhere = actor.get_gradients(states, critic.action_gradients(states, actor.predict(states) + 0.2))
    for path in policy.POLICY_GRADIENTS.values():
        actual = session.run([gradient for gradient, _ in path(actor, critic, tf.constant(states))])
        assert relative_difference(actual, at_policy) < 1e-5
        assert relative_difference(actual, elsewhere) > 1e-4


def test_h_target_action_is_clipped_before_the_target_critic(observation_space, action_space, session, initialize, rng):
    actor, critic = networks_of(observation_space, action_space, bounding="inverting")
    initialize()
    weights = actor.get_network_params()
    actor.set_network_params([*weights[:-1], np.array([5.0, -5.0])])  # far outside
    actor.sync_target_network()
    states = rng.normal(size=(4, 3)).astype(np.float32)
    zeros = np.zeros((4, 1), np.float32)
    batch = Batch(states, np.zeros((4, 2), np.float32), zeros, states, zeros)
    y = session.run(td_target(actor, critic, Batch(*map(tf.constant, batch)), gamma=1.0))
    outside = actor.predict_target(states)
    assert (outside > actor.high).any(axis=1).all()
    np.testing.assert_allclose(y, critic.predict_target(states, np.clip(outside, LOW, HIGH)), rtol=1e-5)
    assert np.abs(y - critic.predict_target(states, outside)).max() > 1e-5


# -- boundings as callables ---------------------------------------------------------------------------


def test_a_custom_bounding(observation_space, action_space, session, initialize, rng):
    doubled = Bounding(bounding.tanh_head, lambda gradient, action, low, high: 2 * gradient)
    own, _ = networks_of(observation_space, action_space, bounding=doubled)
    initialize()
    states, gradients = rng.normal(size=(4, 3)), rng.normal(size=(4, 2))
    twice = own.get_gradients(states, gradients)
    assert relative_difference(twice, own.get_gradients(states, 2 * gradients)) > 0.4
    plain, _ = networks_of(observation_space, action_space)
    initialize()
    plain.set_network_params(own.get_network_params())
    own_params = own.get_gradients(states, gradients)
    assert relative_difference(own_params, plain.get_gradients(states, 2 * gradients)) < 1e-6


@pytest.mark.parametrize("name", ["inverted", 3])
def test_unknown_bounding(name, observation_space, action_space, graph):
    with refuses(UsageError, "bounding"):
        ActorNetwork(observation_space, action_space, bounding=name)


def test_policy_paths_use_the_actors_bounding(observation_space, action_space, session, initialize, rng):
    """Each path, with a bounding that triples the gradient of the first action element and drops that of the second."""
    chosen = Bounding(bounding.tanh_head, lambda gradient, action, low, high: gradient * [3.0, 0.0])
    bounded, critic = networks_of(observation_space, action_space, bounding=chosen)
    plain, _ = networks_of(observation_space, action_space)
    states = tf.constant(rng.normal(size=(16, 3)), tf.float32)
    initialize()
    plain.set_network_params(bounded.get_network_params())
    for path in policy.POLICY_GRADIENTS.values():
        gradients = [[gradient for gradient, _ in path(actor, critic, states)] for actor in (bounded, plain)]
        own, free = session.run(gradients)
        assert np.abs(free[-1]).min() > 0
        # The last is the gradient of the output biases, one per action element.
        np.testing.assert_allclose(own[-1], free[-1] * [3, 0], rtol=1e-4)


def test_a_saturated_tanh_head_stays_inside_a_box_whose_bounds_are_rounded(session, initialize):
    """Middle plus half-range exceeds the upper bound of these boxes, or falls below the lower one, by rounding."""
    space = gym.spaces.Box(np.array([-3, -2.8, 2.4], np.float32), np.array([0.2, 2, 2.7], np.float32))
    middle, half_range = (space.high + space.low) / 2, (space.high - space.low) / 2
    assert ((middle + half_range > space.high) | (middle - half_range < space.low)).all()
    actor = ActorNetwork(gym.spaces.Box(-1, 1, (1,)), space, network=lambda states: states)
    initialize()
    actor.set_network_params([np.full((1, 3), 100, np.float32), np.zeros(3, np.float32)])
    least, most, between = actor.predict([[-1], [1], [0.002]])
    np.testing.assert_array_equal([least, most], [space.low, space.high])
    np.testing.assert_allclose(between, middle + half_range * np.tanh(0.2), atol=1e-6)
    biases = actor.get_gradients([[0.002]], np.ones((1, 3)))[1]
    np.testing.assert_allclose(biases, -half_range * (1 - np.tanh(0.2) ** 2), rtol=1e-5)


def test_a_tanh_head_adds_no_op_for_exact_bounds():
    with tf.Graph().as_default() as graph:
        bounding.tanh_head(tf.zeros([1, 1]), np.array([-1], np.float32), np.array([1], np.float32))
        assert "Maximum" not in {operation.type for operation in graph.get_operations()}
