"""Hidden layers of one's own by any means: the same weights at every application, those of the target its own."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from refusals import refuses

import ddpg
from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError

v1 = tf.compat.v1
BOX = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
SMALL = {"batch_size": 4, "updates_per_call": 2, "buffer_size": 20}


def by_name(states, actions=None):
    x = states if actions is None else tf.concat([states, actions], axis=1)
    return tf.nn.relu(tf.matmul(x, v1.get_variable("w", [int(x.shape[-1]), 8])) + v1.get_variable("b", [8]))


def by_hand(states, actions=None):
    x = states if actions is None else tf.concat([states, actions], axis=1)
    return tf.nn.tanh(tf.matmul(x, tf.Variable(tf.random.normal([int(x.shape[-1]), 8]))) + tf.Variable(tf.zeros([8])))


def by_keras(states, actions=None):
    x = states if actions is None else tf.concat([states, actions], axis=1)
    return tf.keras.layers.Dense(8, activation="relu")(tf.keras.layers.Dense(4, activation="elu")(x))


def by_both(states, actions=None):
    return tf.keras.layers.Dense(4, activation="tanh")(by_name(states, actions))


LAYERS = [by_name, by_hand, by_keras, by_both]


def filled(agent):
    rng = np.random.default_rng(0)
    for _ in range(8):
        s, successor = rng.uniform(-1, 1, (2, 3))
        agent.observe(s, agent.action_space.sample(), 1.0, successor, False, False)
    return agent


def made(layers, **options):
    return filled(DDPG((BOX, ACTIONS), DDPGConfig(**SMALL, **options), 0, actor_network=layers, critic_network=layers))


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("options", [{"compiler": "native"}, {"jit": False}, {"compiler": "xla"}], ids=str)
def test_all_weights_learn_act_and_have_a_target(layers, options):
    agent = made(layers, **options)
    before, states = agent.get_parameters(), np.random.default_rng(1).uniform(-1, 1, (5, 3))
    agent.update(4)
    for name, value in agent.get_parameters().items():
        assert (value != before[name]).any(), name
    with agent.session.as_default():
        np.testing.assert_allclose(agent.predict(states)[0], agent.actor.predict(states), rtol=1e-5, atol=1e-7)
        assert np.abs(agent.actor.predict(states) - agent.actor.predict_target(states)).max() > 1e-6
        agent.actor.sync_target_network()
        np.testing.assert_allclose(agent.actor.predict(states), agent.actor.predict_target(states), atol=1e-7)


@pytest.mark.parametrize("layers", LAYERS)
def test_they_are_saved_loaded_and_exported(layers, tmp_path):
    """By names that do not count what else the process has made."""
    agent = made(layers, jit=False)
    agent.update(2)
    agent.save(tmp_path / "saved")
    tf.keras.layers.Dense(1)
    loaded = DDPG.load(tmp_path / "saved", actor_network=layers, critic_network=layers)
    states = np.random.default_rng(1).uniform(-1, 1, (5, 3))
    np.testing.assert_array_equal(loaded.predict(states)[0], agent.predict(states)[0])
    policy = ddpg.load_policy(loaded.export(tmp_path / "policy"))
    np.testing.assert_allclose(policy.predict(states)[0], agent.predict(states)[0], atol=1e-6)


def test_a_q_network_of_keras_learns():
    agent = DQN((BOX, gym.spaces.Discrete(3)), DQNConfig(**SMALL, jit=False), 0, q_network=by_keras)
    before = filled(agent).get_parameters()
    agent.update(2)
    assert all((value != before[name]).any() for name, value in agent.get_parameters().items() if "created" in name)


def test_layers_made_before_are_refused_by_name():
    """Their weights would be those of the target, too."""
    layer = tf.keras.layers.Dense(8)
    with refuses(UsageError, "actor callable"):
        DDPG((BOX, ACTIONS), DDPGConfig(**SMALL), 0, actor_network=lambda states: layer(states))


def test_more_layers_at_a_later_call_are_refused():
    calls = []

    def growing(states):
        calls.append(None)
        for _ in calls:
            states = tf.keras.layers.Dense(3)(states)
        return states

    with refuses(UsageError, "actor 2 variables"):
        DDPG((BOX, ACTIONS), DDPGConfig(**SMALL), 0, actor_network=growing)
