"""One symbolic update under its drivers: compiled, uncompiled and step by step."""

import functools
import itertools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from conftest import relative_difference
from driven import learner_of

from ddpg import ActorNetwork, CriticNetwork, DDPGConfig, mlp
from ddpg.algorithms.ddpg import DDPGUpdate
from ddpg.config.algorithm_options import SAMPLE_NORMS
from ddpg.learners.graph import SteppedLearner, XLALearner
from ddpg.learners.synced_session import SyncedSession
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1
K, B = 6, 16
CONFIG = DDPGConfig(gamma=0.9)
OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = gym.spaces.Box(np.array([-1.0, 0.5], np.float32), np.array([3.0, 1.0], np.float32))


def minibatches(rng):
    n = lambda *shape: rng.normal(size=(K, B, *shape)).astype(np.float32)  # noqa: E731
    return Batch(n(3), n(2), n(1), n(3), (rng.random((K, B, 1)) < 0.3).astype(np.float32))


class Networks:
    """Networks and their update, in their own graph."""

    def __init__(self, norm=None, td_target="stop_gradient"):
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.session = SyncedSession()
            v1.set_random_seed(1)
            # Normalisation makes some gradients zero up to rounding, which Adam would amplify to full steps.
            optimizer = v1.train.GradientDescentOptimizer if norm else v1.train.AdamOptimizer
            network = mlp((8,) if norm else (16, 8), norm=norm)
            options = {"network": network, "optimizer": optimizer, "learning_rate": 1e-2, "tau": 0.1}
            actor = ActorNetwork(OBSERVATIONS, ACTIONS, **options)
            critic = CriticNetwork(OBSERVATIONS, ACTIONS, td_target=td_target, **options)
            self.update = DDPGUpdate(actor, critic, CONFIG)
            self.variables = v1.global_variables()
            self.session.run(v1.global_variables_initializer())
            self.start = self.session.run(self.variables)


class Driven:
    """A driver of the networks' update."""

    def __init__(self, driver, networks):
        self.networks = networks
        self.learner = learner_of(driver, networks.update, B, K)

    def train(self, calls):
        """Make calls of these numbers of updates from the start; return every variable, and each call's metrics."""
        networks = self.networks
        with networks.graph.as_default(), networks.session.as_default() as session:
            initializers = [variable.initializer for variable in networks.variables]
            session.run(
                initializers, {i.inputs[1]: value for i, value in zip(initializers, networks.start, strict=True)}
            )
            batch, metrics = minibatches(np.random.default_rng(0)), []
            for first, count in zip(itertools.accumulate([0, *calls]), calls, strict=False):
                rows = Batch(*(np.roll(field, -first, axis=0) for field in batch))
                metrics.append(self.learner.update(session, rows, count)[0])
            end = session.run(networks.variables)
        moved = np.mean([np.any(a != b) for a, b in zip(networks.start, end, strict=True)])
        assert moved > 0.6
        return end, metrics


networks = functools.cache(Networks)


@functools.cache
def driven(driver, norm):
    """Return a driver of the same networks as the other drivers."""
    return Driven(driver, networks(norm))


@pytest.mark.parametrize(
    "norm", [None, *(pytest.param(norm, marks=pytest.mark.slow) for norm in ("batch", *SAMPLE_NORMS))]
)
def test_compiled_uncompiled_and_stepped_agree(norm):
    compiled, metrics = driven("compiled", norm).train([K])
    uncompiled, uncompiled_metrics = driven("uncompiled", norm).train([K])
    stepped, stepped_metrics = driven("stepped", norm).train([K])
    assert relative_difference(compiled, uncompiled) < 1e-5
    assert relative_difference(stepped, uncompiled) < 1e-5
    for name, value in metrics[0].items():
        assert value == pytest.approx(uncompiled_metrics[0][name], rel=1e-2, abs=1e-4)
        assert value == pytest.approx(stepped_metrics[0][name], rel=1e-2, abs=1e-4)


@pytest.mark.parametrize("driver", ["compiled", "uncompiled"])
def test_a_call_of_fewer_updates_makes_that_many(driver):
    at_once, _ = driven(driver, None).train([K])
    parts, _ = driven(driver, None).train([2, 1, K - 3])
    assert relative_difference(parts, at_once) < 1e-6
    fewer, _ = driven(driver, None).train([2, 1])
    assert relative_difference(fewer, at_once) > 1e-3


def test_placeholder_path_gives_the_same_results_step_by_step():
    stopped, _ = driven("stepped", None).train([K])
    placeholder, _ = Driven("stepped", Networks(td_target="placeholder")).train([K])
    for one, other in zip(placeholder, stopped, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_equal_starts_give_equal_bits():
    one, _ = driven("compiled", None).train([K, K])
    other, _ = Driven("compiled", Networks()).train([K, K])
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("driver", ["compiled", "uncompiled"])
def test_the_driver_decides_whether_xla_must_compile(driver, observation_space, action_space, graph):
    actor = ActorNetwork(observation_space, action_space, network=mlp((8,)))
    critic = CriticNetwork(observation_space, action_space, network=mlp((8,)))
    learner_of(driver, DDPGUpdate(actor, critic, CONFIG), 4, 2)
    functions = graph.as_graph_def().library.function
    assert any(function.attr["_XlaMustCompile"].b for function in functions) == (driver == "compiled")


def test_fused_learner_creates_no_variable(observation_space, action_space, graph):
    actor = ActorNetwork(observation_space, action_space, network=mlp((8,), norm="batch"))
    critic = CriticNetwork(observation_space, action_space, network=mlp((8,), norm="batch"))
    count = len(v1.global_variables())
    XLALearner(DDPGUpdate(actor, critic, CONFIG), batch_size=4, updates_per_call=2)
    SteppedLearner(DDPGUpdate(actor, critic, CONFIG), batch_size=4)
    assert len(v1.global_variables()) == count


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
