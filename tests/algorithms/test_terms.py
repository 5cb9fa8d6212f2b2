"""Optional terms of an update, by hand: clipping, decay, penalty, Huber loss, AdamW."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agents_by_driver import DRIVERS
from driven import difference
from refusals import refuses

from ddpg import DDPG, DQN, ActorNetwork, CriticNetwork, DDPGConfig, DQNConfig, UsageError, mlp
from ddpg.algorithms.registry import update_of
from ddpg.gradients import policy, td

v1 = tf.compat.v1
BOX = gym.spaces.Box(-1, 1, (1,), np.float32)
SMALL = DDPGConfig(hidden=(4,), batch_size=2, updates_per_call=1, jit=False)


@pytest.mark.parametrize(("longest", "scale"), [(2.5, 0.5), (100.0, 1.0)])
def test_a_step_is_clipped_by_the_global_norm(longest, scale, session, initialize):
    """Q = w·[s, a] + b at s = 1, a = −1, w = 0: the gradient of (Q − 0.5·5)² is −5·[1, −1, 1], of norm 5√3."""
    critic = CriticNetwork(
        BOX,
        BOX,
        network=lambda states, actions: tf.concat([states, actions], axis=1),
        optimizer="sgd",
        learning_rate=1.0,
        max_gradient_norm=longest * np.sqrt(3),
    )
    initialize()
    critic.set_network_params([np.zeros((2, 1)), np.zeros(1)])
    critic.train([[1.0]], [[-1.0]], [[2.5]])
    weights, bias = critic.get_network_params()
    np.testing.assert_allclose([*weights[:, 0], *bias], scale * np.array([5, -5, 5]), rtol=1e-6)


def test_weights_decay_on_every_td_path(session, initialize, rng):
    """``l2`` adds itself times the layers' weights to their gradients, and nothing to those of biases."""
    critic = CriticNetwork(BOX, BOX, network=mlp((4,)), optimizer="sgd")
    initialize()
    states, actions = (tf.constant(rng.normal(size=(5, 1)), tf.float32) for _ in range(2))
    fed = v1.placeholder(tf.float32, [5, 1])
    for name in td.TD_TARGETS:
        critic.td_path = td.TDPath(name, critic.optimizer.compute_gradients)
        y = {"placeholder": fed, "residual_gradient": critic(states, -actions)}.get(name, tf.ones([5, 1]))
        gradients = []
        for critic.l2 in (0.0, 0.25):
            pairs = critic.compute_gradients(states, actions, y)
            gradients.append(session.run([g for g, _ in pairs], {fed: np.ones((5, 1))}))
        for plain, decayed, weights in zip(*gradients, critic.get_network_params(), strict=True):
            expected = 0.25 * weights if weights.ndim == 2 else 0
            np.testing.assert_allclose(decayed - plain, expected, atol=1e-6)


def linear(states):
    return tf.identity(states)


def test_penalty_is_the_same_on_every_policy_path(session, initialize, rng):
    """p = W·s + b: c·mean(p²) adds 2c/(BA)·sᵀp to the gradient of W, and the batch sum of 2c/(BA)·p to that of b."""
    states = rng.normal(size=(5, 3)).astype(np.float32)
    observations, actions = gym.spaces.Box(-9, 9, (3,)), gym.spaces.Box(-1, 1, (2,))
    critic = CriticNetwork(observations, actions, network=mlp((4,)), optimizer="sgd")
    actors = [ActorNetwork(observations, actions, network=linear, pre_activation_penalty=c) for c in (0.0, 0.3)]
    initialize()
    weights, bias = rng.normal(size=(3, 2)), rng.normal(size=2)
    for actor in actors:
        actor.set_network_params([weights, bias])
    np.testing.assert_array_equal(*(actor.predict(states) for actor in actors))
    p = states @ weights + bias
    for path in policy.POLICY_GRADIENTS.values():
        plain, penalised = (
            session.run([gradient for gradient, _ in path(actor, critic, tf.constant(states))]) for actor in actors
        )
        np.testing.assert_allclose(penalised[0] - plain[0], 2 * 0.3 / 10 * states.T @ p, atol=1e-6)
        np.testing.assert_allclose(penalised[1] - plain[1], 2 * 0.3 / 10 * p.sum(axis=0), atol=1e-6)


def test_the_huber_loss_on_every_td_path(session, initialize, rng):
    """It has output_delta's gradient with clip_delta=1, and the squared error has another."""
    critic = CriticNetwork(BOX, BOX, network=mlp((4,)), optimizer="sgd")
    initialize()
    states, actions = (tf.constant(rng.normal(size=(5, 1)), tf.float32) for _ in range(2))
    y, fed = np.array([[0.1], [0.2], [-0.5], [4.0], [-3.0]], np.float32), v1.placeholder(tf.float32, [5, 1])

    def gradients(name, target=fed, **options):
        critic.td_path = td.TDPath(name, critic.optimizer.compute_gradients, **options)
        return session.run([g for g, _ in critic.compute_gradients(states, actions, target)], {fed: y})

    expected = gradients("output_delta", clip_delta=1)
    assert difference(gradients("stop_gradient", loss="huber"), expected) < 1e-6
    assert difference(gradients("placeholder", loss="huber"), expected) < 1e-6
    assert difference(gradients("stop_gradient"), expected) > 0.1
    online = critic(states, -actions) + fed
    # Through y as well: subtract the gradient with prediction and target swapped.
    residual, forward = (gradients(n, online, loss="huber") for n in ("residual_gradient", "stop_gradient"))
    critic.td_path = td.TDPath("stop_gradient", critic.optimizer.compute_gradients, loss="huber")
    pairs = critic.td_gradients(online, critic(states, actions))
    backward = session.run([g for g, _ in pairs], {fed: y})
    assert difference(residual, [a + b for a, b in zip(forward, backward, strict=True)]) < 1e-6


def test_the_huber_loss_is_refused_by_a_path_of_ones_own():
    """``test_each_option_on_each_path`` has the paths of the package."""
    with refuses(UsageError, "critic_loss='huber' td_target="):
        DDPG((BOX, BOX), SMALL.replace(td_target=lambda q, target, variables: None, critic_loss="huber"))


@pytest.mark.parametrize("td_target", ["stop_gradient", "placeholder"])
def test_dqn_reports_the_huber_loss(td_target):
    small = {"hidden": (4,), "batch_size": 2, "updates_per_call": 1, "jit": False, "optimizer": "sgd"}
    config = DQNConfig(**small, td_target=td_target, critic_loss="huber")
    agent = DQN((BOX, gym.spaces.Discrete(2)), config, seed=0)
    with agent.session.as_default():
        q = agent.q.predict([[0.5]])[0, 1]
    agent.observe([0.5], 1, 9.0, [0.5], True, False)
    assert agent.update(1)["loss"] == pytest.approx(2 * (9 - q) - 1, rel=1e-6)


@pytest.mark.parametrize(
    "driver", [pytest.param(d, marks=[pytest.mark.slow] * (d in ("xla", "uncompiled"))) for d in DRIVERS]
)
def test_decoupled_weight_decay_by_hand(driver):
    """Two steps of AdamW for Q = w·[s, a] + b at s = 1, a = −1, y = 1: in addition w decays by αλw, and b does not."""
    config = SMALL.replace(critic_learning_rate=0.1, weight_decay=0.5, adam_beta1=0.5, **DRIVERS[driver])
    network = lambda states, actions: tf.concat([states, actions], axis=1)  # noqa: E731
    agent = DDPG((BOX, BOX), config, critic_network=network, seed=0)
    theta = np.array([0.5, -0.25, 0.125])
    with agent.session.as_default():
        agent.critic.set_network_params([theta[:2, None], theta[2:]])
    agent.observe([1.0], [-1.0], 1.0, [0.5], True, False)
    mean, square, inputs = np.zeros(3), np.zeros(3), np.array([1.0, -1.0, 1.0])
    for step in (1, 2):
        agent.update(1)
        gradient = 2 * (theta @ inputs - 1) * inputs
        mean, square = 0.5 * mean + 0.5 * gradient, 0.999 * square + 0.001 * gradient**2
        adams = mean / (1 - 0.5**step) / np.sqrt(square / (1 - 0.999**step))
        theta = theta - 0.1 * (adams + 0.5 * theta * [1, 1, 0])
        with agent.session.as_default():
            weights, bias = agent.critic.get_network_params()
        np.testing.assert_allclose([*weights[:, 0], *bias], theta, rtol=1e-5)


def built(config):
    space = BOX if isinstance(config, DDPGConfig) else gym.spaces.Discrete(2)
    return update_of(config).build(config, (BOX, space))


def test_options_reach_their_networks(graph):
    """Their effect is tested above."""
    shared = {"hidden": (4,), "max_gradient_norm": 0.5, "adam_beta1": 0.25, "critic_loss": "huber"}
    shared["weight_decay"] = 0.75
    options = {"n_critics": 2, "critic_l2": 0.125, "pre_activation_penalty": 2.0, "critic_norm": "layer"}
    ddpg, dqn = built(DDPGConfig(**shared, **options)), built(DQNConfig(**shared))
    for network in (ddpg.actor, *ddpg.critics, dqn.network):
        assert network.max_gradient_norm == 0.5
        assert network.optimizer._beta1 == 0.25
        assert network.optimizer._weight_decay == 0.75
    for network in (*ddpg.critics, dqn.network):
        assert network.td_path.loss is td.huber
    assert [critic.l2 for critic in ddpg.critics] == [0.125, 0.125]
    assert ddpg.actor.pre_activation_penalty == 2
    normalised = ["norm" in " ".join(v.name for v in n.variables) for n in (ddpg.actor, *ddpg.critics)]
    assert normalised == [False, True, True]
