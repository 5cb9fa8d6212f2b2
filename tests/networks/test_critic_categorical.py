"""The categorical critic: its target, loss and gradient by hand, in an agent, and refused options."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.networks.critic import CategoricalCritic

v1 = tf.compat.v1
BOX = gym.spaces.Box(-1, 1, (1,), np.float32)
SMALL = DDPGConfig(hidden=(4,), batch_size=2, updates_per_call=1, jit=False, critic="categorical")


def test_two_hot_and_gradient_by_hand(session, initialize):
    """Values −2, 0 and 2: y = 0.5 is a quarter of the way from 0 to 2; the gradient of the outputs is (p − t)/B."""
    critic = CategoricalCritic(BOX, BOX, network=lambda s, a: tf.concat([s, a], axis=1), atoms=3, v_min=-2.0, v_max=2.0)
    initialize()
    targets = np.array([[0.5], [-1.0], [9.0], [-3.0]], np.float32)
    two_hot = np.array([[0, 0.75, 0.25], [0.5, 0.5, 0], [0, 0, 1], [1, 0, 0]])
    np.testing.assert_allclose(session.run(critic.distributions(tf.constant(targets))), two_hot, atol=1e-6)
    rng = np.random.default_rng(0)
    weights, bias = rng.normal(size=(2, 3)), rng.normal(size=3)
    critic.set_network_params([weights, bias])
    states, actions = rng.normal(size=(4, 1)), rng.uniform(-1, 1, (4, 1))
    joined = np.concatenate([states, actions], axis=1)
    p = np.exp(joined @ weights + bias)
    p /= p.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(critic.predict(states, actions), p @ [[-2], [0], [2]], rtol=1e-5)
    gradients = critic.get_gradients(states, actions, targets)
    np.testing.assert_allclose(gradients[0], joined.T @ (p - two_hot) / 4, atol=1e-6)
    np.testing.assert_allclose(gradients[1], (p - two_hot).sum(axis=0) / 4, atol=1e-6)
    assert critic.train(states, actions, targets) == pytest.approx(-np.mean((two_hot * np.log(p)).sum(axis=1)))


def test_gaussian_targets_by_hand(session, initialize):
    """Values −2, 0 and 2, and σ = 1, half their distance; 9 is clipped to 2. With many values mean and σ are exact."""
    network = {"network": lambda s, a: tf.concat([s, a], axis=1)}
    critic = CategoricalCritic(BOX, BOX, atoms=3, v_min=-2.0, v_max=2.0, spread=0.5, **network)
    fine = CategoricalCritic(BOX, BOX, atoms=41, v_min=-2.0, v_max=2.0, spread=0.75, name="fine", **network)
    initialize()
    shares = np.exp(-(np.array([[2.5, 0.5, -1.5], [4.0, 2.0, 0.0]]) ** 2) / 2)
    distributions = session.run(critic.distributions(tf.constant([[0.5], [9.0]])))
    np.testing.assert_allclose(distributions, shares / shares.sum(axis=1, keepdims=True), rtol=1e-5)
    targets = np.array([[0.512], [-1.0], [0.05]], np.float32)
    distributions = session.run(fine.distributions(tf.constant(targets)))
    means = distributions @ fine.values[:, None]
    np.testing.assert_allclose(means, targets, atol=1e-4)
    deviations = np.sqrt((distributions * (fine.values - means) ** 2).sum(axis=1))
    np.testing.assert_allclose(deviations, 0.075, rtol=1e-3)


def test_the_spread_reaches_the_critic():
    """After the critic has learned its only target, the remaining loss is that target's entropy."""
    atoms = {"atoms": 9, "v_min": -1.0, "v_max": 1.0, "target_spread": 0.75}
    agent = DDPG((BOX, BOX), SMALL.replace(**atoms, critic_learning_rate=0.05), seed=0)
    agent.observe([0.5], [0.0], 0.5, [0.5], True, False)
    agent.update(200)
    shares = np.exp(-(((np.linspace(-1, 1, 9) - 0.5) / (0.75 * 0.25)) ** 2) / 2)
    shares /= shares.sum()
    assert agent.update(1)["critic_loss"] == pytest.approx(-(shares * np.log(shares)).sum(), abs=0.01)


@pytest.mark.parametrize("td_target", ["stop_gradient", pytest.param("placeholder", marks=pytest.mark.slow)])
def test_in_an_agent(td_target):
    """With zero weights p is uniform: Q is the middle of the range, and the loss log n, whatever y is."""
    config = SMALL.replace(atoms=5, v_min=-1.0, v_max=3.0, n_critics=2, critic_learning_rate=0.05, td_target=td_target)
    agent = DDPG((BOX, BOX), config, seed=0)
    with agent.session.as_default():
        for critic in agent.critics:
            critic.set_network_params([0 * array for array in critic.get_network_params()])
    agent.observe([0.5], [0.0], 2.5, [0.5], True, False)
    metrics = agent.update(1)
    assert metrics["q_value"] == pytest.approx(1, abs=1e-5)
    assert metrics["critic_loss"] == pytest.approx(np.log(5), rel=1e-5)
    for _ in range(60):
        metrics = agent.update(1)
    assert metrics["q_value"] == pytest.approx(2.5, abs=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"atoms": "x"}, "atoms 'x'"),
        ({"atoms": 1}, "atoms 1 2"),
        ({"atoms": 2.5}, "atoms 2.5"),
        ({"atoms": 10**9}, "atoms 1000000000 65536"),
        ({"v_min": None}, "v_min None"),
        ({"v_max": float("nan")}, "v_max nan"),
        ({"v_min": 3.0, "v_max": 3.0}, "v_min 3.0 v_max 3.0"),
        ({"spread": -0.5}, "spread -0.5"),
        ({"spread": float("inf")}, "spread inf"),
        ({"loss": "huber"}, "loss 'huber'"),
    ],
)
def test_bad_arguments_of_a_critic_are_refused(options, message, graph):
    with refuses(UsageError, message):
        CategoricalCritic(BOX, BOX, **options)
