"""An actor that reads the convolutions of a critic: its outputs by hand, and where gradients end."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from refusals import refuses

from ddpg import ActorNetwork, CriticNetwork, DDPGConfig, UsageError, conv, mlp
from ddpg.algorithms.ddpg import make_actor, make_networks
from ddpg.networks.actor import AveragedActor

IMAGES = gym.spaces.Box(-9.0, 9.0, (2, 2), np.float32)
ACTIONS = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
STATES = np.array([[[1.0, -2.0], [0.5, 3.0]], [[-1.0, 0.0], [2.0, 1.0]]], np.float32)
HEAD = np.array([[0.1], [-0.2], [0.3], [0.05]], np.float32)  # weights of the actor's output layer


def flat(encoded):
    return tf.reshape(encoded, [-1, 4])


@pytest.fixture
def networks(graph, session, initialize):
    """Return a critic with one filter of one pixel, max(0, w·x + c), an actor that reads it, and an average of it."""
    critic = CriticNetwork(IMAGES, ACTIONS, network=conv(((1, 1, 1),), dense=(3,), scale=1.0), optimizer="sgd", tau=0.5)
    actor = ActorNetwork(IMAGES, ACTIONS, network=flat, optimizer="sgd", tau=0.5, encoder=critic)
    average = AveragedActor(actor, 4)
    initialize()
    set_filter(critic, 1.0, 0.0)
    actor.set_network_params([HEAD, np.zeros(1)])
    critic.sync_target_network()
    actor.sync_target_network()
    session.run([variable.initializer for variable in average.acting_variables])
    return critic, actor, average


def set_filter(critic, weight, bias):
    first, second, *others = critic.get_network_params()
    critic.set_network_params([np.full_like(first, weight), np.full_like(second, bias), *others])


def expected(weight, bias, head=HEAD):
    return np.tanh(np.maximum(0, weight * STATES.reshape(2, 4) + bias) @ head)


def test_an_actor_reads_convolutions_that_only_the_critics_loss_trains(networks, session):
    """w goes from 1 to 2 and c from 0 to 0.5; the target goes half of the way, the average a quarter."""
    critic, actor, average = networks
    np.testing.assert_allclose(actor.predict(STATES), expected(1.0, 0.0), rtol=1e-5)
    set_filter(critic, 2.0, 0.5)
    np.testing.assert_allclose(actor.predict(STATES), expected(2.0, 0.5), rtol=1e-5)
    for found in (actor.predict_target(STATES), average.predict(STATES)):
        np.testing.assert_allclose(found, expected(1.0, 0.0), rtol=1e-5)
    critic.update_target_network()
    session.run(average.update())
    np.testing.assert_allclose(actor.predict_target(STATES), expected(1.5, 0.25), rtol=1e-5)
    np.testing.assert_allclose(average.predict(STATES), expected(1.25, 0.125), rtol=1e-5)
    actor.set_network_params([2 * HEAD, np.zeros(1)])
    actor.update_target_network()
    np.testing.assert_allclose(actor.predict(STATES), expected(2.0, 0.5, 2 * HEAD), rtol=1e-5)
    np.testing.assert_allclose(actor.predict_target(STATES), expected(1.5, 0.25, 1.5 * HEAD), rtol=1e-5)
    assert [tuple(v.shape) for v in critic.encoder_variables] == [(1, 1, 1, 1), (1,)]
    assert {v.name for v in actor.acting_variables} - {v.name for v in actor.variables} == {
        v.name for v in critic.encoder_variables
    }
    assert [array.shape for array in actor.get_network_params()] == [(4, 1), (1,)]
    states = tf.constant(STATES)
    others = [*critic.variables, *critic.target_variables, states]
    for actions in (actor(states), actor.target(states)):
        assert tf.gradients(actions, others) == [None] * len(others)
    before = critic.get_network_params()
    actor.train(STATES, np.ones((2, 1)))
    np.testing.assert_equal(critic.get_network_params(), before)
    assert (actor.get_network_params()[0] != 2 * HEAD).any()
    critic.train(STATES, np.ones((2, 1)), np.full((2, 1), 5.0))
    assert (critic.get_network_params()[0] != before[0]).all()


def test_networks_without_convolutions_to_share_are_refused(graph):
    spaces = IMAGES, ACTIONS
    with refuses(UsageError, "encoder=3 critic"):
        ActorNetwork(*spaces, encoder=3)
    with refuses(UsageError, "shared_encoder network='mlp' 'conv' critic_network"):
        DDPGConfig(shared_encoder=True)
    small = conv(((1, 2, 1),), dense=(4,))
    with refuses(UsageError, "critic ddpg.conv"):
        make_networks(DDPGConfig(shared_encoder=True, critic_network=lambda s, a: a), spaces)
    with refuses(UsageError, "shared_encoder actor_network ddpg.mlp"):
        make_networks(DDPGConfig(shared_encoder=True, critic_network=small, actor_network=small), spaces)
    with refuses(UsageError, "shared_encoder make_networks"):
        make_actor(DDPGConfig(shared_encoder=True, network="conv"), spaces)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "layers"),
    [
        ({"network": "conv"}, [(512, 5), (5, 1)]),  # 32 channels of 4 x 4 positions of an image of 16 x 16
        ({"critic_network": conv(((2, 3, 4),), dense=(4,))}, [(32, 5), (5, 1)]),
        ({"network": "conv", "actor_network": mlp((3,))}, [(512, 3), (3, 1)]),
    ],
    ids=["conv", "own critic", "own actor"],
)
def test_the_actors_own_layers_follow_the_convolutions(options, layers, graph):
    images = gym.spaces.Box(0, 255, (16, 16), np.uint8)
    config = DDPGConfig(shared_encoder=True, hidden=(5,), optimizer="sgd", target="online", **options)
    actor, (first, second) = make_networks(config, (images, ACTIONS), 2)
    assert [tuple(v.shape) for v in actor.variables if v.shape.rank > 1] == layers
    assert actor.encoder is first
    assert [v.shape for v in second.variables] == [v.shape for v in first.variables]
