"""The error of a gradient whose products use bfloat16 numbers."""

import numpy as np
import pytest
import tensorflow as tf

from ddpg.laboratory.gradient_checks import RoundedGradient

v1 = tf.compat.v1


def rounding_errors(session, make):
    """Return the errors of the rounded gradient of ``make(x, w)`` with respect to w, at w = I and a fixed x."""
    x, w = v1.placeholder(tf.float32, (2, 2)), v1.get_variable("w", initializer=np.eye(2, dtype=np.float32))
    (gradient,) = tf.gradients(make(x, w), w)
    session.run(v1.global_variables_initializer())
    feeds = {x: np.float32([[1 + 2**-8, 1], [0, 1]])}
    return RoundedGradient(session, [gradient], [x], [w]).errors(feeds, session.run([gradient], feeds))


def test_error_by_hand(session):
    """The gradient of a sum is xᵀ1, and 1 + 2⁻⁸ rounds to 1: rows (1 + 2⁻⁸, 1 + 2⁻⁸), (2, 2) become (1, 1), (2, 2)."""
    errors = rounding_errors(session, lambda x, w: tf.reduce_sum(x @ w))
    found = errors["bfloat16"]
    exact, rounded = np.float64([1 + 2**-8, 1 + 2**-8, 2, 2]), np.float64([1, 1, 2, 2])
    size = np.linalg.norm(exact)
    assert found["relative_norm"] == pytest.approx(2**0.5 * 2**-8 / size, rel=1e-6)
    assert found["cosine"] == pytest.approx(exact @ rounded / (size * np.linalg.norm(rounded)), abs=1e-12)
    assert errors["bfloat16x3"] == {"relative_norm": 0, "cosine": pytest.approx(1)}  # 1 + 2⁻⁸ is a sum of two numbers


def test_an_op_that_the_compiler_lacks_gives_none(session):
    assert {*rounding_errors(session, lambda x, w: tf.reduce_sum(tf.sin(x @ w))).values()} == {None}
