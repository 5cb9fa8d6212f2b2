"""Custom gradient paths and losses: each common mistake is a clear error before anything is learned."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from conftest import assert_close
from refusals import refuses

from ddpg import DDPG, ActorNetwork, DDPGConfig, UsageError, mlp
from ddpg.algorithms.ddpg import policy_gradient
from ddpg.gradients import policy, sign_check, td
from ddpg.networks.critic import CriticNetwork
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1
SMALL = DDPGConfig(
    **{"hidden": (4,), "batch_size": 4, "bounding": "inverting", "optimizer": "sgd"},
    **{"td_target": "placeholder", "updates_per_call": 1, "jit": False},  # the driver with the smallest graph
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


def scaled_chain_rule(actor, critic, states):
    """The chain rule, scaled."""
    return [(2 * gradient, variable) for gradient, variable in policy.chain_rule(actor, critic, states)]


def of_another_type(actor, critic, states):
    return [
        (tf.cast(gradient, tf.float64), variable) for gradient, variable in policy.chain_rule(actor, critic, states)
    ]


def of_one_row(actor, critic, states):
    pairs = policy.chain_rule(actor, critic, states)
    return [(tf.reduce_mean(gradient, axis=0, keepdims=True), variable) for gradient, variable in pairs]


def with_a_variable(actor, critic, states):
    scale = tf.compat.v1.get_variable("scale", initializer=1.0)
    return [(scale * gradient, variable) for gradient, variable in policy.chain_rule(actor, critic, states)]


def as_a_dict(actor, critic, states):
    return {variable.name: gradient for gradient, variable in policy.chain_rule(actor, critic, states)}


def updated(**changes):
    agent = DDPG(SPACES, SMALL.replace(**changes), seed=0)
    agent.observe([0.5, 0.5], [0.0], 1.0, [0.0, 0.0], False, False)
    agent.update(1)
    return agent


@pytest.fixture(scope="module")
def networks():
    """Return an actor, a critic and a minibatch of four rows, and their session."""
    with tf.Graph().as_default(), v1.Session() as session:
        options = {"network": mlp((8,)), "optimizer": "sgd"}
        actor, critic = ActorNetwork(*SPACES, bounding="inverting", **options), CriticNetwork(*SPACES, **options)
        rows = np.random.default_rng(0).uniform(-1, 1, (4, 6)).astype(np.float32)
        batch = Batch(*map(tf.constant, (rows[:, :2], rows[:, 2:3], rows[:, 3:4], rows[:, 4:], 0 * rows[:, :1])))
        session.run(v1.global_variables_initializer())
        yield actor, critic, batch, session


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (nothing, "None [(gradient variable)]"),
        (as_a_dict, "dict [(gradient variable)]"),
        (critics_variables, "['critic/"),
        (unreached, "(None) ['actor/"),
        (unbounded, "bounding"),
        (of_another_type, "float64 actor/ float32"),
        (of_one_row, "(1, actor/"),
    ],
)
def test_mistakes_in_a_policy_gradient(path, message, networks, monkeypatch):
    actor, critic, batch, _ = networks
    monkeypatch.setattr(actor, "policy_gradient", path)
    with actor.graph.as_default(), refuses(UsageError, f"policy_gradient={path.__name__}", message):
        policy_gradient(actor, critic, batch)


def test_a_variable_that_a_policy_gradient_creates_is_refused():
    with refuses(UsageError, "policy_gradient=with_a_variable scale"):
        updated(policy_gradient=with_a_variable)


def test_identity_bounding_need_not_be_applied():
    assert updated(policy_gradient=unbounded, bounding="squashing").num_updates == 1
    with refuses(UsageError, "bounding"):
        updated(policy_gradient=unbounded, bounding="squashing", action_gradient_clip=1.0)


def test_a_loss_takes_the_prediction_first():
    """Keras's losses take the target first; argument names that show this prevent a call the wrong way round."""

    def expectile(target, q):
        return tf.reduce_mean(tf.where(target > q, 0.9, 0.1) * tf.square(target - q))

    with refuses(UsageError, "critic_loss=expectile (q, target)"):
        SMALL.replace(td_target="stop_gradient", critic_loss=expectile)


def test_a_td_path_must_reach_every_variable_as_well():
    def first_only(q, target, variables):
        return td.stop_gradient(q, target, variables[:1])

    with refuses(UsageError, "td_target=first_only ['critic/"):
        updated(td_target=first_only)


def bare(q, target, variables):
    return tf.gradients(td.mean_square(q, tf.stop_gradient(target)), variables)


def doubled_precision(q, target, variables):
    return [(tf.cast(gradient, tf.float64), variable) for gradient, variable in td.stop_gradient(q, target, variables)]


@pytest.mark.parametrize(("path", "message"), [(bare, "a list of 4"), (doubled_precision, "float64")])
def test_mistakes_in_a_td_path_are_refused_before_the_critics_decay_is_added(path, message):
    with refuses(UsageError, f"td_target={path.__name__} returned {message}"):
        updated(td_target=path, critic_l2=0.1)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda q, target: tf.square(q - target), "(None, 1)"),
        (lambda q, target: tf.reduce_mean(tf.square(q - target), axis=1), "(None,)"),
        (lambda q, target: tf.reduce_mean(tf.cast(tf.square(q - target), tf.float64)), "float64 float32"),
        (lambda q, target: None, "None"),
        (lambda q, target: 1.0, "1.0"),
    ],
)
def test_a_custom_loss_must_be_a_scalar(loss, message, graph):
    """TensorFlow would differentiate the sum of a vector: a step that is B times too large."""
    joined = lambda states, actions: tf.concat([states, actions], axis=1)  # noqa: E731
    critic = CriticNetwork(*SPACES, network=joined, loss=loss)
    for method in (critic.train, critic.get_gradients):
        with v1.Session().as_default(), refuses(UsageError, "tf.reduce_mean(...) " + message):
            method(np.zeros((2, 2)), np.zeros((2, 1)), np.zeros((2, 1)))


@pytest.mark.parametrize("driver", [{"jit": True}, {}, {"td_target": "placeholder"}])
def test_every_driver_refuses_a_custom_loss_that_is_no_scalar(driver):
    with refuses(UsageError, "critic_loss tf.reduce_mean(...) (4, 1)"):
        updated(critic_loss=lambda q, target: tf.square(q - target), **{"td_target": "stop_gradient"} | driver)


def test_a_custom_mean_square_equals_the_built_in_one(session, initialize, rng):
    mean = lambda q, target: tf.reduce_mean(tf.square(q - target))  # noqa: E731
    joined = lambda states, actions: tf.concat([states, actions], axis=1)  # noqa: E731
    own, supplied = (CriticNetwork(*SPACES, network=joined, loss=loss) for loss in (mean, "mse"))
    initialize()
    own.set_network_params(supplied.get_network_params())
    inputs = rng.normal(size=(4, 2)), rng.normal(size=(4, 1)), rng.normal(size=(4, 1))
    assert_close(own.get_gradients(*inputs), supplied.get_gradients(*inputs), rtol=1e-6)


@pytest.mark.parametrize("method", ["train", "get_gradients"])
def test_residual_gradient_refuses_a_fed_target(method, observation_space, action_space, session, initialize):
    """A fed y is constant, so the result would be the gradient of stop_gradient under another name."""
    critic = CriticNetwork(observation_space, action_space, network=mlp((4,)), td_target="residual_gradient")
    initialize()
    inputs = np.zeros((2, 3)), np.tile(action_space.low, (2, 1)), np.ones((2, 1))
    with refuses(UsageError, "target variables"):
        getattr(critic, method)(*inputs)
    states, actions, _ = (tf.constant(array, tf.float32) for array in inputs)
    with refuses(UsageError, "depend"):
        critic.compute_gradients(states, actions, critic.target(states, actions))
    assert critic.compute_gradients(states, actions, critic(states, actions))


def climbing_down(actor, critic, states):
    """The chain rule with the wrong sign."""
    return [(-gradient, variable) for gradient, variable in policy.chain_rule(actor, critic, states)]


def correct(actor, critic, states):
    return climbing_down(actor, critic, states)


correct.sign_is_checked = False


def towards_replayed(actor, critic, states, batch):
    """Behaviour cloning with a far larger weight than Q."""
    actions = actor(states, training=True)
    loss = 1e3 * tf.reduce_mean(tf.square(actions - batch.actions))
    pairs = actor.policy_gradients(actions, critic.action_gradient(states, actions))
    cloning = actor.optimizer.compute_gradients(loss, actor.trainable_variables)
    return [(one + other, variable) for (one, variable), (other, _) in zip(pairs, cloning, strict=True)]


def critics_kind_matters(actor, critic, states):
    assert isinstance(critic, CriticNetwork)
    return policy.chain_rule(actor, critic, states)


@pytest.mark.parametrize(
    ("bounding", "td_target"),
    [pytest.param("squashing", "stop_gradient", marks=pytest.mark.slow), ("inverting", "placeholder")],
)
def test_a_wrong_sign_is_warned_of_by_name_when_training_begins(bounding, td_target):
    with pytest.warns(UserWarning, match="climbing_down") as caught:
        agent = updated(policy_gradient=climbing_down, bounding=bounding, td_target=td_target)
    assert caught[0].filename == __file__, "it names the user's line"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.update(2)  # warned of only once


def td_down(q, target, variables):
    return td.stop_gradient(q, target, variables)


def td_up(q, target, variables):
    return [(-gradient, variable) for gradient, variable in td_down(q, target, variables)]


def td_correct(q, target, variables):
    return td_up(q, target, variables)


td_correct.sign_is_checked = False


def td_pessimistic(q, target, variables):
    """A penalty on Q that far outweighs the TD error, like conservative Q-learning's."""
    return td.gradients(td.mean_square(q, tf.stop_gradient(target)) + 1e3 * tf.reduce_mean(q), variables)


def td_expectile(q, target, variables):
    error = tf.stop_gradient(target) - q
    return td.gradients(tf.reduce_mean(tf.where(error > 0, 0.9, 0.1) * tf.square(error)), variables)


@pytest.mark.parametrize("critic_norm", ["same", pytest.param("renorm", marks=pytest.mark.slow)])
def test_a_td_path_with_the_wrong_sign_is_warned_of_too(critic_norm):
    with pytest.warns(UserWarning, match="td_up"):
        updated(td_target=td_up, critic_norm=critic_norm)


def test_correct_td_paths_are_not_warned_of(networks):
    _, critic, batch, session = networks
    assert [sign_check.is_checked(path) for path in (td_correct, *td.TD_TARGETS.values())] == [False] * 5
    with critic.graph.as_default():
        q, paths = critic(batch.observations, batch.actions), (td_down, td_pessimistic, td_expectile, td_up)
        cosines = [sign_check.descent_cosine(path, q, critic.trainable_variables) for path in paths]
    *correct, wrong = session.run(cosines)
    assert min(correct) > 0.5
    assert wrong == pytest.approx(-1, abs=1e-5)


def test_correct_policy_paths_are_not_warned_of(networks):
    actor, critic, batch, session = networks
    assert [sign_check.is_checked(path) for path in (correct, *policy.POLICY_GRADIENTS.values())] == [False] * 4
    with actor.graph.as_default():
        paths = scaled_chain_rule, towards_replayed, climbing_down
        cosines = [sign_check.climb_cosine(path, actor, critic, batch) for path in paths]
    *right, wrong = session.run(cosines)
    assert min(right) > 0.5
    assert wrong == pytest.approx(-1, abs=1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        updated(policy_gradient=critics_kind_matters, td_target=td_correct)
        updated(policy_gradient=correct, td_target=td_down)


@pytest.mark.slow
def test_with_cloning_the_configured_path_is_checked(monkeypatch):
    with pytest.warns(UserWarning, match="path 'climbing_down'"):
        updated(policy_gradient=climbing_down, bc_alpha=1e-3)
    monkeypatch.setattr(sign_check, "climb_cosine", lambda path, *_: pytest.fail(f"{path} is checked"))
    for path in (correct, "surrogate"):
        updated(policy_gradient=path, bc_alpha=1e-3)


def test_checking_a_policy_path_does_not_change_training():
    """Nor a batch norm's statistics, though the check makes passes in training mode."""

    def unchecked(actor, critic, states):
        return scaled_chain_rule(actor, critic, states)

    unchecked.sign_is_checked = False
    changes = {"norm": "batch", "bounding": "squashing"}
    first = updated(policy_gradient=scaled_chain_rule, td_target=td_down, **changes).get_parameters()
    second = updated(policy_gradient=unchecked, td_target=td.stop_gradient, **changes).get_parameters()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def test_a_path_may_use_the_replayed_actions():
    """It moves towards the only replayed action, 1, much more than by Q, which is near 0 initially."""
    agent = DDPG(SPACES, SMALL.replace(policy_gradient=towards_replayed, bounding="squashing"), seed=0)
    agent.observe([0.5, 0.5], [1.0], 0.0, [0.0, 0.0], True, False)
    before = agent.predict([0.5, 0.5])[0].item()
    agent.update(1)
    assert before < agent.predict([0.5, 0.5])[0].item()
