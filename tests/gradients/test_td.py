"""The two losses of DQN tutorials: over all outputs with a fed target row, and over the taken action's value."""

import numpy as np
import pytest
import tensorflow as tf
from refusals import refuses

from ddpg import UsageError
from ddpg.gradients import td

v1 = tf.compat.v1


def both(session, outputs, taken, targets):
    """Return (loss, gradient of the outputs) for the row loss and for the taken action's loss."""
    count = outputs.shape[1]
    rows = np.arange(len(outputs))
    variable = v1.get_variable("outputs", initializer=outputs)
    q_all = variable.read_value()
    session.run(v1.global_variables_initializer())
    row = session.run(q_all)  # like the tutorials: the prediction, with the taken action's entry replaced in each row
    row[rows, taken] = targets
    q = tf.reduce_sum(q_all * tf.one_hot(taken, count), axis=1, keepdims=True)
    losses = td.mean_square(q_all, tf.constant(row)), td.mean_square(q, tf.constant(targets[:, None]))
    return [session.run([loss, tf.gradients(loss, q_all)[0]]) for loss in losses]


def test_by_hand(session):
    """Errors of 1 − 4 = −3 and 2 − 1 = 1: squares 9 and 1, over 6 entries or over 2."""
    outputs = np.float32([[1.0, 7.0, 5.0], [3.0, 0.0, 2.0]])
    row, taken = both(session, outputs, np.array([0, 2]), np.float32([4.0, 1.0]))
    np.testing.assert_allclose(row[0], 10 / 6, rtol=1e-6)
    np.testing.assert_allclose(taken[0], 10 / 2, rtol=1e-6)
    np.testing.assert_allclose(row[1], [[-6 / 6, 0, 0], [0, 0, 2 / 6]], rtol=1e-6)
    np.testing.assert_allclose(taken[1], [[-6 / 2, 0, 0], [0, 0, 2 / 2]], rtol=1e-6)


@pytest.mark.parametrize("clip", [None, 1.0])
def test_grad_loss_of_the_optimizer_starts_backpropagation_as_dqn3_does(session, rng, clip):
    """DQN 3.0's targets for all outputs, passed to compute_gradients: no patched tf.gradients is needed."""
    weights = v1.get_variable("weights", initializer=rng.normal(size=(4, 3)).astype(np.float32))
    outputs = tf.constant(rng.normal(size=(6, 4)).astype(np.float32)) @ weights
    taken, y = rng.integers(0, 3, 6), 3 * rng.normal(size=(6, 1)).astype(np.float32)
    q = tf.gather(outputs, taken[:, None], batch_dims=1)
    (expected, _), *_ = td.output_delta(q, tf.constant(y), [weights], clip_delta=clip)
    session.run(v1.global_variables_initializer())
    delta = y - session.run(q)
    assert np.abs(delta).max() > 1
    targets = np.zeros((6, 3), np.float32)
    targets[np.arange(6), taken] = (delta if clip is None else np.clip(delta, -clip, clip))[:, 0]
    optimizer = v1.train.GradientDescentOptimizer(1.0)
    (gradient, _), *_ = optimizer.compute_gradients(outputs, [weights], grad_loss=tf.constant(-2 / 6 * targets))
    np.testing.assert_allclose(*session.run([gradient, expected]), rtol=1e-5, atol=1e-6)


def test_a_delta_clipped_inside_the_loss_ignores_the_samples_beyond(session):
    """Deltas of 0.5 and 3, clipped to ±1: the gradient of mean clip(δ)² is (−0.5, 0), output_delta's (−0.5, −1)."""
    q = v1.get_variable("q", initializer=np.zeros((2, 1), np.float32)).read_value()
    y = tf.constant([[0.5], [3.0]])
    (start, _), *_ = td.output_delta(q, y, [q], clip_delta=1.0)
    inside = tf.gradients(tf.reduce_mean(tf.square(tf.clip_by_value(y - q, -1.0, 1.0))), q)[0]
    session.run(v1.global_variables_initializer())
    np.testing.assert_allclose(session.run(start), [[-0.5], [-1.0]])
    np.testing.assert_allclose(session.run(inside), [[-0.5], [0.0]])


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan")])
def test_a_threshold_that_is_not_positive_is_refused(clip, graph):
    """clip_by_value(δ, 1, −1) would give 1 for every δ."""
    q = tf.zeros((2, 1))
    with refuses(UsageError, f"clip_delta {clip} > 0"):
        td.output_delta(q, q, [], clip_delta=clip)


def mean_absolute(q, target):
    return tf.reduce_mean(tf.abs(q - target))


@pytest.mark.parametrize(
    ("loss", "named", "advised"),
    [("huber", "'huber'", "clip_delta=1"), (mean_absolute, "mean_absolute", "td_target='stop_gradient'")],
)
def test_an_output_delta_has_no_loss_and_says_where_that_loss_is(loss, named, advised):
    with refuses(UsageError, f"critic_loss={named} td_target='output_delta' {advised}"):
        td.TDPath("output_delta", loss=loss)


@pytest.mark.parametrize("path", [td.stop_gradient, td.output_delta])
def test_a_target_may_be_an_array_and_any_other_shape_than_that_of_q_is_refused(path, session):
    """One target would count for every row, and that of the taken action for every action."""
    q = v1.get_variable("q", initializer=np.float32([[1.0], [2.0]]))
    ((gradient, _),) = path(q.read_value(), np.float32([[2.0], [0.0]]), [q])
    session.run(v1.global_variables_initializer())
    np.testing.assert_allclose(session.run(gradient), [[-1.0], [2.0]])
    for shape in ([1, 1], [3, 1], [2]):
        with refuses(UsageError, str(tf.TensorShape(shape))):
            path(q.read_value(), tf.ones(shape), [q])
    with refuses(UsageError, "(2, 3)"):
        path(tf.tile(q, [1, 3]), tf.ones([2, 1]), [q])
