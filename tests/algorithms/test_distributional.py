"""The distributional critic: C51's projection and one update by hand, clipped double Q, drivers, refused options."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.laboratory.flow import trace_update
from ddpg.networks.critic import DistributionalCritic

BOX = gym.spaces.Box(-1, 1, (1,), np.float32)
SMALL = DDPGConfig(hidden=(4,), batch_size=2, updates_per_call=1, jit=False, critic="distributional")
FEW = {"critic": "distributional", "atoms": 5, "v_min": -2.0, "v_max": 2.0}


def linear(states, actions):
    return tf.concat([states, actions], axis=1)


def project(arrivals, probabilities, values):
    """Algorithm 1 of Bellemare et al. 2017, literally: a loop over samples and values."""
    width, found = values[1] - values[0], np.zeros_like(probabilities)
    for sample, (row, shares) in enumerate(zip(arrivals, probabilities, strict=True)):
        for arrival, share in zip(row, shares, strict=True):
            place = (np.clip(arrival, values[0], values[-1]) - values[0]) / width
            lower, upper = int(np.floor(place)), min(int(np.ceil(place)), len(values) - 1)
            if lower == upper:
                found[sample, lower] += share
            else:
                found[sample, lower] += share * (upper - place)
                found[sample, upper] += share * (place - lower)
    return found


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_the_projection_is_algorithm_1(session, initialize, rng):
    critic = DistributionalCritic(BOX, BOX, network=linear, atoms=11, v_min=-3.0, v_max=5.0)
    initialize()
    arrivals = (4 * rng.normal(size=(6, 11))).astype(np.float32)
    arrivals[0] = critic.values
    probabilities = softmax(rng.normal(size=(6, 11))).astype(np.float32)
    found = session.run(critic.project(tf.constant(arrivals), tf.constant(probabilities)))
    np.testing.assert_allclose(found, project(arrivals.astype(float), probabilities, np.linspace(-3, 5, 11)), atol=1e-5)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)


def test_one_update_equals_numpys():
    """SGD of linear critics: y from the target critic with the smallest mean, gradients (p − m)/B · inputs."""
    config = SMALL.replace(n_critics=2, optimizer="sgd", critic_learning_rate=0.5, batch_size=4, gamma=0.5, atoms=5)
    config = config.replace(v_min=-2.0, v_max=2.0)
    agent = DDPG((BOX, BOX), config, critic_network=linear, seed=0)
    rng = np.random.default_rng(0)
    weights = [(rng.normal(size=(2, 5)), rng.normal(size=5)) for _ in range(2)]
    with agent.session.as_default():
        for critic, arrays in zip(agent.critics, weights, strict=True):
            critic.set_network_params(list(arrays))
            critic.sync_target_network()
        action = agent.actor.predict_target([[-0.25]])
    agent.observe([0.5], [0.75], 0.3, [-0.25], False, False)
    values = np.linspace(-2, 2, 5)
    following = [softmax(np.array([[-0.25, action.item()]]) @ w + b) for w, b in weights]
    least = min(following, key=lambda p: (p @ values).item())
    target = project(0.3 + 0.5 * values[None], least, values)
    metrics = agent.update(1)
    losses = []
    for (w, b), critic in zip(weights, agent.critics, strict=True):
        inputs = np.array([[0.5, 0.75]])
        p = softmax(inputs @ w + b)
        losses.append(-(target * np.log(p)).sum())
        with agent.session.as_default():
            found = critic.get_network_params()
        np.testing.assert_allclose(found[0], w - 0.5 * inputs.T @ (p - target), atol=1e-5)
        np.testing.assert_allclose(found[1], b - 0.5 * (p - target)[0], atol=1e-5)
    assert metrics["critic_loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def test_the_target_of_a_terminal_transition_is_the_reward():
    """With reward 1.25, between the values 1 and 2, the critic learns 3/4 and 1/4."""
    agent = DDPG((BOX, BOX), SMALL.replace(**FEW, critic_learning_rate=0.05), seed=0)
    agent.observe([0.5], [0.0], 1.25, [0.5], True, False)
    agent.update(200)
    assert agent.update(1)["critic_loss"] == pytest.approx(-(0.75 * np.log(0.75) + 0.25 * np.log(0.25)), abs=0.01)


def test_targets_that_are_no_distributions_are_refused(session, initialize):
    critic = DistributionalCritic(BOX, BOX, network=linear, atoms=3, v_min=-1.0, v_max=1.0)
    initialize()
    assert critic.train([[0.5]], [[0.5]], [[0.5, 0.5, 0.0]]) == pytest.approx(np.log(3), rel=0.1)
    weights = critic.get_network_params()
    for targets, message in (
        ([[1.0]], "(1, 1) 3"),
        ([[np.nan] * 3], "nan [0, 0]"),
        ([[0.5, 0.5, 0.5]], "0.5 1.5 1"),
        ([[0.75, -0.25, 0.5]], "-0.25 0"),
        ([[1e38, 3e38, 3e38]], "7e+38"),
        ("abc", "str"),
        ([[1.0, 0.0, 0.0], [1.0]], "list"),
    ):
        for method in (critic.train, critic.get_gradients):
            with refuses(UsageError, f"targets {message}"):
                method([[0.5]], [[0.5]], targets)
    np.testing.assert_equal(weights, critic.get_network_params())


def test_the_target_distribution_is_stopped():
    with gym.make("Pendulum-v1") as env:
        config = DDPGConfig(hidden=(8,), batch_size=16, critic="distributional", v_min=-99.0, n_critics=2)
        edges = trace_update(env, config, seed=0)["critic"]
    assert {(edge["destination"], edge["source"]) for edge in edges if edge["stopped"]} == {("start", "y")}
    assert {edge["source"] for edge in edges if edge["destination"] == "y"} == {"next_q", "next_q_2", "r"}
    assert [edge["source"] for edge in edges if edge["trained"]] == ["q", "critic"]
