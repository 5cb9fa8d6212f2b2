"""The two losses of DQN tutorials: over all outputs with a fed row, and over the taken action's value."""

import numpy as np
import pytest
import tensorflow as tf

from ddpg.gradients import td

v1 = tf.compat.v1


def both(session, outputs, taken, targets):
    """Return (loss, gradient for the outputs) of the row loss and of the taken action's loss."""
    count = outputs.shape[1]
    rows = np.arange(len(outputs))
    variable = v1.get_variable("outputs", initializer=outputs)
    q_all = variable.read_value()
    session.run(v1.global_variables_initializer())
    row = session.run(q_all)  # as the tutorials do: the prediction, with one entry a row overwritten
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


@pytest.mark.parametrize("count", [2, 3, 4, 18])
def test_value_and_gradient_differ_by_the_number_of_actions(session, rng, count):
    outputs = rng.normal(size=(16, count)).astype(np.float32)
    row, taken = both(session, outputs, rng.integers(0, count, 16), rng.normal(size=16).astype(np.float32))
    for of_rows, of_taken in zip(row, taken, strict=True):
        np.testing.assert_allclose(count * of_rows, of_taken, rtol=1e-6)
        if count in (2, 4):  # powers of two: not even rounded
            np.testing.assert_array_equal(count * of_rows, of_taken)
