"""CrossQ, without target networks: the joint forward pass by hand, its statistics, drivers, and refused options."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from driven import Driven, K, difference, minibatches

from ddpg import DDPG, DDPGConfig
from ddpg._tflearn import training_mode
from ddpg.config.algorithm_options import RENORMS
from ddpg.networks.layers import batch_renormalization, frozen_statistics, mlp
from ddpg.policies.network_policy import NumpyPolicy

v1 = tf.compat.v1
CONFIG = DDPGConfig(
    # Adam would amplify the rounding of gradients that normalisation makes zero to full steps.
    hidden=(8,),
    gamma=0.9,
    target="none",
    norm="renorm",
    n_critics=2,
    policy_delay=3,
    optimizer="sgd",
)


def normalised(x, gain, bias, epsilon=1e-3):
    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + epsilon) * gain + bias


def joint(weights, inputs, epsilon, preactivation=False):
    """Return Q of all rows, with each layer's inputs or pre-activations normalised; ``epsilon`` is the first norm's."""
    g0, b0, w1, b1, g1, c1, w2, b2 = weights
    hidden = normalised(inputs, g0, b0, epsilon) @ w1 + b1
    if preactivation:
        return np.maximum(normalised(hidden, g1, c1), 0) @ w2 + b2
    return normalised(np.maximum(hidden, 0), g1, c1) @ w2 + b2


@pytest.mark.parametrize(
    "drivers",
    [("uncompiled",), pytest.param(("stepped", "uncompiled", "compiled"), marks=pytest.mark.slow)],
    ids=["one", "all"],
)
@pytest.mark.parametrize(
    ("norm", "epsilon", "target"),
    [
        ("renorm", 1e-3, "none"),
        pytest.param("renorm_soft", 1.0, "none", marks=pytest.mark.slow),
        pytest.param("renorm_preactivation", 1.0, "none", marks=pytest.mark.slow),
        pytest.param("renorm", 1e-3, "joint_ema", marks=pytest.mark.slow),
    ],
)
def test_joint_pass_by_hand_with_every_driver(norm, epsilon, target, drivers):
    ends = []
    for driver in drivers:
        driven = Driven(driver, CONFIG.replace(norm=norm, target=target)).start()
        batch = minibatches()
        with driven.session.as_default(), driven.graph.as_default():
            mu = driven.update.actor.predict(batch.next_observations[0])
            weights = [critic.get_network_params() for critic in driven.update.critics]
            pairs = [zip(c.variables, c.target_variables, strict=True) for c in driven.update.critics]
            averages = driven.session.run([[average for v, average in pair if v.trainable] for pair in pairs])
            first = "input_norm" if norm == "renorm_preactivation" else "norm_0"
            moving = [v for c in driven.update.critics for v in c.variables if f"{first}/moving_mean" in v.name]
        shadows = driven.weights()[1]
        metrics = driven.train(1)
        rows = np.concatenate(
            [
                np.concatenate([batch.observations[0], batch.actions[0]], axis=1),
                np.concatenate([batch.next_observations[0], mu], axis=1),
            ]
        )
        q = np.split(np.array([joint(w, rows, epsilon, norm == "renorm_preactivation") for w in weights]), 2, axis=1)[0]
        bootstrapped = weights if target == "none" else averages
        next_q = np.split(
            np.array([joint(w, rows, epsilon, norm == "renorm_preactivation") for w in bootstrapped]), 2, axis=1
        )[1]
        y = batch.rewards[0] + 0.9 * (1 - batch.terminated[0]) * next_q.min(axis=0)
        assert metrics["critic_loss"] == pytest.approx(np.mean((q - y) ** 2), rel=1e-4)
        assert len(moving) == 2
        for mean in driven.session.run(moving):
            np.testing.assert_allclose(mean, 0.01 * rows.mean(axis=0), atol=1e-6)  # moved once
        driven.train(K - 1, first=1)
        actors, *critics = [difference(*pair) for pair in zip(shadows, driven.weights()[1], strict=True)]
        assert actors == 0
        assert all((moved == 0) == (target == "none") for moved in critics)
        ends.append(driven.weights()[0])
    assert all(difference(ends[0], end) < 1e-5 for end in ends[1:])


def test_renormalisation_by_hand(session):
    """Averages 0 and 1: a batch with mean 2 and deviation 0.1 is scaled by r = 1/3 and shifted by d = 2."""
    x = np.array([[1.9], [2.1]], np.float32)
    with v1.variable_scope("here", use_resource=True):
        with training_mode(True), frozen_statistics():
            settled, warming = (batch_renormalization(tf.constant(x), "one", warm_up=n, epsilon=0.0) for n in (0, 9))
        with training_mode(False):
            inference = batch_renormalization(tf.constant(x), "one", epsilon=0.0)
        with training_mode(True):
            moving = batch_renormalization(tf.constant(x), "one", epsilon=0.0)
    session.run(v1.global_variables_initializer())
    np.testing.assert_allclose(session.run(settled)[:, 0], [2 - 1 / 3, 2 + 1 / 3], rtol=1e-4)
    np.testing.assert_allclose(session.run(warming)[:, 0], [-1, 1], rtol=1e-4)
    np.testing.assert_allclose(session.run(inference), x)  # the averages have not moved
    session.run(moving)
    mean, deviation = 0.01 * 2, np.sqrt(0.99 + 0.01 * 0.01)
    np.testing.assert_allclose(session.run(inference), (x - mean) / deviation, rtol=1e-5)


def test_the_warm_up_has_the_given_number_of_steps(session):
    x = np.array([[1.9], [2.1]], np.float32)
    with v1.variable_scope("here", use_resource=True), training_mode(True):
        y = batch_renormalization(tf.constant(x), "one", warm_up=3, epsilon=0.0)
    session.run(v1.global_variables_initializer())
    for _ in range(3):
        np.testing.assert_allclose(session.run(y)[:, 0], [-1, 1], rtol=1e-4)
    assert np.abs(session.run(y)[:, 0] - [-1, 1]).min() > 0.5


@pytest.mark.parametrize(("norm", "agree"), [("renorm", False), ("renorm_soft", True), ("renorm_preactivation", True)])
def test_for_a_rarely_active_unit_both_modes_agree(session, norm, agree):
    """Its deviation in this batch is far below a third of its moving one, which is the lower limit of CrossQ's r."""
    x = tf.constant(np.array([[1.9], [2.1], [2.0]], np.float32))
    network = mlp((1,), "linear", norm)
    with training_mode(True), frozen_statistics(), v1.variable_scope("here", use_resource=True):
        taught = network(x)
    with training_mode(False), v1.variable_scope("here", use_resource=True, reuse=True):
        used = network(x)
    session.run(v1.global_variables_initializer())
    moved = {v.op.name: v for v in v1.global_variables()}
    session.run([v.assign(tf.fill(v.shape, 1e6)) for name, v in moved.items() if name.endswith("steps")])
    session.run([v.assign(tf.fill(v.shape, 100.0)) for name, v in moved.items() if name.endswith("moving_variance")])
    one, other = session.run([taught, used])
    assert np.allclose(one, other, rtol=1e-4, atol=1e-5) == agree, (one, other)


def test_renormalisation_corrects_values_and_not_gradients(session):
    """Averages 0 and 1: the corrections give x itself, and the gradient is that of batch normalisation.

    That of the first number, with x̂ = (−√1.5, 0, √1.5), is (1, 0, 0) − 1/3 − x̂·(−√1.5 / 3).
    """
    x = tf.constant([[0.0], [1.0], [2.0]])
    with training_mode(True), frozen_statistics(), v1.variable_scope("here", use_resource=True):
        y = batch_renormalization(x, "one", warm_up=0, epsilon=0.0)
    gradient = tf.gradients(y[0], x)[0]
    session.run(v1.global_variables_initializer())
    np.testing.assert_allclose(session.run(y), [[0], [1], [2]], atol=1e-6)
    np.testing.assert_allclose(session.run(gradient)[:, 0], [1 / 6, -1 / 3, 1 / 6], rtol=1e-5)


@pytest.mark.parametrize(("norm", "first"), [("renorm", 1e-3), ("renorm_soft", 1.0)])
def test_only_the_inputs_norm_has_a_large_epsilon(session, norm, first):
    x = np.array([[1.0, 30.0], [1.1, -20.0], [0.9, 5.0]], np.float32)
    with training_mode(True):
        features = mlp((3, 2), "linear", norm)(tf.constant(x))
    session.run(v1.global_variables_initializer())
    found, weights = session.run([features, {v.op.name: v for v in v1.trainable_variables() if "hidden" in v.op.name}])
    layer = x
    for index, epsilon in enumerate((first, 1e-3)):
        layer = normalised(layer, 1, 0, epsilon) @ weights[f"hidden_{index}/W"] + weights[f"hidden_{index}/b"]
    np.testing.assert_allclose(found, normalised(layer, 1, 0), rtol=1e-3, atol=1e-3)


def test_pre_activations_of_every_hidden_layer_have_mean_0_and_deviation_1(session):
    """So each unit is active for some samples; with the norm after the activation it can be inactive for ever."""
    x = np.random.default_rng(0).normal(5, 2, (200, 3)).astype(np.float32)
    with training_mode(True):
        features = {norm: mlp((4, 5), "relu", norm) for norm in ("renorm_preactivation", "renorm_soft")}
        for norm, network in features.items():
            with v1.variable_scope(norm):
                features[norm] = network(tf.constant(x))
    session.run(v1.global_variables_initializer())
    for bias in (v for v in v1.trainable_variables() if v.op.name.endswith("hidden_1/b")):
        session.run(bias.assign(tf.fill(bias.shape, -100.0)))
    found = {norm: session.run(value) for norm, value in features.items()}
    half_normal = np.sqrt(1 / (2 * np.pi))  # mean of max(x, 0), x ~ N(0, 1)
    np.testing.assert_allclose(found["renorm_preactivation"].mean(axis=0), half_normal, atol=0.1)
    assert np.all(found["renorm_soft"] == 0)


@pytest.mark.parametrize(
    "norm", [pytest.param(norm, marks=[pytest.mark.slow] * (norm != "renorm_preactivation")) for norm in RENORMS]
)
def test_a_renormalised_actor_acts_in_numpy(norm):
    box = gym.spaces.Box(-1, 1, (1,))
    options = {"norm": norm, "critic_norm": None, "target": "ema", "n_critics": 1, "policy_delay": 1}
    agent = DDPG((box, box), CONFIG.replace(batch_size=2, updates_per_call=1, jit=False, **options), seed=0)
    for number in range(4):
        agent.observe([number / 4], [0.0], 1.0, [0.5], False, False)
    agent.update(2)
    assert isinstance(agent.policy, NumpyPolicy)
    with agent.session.as_default():
        expected = agent.actor.predict([[0.3]])
    np.testing.assert_allclose(agent.predict(np.array([0.3], np.float32))[0], expected[0], rtol=1e-5)


def test_only_averages_of_the_critics_move_by_tau():
    own = {"norm": None, "critic_norm": "renorm", "n_critics": 1, "policy_delay": 1}
    driven = Driven("stepped", CONFIG.replace(target="joint_ema", tau=0.1, **own)).start()
    shadows = driven.weights()[1]
    driven.train(1)
    (_, *online), (_, *moved) = driven.weights()
    for weights, before, after in zip(online, shadows[1:], moved, strict=True):
        for new, old, average in zip(weights, before, after, strict=True):
            np.testing.assert_allclose(average, 0.1 * new + 0.9 * old, atol=1e-6)


def test_metrics_use_the_actions_at_which_the_gradient_is_taken():
    """In training mode; the actor's moving averages, still 0 and 1, would give other actions."""
    driven = Driven("stepped", CONFIG.replace(n_critics=1, policy_delay=1)).start()
    states = minibatches().observations[0]
    actor, critic = driven.update.actor, driven.update.critic
    with driven.session.as_default(), driven.graph.as_default():
        with frozen_statistics():
            actions = driven.session.run(actor(tf.constant(states), training=True))
        assert np.abs(actions - actor.predict(states)).max() > 1e-3
        metrics = driven.train(1)
        assert metrics["actor_loss"] == pytest.approx(-critic.predict(states, actions).mean(), rel=1e-4)
