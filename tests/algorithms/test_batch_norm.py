"""Batch normalisation inside the update, by hand: with one transition in memory, a batch is B copies of its row.

Its mean is the row and its variance 0, so that all normalised inputs and features are 0. In training mode Q(s, a) and
μ(s) are then the output biases, whatever the observation.
"""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from ddpg import DDPG, DDPGConfig
from ddpg.gradients.policy import POLICY_GRADIENTS

v1 = tf.compat.v1
BOX = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
UNIT = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
OBSERVATION = np.array([0.5, -2.0, 4.0], np.float32)  # powers of two: x·s − m·s is exactly 0
CONFIG = DDPGConfig(
    **{"hidden": (8,), "norm": "batch", "batch_size": 8, "buffer_size": 10, "tau": 0.25, "gamma": 0.0, "jit": False},
    **{"td_target": "placeholder", "updates_per_call": 1},  # the driver with the smallest graph
)


# The critic's part does not depend on the path, and the actor's is slow for all but one.
@pytest.fixture(
    scope="module",
    params=[pytest.param(path, marks=[pytest.mark.slow] * (path != "chain_rule")) for path in POLICY_GRADIENTS],
)
def updated(request):
    """An agent after one update on its single transition, the update's metrics, and the variables before it."""
    agent = DDPG((BOX, UNIT), CONFIG.replace(policy_gradient=request.param), seed=0)
    with agent.session.as_default():
        for network in (agent.actor, agent.critic):
            biases = [index for index, v in enumerate(network.trainable_variables) if v.name.endswith("hidden_0/b:0")]
            weights = network.get_network_params()
            for index in biases:
                weights[index] = np.full_like(weights[index], 2.0)
            network.set_network_params(weights)
    agent.observe(OBSERVATION, np.zeros(2), 1.0, OBSERVATION, True, False)
    before = values(agent)
    return agent, agent.update(1), before


def values(agent):
    return agent.session.run(agent.global_variables)


def value_of(agent, network, name, target=False):
    network = getattr(agent, network)
    variables = zip(network.variables, network.target_variables if target else network.variables, strict=True)
    (found,) = [other for variable, other in variables if variable.name.endswith(name)]
    return agent.session.run(found)


@pytest.mark.parametrize("network", ["actor", "critic"])
def test_statistics_move_once_per_update(network, updated):
    """By a tenth (tflearn's decay is 0.9) from mean 0 and variance 1; moving twice would give 0.19."""
    agent, _, _ = updated
    np.testing.assert_allclose(value_of(agent, network, "input_norm/moving_mean:0"), 0.1 * OBSERVATION, rtol=1e-6)
    # The variance moves from 1 towards 0, up to tflearn's own initial value.
    assert np.all(value_of(agent, network, "input_norm/moving_variance:0") < 1)


@pytest.mark.parametrize("network", ["actor", "critic"])
def test_target_follows_the_statistics(network, updated):
    agent, _, _ = updated
    shadow = value_of(agent, network, "input_norm/moving_mean:0", target=True)
    np.testing.assert_allclose(shadow, 0.25 * 0.1 * OBSERVATION, rtol=1e-5)


def test_the_critic_learns_from_its_values_in_training_mode(updated):
    agent, metrics, before = updated
    bias = before["critic/output/b:0"][0]
    assert metrics["q_value"] == pytest.approx(bias, rel=1e-5)
    assert metrics["critic_loss"] == pytest.approx((bias - 1.0) ** 2, rel=1e-5)  # y = r = 1
    assert moved(agent, before, "critic") == {"critic/output/b:0"}


def test_the_actor_learns_from_its_actions_in_training_mode(updated):
    agent, _, before = updated
    assert moved(agent, before, "actor") == {"actor/output/b:0"}


def moved(agent, before, network):
    """Return the names of the network's trainable variables that the update changed by more than rounding."""
    names = [variable.name for variable in getattr(agent, network).trainable_variables]
    after = values(agent)
    return {name for name in names if np.abs(after[name] - before[name]).max() > 1e-6}
