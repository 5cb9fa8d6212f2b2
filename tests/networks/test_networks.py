"""Networks, their layers, and their EMA targets."""

import functools
import time
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from refusals import refuses

from ddpg import ActorNetwork, CriticNetwork, QNetwork, UsageError, mlp
from ddpg._tflearn import tflearn, training_mode
from ddpg.config.algorithm_options import ACTIVATIONS, SAMPLE_NORMS
from ddpg.networks.critic import DistributionalCritic
from ddpg.policies.network_policy import NumpyPolicy, SessionPolicy, make_policy

v1 = tf.compat.v1
# Without Adam's slots.
actor_of, critic_of = (functools.partial(kind, optimizer="sgd") for kind in (ActorNetwork, CriticNetwork))


def test_actions_honour_asymmetric_bounds(observation_space, action_space, session, initialize):
    actor = actor_of(observation_space, action_space)
    initialize()
    weights = actor.get_network_params()
    for sign, bound in ((50.0, action_space.high), (-50.0, action_space.low)):
        actor.set_network_params([*weights[:-1], np.full(2, sign)])
        np.testing.assert_allclose(actor.predict(np.zeros((1, 3))), [bound])


def test_an_actors_loss_decreases_along_its_step(observation_space, action_space, session, initialize, rng):
    """−1/B Σ g·μ(s), summed over action dimensions: its slope along the step is −|∇θ|² per unit of learning rate."""
    actor = actor_of(observation_space, action_space, network=mlp((8,)), learning_rate=1e-4)
    initialize()
    states, gradients = rng.normal(size=(5, 3)), rng.normal(size=(5, 2))
    found = actor.get_gradients(states, gradients)
    expected = -np.mean(np.sum(gradients * actor.predict(states), axis=1))
    first, second = actor.train(states, gradients), actor.train(states, gradients)
    assert first == pytest.approx(expected, rel=1e-5)
    assert (first - second) / 1e-4 == pytest.approx(sum(np.square(g).sum() for g in found), rel=0.05)


def test_target_starts_as_a_copy_moves_by_tau_and_syncs(observation_space, action_space, session, initialize):
    critic = critic_of(observation_space, action_space, network=mlp((8,)), tau=0.25)
    initialize()
    start = session.run(critic.variables)
    np.testing.assert_equal(session.run(critic.target_variables), start)
    critic.set_network_params([value + 1 for value in critic.get_network_params()])
    critic.update_target_network()
    for shadow, value in zip(session.run(critic.target_variables), start, strict=True):
        np.testing.assert_allclose(shadow, value + 0.25, rtol=1e-5)
    critic.sync_target_network()
    for shadow, value in zip(session.run(critic.target_variables), start, strict=True):
        np.testing.assert_allclose(shadow, value + 1, rtol=1e-6)


def test_wrong_shape_sets_nothing(observation_space, action_space, session, initialize):
    actor = actor_of(observation_space, action_space, network=mlp((8,)))
    initialize()
    before = actor.get_network_params()
    arrays = [array + 1 for array in before]
    with refuses(UsageError, "actor/output/b:0 (2,) (3,)"):
        actor.set_network_params([*arrays[:-1], np.zeros(3)])
    with refuses(UsageError, "3 4"):
        actor.set_network_params(arrays[:-1])
    arrays[0][0, 0] = np.nan
    with refuses(UsageError, "nan"):
        actor.set_network_params(arrays)
    np.testing.assert_equal(actor.get_network_params(), before)


@pytest.mark.slow
def test_custom_layers_without_scopes_are_shared_between_applications(
    observation_space, action_space, session, initialize, rng
):
    def network(states, actions=None):
        features = states if actions is None else tf.concat([states, actions], 1)
        features = tflearn.fully_connected(features, 7, activation="relu")
        return tflearn.fully_connected(features, 5, activation="tanh")

    critic = critic_of(observation_space, action_space, network=network)
    count = len(v1.global_variables())
    states, actions = tf.ones((2, 3)), tf.ones((2, 2))
    q, q_again, target = critic(states, actions), critic(states, actions), critic.target(states, actions)
    initialize()
    assert len(v1.global_variables()) == count
    np.testing.assert_array_equal(*session.run([q, q_again]))
    np.testing.assert_array_equal(*session.run([q, target]))


def test_a_network_that_builds_other_layers_later_is_refused(observation_space, action_space, graph):
    sizes = iter(range(4, 10))
    network = lambda states: tflearn.fully_connected(states, 3, scope=f"layer_{next(sizes)}")  # noqa: E731
    actor = actor_of(observation_space, action_space, network=network)
    with refuses(UsageError, "trained"):
        actor(tf.ones((1, 3)))


def test_a_network_without_variables_still_has_an_output_layer(observation_space, action_space, graph):
    actor = actor_of(observation_space, action_space, network=lambda states: states)
    assert [tuple(v.shape) for v in actor.variables] == [(3, 2), (2,)]


@pytest.mark.parametrize("action_layer", [0, 1])
def test_action_enters_at_its_layer(action_layer, observation_space, action_space, session, initialize):
    critic = critic_of(observation_space, action_space, network=mlp((8, 6), action_layer=action_layer))
    initialize()
    rows = [array.shape[0] for array in critic.get_network_params()[::2]]
    assert rows == ([5, 8, 6] if action_layer == 0 else [3, 10, 6])


def test_initial_weights_are_the_papers(observation_space, action_space, session, initialize):
    actor = actor_of(observation_space, action_space, network=mlp((400, 300)))
    initialize()
    params = actor.get_network_params()
    for array, fan_in in zip(params[:4], (3, 3, 400, 400), strict=True):
        assert 0.95 * fan_in**-0.5 < np.abs(array).max() <= fan_in**-0.5
    assert 2.9e-3 < np.abs(params[4]).max() <= 3e-3
    assert 0 < np.abs(params[5]).max() <= 3e-3


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_norms_of_samples_are_before_the_activation(norm, session, initialize, rng):
    inputs = rng.normal(size=(4, 3)).astype(np.float32)
    output = mlp((5,), norm=norm)(tf.constant(inputs))
    initialize()
    weights, bias = (session.run(v) for v in v1.trainable_variables()[:2])
    linear = inputs @ weights + bias
    centred = linear - linear.mean(1, keepdims=True) if norm == "layer" else linear
    expected = np.maximum(0, centred / np.sqrt(np.square(centred).mean(1, keepdims=True) + 1e-5))
    np.testing.assert_allclose(session.run(output), expected, rtol=1e-4, atol=1e-5)


def test_batch_norm_modes_and_target_statistics(observation_space, action_space, session, initialize, rng):
    """Training moves the moving statistics once per step; inference and the target only read them."""
    network = mlp((8,), norm="batch")
    critic = critic_of(observation_space, action_space, network=network, tau=0.5)
    initialize()
    moving = [v for v in critic.variables if not v.trainable]
    assert len(moving) == 4  # mean and variance, of the inputs and of the hidden layer
    assert len(critic.target_variables) == len(critic.variables)
    states, actions = 5 + rng.normal(size=(32, 3)), rng.uniform(-1, 1, size=(32, 2)) * [2, 0.25] + [1, 0.75]
    before = session.run(moving)
    critic.predict(states, actions)
    critic.predict_target(states, actions)
    critic.action_gradients(states, actions)
    np.testing.assert_equal(session.run(moving), before)
    critic.train(states, actions, np.zeros((32, 1)))
    after = session.run(moving)
    np.testing.assert_allclose(after[0], 0.1 * states.mean(axis=0), rtol=1e-4)  # decay 0.9, from 0
    shadows = [critic.target_variables[index] for index, v in enumerate(critic.variables) if not v.trainable]
    np.testing.assert_array_equal(session.run(shadows)[0], before[0])
    critic.update_target_network()
    np.testing.assert_allclose(session.run(shadows)[0], 0.05 * states.mean(axis=0), rtol=1e-4)


def test_batch_norm_ends_at_the_layer_of_the_action(observation_space, action_space, graph):
    critic = critic_of(observation_space, action_space, network=mlp((8, 6, 4), norm="batch", action_layer=1))
    scopes = {variable.name.split("/")[1] for variable in critic.variables}
    assert {"input_norm", "norm_0"} <= scopes
    assert not {"norm_1", "norm_2"} & scopes


def test_training_mode_is_per_application(session, initialize, rng):
    inputs = tf.constant(rng.normal(size=(16, 3)).astype(np.float32))
    with training_mode(True):
        online = tflearn.batch_normalization(inputs, scope="norm", reuse=v1.AUTO_REUSE)
    with training_mode(False):
        target = tflearn.batch_normalization(inputs, scope="norm", reuse=v1.AUTO_REUSE)
    initialize()
    np.testing.assert_allclose(session.run(target), session.run(inputs), atol=0.02)
    assert np.abs(session.run(online).mean(axis=0)).max() < 1e-5
    assert "If" not in {operation.type for operation in session.graph.get_operations()}  # no switch at run time


def test_tflearns_own_training_mode_still_works(session, initialize, rng):
    """tflearn's training-mode variable may change between runs."""
    inputs = tf.constant(rng.normal(size=(16, 3)).astype(np.float32))
    outputs = tflearn.batch_normalization(inputs)
    initialize()
    means = []
    for training in (True, False):
        tflearn.is_training(training, session)
        means.append(np.abs(session.run(outputs).mean(axis=0)).max())
    assert means[0] < 1e-5 < 1e-3 < means[1]


LAYERS = (
    *({"norm": norm} for norm in (None, *SAMPLE_NORMS)),
    *({"activation": name} for name in ACTIVATIONS if name not in ("relu", "linear")),
    {"activation": tf.nn.relu6},
)


def every_kind_of_layer(states):
    features = []
    for index, options in enumerate(LAYERS):
        with v1.variable_scope(f"kind_{index}"):
            features.append(mlp((4,), **options)(states))
    return tf.concat(features, axis=1)


@pytest.mark.parametrize(
    ("network", "kind"),
    [(every_kind_of_layer, NumpyPolicy), (mlp((8,), norm="batch"), NumpyPolicy), (mlp((8,), tf.sin), SessionPolicy)],
    ids=["every", "batch norm's moving averages", "sin"],
)
def test_numpy_policy_is_the_graph(network, kind, observation_space, action_space, session, initialize, rng):
    actor = actor_of(observation_space, action_space, network=network)
    policy = make_policy(actor, session)
    initialize()
    assert isinstance(policy, kind)
    actor.set_network_params([5 * value + rng.uniform(0.5, 2, value.shape) for value in actor.get_network_params()])
    policy.load(session.run(policy.variables))
    states = rng.normal(size=(10, 3)).astype(np.float32)
    np.testing.assert_allclose(policy(states), actor.predict(states), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(policy(states[:1]), actor.predict(states[:1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("hidden", [[16, 8], range(16, 7, -8), np.array([16, 8])], ids=["list", "range", "array"])
def test_hidden_units_are_any_sequence_of_whole_numbers(hidden, observation_space, action_space, graph):
    actor = actor_of(observation_space, action_space, network=mlp(hidden))
    assert [variable.shape[-1] for variable in actor.trainable_variables[:4:2]] == [16, 8]


@pytest.mark.parametrize("hidden", [(), np.array([]), np.array(8), [[4], [4, 4]], "64", (8.5,)])
def test_bad_hidden_units(hidden):
    with refuses(UsageError, "hidden 1"):
        mlp(hidden)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0.0}, "tau 0.0"),
        ({"tau": 1.5}, "tau 1.5"),
        ({"learning_rate": -1.0}, "learning_rate -1.0"),
        ({"action_gradient_clip": 0.0}, "action_gradient_clip 0.0"),
        ({"action_gradient_clip": float("inf")}, "action_gradient_clip inf 0"),
        ({"max_gradient_norm": float("inf")}, "max_gradient_norm inf 0"),
    ],
)
def test_bad_numbers(options, message, observation_space, action_space, graph):
    with refuses(UsageError, message):
        actor_of(observation_space, action_space, **options)


def test_a_box_wider_than_float32_is_refused(observation_space, graph):
    largest = np.finfo(np.float32).max
    with refuses(UsageError, "float32"):
        ActorNetwork(observation_space, gym.spaces.Box(-largest, largest, (2,), np.float32))


def test_a_scalar_weight(observation_space, action_space, session, initialize):
    def network(states):
        return mlp((4,))(states) * v1.get_variable("temperature", initializer=2.0, use_resource=True)

    actor = actor_of(observation_space, action_space, network=network)
    initialize()
    weights = actor.get_network_params()
    actor.set_network_params([2 * weight for weight in weights])
    for weight, before in zip(actor.get_network_params(), weights, strict=True):
        np.testing.assert_array_equal(weight, 2 * before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": ()}, "layer"),
        ({"hidden": (0,)}, "1"),
        ({"norm": "instance"}, "norm instance"),
        ({"action_layer": 2}, "action_layer 2"),
        ({"activation": "rellu"}, "'relu'"),
    ],
)
def test_bad_layers(options, message):
    with refuses(UsageError, message):
        mlp(**options)


def test_networks_are_built_in_a_graph(observation_space, action_space):
    assert tf.executing_eagerly()
    with refuses(UsageError, "actor eager"):
        actor_of(observation_space, action_space)
    with refuses(UsageError, "critic eager"):
        critic_of(observation_space, action_space)


def test_numeric_methods_need_a_default_session(observation_space, action_space, graph):
    actor = actor_of(observation_space, action_space)
    with refuses(UsageError, "session agent.session"):
        actor.predict(np.zeros((1, 3)))
    with tf.Graph().as_default(), v1.Session().as_default(), refuses(UsageError, "graph agent.session"):
        actor.predict(np.zeros((1, 3)))


def test_numeric_methods_ignore_the_callers_control_dependencies(session, observation_space, action_space, initialize):
    """Otherwise each later call would need the placeholder that the first one depends on."""
    actor, states = actor_of(observation_space, action_space), np.ones((2, 3))
    initialize()
    with tf.control_dependencies([v1.placeholder(tf.float32, [])]):
        inside = actor.predict(states)
    np.testing.assert_array_equal(actor.predict(states), inside)


@pytest.mark.parametrize("used", [tf.zeros_like, tf.round, tf.stop_gradient])
def test_a_critic_whose_q_has_no_gradient_for_its_actions_is_refused(
    used, observation_space, action_space, session, initialize
):
    def layers(states, actions):
        return mlp((4,))(tf.concat([states, used(actions)], axis=1))

    critic = critic_of(observation_space, action_space, network=layers)
    initialize()
    with refuses(UsageError, "critic gradient actions"):
        critic.action_gradients(np.zeros((1, 3)), np.zeros((1, 2)))


def test_threads_build_numeric_methods_one_after_the_other(session, observation_space, action_space, initialize):
    """A graph's name scopes belong to no thread, and the second thread's placeholders would replace the first's."""
    inside, most = [], []

    def layers(states):
        inside.append(states)
        most.append(len(inside))
        time.sleep(0.05)  # the other threads arrive meanwhile
        inside.pop()
        return mlp((4,))(states)

    actors = [actor_of(observation_space, action_space, network=layers) for _ in range(2)]
    initialize()
    states = np.ones((2, 3))

    def call(method):
        with session.as_default():
            return method(states)

    methods = [method for actor in actors for method in (actor.predict, actor.predict, actor.predict_target)]
    with ThreadPoolExecutor(len(methods)) as pool:
        found = list(pool.map(call, methods))
    assert max(most) == 1
    for method, action in zip(methods, found, strict=True):
        np.testing.assert_array_equal(method(states), action)


def test_an_empty_minibatch_is_refused(observation_space, action_space, session, initialize):
    """The mean of no samples is NaN, and Adam's momentum would still move the weights."""
    small = {"network": mlp((4,)), "optimizer": "sgd"}
    networks = (
        actor_of(observation_space, action_space, **small),
        critic_of(observation_space, action_space, **small),
        DistributionalCritic(observation_space, action_space, **small, atoms=3, name="distributional"),
        QNetwork(observation_space, gym.spaces.Discrete(2), **small),
    )
    initialize()
    states, actions = np.zeros((0, *observation_space.shape)), np.zeros((0, *action_space.shape))
    rest = [actions], [actions, np.zeros((0, 1))], [actions, np.zeros((0, 3))], [np.zeros(0), np.zeros((0, 1))]
    for network, others in zip(networks, rest, strict=True):
        for method in (network.train, network.get_gradients):
            with refuses(UsageError, "states 0 one"):
                method(states, *others)
    assert networks[0].predict(states).shape == (0, *action_space.shape)


def test_ops_can_only_be_built_in_the_networks_graph(observation_space, action_space):
    states = np.zeros((1, 3), np.float32)
    with tf.Graph().as_default():
        actor = actor_of(observation_space, action_space)
        step = [(tf.zeros_like(v), v) for v in actor.trainable_variables]
        inside = tf.function(lambda states: actor(states) + actor.target(states), autograph=False)
        assert inside(tf.constant(states)).shape == (1, 2)
    for build in (
        lambda: actor(tf.constant(states)),
        lambda: actor.target(tf.constant(states)),
        actor.target_update,
        actor.target_sync,
        lambda: actor.apply_gradients(step),
    ):
        with refuses(UsageError, "actor agent.graph.as_default():"):
            build()
        with tf.Graph().as_default(), refuses(UsageError, "actor agent.graph.as_default():"):
            build()


@pytest.mark.parametrize(
    "options", [{"reuse": v1.AUTO_REUSE}, {"partitioner": v1.fixed_size_partitioner(2)}], ids=["reuse", "partitioner"]
)
def test_networks_in_a_reentered_scope_have_separate_weights(options, observation_space, action_space):
    with tf.Graph().as_default(), v1.Session().as_default() as session:
        critics = []
        for _ in range(2):
            with v1.variable_scope("critics", **options):
                critics.append(critic_of(observation_space, action_space, network=mlp((8,))))
        assert [critic.scope for critic in critics] == ["critics/critic", "critics/critic_1"]
        session.run(v1.global_variables_initializer())
        before = [critic.get_network_params() for critic in critics]
        critics[1].train(np.ones((2, 3)), np.ones((2, 2)), np.ones((2, 1)))
        after = [critic.get_network_params() for critic in critics]
    moved = [any((x != y).any() for x, y in zip(*both, strict=True)) for both in zip(before, after, strict=True)]
    assert moved == [False, True]
