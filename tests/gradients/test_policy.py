"""``chain_rule``, ``direct`` and ``surrogate`` compute the same gradient, and none changes the critic or a target."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from conftest import relative_difference
from refusals import refuses

from ddpg import ActorNetwork, CriticNetwork, UsageError, mlp
from ddpg.gradients import td
from ddpg.gradients.bounding import BOUNDINGS
from ddpg.gradients.policy import POLICY_GRADIENTS
from ddpg.laboratory import gradient_checks

v1 = tf.compat.v1


def networks(observation_space, action_space, **options):
    shared = {"network": mlp((16,)), "optimizer": "sgd"}  # no optimizer slots to build
    actor = ActorNetwork(observation_space, action_space, **shared, **options)
    return actor, CriticNetwork(observation_space, action_space, **shared)


def gradients_of(paths, actor, critic, states, jit):
    """Return ``{path: gradients}`` of all paths, built in one function so that XLA compiles them together."""

    def compute(states):
        return {name: [gradient for gradient, _ in path(actor, critic, states)] for name, path in paths.items()}

    return tf.function(compute, jit_compile=jit, autograph=False)(states)


@pytest.mark.parametrize("bounding", BOUNDINGS)
@pytest.mark.parametrize(
    ("clip", "jit"),
    [(1e-3, False), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1e-3, True), (None, False)))],
)
def test_three_paths_one_gradient(bounding, jit, clip, observation_space, action_space, session, initialize, rng):
    actor, critic = networks(observation_space, action_space, bounding=bounding, action_gradient_clip=clip)
    initialize()
    weights = actor.get_network_params()
    # Some outputs are inside the box, some outside, with gradients of both signs.
    actor.set_network_params([*weights[:-2], 1000 * weights[-2], weights[-1]])
    states = 3 * rng.normal(size=(64, 3)).astype(np.float32)
    if bounding != "squashing":
        actions = actor.predict(states)
        assert 0.05 < ((actions < actor.low) | (actions > actor.high)).mean() < 0.95
    results = session.run(gradients_of(POLICY_GRADIENTS, actor, critic, tf.constant(states), jit))
    assert relative_difference(results["direct"], results["chain_rule"]) < 1e-6
    assert relative_difference(results["surrogate"], results["chain_rule"]) < 1e-6
    assert max(np.abs(array).max() for array in results["chain_rule"]) > 0


def test_the_gradient_descends_minus_mean_q(observation_space, action_space, session, initialize, rng):
    """Against central differences of −mean Q(s, μ(s)) in a random direction."""
    actor, critic = networks(observation_space, action_space)
    initialize()
    states = rng.normal(size=(16, 3)).astype(np.float32)
    weights = actor.get_network_params()
    weights = [*weights[:-2], 100 * weights[-2], weights[-1]]
    actor.set_network_params(weights)
    direction = [rng.normal(size=array.shape) for array in weights]
    gradient = actor.get_gradients(states, critic.action_gradients(states, actor.predict(states)))

    def loss(step):
        actor.set_network_params([w + step * d for w, d in zip(weights, direction, strict=True)])
        return -critic.predict(states, actor.predict(states)).astype(np.float64).mean()

    numeric = (loss(1e-3) - loss(-1e-3)) / 2e-3
    exact = sum((g * d).sum() for g, d in zip(gradient, direction, strict=True))
    assert exact == pytest.approx(numeric, rel=0.02)


@pytest.mark.parametrize("size", [1, 3])
def test_scale_does_not_depend_on_the_number_of_actions(size, observation_space, session, initialize, rng):
    """By hand: μ = W·s + b inside [-1, 1], so ∂μ/∂b = 1, and the gradient of b is exactly −mean ∇ₐQ."""
    space = gym.spaces.Box(-1.0, 1.0, (size,), np.float32)
    actor = ActorNetwork(observation_space, space, network=lambda states: states, bounding="zeroing")
    critic = CriticNetwork(observation_space, space, network=mlp((16,)))
    states = rng.normal(size=(8, 3)).astype(np.float32)
    paths = [path(actor, critic, tf.constant(states)) for path in POLICY_GRADIENTS.values()]
    initialize()
    slopes = critic.action_gradients(states, actor.predict(states))
    for pairs in paths:
        weights, biases = session.run([gradient for gradient, _ in pairs])
        np.testing.assert_allclose(biases, -slopes.mean(axis=0), rtol=1e-4)
        np.testing.assert_allclose(weights, -states.T @ slopes / 8, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize(("name", "bounding"), [*zip(POLICY_GRADIENTS, BOUNDINGS, strict=True)])
def test_the_actors_step_changes_only_the_actor(
    name, bounding, observation_space, action_space, session, initialize, rng
):
    actor, critic = networks(observation_space, action_space, bounding=bounding, policy_gradient=name)
    states = tf.constant(rng.normal(size=(8, 3)).astype(np.float32))
    pairs = actor.policy_gradient(actor, critic, states)
    assert [variable.name for _, variable in pairs] == [variable.name for variable in actor.trainable_variables]
    step = actor.apply_gradients(pairs)
    initialize()
    still = [*critic.variables, *critic.target_variables, *actor.target_variables]
    before, moving = session.run(still), session.run(actor.variables)
    session.run(step)
    np.testing.assert_equal(session.run(still), before)
    assert any((one != other).any() for one, other in zip(session.run(actor.variables), moving, strict=True))


def test_the_surrogates_stop_blocks_the_gradient_to_the_critic(observation_space, action_space, graph):
    actor, critic = networks(observation_space, action_space)
    states = tf.zeros((4, 3))
    actions = actor(states)
    gradient = critic.action_gradient(states, actions)
    stopped = tf.square(tf.stop_gradient(gradient) + (tf.stop_gradient(actions) - actions))
    leaking = tf.square(gradient + (tf.stop_gradient(actions) - actions))
    assert gradient_checks.leaks(stopped, critic.trainable_variables) == []
    assert "critic/hidden_0/W:0" in gradient_checks.leaks(leaking, critic.trainable_variables)
    assert "actor/hidden_0/W:0" in gradient_checks.leaks(stopped, actor.trainable_variables)


@pytest.mark.parametrize("stop", [True, False])
def test_no_gradient_reaches_a_target_network(stop, observation_space, action_space, graph):
    """In the graph of the TD loss; without the stop the gradient would reach it."""
    actor, critic = networks(observation_space, action_space)
    states = tf.ones((4, 3))
    y = 1.0 + 0.99 * critic.target(states, actor.target(states))
    q = critic(states, tf.ones((4, 2)))
    loss = td.mean_square(q, tf.stop_gradient(y) if stop else y)
    leaks = gradient_checks.leaks(loss, critic.target_variables + actor.target_variables)
    if stop:
        assert leaks == []
    else:
        assert "critic/output/W/ExponentialMovingAverage:0" in leaks
        assert "actor/output/W/ExponentialMovingAverage:0" in leaks
    assert gradient_checks.leaks(loss, critic.trainable_variables)


def test_placeholder_refuses_a_live_target(observation_space, action_space, graph):
    critic = CriticNetwork(observation_space, action_space, network=mlp((8,)), td_target="placeholder")
    states, actions = tf.ones((4, 3)), tf.ones((4, 2))
    target = critic.target(states, actions)
    with refuses(UsageError, "placeholder") as caught:
        critic.compute_gradients(states, actions, target)
    assert repr(target.op.type) in str(caught.value)


def test_flat_targets_are_refused(observation_space, action_space, session, initialize):
    """[B] against [B, 1] would silently broadcast to [B, B]."""
    critic = CriticNetwork(observation_space, action_space, network=mlp((8,)))
    with refuses(UsageError, "broadcasts"):
        td.stop_gradient(critic(tf.ones((4, 3)), tf.ones((4, 2))), tf.ones((4,)), critic.trainable_variables)
    initialize()
    with refuses(UsageError, "targets (4,)"):
        critic.train(np.ones((4, 3)), np.ones((4, 2)), np.ones(4))


@pytest.mark.parametrize("option", [{"policy_gradient": "chainrule"}, {"policy_gradient": 1}])
def test_unknown_policy_gradient(option, observation_space, action_space, graph):
    with refuses(UsageError, "policy_gradient"):
        ActorNetwork(observation_space, action_space, **option)


def test_unknown_td_target_names_the_nearest(observation_space, action_space, graph):
    with refuses(UsageError, "'stop_gradient'"):
        CriticNetwork(observation_space, action_space, td_target="stop_gradiant")
