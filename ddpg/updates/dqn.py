"""One DQN update, as ops: Mnih et al. 2015, Algorithm 1, from the minibatch on; see :mod:`ddpg.updates.ddpg`."""

import dataclasses
from typing import ClassVar

import numpy as np
import tensorflow as tf

from ddpg.experience.replay import Batch
from ddpg.gradients import td
from ddpg.networks.q_network import QNetwork
from ddpg.updates.ddpg import Metrics, after_step

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class DQNUpdate:
    """The update of one Q-network, whole and in its phases.

    Args:
        network: the Q-network.
        gamma: discount factor γ.
        double_q: choose the next action by the online network, value it by the target.
        target_update_interval: updates between copies of the network into its target; 0: move the target by τ with
            every update.
    """

    network: QNetwork
    gamma: float
    double_q: bool = False
    target_update_interval: int = 0

    metrics: ClassVar[tuple[str, ...]] = ("loss", "q_value")
    action_size: ClassVar[int] = 1

    def __post_init__(self):
        if not self.target_update_interval:
            return
        # A variable of the graph, so that fused updates can count by themselves and checkpoints know where they were.
        with self.network.graph.as_default():
            count = v1.get_variable("dqn_updates", initializer=np.int64(0), trainable=False, use_resource=True)
        object.__setattr__(self, "_count", count)

    def whole(self, batch: Batch) -> Metrics:
        """Return the metrics of one whole update; fetching them runs it."""
        (metrics,) = self.steps(batch, self.target(batch))
        with tf.control_dependencies(list(metrics.values())):
            moved = self.move()
        with tf.control_dependencies([moved]):
            return {name: tf.identity(value) for name, value in metrics.items()}

    def target(self, batch: Batch) -> tf.Tensor:
        """y = r + γ(1 − terminated)·max Q′(s′, ·), ``[B, 1]``.

        With ``double_q`` (van Hasselt, Guez & Silver 2016, eq. 4) the online network chooses the action and
        the target values it: the maximum of noisy values is no longer the value of the noise. With
        ``residual_gradient`` the online network does both, so that y depends on the weights.
        """
        online = self.network.td_path.bootstraps_online
        values = self.network(batch.next_observations) if online else self.network.target(batch.next_observations)
        if self.double_q:
            chosen = tf.argmax(self.network(batch.next_observations), axis=1)[:, None]
            next_q = self.network.taken(values, chosen)
        else:
            next_q = tf.reduce_max(values, axis=1, keepdims=True)
        return batch.rewards + self.gamma * (1.0 - batch.terminated) * next_q

    def steps(self, batch: Batch, y: tf.Tensor) -> list[Metrics]:
        """Return the one optimiser step's metrics."""
        q = self.network.taken(self.network(batch.observations, training=True), batch.actions)
        metrics = {"loss": td.mean_square(q, y), "q_value": tf.reduce_mean(q)}
        return [after_step(self.network, self.network.td_gradients(q, y), metrics)]

    def move(self) -> tf.Operation:
        """Return the op that moves the target: by τ, or all the way where the interval is over."""
        if not self.target_update_interval:
            return self.network.target_update()
        count = self._count.assign_add(1, read_value=False)
        with tf.control_dependencies([count]):
            over = tf.equal(self._count.read_value() % self.target_update_interval, 0)
        return tf.cond(over, lambda: _done(self.network.target_sync()), lambda: _done(tf.no_op())).op


def _done(op: tf.Operation) -> tf.Tensor:
    with tf.control_dependencies([op]):
        return tf.constant(True)
