"""One DQN update, as ops: Mnih et al. 2015, Algorithm 1, from the minibatch on; see :mod:`ddpg.updates.ddpg`."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from ddpg.config import DQNConfig
from ddpg.experience.replay import Batch
from ddpg.gradients import td
from ddpg.networks.base import Network
from ddpg.networks.layers import conv, mlp
from ddpg.networks.q_network import QNetwork
from ddpg.updates.base import Metrics, Spaces, Step, Update, after_step, bootstrapped
from ddpg.updates.emphasis import emphasised, td_errors

v1 = tf.compat.v1


@dataclasses.dataclass
class DQNUpdate(Update):
    """The update of one Q-network.

    Args:
        network: the Q-network.
        config: the options: γ, the networks of y, the step size.
    """

    network: QNetwork
    config: DQNConfig

    metrics: ClassVar[tuple[str, ...]] = ("loss", "q_value")

    _count: tf.Variable | None = dataclasses.field(init=False, default=None)

    def __post_init__(self):
        if not self.config.target_update_interval:
            return
        # A variable of the graph, so that fused updates can count by themselves and checkpoints know where they were.
        with self.network.graph.as_default():
            self._count = v1.get_variable("dqn_updates", initializer=np.int64(0), trainable=False, use_resource=True)

    @classmethod
    def build(cls, config: Any, spaces: Spaces, networks: Mapping[str, Callable | None]) -> "DQNUpdate":
        """See :meth:`Update.build`; ``networks`` is ``q_network``."""
        if config.network == "conv":
            supplied = conv(dense=config.hidden, activation=config.activation, norm=config.norm)
        else:
            supplied = mlp(config.hidden, config.activation, config.norm)
        network = QNetwork(
            *spaces,
            network=networks["q_network"] or supplied,
            td_target=config.td_target,
            optimizer=config.optimizer,
            learning_rate=config.learning_rate,
            tau=config.tau,
            clip_delta=config.clip_delta,
        )
        return cls(network, config)

    @property
    def policy(self) -> QNetwork:
        """The Q-network: the largest of its values acts."""
        return self.network

    @property
    def value(self) -> QNetwork:
        """The Q-network."""
        return self.network

    @property
    def learning_rates(self) -> list[tuple[Network, float]]:
        """The Q-network's."""
        return [(self.network, self.config.learning_rate)]

    @property
    def action_size(self) -> int:
        """1: the number of the action taken."""
        return 1

    @property
    def steps(self) -> list[Step]:
        """The one step."""
        return [self.step]

    def target(self, batch: Batch) -> tf.Tensor:
        """y = r + γ(1 − terminated)·max Q′(s′, ·), ``[B, 1]``.

        With ``double_q`` (van Hasselt, Guez & Silver 2016, eq. 4) the online network chooses the action and
        the target values it: the maximum of noisy values is no longer the value of the noise. With
        ``residual_gradient`` the online network does both, so that y depends on the weights; with
        ``target="online"`` too, as DQN 3.0 does without its ``target_q``, and y is stopped like any other.
        """
        online = self.network.td_path.bootstraps_online or self.config.target == "online"
        values = self.network(batch.next_observations) if online else self.network.target(batch.next_observations)
        if self.config.double_q:
            chosen = tf.argmax(self.network(batch.next_observations), axis=1)[:, None]
            next_q = self.network.taken(values, chosen)
        else:
            next_q = tf.reduce_max(values, axis=1, keepdims=True)
        return bootstrapped(batch, self.config.gamma, next_q)

    def step(self, batch: Batch, y: tf.Tensor) -> Metrics:
        """Move the taken actions' values towards y by one optimiser step."""
        q = self.network.taken(self.network(batch.observations, training=True), batch.actions)
        prioritised = self.config.prioritised
        metrics = {"loss": td.mean_square(q, y), "q_value": tf.reduce_mean(q)} | td_errors(q, y, prioritised)
        gradients = self.network.td_gradients(*emphasised(self.network, batch, q, y, prioritised))
        return after_step(self.network, gradients, metrics)

    def move(self) -> tf.Operation:
        """Return the op that moves the target: by τ, or all the way where the interval is over."""
        if self.config.target == "online":
            return tf.no_op()
        if self._count is None:
            return self.network.target_update()
        count = self._count.assign_add(1, read_value=False)
        with tf.control_dependencies([count]):
            over = tf.equal(self._count.read_value() % self.config.target_update_interval, 0)
        return tf.cond(over, lambda: _done(self.network.target_sync()), lambda: _done(tf.no_op())).op


def _done(op: tf.Operation) -> tf.Tensor:
    with tf.control_dependencies([op]):
        return tf.constant(True)
