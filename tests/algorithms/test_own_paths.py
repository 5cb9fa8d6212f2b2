"""Gradient paths of one's own: each thing one can forget is one clear error, before anything is learned."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.gradients import policy, td
from ddpg.networks.critic import CriticNetwork

v1 = tf.compat.v1
SMALL = DDPGConfig(
    **{"hidden": (4,), "batch_size": 4, "bounding": "inverting", "optimizer": "sgd"},
    **{"td_target": "placeholder", "updates_per_call": 1, "jit": False},  # the driver whose ops are built soonest
)
SPACES = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (1,))


def nothing(actor, critic, states):
    return None


def critics_variables(actor, critic, states):
    return actor.optimizer.compute_gradients(-tf.reduce_mean(critic(states, actor(states))), critic.trainable_variables)


def unreached(actor, critic, states):
    return [(None, variable) for variable in actor.trainable_variables]


def unbounded(actor, critic, states):
    loss = -tf.reduce_mean(critic(states, actor(states)))
    return actor.optimizer.compute_gradients(loss, actor.trainable_variables)


def mine(actor, critic, states):
    """The chain rule, scaled."""
    return [(2 * gradient, variable) for gradient, variable in policy.chain_rule(actor, critic, states)]


def updated(**changes):
    agent = DDPG(SPACES, SMALL.replace(**changes), seed=0)
    agent.observe([0.5, 0.5], [0.0], 1.0, [0.0, 0.0], False, False)
    agent.update(1)
    return agent


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (nothing, r"policy_gradient=nothing returned None; expected \[\(gradient, variable\)\]"),
        (critics_variables, r"policy_gradient=critics_variables returned gradients for \['critic/"),
        (unreached, r"policy_gradient=unreached returned no gradient \(None\) for \['actor/"),
        (unbounded, "policy_gradient=unbounded leaves out the bounding"),
    ],
)
def test_what_a_policy_gradient_can_forget(path, message):
    with pytest.raises(UsageError, match=message):
        updated(policy_gradient=path)


@pytest.mark.parametrize("path", [mine, *policy.POLICY_GRADIENTS.values()])
def test_complete_ones_are_taken(path):
    assert updated(policy_gradient=path).num_updates == 1


def test_without_a_bounding_there_is_none_to_forget():
    assert updated(policy_gradient=unbounded, bounding="squashing").num_updates == 1
    with pytest.raises(UsageError, match="leaves out the bounding"):
        updated(policy_gradient=unbounded, bounding="squashing", action_gradient_clip=1.0)


def test_a_td_path_must_reach_every_variable_too():
    def first_only(q, target, variables):
        return td.stop_gradient(q, target, variables[:1])

    with pytest.raises(UsageError, match=r"the gradient path of the critic returned gradients for \['critic/"):
        updated(td_target=first_only)


@pytest.mark.parametrize("method", ["train", "get_gradients"])
def test_residual_gradient_refuses_a_fed_target(method, observation_space, action_space, session, initialize):
    """Fed, y is a number: what is left would be stop_gradient's gradient under another name."""
    critic = CriticNetwork(observation_space, action_space, td_target="residual_gradient")
    initialize()
    inputs = np.zeros((2, 3)), np.tile(action_space.low, (2, 1)), np.ones((2, 1))
    with pytest.raises(UsageError, match="needs a target computed from the variables"):
        getattr(critic, method)(*inputs)
    states, actions, _ = (tf.constant(array, tf.float32) for array in inputs)
    with pytest.raises(UsageError, match="does not depend on them"):
        critic.compute_gradients(states, actions, critic.target(states, actions))
    assert critic.compute_gradients(states, actions, critic(states, actions))
