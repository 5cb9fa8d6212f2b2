"""``weight_projection``: each hidden unit's incoming weights have length 1 after every step, in every network."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agents_by_driver import BOX, DRIVERS, agent_with
from refusals import refuses

from ddpg import DQN, CriticNetwork, DQNConfig, UsageError, conv, mlp


def lengths(agent, network):
    """Return the lengths of all units' incoming weights, for each kernel: hidden layers, then the output."""
    kernels = [v for v in network.trainable_variables if v.shape.rank == 2]
    return [np.linalg.norm(kernel, axis=0) for kernel in agent.session.run(kernels)]


def test_a_step_by_hand(session):
    """(3, 4, 0) becomes (0.6, 0.8, 0). Weights that are all 0, biases and the output layer do not change."""
    network = mlp((2,), activation="linear")
    critic = CriticNetwork(
        BOX,
        gym.spaces.Box(-1, 1, (1,), np.float32),
        network=network,
        optimizer="sgd",
        learning_rate=1e-30,
        weight_projection=True,
    )
    session.run(tf.compat.v1.global_variables_initializer())
    kernel = np.array([[3.0, 0.0], [4.0, 0.0], [0.0, 0.0]])
    given = [kernel, np.array([7.0, 8.0]), np.array([[3.0], [4.0]]), np.array([5.0])]
    critic.set_network_params(given)
    critic.train(np.zeros((1, 2)), np.zeros((1, 1)), np.zeros((1, 1)))
    found = critic.get_network_params()
    np.testing.assert_allclose(found[0], [[0.6, 0.0], [0.8, 0.0], [0.0, 0.0]], rtol=1e-6)
    np.testing.assert_equal(found[1:], given[1:])


@pytest.mark.parametrize(
    "driver", [pytest.param(driver, marks=[pytest.mark.slow] * (driver != "native")) for driver in DRIVERS]
)
def test_every_network_is_projected_after_its_own_steps(driver):
    agent = agent_with(weight_projection=True, norm="layer", policy_delay=2, optimizer="sgd", **DRIVERS[driver])
    for made in range(1, 4):
        before = lengths(agent, agent.actor)
        agent.update(1)
        for critic in agent.critics:
            *hidden, output = lengths(agent, critic)
            assert len(hidden) == 2
            np.testing.assert_allclose(np.concatenate(hidden), 1, rtol=1e-5)
            assert np.abs(output - 1).max() > 0.1
        *hidden, output = lengths(agent, agent.actor)
        if made % agent.config.policy_delay:
            np.testing.assert_array_equal(np.concatenate(hidden), np.concatenate(before[:-1]))
        else:
            np.testing.assert_allclose(np.concatenate(hidden), 1, rtol=1e-5)
        assert np.abs(output - 1).max() > 0.1


def test_before_batch_norm_the_length_does_not_matter(session):
    """Batch normalisation removes it, so the projected critic computes the same Q in training mode."""
    critic = CriticNetwork(
        BOX, BOX, network=mlp((6, 5), norm="batch"), optimizer="sgd", learning_rate=1e-30, weight_projection=True
    )
    states, actions = np.random.default_rng(2).uniform(-1, 1, (2, 9, 2)).astype(np.float32)
    session.run(tf.compat.v1.global_variables_initializer())
    long = [9 * array if array.ndim == 2 and array.shape[1] > 1 else array for array in critic.get_network_params()]
    critic.set_network_params(long)
    q = critic(tf.constant(states), tf.constant(actions), training=True)
    before = session.run(q)
    critic.train(states, actions, np.zeros((9, 1)))
    assert np.abs(critic.get_network_params()[2] - long[2]).max() > 0.1
    np.testing.assert_allclose(session.run(q), before, rtol=1e-3, atol=1e-5)


def test_a_q_network_is_projected():
    agent = agent_with(DQN, gym.spaces.Discrete(2), DQNConfig, weight_projection=True, norm="layer")
    agent.update(2)
    *hidden, output = lengths(agent, agent.symbolic_update.network)
    np.testing.assert_allclose(np.concatenate(hidden), 1, rtol=1e-5)
    assert np.abs(output - 1).max() > 0.1


def test_convolutions_by_output_channel(session):
    image = gym.spaces.Box(0, 255, (8, 8), np.float32)
    network = conv(filters=((3, 3, 2),), dense=(4,), norm="layer")
    critic = CriticNetwork(image, BOX, network=network, weight_projection=True)
    session.run(tf.compat.v1.global_variables_initializer())
    critic.train(np.ones((2, 8, 8)), np.zeros((2, 2)), np.ones((2, 1)))
    kernel = next(a for a in critic.get_network_params() if a.ndim == 4)
    np.testing.assert_allclose(np.sqrt(np.square(kernel).sum(axis=(0, 1, 2))), np.ones(3), rtol=1e-5)


def test_a_bad_flag_is_refused(graph):
    with refuses(UsageError, "weight_projection 2"):
        CriticNetwork(BOX, BOX, weight_projection=2)
