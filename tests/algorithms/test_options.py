"""Optimizers by name, and targets from the online network, by hand."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from refusals import refuses

from ddpg import DDPG, DQN, CriticNetwork, DDPGConfig, DQNConfig, UsageError, mlp
from ddpg.algorithms.ddpg import DDPGUpdate
from ddpg.algorithms.dqn import DQNUpdate

v1 = tf.compat.v1
BOX = gym.spaces.Box(-1, 1, (1,), np.float32)
STATE = np.array([0.5])
STEPPED = {"td_target": "placeholder", "updates_per_call": 1, "jit": False}  # the driver with the smallest graph


def momentum(rate=0.1, keep=0.9):
    q, velocity, path = 0.0, 0.0, []
    for _ in range(2):
        velocity = keep * velocity + 2 * (q - 1)
        q -= rate * velocity
        path.append(q)
    return path


def rmsprop(rate=0.1, decay=0.9, epsilon=1e-10):
    q, square, path = 0.0, 1.0, []  # TensorFlow's mean square starts at 1
    for _ in range(2):
        gradient = 2 * (q - 1)
        square = decay * square + (1 - decay) * gradient**2
        q -= rate * gradient / np.sqrt(square + epsilon)
        path.append(q)
    return path


def adam(rate=0.1, beta1=0.9, beta2=0.999, epsilon=1e-8):
    q, mean, square, path = 0.0, 0.0, 0.0, []
    for step in (1, 2):
        gradient = 2 * (q - 1)
        mean, square = beta1 * mean + (1 - beta1) * gradient, beta2 * square + (1 - beta2) * gradient**2
        q -= rate * mean / (1 - beta1**step) / (np.sqrt(square / (1 - beta2**step)) + epsilon)
        path.append(q)
    return path


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        ("sgd", [0.2, 0.36]),
        ("momentum", momentum()),
        ("rmsprop", rmsprop()),
        ("adam", adam()),
        (v1.train.GradientDescentOptimizer, [0.2, 0.36]),
    ],
)
def test_optimizers_by_hand(optimizer, expected, session, initialize):
    """Q's output bias after two steps towards y = 1 from Q = 0, with all weights zero.

    The hidden layer is inactive, so only the bias moves; its gradient is 2 (Q − 1) for every sample.
    """
    critic = CriticNetwork(BOX, BOX, network=mlp((2,)), optimizer=optimizer, learning_rate=0.1)
    initialize()
    critic.set_network_params([0 * array for array in critic.get_network_params()])
    biases = []
    for _ in range(2):
        critic.train([STATE] * 4, np.zeros((4, 1)), np.ones((4, 1)))
        biases.append(float(critic.get_network_params()[-1][0]))
    np.testing.assert_allclose(biases, expected, atol=1e-5)


def test_every_network_has_the_optimizer(graph):
    """Checked by hand above: of DQN's network, and of both of DDPG's."""
    ddpg = DDPGUpdate.build(DDPGConfig(hidden=(2,), optimizer="momentum"), (BOX, BOX))
    dqn = DQNUpdate.build(DQNConfig(hidden=(2,), optimizer="momentum"), (BOX, gym.spaces.Discrete(2)))
    for network in (ddpg.actor, ddpg.critic, dqn.network):
        assert type(network.optimizer) is v1.train.MomentumOptimizer


def test_unknown_optimizer():
    with refuses(UsageError, "optimizer='adm' 'adam'"):
        DDPGConfig(optimizer="adm")


def test_ddpgs_online_target_uses_the_online_networks_and_is_stopped():
    """y = r + γQ(s, μ(s)) with the current weights; ``ema`` would use their moving averages."""
    losses = {}
    for target in ("ema", "online"):
        config = DDPGConfig(hidden=(4,), batch_size=4, gamma=0.5, target=target, optimizer="sgd", **STEPPED)
        agent = DDPG((BOX, BOX), config, seed=0)
        with agent.session.as_default():
            agent.critic.set_network_params([array + 0.3 for array in agent.critic.get_network_params()])
            mu = agent.actor.predict(STATE[None])
            q, q_next, q_shadow = (
                agent.critic.predict(STATE[None], np.zeros((1, 1))),
                agent.critic.predict(STATE[None], mu),
                agent.critic.predict_target(STATE[None], mu),
            )
            shadows = agent.session.run(agent.critic.target_variables)
        agent.observe(STATE, [0.0], 1.0, STATE, False, False)
        losses[target] = agent.update(1)["critic_loss"]
        bootstrap = {"ema": q_shadow, "online": q_next}[target]
        assert losses[target] == pytest.approx(((1 + 0.5 * bootstrap - q) ** 2).item(), rel=1e-5)
        after = agent.session.run(agent.critic.target_variables)
        stayed = all(np.array_equal(a, b) for a, b in zip(shadows, after, strict=True))
        assert stayed == (target == "online")
    assert abs(losses["ema"] - losses["online"]) > 0.01


@pytest.mark.parametrize("double_q", [False, True])
def test_the_online_target_of_dqn_is_dqn3s_without_target_q(double_q):
    config = DQNConfig(hidden=(4,), batch_size=4, target="online", double_q=double_q, optimizer="sgd", **STEPPED)
    agent = DQN((BOX, gym.spaces.Discrete(3)), config, seed=0)
    with agent.session.as_default():
        agent.q.set_network_params([array + 0.3 for array in agent.q.get_network_params()])
        q = agent.q.predict(STATE[None])[0]
        shadow = agent.q.predict_target(STATE[None])[0]
    agent.observe(STATE, 1, 1.0, STATE, False, False)
    expected = (1 + 0.99 * q.max() - q[1]) ** 2
    assert agent.update(1)["loss"] == pytest.approx(expected, rel=1e-5)
    assert abs(q.max() - shadow.max()) > 0.1


def test_an_unused_target_network_is_not_copied_to():
    with refuses(UsageError, "target='online'"):
        DQNConfig(target="online", target_update_interval=100)


@pytest.mark.parametrize(
    "norm", [*(pytest.param(norm, marks=pytest.mark.slow) for norm in (None, "rms")), "batch", "layer"]
)
def test_convolutions_are_normalised(norm, session, initialize, rng):
    """Earlier versions of DQNConfig(network="conv", norm=...) ignored norm."""
    space = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    config = DQNConfig(hidden=(4,), network="conv", norm=norm, optimizer="sgd")
    q = DQNUpdate.build(config, (space, gym.spaces.Discrete(2))).network
    assert any("conv_norm" in variable.name for variable in q.variables) == (norm is not None)
    initialize()
    image = rng.integers(0, 255, (8, 8, 1)).astype(np.uint8)
    assert q.train(image[None], [1], [[1.0]]) > 0
    if norm in ("layer", "rms"):
        one, other = q.predict(image[None]), q.predict(image[None] // 2)
        np.testing.assert_allclose(one, other, atol=0.05)  # a darker image has nearly the same normalised features
