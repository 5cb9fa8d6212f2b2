"""Discounts and weights of single samples in an update, by hand, under several drivers.

All weights are zero and the hidden layer is inactive, so Q is the output bias b, which alone moves, by SGD.
"""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from driven import learner_of

from ddpg import DDPGConfig, DQNConfig
from ddpg.algorithms.ddpg import DDPGUpdate
from ddpg.algorithms.dqn import DQNUpdate
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1
BOX = gym.spaces.Box(-1, 1, (1,), np.float32)
RATE, BIAS, TARGET_BIAS, GAMMA = 0.1, 2.0, 4.0, 0.9
REWARDS = np.array([[1.0, 3.0, 1.8, -7.0]])
DISCOUNTS, WEIGHTS = np.array([[0.9, 0.5, 0.25, 0.9]]), np.array([[1.0, 0.5, 0.25, 0.0]])
TERMINATED = np.array([[1.0, 0.0, 0.0, 1.0]])


def column(values):
    return np.asarray(values, np.float32)[..., None]


def minibatch(discounts=None, weights=None):
    zeros = np.zeros((1, 4, 1), np.float32)
    fields = zeros, zeros, column(REWARDS), zeros, column(TERMINATED)
    return Batch(*fields, *(None if values is None else column(values) for values in (discounts, weights)))


def one_update(kind, driver, batch, **options):
    """Return the bias after one update from ``BIAS``, with the target's at ``TARGET_BIAS``, and its report."""
    if options.get("td_target") == "placeholder":
        options |= {"jit": False, "updates_per_call": 1}
    options |= {"hidden": (2,), "optimizer": "sgd", "gamma": GAMMA}
    with tf.Graph().as_default(), v1.Session().as_default() as session:
        if kind == "ddpg":
            config = DDPGConfig(critic_learning_rate=RATE, **options)
            update = DDPGUpdate.build(config, (BOX, BOX))
        else:
            config = DQNConfig(learning_rate=RATE, **options)
            update = DQNUpdate.build(config, (BOX, gym.spaces.Discrete(2)))
        network = update.value
        learner = learner_of(driver, update, 4, 2)
        batch = batch.padded(2)
        session.run(v1.global_variables_initializer())
        for bias in (TARGET_BIAS, BIAS):
            weights = [0 * array for array in network.get_network_params()]
            network.set_network_params([*weights[:-1], weights[-1] + bias])
            if bias == TARGET_BIAS:
                network.sync_target_network()
        result = learner.update(session, batch, 1)
        return float(network.get_network_params()[-1][0]), result


def test_n_step_discounts():
    """y = r + discount·(1 − terminated)·4 = 1, 5, 2.8, −7: the mean of y − 2 is −1.55."""
    bias, result = one_update("ddpg", "uncompiled", minibatch(DISCOUNTS), n_steps=3)
    assert bias == pytest.approx(BIAS + RATE * 2 * -1.55, rel=1e-5)
    assert result.td_errors is None
    assert result.metrics["critic_loss"] == pytest.approx((1 + 9 + 0.64 + 81) / 4, rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "driver", "td_target"),
    [
        ("ddpg", "uncompiled", "stop_gradient"),
        *(
            pytest.param("ddpg", *case, marks=pytest.mark.slow)
            for case in (("compiled", "stop_gradient"), ("stepped", "placeholder"))
        ),
        ("dqn", "uncompiled", "output_delta"),
    ],
)
def test_weights_multiply_each_samples_loss(kind, driver, td_target):
    """δ = −1, 3, 0.8, −9 with weights 1, 0.5, 0.25, 0: the mean is 0.175. The reported loss is unweighted."""
    batch = minibatch(DISCOUNTS, WEIGHTS)
    bias, result = one_update(kind, driver, batch, prioritised="proportional", td_target=td_target)
    assert bias == pytest.approx(BIAS + RATE * 2 * (-1 + 1.5 + 0.2) / 4, rel=1e-5)
    np.testing.assert_allclose(result.td_errors, [[1, 3, 0.8, 9]], rtol=1e-5)  # of the single update
    assert next(iter(result.metrics.values())) == pytest.approx((1 + 9 + 0.64 + 81) / 4, rel=1e-5)


def test_weights_with_residual_gradient():
    """y of the online network: δ = −1, 2, 0.3, −9; ∂(q − y)/∂b = 1 − discount·(1 − terminated)."""
    batch = minibatch(DISCOUNTS, WEIGHTS)
    bias, result = one_update("ddpg", "uncompiled", batch, prioritised="proportional", td_target="residual_gradient")
    np.testing.assert_allclose(result.td_errors, [[1, 2, 0.3, 9]], rtol=1e-5)
    step = (1 * -1 * 1 + 0.5 * 2 * 0.5 + 0.25 * 0.3 * 0.75) / 4
    assert bias == pytest.approx(BIAS + RATE * 2 * step, rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "driver", "td_target"), [("ddpg", "uncompiled", "stop_gradient"), ("dqn", "stepped", "placeholder")]
)
def test_lap_uses_the_huber_loss(kind, driver, td_target):
    """y = r + 0.9·(1 − terminated)·4 = 1, 6.6, 1.8, −7 with r = −1.8 for the third: δ = −1, 4.6, −0.2, −9."""
    batch = minibatch()
    batch = batch.replace(rewards=batch.rewards - column([[0, 0, 3.6, 0]]))
    bias, result = one_update(kind, driver, batch, prioritised="lap", td_target=td_target)
    np.testing.assert_allclose(result.td_errors, [[1, 4.6, 0.2, 9]], rtol=1e-4)
    assert bias == pytest.approx(BIAS + RATE * 2 * (-1 + 1 - 0.2 - 1) / 4, rel=1e-5)
