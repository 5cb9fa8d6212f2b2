"""The native driver computes the results of the uncompiled graph; the session and the agent see its weights."""

import itertools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agents_by_driver import filled
from conftest import assert_close
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.algorithms.td3 import TD3Update
from ddpg.compiler import jit
from ddpg.learners.graph import XLALearner
from ddpg.learners.native import NativeLearner

SPACES = (gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Box(np.float32([-2, 0]), np.float32([2, 1])))
ONE_LAYER = {"hidden": (10,)}  # compiles in half the time; "plain" and others have two layers
OPTIONS = {
    "plain": {},
    "layer norm and tanh": {"norm": "layer", "activation": "tanh"},
    "rms norm": {"norm": "rms", "activation": "elu"},
    "inverting, rmsprop": {"bounding": "inverting", "optimizer": "rmsprop", "action_gradient_clip": 0.1},
    "surrogate, output delta, momentum": {
        "policy_gradient": "surrogate",
        "td_target": "output_delta",
        "clip_delta": 0.5,
        "optimizer": "momentum",
    },
    "direct, zeroing, sgd, online": {
        "policy_gradient": "direct",
        "bounding": "zeroing",
        "optimizer": "sgd",
        "target": "online",
    },
    "residual gradient": {"td_target": "residual_gradient", "action_layer": 1},
    "td3": {
        **{"n_critics": 2, "policy_delay": 2, "target_policy_noise": 0.4, "target_noise_clip": 0.3},
        **ONE_LAYER,
    },
    "crossq": {"target": "none", "norm": "renorm", "target_policy_noise": 0.2, "optimizer": "sgd"},
    "norm before the activation": {"target": "none", "norm": "renorm_preactivation", "optimizer": "sgd"},
    "joint pass of averages": {"target": "joint_ema", "norm": "renorm", "optimizer": "sgd", **ONE_LAYER},
    "crossq, categorical": {
        **{"target": "none", "norm": "renorm", "critic": "categorical", "atoms": 7, "optimizer": "sgd"},
        **ONE_LAYER,
    },
    "lap, n steps": {"prioritised": "lap", "n_steps": 3},
    "clipped, softplus": {"max_gradient_norm": 0.01, "activation": "softplus", "optimizer": "momentum"},
    "all terms, averaged actor": {
        **{"critic_loss": "huber", "pre_activation_penalty": 0.1, "adam_beta1": 0.5, "max_gradient_norm": 0.5},
        "weight_decay": 0.1,
        "policy_delay": 2,
        "critic_l2": 0.01,
        "actor_average": 5,
    },
    "td3+bc": {"bc_alpha": 2.5},
    "cloning alone": {"bc_only": True},
    "projections": {"weight_projection": True, "affine_projection": True, "norm": "rms", "critic_norm": "layer"}
    | ONE_LAYER,
    "distributional": {"critic": "distributional", "atoms": 7, "n_critics": 2, "n_steps": 2, **ONE_LAYER},
    "batch norm, sgd": {"norm": "batch", "optimizer": "sgd", **ONE_LAYER},  # Adam amplifies rounding, see test_crossq
}


# Slow; the other options cover what these test.
LONG = (
    *(
        "plain",
        "inverting, rmsprop",
        "direct, zeroing, sgd, online",
        "crossq",
        "norm before the activation",
        "lap, n steps",
    ),
    *(
        "crossq, categorical",
        "batch norm, sgd",
        "layer norm and tanh",
        "all terms, averaged actor",
        "rms norm",
        "td3+bc",
    ),
    *("clipped, softplus", "residual gradient", "surrogate, output delta, momentum", "cloning alone"),
    *("projections", "distributional", "joint pass of averages"),
)


def agent_with(**options):
    """An agent with 40 transitions in memory."""
    small = {"hidden": (10, 9), "batch_size": 11, "updates_per_call": 4, "tau": 0.1}
    return filled(DDPG(SPACES, DDPGConfig(**small | options), seed=0), 40)


def weights(agent):
    return agent.session.run(list(agent.global_variables.values()))


@pytest.mark.parametrize(
    "options", [pytest.param(OPTIONS[name], id=name, marks=[pytest.mark.slow] * (name in LONG)) for name in OPTIONS]
)
def test_the_results_are_those_of_the_uncompiled_graph(options):
    native, plain = agent_with(**options, compiler="native"), agent_with(**options, jit=False)
    metrics, expected = native.update(6), plain.update(6)
    assert isinstance(native.updater.learner, NativeLearner)
    for name, value in expected.items():
        assert metrics[name] == pytest.approx(value, rel=1e-4, abs=1e-6)
    assert_close(weights(native), weights(plain), rtol=1e-3, atol=2e-5)


@pytest.fixture(scope="module")
def agent():
    return agent_with(compiler="native", threads=1, **ONE_LAYER)


@pytest.fixture(scope="module")
def delayed():
    """An agent whose actor moves in every second update; each test makes an even number."""
    return agent_with(compiler="native", policy_delay=2, **ONE_LAYER)


def test_the_session_reads_the_updated_weights(agent):
    before = weights(agent)
    agent.update(3)
    after = weights(agent)
    assert any((one != other).any() for one, other in zip(before, after, strict=True))
    with agent.session.as_default():
        np.testing.assert_allclose(
            agent.policy(np.ones((1, 3), np.float32)), agent.actor.predict(np.ones((1, 3))), rtol=1e-5
        )


def test_weights_set_in_the_session_are_used(agent):
    agent.update(1)
    with agent.session.as_default():
        agent.critic.set_network_params([np.zeros_like(array) for array in agent.critic.get_network_params()])
    assert agent.update(1)["q_value"] == 0
    assert agent.update(1)["q_value"] != 0


def test_a_learning_rate_is_set_before_and_after_the_session_reads_the_weights(agent):
    agent.update(1)
    for here in (True, False):
        if not here:
            weights(agent)
        agent.scale_learning_rates(1e-12)
        before = agent.policy(np.ones((1, 3), np.float32))
        agent.update(2)
        np.testing.assert_allclose(agent.policy(np.ones((1, 3), np.float32)), before, atol=1e-7)
    agent.scale_learning_rates(1.0)


def test_the_session_reads_a_learning_rate_that_was_set():
    agent = agent_with(compiler="native", threads=1, **ONE_LAYER)  # the session has not read anything yet
    agent.update(1)
    agent.scale_learning_rates(0.5)
    rates = [(network.learning_rate, rate) for network, rate, _ in agent.symbolic_update.learning_rates]
    found = agent.session.run([variable for variable, _ in rates])
    np.testing.assert_allclose(found, [0.5 * rate for _, rate in rates], rtol=1e-6)


def test_the_session_reads_the_number_of_updates(delayed):
    """With a delay of 2 the actor moves in updates 2 and 4, also if the session reads the count in between."""
    agent = delayed
    count, actors = agent.symbolic_update.count.variable, [agent.policy(np.ones((1, 3), np.float32))]
    start = agent.num_updates
    for made in range(4):
        assert agent.session.run(count) == start + made
        agent.update(1)
        actors.append(agent.policy(np.ones((1, 3), np.float32)))
    moved = [(one != other).any() for one, other in itertools.pairwise(actors)]
    assert moved == [False, True, False, True]


def test_an_update_that_depends_on_its_number_is_compiled_once_per_kind(monkeypatch):
    step = TD3Update.critic_step

    def varying(self, batch, y):
        number = self.count.every(2, lambda: tf.constant(7.0), lambda: tf.constant(5.0))
        return step(self, batch, y) | {"critic_loss": number}

    monkeypatch.setattr(TD3Update, "critic_step", varying)
    agent = agent_with(policy_delay=3, compiler="native", hidden=(4,), optimizer="sgd")
    assert [agent.update()["critic_loss"] for _ in range(6)] == [5, 7, 5, 7, 5, 7]


def test_a_loaded_agent_makes_the_same_updates_as_the_saved_one(delayed, tmp_path):
    """With a delay of 2 the actor moves in the second update, although another agent made the first."""
    agent = delayed
    agent.update(1)
    loaded = DDPG.load(agent.save(tmp_path / "checkpoint"))
    before = loaded.policy(np.ones((1, 3), np.float32))
    loaded.update(1)
    assert (loaded.policy(np.ones((1, 3), np.float32)) != before).any()
    agent.update(1)
    agent.update(4), loaded.update(4)
    np.testing.assert_equal(weights(agent), weights(loaded))


def test_an_update_by_several_threads(agent):
    """Sums are in another order, so the last bits may differ."""
    one, shared = agent, agent_with(compiler="native", threads=3, **ONE_LAYER)
    shared.set_parameters(one.get_parameters())
    shared.generators["replay"].bit_generator.state = one.generators["replay"].bit_generator.state
    one.update(5), shared.update(5)
    assert [agent.updater.learner.workers for agent in (one, shared)] == [1, 3]
    assert_close(weights(one), weights(shared), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_xla_compiles_what_cannot_be_translated():
    agent = agent_with(activation=tf.sin)
    assert isinstance(agent.updater.learner, XLALearner)
    with refuses(UsageError, "compiler native Sin"):
        agent_with(activation=tf.sin, compiler="native").update()
    assert isinstance(agent_with(compiler="xla").updater.learner, XLALearner)


def test_divergence_raises():
    agent = agent_with(critic_learning_rate=1e30, compiler="native", threads=1, **ONE_LAYER)
    with refuses(FloatingPointError, "diverged"):
        agent.update(20)


# test_llvm_failures raises a RuntimeError of two lines, in every stage, and makes no updates.
@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [RuntimeError("LLVM IR parsing error\n<string>:1:1: error: expected type"), OSError(8)]
)
def test_if_llvm_fails_xla_takes_over_with_one_line(error, monkeypatch, capsys):
    """Like llvmlite 0.44, which does not parse opaque pointers."""

    def refuse(text):
        raise error

    jit.compile_module.cache_clear()
    monkeypatch.setattr(jit._llvm(), "parse_assembly", refuse)
    config = DDPGConfig(hidden=(4,), batch_size=4, learning_starts=4, updates_per_call=4)
    agent = DDPG(gym.make("Pendulum-v1"), config, seed=0)
    agent.learn(8)
    assert agent.num_updates > 0
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert type(error).__name__ in message
    assert "XLA" in message
