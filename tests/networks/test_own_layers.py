"""Custom hidden layers, however they create variables: all applications share weights, and the target has its own."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agents_by_driver import filled
from conftest import assert_close
from refusals import refuses

import ddpg
from ddpg import DDPG, DQN, ActorNetwork, Bounding, DDPGConfig, DQNConfig, UsageError
from ddpg._tflearn import tflearn
from ddpg.config.presets import RECIPES, read_recipe
from ddpg.networks.own_layers import reason_of

v1 = tf.compat.v1
BOX = gym.spaces.Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
SMALL = {"hidden": (4,), "batch_size": 4, "updates_per_call": 2, "buffer_size": 20, "optimizer": "sgd"}
FAST = SMALL | {"actor_learning_rate": 0.1, "critic_learning_rate": 0.1}


def by_name(states, actions=None):
    x = states if actions is None else tf.concat([states, actions], axis=1)
    return tf.nn.relu(tf.matmul(x, v1.get_variable("w", [int(x.shape[-1]), 8])) + v1.get_variable("b", [8]))


def by_hand(states, actions=None):
    x = states if actions is None else tf.concat([states, actions], axis=1)
    return tf.nn.tanh(tf.matmul(x, tf.Variable(tf.random.normal([int(x.shape[-1]), 8]))) + tf.Variable(tf.zeros([8])))


def by_keras(states, actions=None):
    x = states if actions is None else tf.concat([states, actions], axis=1)
    return tf.keras.layers.Dense(8, activation="relu")(tf.keras.layers.Dense(4, activation="elu")(x))


def by_both(states, actions=None):
    return tf.keras.layers.Dense(4, activation="tanh")(by_name(states, actions))


LAYERS = [by_name, by_hand, by_keras, by_both]


def agent_of(layers, **options):
    return filled(DDPG((BOX, ACTIONS), DDPGConfig(**FAST, **options), 0, actor_network=layers, critic_network=layers))


# The graph does not depend on the driver, so compilers are tested with one function that mixes both kinds.
@pytest.mark.parametrize(
    ("layers", "options"),
    [
        *(
            pytest.param(layers, {"jit": False}, marks=[pytest.mark.slow] * (layers is not by_hand))
            for layers in LAYERS
        ),
        (by_both, {"compiler": "native"}),
        pytest.param(by_both, {"compiler": "xla"}, marks=pytest.mark.slow),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_all_weights_learn_act_and_have_a_target(layers, options):
    agent = agent_of(layers, **options)
    before, states = agent.get_parameters(), np.random.default_rng(1).uniform(-1, 1, (5, 3))
    agent.update(4)
    for name, value in agent.get_parameters().items():
        assert (value != before[name]).any(), name
    with agent.session.as_default():
        np.testing.assert_allclose(agent.predict(states)[0], agent.actor.predict(states), rtol=1e-5, atol=1e-7)
        assert np.abs(agent.actor.predict(states) - agent.actor.predict_target(states)).max() > 1e-6
        agent.actor.sync_target_network()
        np.testing.assert_allclose(agent.actor.predict(states), agent.actor.predict_target(states), atol=1e-7)


@pytest.mark.parametrize("layers", [pytest.param(by_hand, marks=pytest.mark.slow), by_both])
def test_they_are_saved_loaded_and_exported(layers, tmp_path):
    """Their variables' names do not depend on what else the process has created."""
    agent = agent_of(layers, jit=False)
    agent.update(2)
    agent.save(tmp_path / "saved")
    tf.keras.layers.Dense(1)
    loaded = DDPG.load(tmp_path / "saved", actor_network=layers, critic_network=layers)
    states = np.random.default_rng(1).uniform(-1, 1, (5, 3))
    np.testing.assert_array_equal(loaded.predict(states)[0], agent.predict(states)[0])
    policy = ddpg.load_policy(loaded.export(tmp_path / "policy"))
    np.testing.assert_allclose(policy.predict(states)[0], agent.predict(states)[0], atol=1e-6)


def by_keras_with_dropout(states, actions=None):
    return tf.keras.layers.Dropout(0.5)(by_keras(states, actions))


@pytest.mark.parametrize(
    "options",
    [pytest.param({"compiler": "native"}, marks=pytest.mark.slow), {"target": "online", "jit": False}],
    ids=str,
)
def test_dropout_is_inactive(options, tmp_path):
    """It learns like the same layers without dropout. Its integer variable is saved and does not change."""
    agents = [
        DDPG((BOX, ACTIONS), DDPGConfig(**FAST, **options), 0, actor_network=layers, critic_network=layers)
        for layers in (by_keras, by_keras_with_dropout)
    ]
    for agent in agents:
        filled(agent)
    plain, dropped = agents
    for ours, theirs in ((dropped.actor, plain.actor), (dropped.critic, plain.critic)):
        with plain.session.as_default():
            weights = theirs.get_network_params()
        with dropped.session.as_default():
            ours.set_network_params(weights)
            ours.sync_target_network()
    before = dropped.get_parameters()
    learned = []
    for agent in agents:
        agent.update(4)
        with agent.session.as_default():
            learned.append([*agent.actor.get_network_params(), *agent.critic.get_network_params()])
    assert_close(*learned, rtol=1e-5, atol=1e-7)
    after = dropped.get_parameters()
    integers = {name for name, value in after.items() if value.dtype.kind in "iu"}
    assert len(integers) == 2
    assert all((before[name] == after[name]).all() for name in integers)
    dropped.save(tmp_path / "saved")
    again = DDPG.load(
        tmp_path / "saved", actor_network=by_keras_with_dropout, critic_network=by_keras_with_dropout
    ).get_parameters()
    assert all((again[name] == value).all() for name, value in after.items())


def test_a_q_network_of_keras_learns():
    config = DQNConfig(**SMALL, learning_rate=0.1, tau=0.5, jit=False)  # large steps: Keras draws its weights at random
    agent = DQN((BOX, gym.spaces.Discrete(3)), config, 0, q_network=by_keras)
    before = filled(agent).get_parameters()
    agent.update(2)
    assert all((value != before[name]).any() for name, value in agent.get_parameters().items() if "created" in name)


@pytest.fixture
def shapes_of_tensorflow_1():
    """``disable_v2_behavior`` makes the elements of a shape ``Dimension`` objects."""
    v1.disable_v2_tensorshape()
    yield
    v1.enable_v2_tensorshape()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"norm": "batch", "compiler": "native"}, marks=pytest.mark.slow),
        {"critic": "distributional", "bc_alpha": 2.5, "jit": False},
        *[pytest.param(read_recipe(name) | {"action_layer": 0}, id=name, marks=pytest.mark.slow) for name in RECIPES],
    ],
    ids=str,
)
def test_shapes_of_tensorflow_1(options, shapes_of_tensorflow_1):
    agent = filled(DDPG((BOX, ACTIONS), DDPGConfig(**options | SMALL | {"adam_beta1": 0.9}), 0))  # SMALL has no Adam
    before = agent.get_parameters()
    agent.update(4)  # includes a step of a delayed actor
    changed = {name.split("/")[0] for name, value in agent.get_parameters().items() if (value != before[name]).any()}
    assert {"actor", "critic"} <= changed


def test_layers_created_outside_the_function_are_refused_by_name():
    """Otherwise the target would share their weights."""
    layer = tf.keras.layers.Dense(8)
    with refuses(UsageError, "actor callable"):
        DDPG((BOX, ACTIONS), DDPGConfig(**SMALL), 0, actor_network=lambda states: layer(states))


def test_more_layers_at_a_later_call_are_refused():
    calls = []

    def growing(states):
        calls.append(None)
        for _ in calls:
            states = tf.keras.layers.Dense(3)(states)
        return states

    with refuses(UsageError, "actor 2 variables"):
        DDPG((BOX, ACTIONS), DDPGConfig(**SMALL), 0, actor_network=growing)


def dense(x, units=4):
    return tf.matmul(x, v1.get_variable("w", [int(x.shape[-1]), units]))


# Mistakes in a function, and the words of the one-line error.
WRONG = {
    "nothing": (lambda s: None, "returned None [B, f]"),
    "one_row": (lambda s: tf.reduce_mean(dense(s), axis=0, keepdims=True), "[1, 4] [B, f] [B, 3]"),
    "no_axis": (lambda s: tf.reduce_mean(dense(s), axis=1), "shape [B] [B, f]"),
    "no_units": (lambda s: dense(s)[:, 4:], "[B, 0] [B, f]"),
    "any_number": (lambda s: tf.boolean_mask(dense(s), [True] * 4, axis=1)[:, : tf.shape(s)[0]], "None [B, f]"),
    "doubles": (lambda s: tf.cast(dense(s), tf.float64), "float64 float32"),
    "other_sizes": (lambda s: tf.matmul(s, tf.ones([17, 2])), "ValueError [B, 3]"),
    "its_own_error": (lambda s: {}["weights"], "KeyError 'weights' [B, 3]"),
    "regularizer": (
        lambda s: tf.matmul(s, v1.get_variable("w", [3, 4], regularizer=tf.nn.l2_loss)),
        "regularizer weight_decay",
    ),
    "regularizer_of_tflearn": (
        lambda s: tflearn.fully_connected(s, 4, regularizer="L2", scope="first", reuse=v1.AUTO_REUSE),
        "regularizer weight_decay",
    ),
    "half_the_rows": (lambda s: tf.reshape(dense(s), [-1, 8]), "actor 1 rows 2 states"),
    "no_such_shape": (lambda s: tf.reshape(dense(s, 5), [-1, 3]), "actor multiple of 3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_function_is_a_one_line_error(name):
    network, words = WRONG[name]
    with refuses(UsageError, "actor_network", words) as caught:
        DDPG((BOX, ACTIONS), DDPGConfig(**SMALL), 0, actor_network=network)
    assert "\n" not in str(caught.value)


def test_a_mistake_in_a_critics_function_is_a_one_line_error():
    with refuses(UsageError, "critic_network one_row [1, 8] states [B, 3], actions [B, 2]"):

        def one_row(states, actions):
            return tf.reduce_mean(by_name(states, actions), axis=0, keepdims=True)

        DDPG((BOX, ACTIONS), DDPGConfig(**SMALL), 0, critic_network=one_row)


def moving_mean(states, actions=None, *, also_acting=False):
    """Subtract a moving average of the inputs, which moves in training mode."""
    x = states if actions is None else tf.concat([states, actions], axis=1)
    mean = v1.get_variable("mean", [int(x.shape[-1])], initializer=v1.zeros_initializer(), trainable=False)
    moves = also_acting or tf.get_static_value(tflearn.get_training_mode())
    moved = 0.9 * mean + 0.1 * tf.reduce_mean(x, axis=0) if moves else mean
    with tf.control_dependencies([mean.assign(moved)] if moves else []):
        return dense(x - moved)


def test_an_assignment_in_inference_mode_is_refused():
    """Each predict would change the variable, and what an update computes would depend on the driver."""
    for option in ("actor_network", "critic_network"):
        with refuses(UsageError, f"{option} {option.partition('_')[0]}/mean get_training_mode"):
            own = {option: functools.partial(moving_mean, also_acting=True)}
            DDPG((BOX, ACTIONS), DDPGConfig(**SMALL, **own), 0)
    agent = agent_of(moving_mean, jit=False)
    agent.update(1)
    before = agent.get_parameters()
    assert all(before[f"{network}/mean:0"].any() for network in ("actor", "critic"))
    agent.predict(np.ones(3))
    assert all((value == before[name]).all() for name, value in agent.get_parameters().items())


@pytest.mark.parametrize("options", [pytest.param({"compiler": "xla"}, marks=pytest.mark.slow), {}], ids=str)
def test_an_operation_without_a_compiler_is_a_one_line_error(options):
    """Dawson's integral runs only op by op; when it is compiled, TensorFlow's error has twenty lines."""

    def dawson(states):
        return tf.math.special.dawsn(by_name(states))

    agent = filled(DDPG((BOX, ACTIONS), DDPGConfig(**SMALL, **options), 0, actor_network=dawson))
    with refuses(UsageError, "XLA Dawsn jit=False") as caught:
        agent.update(1)
    assert "\n" not in str(caught.value)
    if not options:
        agent = filled(DDPG((BOX, ACTIONS), DDPGConfig(**SMALL, jit=False), 0, actor_network=dawson))
        assert agent.update(1)["critic_loss"] > 0


FAILURE = "Input to reshape is a tensor with 10 values, but the requested shape requires a multiple of 3"
ROOTS = f"""2 root error(s) found.
  (0) INVALID_ARGUMENT: {FAILURE}
\t [[{{{{node actor/Reshape}}}}]]
  (1) INVALID_ARGUMENT: another one
0 successful operations."""
WHERE = "Detected at node 'actor/Reshape' defined at (most recent call last):\n  File 'own.py'\nNode: 'actor/Reshape'\n"


@pytest.mark.parametrize("where", ["", WHERE, WHERE + WHERE], ids=["nowhere", "once", "twice"])
@pytest.mark.parametrize("what", [FAILURE + "\n\t [[{{node actor/Reshape}}]]", ROOTS], ids=["one", "two"])
def test_the_reason_of_a_failed_operation_is_one_line(where, what):
    """As TensorFlow words it on a processor, and on a GPU, where an operation can fail in two places."""
    error = tf.errors.InvalidArgumentError(None, None, f"Graph execution error:\n\n{where}{what}")
    assert reason_of(error) == FAILURE


def test_an_operation_without_a_gradient_is_a_one_line_error():
    def remainders(states):
        return tf.raw_ops.Mod(x=by_name(states), y=tf.ones([8]))

    agent = filled(DDPG((BOX, ACTIONS), DDPGConfig(**SMALL, jit=False), 0, actor_network=remainders))
    with refuses(UsageError, "differentiate Mod"):
        agent.update(1)


@pytest.mark.parametrize("target", ["none", pytest.param("joint_ema", marks=pytest.mark.slow)])
def test_a_critic_of_crossq_must_normalise(target):
    """A joint pass makes sense only for layers with statistics of both halves."""
    crossq = DDPGConfig(**SMALL, target=target, norm="renorm", jit=False)
    with refuses(UsageError, f"target='{target}' critic_network=by_name --target --recipe"):
        DDPG((BOX, ACTIONS), crossq, 0, critic_network=by_name)
    normalised = ddpg.mlp((8,), norm="renorm")
    assert DDPG((BOX, ACTIONS), crossq, 0, actor_network=by_name, critic_network=normalised).config.target == target


def test_a_network_may_be_an_argument_or_an_option(tmp_path):
    """Passed as an argument or in the configuration: the same weights, and the agent's configuration contains it."""
    beside = DDPG((BOX, ACTIONS), DDPGConfig(**SMALL), 0, actor_network=by_name)
    within = DDPG((BOX, ACTIONS), DDPGConfig(**SMALL, actor_network=by_name), 0)
    assert beside.config == within.config
    one, other = beside.get_parameters(), within.get_parameters()
    assert all((one[name] == other[name]).all() for name in one)
    assert "actor_network of its own" in repr(within)
    with refuses(UsageError, "actor_network configuration argument"):
        DDPG((BOX, ACTIONS), DDPGConfig(**SMALL, actor_network=by_name), 0, actor_network=by_hand)
    within.save(tmp_path / "saved")
    with refuses(UsageError, "actor_network by_name load(path, config=...)"):
        DDPG.load(tmp_path / "saved")
    for options in ({"actor_network": by_name}, {"config": within.config}):
        assert DDPG.load(tmp_path / "saved", **options).config == within.config
    with refuses(UsageError, "actor_network 3"):
        DDPG((BOX, ACTIONS), DDPGConfig(**SMALL), 0, actor_network=3)


WRONG_OPTIONS = {
    "activation of nothing": ({"activation": lambda x: None}, "activation None [B, 4]"),
    "activation of two": ({"activation": lambda x, y: x}, "activation TypeError [B, 4]"),
    "activation that sums": ({"activation": lambda x: tf.reduce_sum(x, axis=1)}, "activation float32 [B] [B, 4]"),
    "numbers for a bounding": ({"bounding": Bounding(1, 2)}, "bounding head=1 callable"),
    "a head of one": ({"bounding": Bounding(lambda p: p, lambda g, a, low, high: g)}, "head TypeError [B, 2]"),
    "a transform of one": ({"bounding": Bounding(lambda p, low, high: p, lambda g: g)}, "transform TypeError 2]"),
    "an optimizer that is none": ({"optimizer": len}, "optimizer len TypeError"),
}


@pytest.mark.parametrize("name", WRONG_OPTIONS)
def test_a_mistake_in_another_callable_is_a_one_line_error(name):
    options, words = WRONG_OPTIONS[name]
    with refuses(UsageError, *words.split()) as caught:
        agent = DDPG((BOX, ACTIONS), DDPGConfig(**SMALL | options), 0)
        for _ in range(4):
            agent.observe(np.zeros(3), np.zeros(2), 1.0, np.ones(3), False, False)
        agent.update(1)
    assert "\n" not in str(caught.value)


def test_a_function_passed_to_a_network_is_checked_too():
    with tf.Graph().as_default(), refuses(UsageError, "network None [B, f]"):
        ActorNetwork(BOX, ACTIONS, network=lambda states: None)


@pytest.mark.slow
def test_weight_decay_of_gathered_rows_equals_that_of_a_product():
    """Rows of a table, selected by index or by a product with one-hot vectors: the same weights after 4 steps."""

    def network(read):
        def embedded(states):
            table = v1.get_variable("table", [2, 3], initializer=v1.random_normal_initializer(seed=1))
            return tf.tanh(read(table, tf.cast(states[:, 0] > 0, tf.int32)))

        return embedded

    found = []
    for read in (tf.gather, lambda table, index: tf.matmul(tf.one_hot(index, 2), table)):
        options = {"weight_decay": 0.1, "hidden": (4,), "batch_size": 4, "updates_per_call": 4, "jit": False}
        spaces = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (1,))
        agent = ddpg.DDPG(spaces, ddpg.DDPGConfig(**options, actor_network=network(read)), seed=0)
        for number in range(8):
            agent.observe([0.1 * number - 0.4, 0.5], [0.0], 1.0, [0.0, 0.0], True, False)
        agent.update(4)
        with agent.session.as_default():
            found.append(agent.actor.get_network_params())
    assert_close(*found, rtol=1e-5, atol=1e-7)
