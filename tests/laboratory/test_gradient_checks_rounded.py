"""How far a gradient is off in products of bfloat16 numbers."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from ddpg import DDPGConfig
from ddpg.laboratory.fixture import Fixture
from ddpg.laboratory.gradient_checks import RoundedGradient

v1 = tf.compat.v1


def of_weights(session, make):
    """Return the rounded gradient of ``make(x, w)`` in w, and its error where x is as by hand."""
    x, w = v1.placeholder(tf.float32, (2, 2)), v1.get_variable("w", initializer=np.eye(2, dtype=np.float32))
    (gradient,) = tf.gradients(make(x, w), w)
    session.run(v1.global_variables_initializer())
    feeds = {x: np.float32([[1 + 2**-8, 1], [0, 1]])}
    return RoundedGradient(session, [gradient], [x], [w]).error(feeds, session.run([gradient], feeds))


def test_by_hand(session):
    """The gradient of a sum is xᵀ1, and 1 + 2⁻⁸ rounds to 1: rows (1 + 2⁻⁸, 1 + 2⁻⁸), (2, 2) become (1, 1), (2, 2)."""
    found = of_weights(session, lambda x, w: tf.reduce_sum(x @ w))
    exact, rounded = np.float64([1 + 2**-8, 1 + 2**-8, 2, 2]), np.float64([1, 1, 2, 2])
    size = np.linalg.norm(exact)
    assert found["relative_norm"] == pytest.approx(2**0.5 * 2**-8 / size, rel=1e-6)
    assert found["cosine"] == pytest.approx(exact @ rounded / (size * np.linalg.norm(rounded)), abs=1e-12)


def test_an_op_that_the_compiler_does_not_know_gives_none(session):
    assert of_weights(session, lambda x, w: tf.reduce_sum(tf.sin(x @ w))) is None


def test_an_agents_precision_does_not_matter_to_the_laboratory():
    """It runs updates op by op, which ``precision="bfloat16"`` alone would refuse."""
    with gym.make("Pendulum-v1") as env:
        config = DDPGConfig(hidden=(4,), batch_size=8, precision="bfloat16")
        assert Fixture(env, config, seed=0).values.rewards.shape == (8, 1)
