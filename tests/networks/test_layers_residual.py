"""Residual blocks: against NumPy, in acting networks, and refused options."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from refusals import refuses

from ddpg import ActorNetwork, CriticNetwork, DDPGConfig, DQNConfig, UsageError
from ddpg.algorithms.registry import update_of
from ddpg.networks.layers import residual
from ddpg.policies.graph_to_numpy import lower_to_numpy

BOX = gym.spaces.Box(-9.0, 9.0, (3,), np.float32)
UNIT = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)


def normalised(x, gain, bias):
    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5) * gain + bias


def by_hand(inputs, embedding, start, *rest):
    """Compute two blocks, with the weights in the order of their creation."""
    x = inputs @ embedding + start
    for gain, bias, wide, b1, narrow, b2 in (rest[:6], rest[6:12]):
        x = x + np.maximum(normalised(x, gain, bias) @ wide + b1, 0) @ narrow + b2
    *norm, weights, bias = rest[12:]
    return normalised(x, *norm) @ weights + bias


def randomised(network, rng):
    weights = [rng.normal(size=array.shape) for array in network.get_network_params()]
    network.set_network_params(weights)
    return weights


def test_forward_by_hand_and_in_numpy(session, initialize, rng):
    options = {"network": residual((4, 4, 4)), "optimizer": "sgd"}
    actor, critic = ActorNetwork(BOX, UNIT, **options), CriticNetwork(BOX, UNIT, **options)
    initialize()
    fresh = actor.get_network_params()
    assert [array.shape for array in fresh[:8]] == [(3, 4), (4,), (4,), (4,), (4, 16), (16,), (16, 4), (4,)]
    np.testing.assert_allclose(fresh[0] @ fresh[0].T, np.eye(3), atol=1e-5)  # orthogonal
    np.testing.assert_array_equal(fresh[1], 0)
    states, actions = rng.normal(size=(5, 3)), rng.uniform(-1, 1, (5, 2))
    mu = np.tanh(by_hand(states, *randomised(actor, rng)))
    np.testing.assert_allclose(actor.predict(states), mu, rtol=1e-4, atol=1e-5)
    q = by_hand(np.concatenate([states, actions], axis=1), *randomised(critic, rng))
    np.testing.assert_allclose(critic.predict(states, actions), q, rtol=1e-4, atol=1e-5)
    placeholder = tf.compat.v1.placeholder(tf.float32, [None, 3])
    program, loaded = lower_to_numpy(actor(placeholder), [placeholder], actor.variables)
    program.load([session.run(actor.variables)[index] for index in loaded])
    np.testing.assert_allclose(program(states.astype(np.float32)), mu, rtol=1e-4, atol=1e-5)


def test_he_initialisation_in_the_blocks(session, initialize):
    """A layer of n inputs has weights of variance 2/n."""
    actor = ActorNetwork(BOX, UNIT, network=residual((64, 64)), optimizer="sgd")
    initialize()
    shapes = {array.shape: array for array in actor.get_network_params()}
    assert shapes[64, 256].std() == pytest.approx(np.sqrt(2 / 64), rel=0.05)
    assert shapes[256, 64].std() == pytest.approx(np.sqrt(2 / 256), rel=0.05)


@pytest.mark.parametrize("config", [DDPGConfig(block="residual"), DQNConfig(block="residual", hidden=(8, 8))])
def test_agents_build_them(config, graph):
    space = UNIT if isinstance(config, DDPGConfig) else gym.spaces.Discrete(2)
    update = update_of(config).build(config, (BOX, space))
    for network in (update.policy, update.value):
        assert any("projection_0" in variable.name for variable in network.variables)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": (8,)}, "hidden 8 blocks"),
        ({"hidden": (8, 16)}, "width"),
        ({"hidden": (8, 8), "norm": "layer"}, "blocks"),
        ({"hidden": (8, 8), "action_layer": 1}, "action observation"),
    ],
    ids=str,
)
def test_bad_options_of_residual_blocks_are_refused(options, message):
    with refuses(UsageError, message):
        residual(**options)
