"""Networks of a user's own act as TensorFlow computes them, however they act, and exports hold them or refuse them."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_options import SMALL_UPDATE
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError, load_policy, mlp
from ddpg.config.algorithm_options import ACTIVATIONS
from ddpg.exports.export import FORMATS, NAMES
from ddpg.policies.network_policy import CompiledPolicy, NumpyPolicy

v1 = tf.compat.v1
STATES, BOX = gym.spaces.Box(-1, 1, (6,)), gym.spaces.Box(-1, 1, (2,))


def weights(name, *shape):
    return v1.get_variable(name, shape, initializer=v1.glorot_uniform_initializer(seed=3))


def dense(x, units, name):
    return tf.nn.relu(tf.matmul(x, weights(f"{name}/w", int(x.shape[1]), units)) + weights(f"{name}/b", 1, units))


def shared(states):
    """The same layer for both halves of the observation."""
    return tf.reshape(dense(tf.reshape(states, [-1, 3]), 5, "half"), [-1, 10])


def centred_halves(states):
    halves = tf.reshape(dense(states, 6, "first"), [-1, 3])
    return tf.reshape(halves - tf.reduce_mean(halves, axis=1, keepdims=True), [-1, 6])


def centred_over_the_batch(states):
    hidden = dense(states, 6, "first")
    return hidden - tf.reduce_mean(hidden, axis=0, keepdims=True)


def three_inputs(states):
    return tf.concat([dense(states, units, f"part_{units}") for units in (3, 4, 5)], axis=-1)


def pooled(states):
    """A mean as a product with a matrix of equal numbers, which other constants make."""
    hidden = dense(states, 6, "first")
    return tf.concat([hidden, tf.matmul(hidden, tf.ones([6, 1]) / 6.0)], axis=1)


def masked(states):
    return tf.tanh(tf.matmul(states, weights("w", 6, 4) * np.tri(6, 4).astype(np.float32)))


def low_rank(states):
    return tf.tanh(tf.matmul(states, tf.matmul(weights("u", 6, 2), weights("v", 2, 4))))


def centred_weights(states):
    kernel = weights("w", 6, 4)
    kernel = kernel - tf.reduce_mean(kernel, axis=0, keepdims=True)
    return tf.tanh(tf.matmul(states, kernel - tf.reduce_mean(kernel, axis=1, keepdims=True)))


def parts(states):
    """Columns, taken in every way, through activations that NumPy programs have no operation for."""
    half, rest = tf.split(dense(states, 8, "first"), 2, axis=-1)
    several = tf.split(states, [1, 3, 2], axis=1)
    taken = [states[:, 1:4], states[..., -1:], rest[:, ::-2], tf.slice(half, [0, 1], [-1, 2]), several[1], half]
    joined = tf.concat(taken, axis=1)
    return tf.nn.leaky_relu(joined - 0.4, 0.3) + tf.nn.relu6(20.0 * joined)


def smooth_units(states):
    """Both forms, of which one reads erfc and the other a cube; SiLU, and a square as a power."""
    hidden = dense(states, 6, "first") - 0.5
    several = tf.nn.gelu(hidden), tf.nn.gelu(hidden, approximate=True), tf.nn.silu(hidden), tf.pow(hidden, 2.0)
    return tf.concat(several, axis=1)


def transposed_weights(states):
    """Weights ``[out, in]``, in every way to write them."""
    first, wide = weights("first", 5, 6), weights("wide", 5, 4)
    hidden = tf.tanh(tf.matmul(tf.matmul(states, first, transpose_b=True), tf.transpose(tf.transpose(wide))))
    back = tf.matmul(hidden, tf.matmul(np.eye(6, 5, dtype=np.float32), wide), transpose_b=True)
    return tf.matmul(back, tf.matmul(first, np.eye(5, dtype=np.float32), transpose_a=True))


def gram(states):
    hidden = dense(states, 6, "first")
    return tf.matmul(tf.matmul(hidden, hidden, transpose_b=True), hidden)


def all_activations(states):
    features = []
    for name in ACTIVATIONS:
        with v1.variable_scope(name):
            features.append(mlp((3,), name)(states))
    return tf.concat(features, axis=1)


def some_rows(states):
    return dense(states, 6, "first") - dense(states, 6, "first")[:1]


ACROSS_ROWS = (
    shared,
    centred_halves,
    centred_over_the_batch,
    gram,
)  # not a row of features for each row of an observation
BY_ROWS = (three_inputs, pooled, masked, low_rank, centred_weights, parts, smooth_units, transposed_weights)


@functools.cache
def make_agent(network):
    config = DDPGConfig(hidden=(4,), output_init="fan_in", **SMALL_UPDATE)
    return DDPG((STATES, BOX), config, seed=0, actor_network=network)


def states(count=4):
    return np.random.default_rng(0).uniform(-1, 1, (count, 6)).astype(np.float32)


def by_tensorflow(agent, rows):
    with agent.session.as_default():
        return agent.actor.predict(rows)


@pytest.mark.parametrize("network", [*ACROSS_ROWS, *BY_ROWS])
def test_one_state_and_a_batch_act_as_in_tensorflow(network):
    agent = make_agent(network)
    assert isinstance(agent.policy, NumpyPolicy)
    np.testing.assert_allclose(agent.predict(states())[0], by_tensorflow(agent, states()), rtol=1e-5, atol=1e-6)
    for state in states():
        alone = by_tensorflow(agent, state[None])[0]
        np.testing.assert_allclose(agent.predict(state)[0], alone, rtol=1e-5, atol=1e-6)
    assert (agent._native_policy is None) == (network in (*ACROSS_ROWS, centred_weights, transposed_weights))


def test_a_network_that_takes_some_rows_does_not_act_in_numpy():
    agent = make_agent(some_rows)
    assert isinstance(agent.policy, CompiledPolicy)
    np.testing.assert_allclose(agent.predict(states())[0], by_tensorflow(agent, states()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("network", BY_ROWS)
def test_exports_of_layers_whose_weights_are_computed(network, tmp_path):
    agent = make_agent(network)
    agent.export(tmp_path / "numpy")
    agent.export(tmp_path / "c", format="c")  # it compares itself with the agent
    policy = load_policy(tmp_path / "numpy")
    np.testing.assert_allclose(policy.predict(states())[0], agent.predict(states())[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "format", [pytest.param(format, marks=[pytest.mark.slow] * (format == "savedmodel")) for format in FORMATS]
)
def test_every_activation_is_exported(format, tmp_path):
    """In one network; each export compares itself with the agent."""
    if format == "onnx":
        pytest.importorskip("tf2onnx")
    make_agent(all_activations).export(tmp_path / NAMES[format], format)


def test_gelu_is_exported_to_onnx_which_lacks_its_op(tmp_path):
    pytest.importorskip("tf2onnx")
    agent = make_agent(lambda states: tf.nn.gelu(dense(states, 6, "first")))
    agent.export(tmp_path / "policy.onnx", format="onnx")  # it compares itself with the agent


@pytest.mark.parametrize("format", ["numpy", "c"])
@pytest.mark.parametrize("network", ACROSS_ROWS)
def test_a_network_across_rows_is_refused_with_the_formats_that_can_hold_it(network, format, tmp_path):
    why = "Transpose columns" if network is gram else "rows"
    with refuses(UsageError, f"format='{format}' savedmodel onnx {why}"):
        make_agent(network).export(tmp_path / "policy", format=format)
    assert not (tmp_path / "policy").exists()
