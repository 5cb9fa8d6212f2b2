"""A DDPG update with its driver, randomised weights, and minibatches."""

import gymnasium as gym
import numpy as np
import tensorflow as tf

from ddpg.algorithms.registry import update_of
from ddpg.learners.graph import SteppedLearner, UncompiledLearner, XLALearner
from ddpg.learners.synced_session import SyncedSession
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1
K, B, SEED = 5, 7, 11
OBSERVATIONS = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTIONS = gym.spaces.Box(-1, 1, (2,), np.float32)


def minibatches():
    rng = np.random.default_rng(0)
    n = lambda *shape: rng.normal(size=(K, B, *shape)).astype(np.float32)  # noqa: E731
    return Batch(n(3), np.tanh(n(2)), n(1), n(3), (rng.random((K, B, 1)) < 0.3).astype(np.float32))


def learner_of(driver, update, batch_size, updates_per_call, **options):
    """Return the driver named "compiled", "uncompiled" or "stepped"."""
    kind = {"compiled": XLALearner, "uncompiled": UncompiledLearner, "stepped": SteppedLearner}[driver]
    return kind(update, batch_size=batch_size, updates_per_call=updates_per_call, **options)


class Driven:
    """A DDPG update with randomised weights and targets, compiled, uncompiled or stepped."""

    def __init__(self, driver, config):
        self.graph, self.driver = tf.Graph(), driver
        with self.graph.as_default():
            v1.set_random_seed(SEED)
            self.update = update = update_of(config).build(config, (OBSERVATIONS, ACTIONS))
            self.learner = learner_of(driver, update, B, K)
            self.networks = [update.actor, *update.critics]
            self.session = SyncedSession()
            variables = [
                moved
                for network in self.networks
                for group in (network.variables, network.target_variables)
                for moved, online in zip(group, network.variables, strict=True)
                if online.trainable
            ]
            rng = np.random.default_rng(1)
            values = [0.5 * rng.normal(size=variable.shape) for variable in variables]
            start = [v.assign(value) for v, value in zip(variables, values, strict=True)]
            self._starts = v1.global_variables_initializer(), start
            self.all_variables = v1.global_variables()

    def start(self):
        for ops in self._starts:
            self.session.run(ops)
        return self

    def weights(self):
        """Return the weights of actor and critics, and of their targets."""
        online = self.session.run([network.variables for network in self.networks])
        return online, self.session.run([network.target_variables for network in self.networks])

    def train(self, updates, first=0):
        rows = minibatches().map(lambda field: np.roll(field, -first, axis=0))
        if self.update.config.bc_final != 1:
            rows = rows.replace(cloning=np.linspace(0, 2, K * B, dtype=np.float32).reshape(K, B, 1))
        return self.learner.update(self.session, rows, updates)[0]


def difference(one, other):
    pairs = zip(tf.nest.flatten(list(one)), tf.nest.flatten(list(other)), strict=True)
    return max(np.abs(a - b).max() for a, b in pairs)
