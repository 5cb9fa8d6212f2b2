"""``affine_projection``: every step scales a norm's gains and offsets to length √d; by hand, for all norms."""

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agents_by_driver import BOX, DRIVERS, agent_with
from conftest import assert_close
from refusals import refuses

from ddpg import DQN, ActorNetwork, CriticNetwork, DDPGConfig, DQNConfig, QNetwork, UsageError, conv, mlp
from ddpg.config import algorithm_options
from ddpg.networks.layers import batch_normalization, layer_normalization, rms_normalization
from ddpg.networks.observer import observing
from ddpg.networks.projections import note_affine

v1 = tf.compat.v1
STILL = {"optimizer": "sgd", "learning_rate": 1e-30}
FAST = {"output_init": "fan_in", "critic_learning_rate": 0.05, "actor_learning_rate": 0.05}
NORMS = {norm: {"norm": norm} for norm in algorithm_options.NORMS}
ALL = NORMS | {"residual": {"block": "residual", "hidden": (5, 5)}, "renorm": {"norm": "renorm", "hidden": (5,)}}
# The number of features of each norm: of the hidden layers (6, 5), or of the residual blocks.
FEATURES = {"layer": (6, 5), "rms": (6, 5), "residual": (5, 5)}


def gains_and_offsets(agent, network):
    """Return ``{norm's scope: (γ, β)}``; ``(γ, 0)`` for a norm without offsets."""
    named = {v.name.removeprefix(f"{network.scope}/"): v for v in network.trainable_variables}
    values = dict(zip(named, agent.session.run([*named.values()]), strict=True))
    scopes = [name.removesuffix("/gamma:0") for name in values if name.endswith("/gamma:0")]
    return {s: (values[f"{s}/gamma:0"], values.get(f"{s}/beta:0", np.float32(0))) for s in scopes}


def lengths(agent, network):
    """Return each norm's ``‖(γ, β)‖ / √d``, which the projection makes 1."""
    found = gains_and_offsets(agent, network).values()
    return np.array([np.sqrt((np.square(gain).sum() + np.square(offset).sum()) / len(gain)) for gain, offset in found])


def after_a_step(session, network, given, *inputs):
    """Set trainable variables by the ends of their names; return all after a step with a negligible learning rate."""
    session.run(v1.global_variables_initializer())
    names = [v.name.removeprefix(f"{network.scope}/").removesuffix(":0") for v in network.trainable_variables]
    values = dict(zip(names, network.get_network_params(), strict=True)) | given
    network.set_network_params([np.asarray(values[name]) for name in names])
    network.train(*inputs)
    found = dict(zip(names, network.get_network_params(), strict=True))
    for name in {*names} - {*given}:
        np.testing.assert_array_equal(found[name], values[name], err_msg=name)
    return found


def test_gains_without_offsets_by_hand(session):
    """γ = (6, 0, 0, 0) is scaled to length √4; in an actor."""
    actor = ActorNetwork(BOX, BOX, network=mlp((4,), norm="rms"), affine_projection=True, **STILL)
    given = {"norm_0/gamma": [6.0, 0.0, 0.0, 0.0]}
    found = after_a_step(session, actor, given, np.zeros((1, 2)), np.zeros((1, 2)))
    np.testing.assert_allclose(found["norm_0/gamma"], [2.0, 0.0, 0.0, 0.0], rtol=1e-6)


def test_each_norm_is_scaled_separately_and_zeros_stay(session):
    """One norm of length 5, one of zeros, and with ``batch`` that of the observations."""
    q = QNetwork(BOX, gym.spaces.Discrete(3), network=mlp((2, 3), norm="batch"), affine_projection=True, **STILL)
    given = {
        **{"input_norm/gamma": [1.0, 1.0], "input_norm/beta": [1.0, 1.0]},
        **{"norm_0/gamma": [3.0, 0.0], "norm_0/beta": [0.0, 4.0]},
        **{"norm_1/gamma": [0.0] * 3, "norm_1/beta": [0.0] * 3},
    }
    found = after_a_step(session, q, given, np.zeros((2, 2)), np.zeros((2, 1)), np.zeros((2, 1)))
    expected = {
        **{"input_norm/gamma": [0.5**0.5] * 2, "input_norm/beta": [0.5**0.5] * 2},
        **{"norm_0/gamma": [0.6 * 2**0.5, 0.0], "norm_0/beta": [0.0, 0.8 * 2**0.5]},
        **{"norm_1/gamma": [0.0] * 3, "norm_1/beta": [0.0] * 3},
    }
    assert_close({name: found[name] for name in expected}, expected, rtol=1e-6, atol=1e-9)


def three_updates(agent):
    """Make three updates, the actor's in the second, and check that lengths are √d after each, and gains changed."""
    for made in range(1, 4):
        before = gains_and_offsets(agent, agent.actor)
        agent.update(1)
        for critic in agent.critics:
            np.testing.assert_allclose(lengths(agent, critic), 1, rtol=1e-5)
        now = gains_and_offsets(agent, agent.actor)
        assert len(now) == len(gains_and_offsets(agent, agent.critic)) >= 2
        if made % 2:
            for scope, (gain, offset) in now.items():
                np.testing.assert_array_equal(gain, before[scope][0])
                np.testing.assert_array_equal(offset, before[scope][1])
        else:
            np.testing.assert_allclose(lengths(agent, agent.actor), 1, rtol=1e-5)
        yield now
    for network in (agent.actor, *agent.critics):
        moved = [np.abs(gain / gain[0] - 1).max() for gain, _ in gains_and_offsets(agent, network).values()]
        assert max(moved) > 0.01  # gains have changed relative to each other


# The native compiler is tested with a norm without offsets here, and with one that has them below.
NATIVE = ("rms",)
# Built like those above, or like one of these.
ALIKE = ("layer", "rms", "batch", "renorm_soft", "renorm_preactivation", "residual")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in ALIKE)) for kind in ALL])
def test_all_norms_of_every_network_after_its_own_steps(kind):
    driver = DRIVERS["native" if kind in NATIVE else "stepped"]
    options = {"n_critics": 2 if kind == "batch" else 1, "policy_delay": 2, **FAST, **ALL[kind], **driver}
    *_, now = three_updates(agent_with(affine_projection=True, **options))
    if kind in FEATURES:
        assert tuple(len(gain) for gain, _ in now.values()) == FEATURES[kind]


# Slow: other norms of a Q-network are scaled by hand above.
@pytest.mark.parametrize(
    ("norm", "driver"),
    [
        *(pytest.param(norm, "uncompiled", marks=[pytest.mark.slow] * (norm != "renorm")) for norm in NORMS),
        *(pytest.param("layer", driver, marks=pytest.mark.slow) for driver in ("stepped", "xla")),
    ],
)
def test_norms_of_a_q_network(norm, driver):
    """The native compiler does not support DQN."""
    options = {"norm": norm, "learning_rate": 0.05, **DRIVERS[driver]}
    agent = agent_with(DQN, gym.spaces.Discrete(2), DQNConfig, affine_projection=True, **options)
    agent.update(3)
    network = agent.symbolic_update.network
    found = gains_and_offsets(agent, network)
    assert len(found) >= 2
    np.testing.assert_allclose(lengths(agent, network), 1, rtol=1e-5)
    assert max(np.abs(gain / gain[0] - 1).max() for gain, _ in found.values()) > 0.01


@pytest.mark.parametrize(
    "norm", ["batch", "renorm", *(pytest.param(norm, marks=pytest.mark.slow) for norm in ("layer", "rms"))]
)
def test_norms_of_convolutions_by_channel(norm, session):
    """d is the number of channels: gains of 3 have length 3√3, and afterwards √3."""
    image = gym.spaces.Box(0, 255, (8, 8), np.float32)
    network = conv(filters=((3, 3, 2),), dense=(4,), norm=norm)
    q = QNetwork(image, gym.spaces.Discrete(2), network=network, affine_projection=True, **STILL)
    names = [v.name.removeprefix(f"{q.scope}/").removesuffix(":0") for v in q.trainable_variables]
    shapes = {name: v.shape for name, v in zip(names, q.trainable_variables, strict=True)}
    given = {name: np.full(shape, 3.0) for name, shape in shapes.items() if name.endswith("gamma")}
    given |= {name: np.zeros(shape) for name, shape in shapes.items() if name.endswith("beta")}
    assert ("conv_norm_0/gamma" in given) == (norm != "renorm")
    found = after_a_step(session, q, given, np.ones((2, 8, 8)), np.zeros((2, 1)), np.zeros((2, 1)))
    for name in given:
        expected = 1.0 if name.endswith("gamma") else 0.0
        np.testing.assert_allclose(found[name], expected, rtol=1e-6, atol=1e-9, err_msg=name)


def test_the_mean_square_of_a_norms_outputs_is_1(session):
    """Over batch and features; the length √d means this."""
    critic = CriticNetwork(BOX, BOX, network=mlp((6,), "linear", norm="batch"), affine_projection=True)
    states, actions = np.random.default_rng(2).uniform(-1, 1, (2, 99, 2)).astype(np.float32)
    session.run(v1.global_variables_initializer())
    critic.set_network_params([4 * a if a.ndim == 1 else 9 * a for a in critic.get_network_params()])
    critic.train(states, actions, np.zeros((99, 1)))
    with observing() as seen:
        critic(tf.constant(states), tf.constant(actions), training=True)
    assert np.mean(np.square(session.run(seen.features[0]))) == pytest.approx(1, rel=1e-3)


@pytest.mark.slow
def test_networks_without_norms_are_unchanged():
    """With ``critic_norm`` alone, the actor has no gains to scale."""
    agent = agent_with(affine_projection=True, critic_norm="layer", **FAST)
    agent.update(2)
    assert gains_and_offsets(agent, agent.actor) == {}
    np.testing.assert_allclose(lengths(agent, agent.critic), 1, rtol=1e-5)


def test_targets_and_the_averaged_actor_are_not_projected():
    """The average of vectors of one length in different directions is shorter."""
    agent = agent_with(affine_projection=True, norm="layer", actor_average=3, tau=0.3, **FAST)
    agent.update(9)
    for variables in (agent.actor.target_variables, agent.symbolic_update.averaged_actor.acting_variables):
        names = [v.name for v in agent.actor.variables]
        values = dict(zip(names, agent.session.run(variables), strict=True))
        gain, offset = (values[f"{agent.actor.scope}/norm_0/{kind}:0"] for kind in ("gamma", "beta"))
        assert np.linalg.norm([gain, offset]) < np.sqrt(6) * (1 - 1e-4)


def own_norms(states, actions=None):
    """Layers with the package's norms, one used twice, and Keras's norms, one passed to ``note_affine`` and one not."""
    x = states if actions is None else tf.concat([states, actions], axis=1)
    x = tf.matmul(x, v1.get_variable("w", [int(x.shape[-1]), 4]))
    x = batch_normalization(rms_normalization(layer_normalization(x, scope="a"), scope="b"), scope="c")
    noted, other = tf.keras.layers.LayerNormalization(), tf.keras.layers.LayerNormalization()
    x = noted(other(layer_normalization(x, scope="a")))
    note_affine(noted.gamma.value, noted.beta.value)
    return x


def test_norms_in_custom_layers(session):
    critic = CriticNetwork(BOX, BOX, network=own_norms, affine_projection=True, **STILL)
    session.run(v1.global_variables_initializer())
    critic.set_network_params([5 * a + 1 if a.ndim == 1 else a for a in critic.get_network_params()])
    critic.train(np.zeros((2, 2)), np.zeros((2, 2)), np.zeros((2, 1)))
    names = [v.name.removeprefix(f"{critic.scope}/").removesuffix(":0") for v in critic.trainable_variables]
    found = dict(zip(names, critic.get_network_params(), strict=True))
    for pair in (("a/gamma", "a/beta"), ("b/gamma",), ("c/gamma", "c/beta"), ("created_2/gamma", "created_3/beta")):
        assert np.linalg.norm([found[name] for name in pair]) == pytest.approx(2, rel=1e-5), pair
    np.testing.assert_array_equal(found["created_0/gamma"], 6)
    np.testing.assert_array_equal(found["created_1/beta"], 1)


@pytest.mark.slow
def test_custom_layers_are_projected_although_the_options_name_no_norm():
    agent = agent_with(affine_projection=True, actor_network=own_norms, **FAST)
    agent.update(2)
    a, b, c = (v for scope, v in zip("abc", lengths(agent, agent.actor), strict=False))
    np.testing.assert_allclose([a, b, c], 1, rtol=1e-5)


def without_norms(states):
    return tf.matmul(states, v1.get_variable("w", [2, 4]))


def test_networks_without_any_norm_are_refused(graph):
    """In a configuration, a network, and an agent with custom layers."""
    for config in (DDPGConfig, DQNConfig):
        with refuses(UsageError, "affine_projection norm None block plain residual"):
            config(affine_projection=True)
        config(affine_projection=True, block="residual")
    with refuses(UsageError, "affine_projection"):
        DDPGConfig(affine_projection=True, norm="layer").replace(norm=None)
    for options in ({"norm": "rms"}, {"critic_norm": "renorm"}, {"norm": "layer", "critic_norm": None}):
        DDPGConfig(affine_projection=True, **options)
    with refuses(UsageError, "affine_projection critic mlp norm layer"):
        CriticNetwork(BOX, BOX, network=mlp((4,)), affine_projection=True)
    with refuses(UsageError, "affine_projection actor"):
        agent_with(affine_projection=True, norm="layer", actor_network=without_norms)


def test_bad_flags_and_arguments_of_note_affine_are_refused(graph):
    with refuses(UsageError, "affine_projection 2"):
        CriticNetwork(BOX, BOX, affine_projection=2)

    def unlike(states):
        note_affine(v1.get_variable("gamma", [3]), v1.get_variable("beta", [4]))
        return states

    def constant(states):
        note_affine(tf.ones(3))
        return states

    with refuses(UsageError, "gain 3 offset 4"):
        ActorNetwork(BOX, BOX, network=unlike)
    with refuses(UsageError, "gain tf.Variable"):
        ActorNetwork(BOX, BOX, network=constant)


def test_untrained_variables_are_not_scaled(session):
    """An offset that is not trained is not scaled. If the gain is not trained, nothing can be scaled."""

    def network(states, trained):
        gain = v1.get_variable("gain", initializer=[3.0, 4.0], trainable=trained)
        offset = v1.get_variable("offset", initializer=[1.0, 1.0], trainable=False)
        note_affine(gain, offset)
        return tf.matmul(states, v1.get_variable("w", [2, 2])) * gain + offset

    with refuses(UsageError, "affine_projection trained"):
        ActorNetwork(BOX, BOX, network=lambda states: network(states, False), affine_projection=True)
    actor = ActorNetwork(BOX, BOX, network=lambda states: network(states, True), affine_projection=True, **STILL)
    session.run(v1.global_variables_initializer())
    actor.train(np.zeros((1, 2)), np.zeros((1, 2)))
    values = {
        v.name.rpartition("/")[2]: value for v, value in zip(actor.variables, session.run(actor.variables), strict=True)
    }
    np.testing.assert_allclose(values["gain:0"], np.sqrt(2) * np.array([0.6, 0.8]), rtol=1e-6)
    np.testing.assert_array_equal(values["offset:0"], [1, 1])
