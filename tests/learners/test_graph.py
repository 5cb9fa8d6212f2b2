"""One symbolic update under its drivers: compiled, uncompiled and step by step."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf
from conftest import relative_difference
from driven import Driven, K

from ddpg import ActorNetwork, CriticNetwork, DDPGConfig, mlp
from ddpg.config.algorithm_options import SAMPLE_NORMS
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1
# Normalisation makes some gradients zero up to rounding, which Adam would amplify to full steps.
CONFIG = DDPGConfig(
    hidden=(8,), optimizer="sgd", gamma=0.9, tau=0.1, actor_learning_rate=1e-2, critic_learning_rate=1e-2
)

driven = functools.cache(Driven)


def trained(driven, calls=(K,)):
    """Make calls of these numbers of updates from the start; return every variable, and each call's metrics."""
    driven.start()
    start = driven.session.run(driven.all_variables)
    firsts = itertools.accumulate([0, *calls])
    metrics = [driven.train(count, first) for first, count in zip(firsts, calls, strict=False)]
    end = driven.session.run(driven.all_variables)
    assert np.mean([np.any(a != b) for a, b in zip(start, end, strict=True)]) > 0.6
    return end, metrics


@pytest.mark.parametrize(
    "norm", [None, *(pytest.param(norm, marks=pytest.mark.slow) for norm in ("batch", *SAMPLE_NORMS))]
)
def test_compiled_uncompiled_and_stepped_agree(norm):
    config = CONFIG.replace(norm=norm)
    compiled, metrics = trained(driven("compiled", config))
    uncompiled, uncompiled_metrics = trained(driven("uncompiled", config))
    stepped, stepped_metrics = trained(driven("stepped", config))
    assert relative_difference(compiled, uncompiled) < 1e-5
    assert relative_difference(stepped, uncompiled) < 1e-5
    for name, value in metrics[0].items():
        assert value == pytest.approx(uncompiled_metrics[0][name], rel=1e-2, abs=1e-4)
        assert value == pytest.approx(stepped_metrics[0][name], rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("driver", ["compiled", "uncompiled"])
def test_a_call_of_fewer_updates_makes_that_many(driver):
    at_once, _ = trained(driven(driver, CONFIG))
    parts, _ = trained(driven(driver, CONFIG), (2, 1, K - 3))
    assert relative_difference(parts, at_once) < 1e-6
    fewer, _ = trained(driven(driver, CONFIG), (2, 1))
    assert relative_difference(fewer, at_once) > 1e-3


@pytest.mark.parametrize("driver", ["compiled", "uncompiled"])
def test_the_driver_decides_whether_xla_must_compile(driver):
    functions = driven(driver, CONFIG).graph.as_graph_def().library.function
    assert any(function.attr["_XlaMustCompile"].b for function in functions) == (driver == "compiled")


def test_terminated_masks_the_bootstrap_and_gamma_scales_it(observation_space, action_space, session, initialize, rng):
    from ddpg.algorithms.ddpg import td_target

    actor = ActorNetwork(observation_space, action_space, network=mlp((8,)))
    critic = CriticNetwork(observation_space, action_space, network=mlp((8,)))
    initialize()
    states = rng.normal(size=(2, 3)).astype(np.float32)
    rewards, terminated = np.array([[2.0], [3.0]], np.float32), np.array([[0.0], [1.0]], np.float32)
    batch = Batch(states, np.zeros((2, 2), np.float32), rewards, states, terminated)
    y = session.run(td_target(actor, critic, Batch(*map(tf.constant, batch)), gamma=0.5))
    next_q = critic.predict_target(states, actor.predict_target(states))
    np.testing.assert_allclose(y, [rewards[0] + 0.5 * next_q[0], rewards[1]], rtol=1e-6)
