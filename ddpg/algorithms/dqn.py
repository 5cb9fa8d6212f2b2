"""One DQN update as TensorFlow ops: Algorithm 1 of Mnih et al. 2015 after the minibatch is drawn.

:mod:`ddpg.algorithms.ddpg` lists the symbols and shapes.
"""

import dataclasses
from typing import Any, ClassVar

import tensorflow as tf

from ddpg.algorithms.base import (
    Metrics,
    OptimizerSpec,
    OptimizerStep,
    Spaces,
    Update,
    UpdateCounter,
    apply_and_report,
    bootstrap,
    network_options,
    td_errors,
    weight_samples,
)
from ddpg.config.algorithm_options import DQNConfig
from ddpg.networks.layers import hidden_layers
from ddpg.networks.own_layers import own_layers
from ddpg.networks.q_network import QNetwork
from ddpg.replay.minibatch import Batch


@dataclasses.dataclass(frozen=True)
class DQNUpdate(Update):
    """The update of one Q-network by the options in ``config``."""

    network: QNetwork
    config: DQNConfig

    metrics: ClassVar[tuple[str, ...]] = ("loss", "q_value")

    _count: UpdateCounter | None = dataclasses.field(init=False, default=None)

    def __post_init__(self):
        if self.config.target_update_interval:
            with self.network.graph.as_default():
                object.__setattr__(self, "_count", UpdateCounter("dqn_updates"))

    @classmethod
    def build(cls, config: Any, spaces: Spaces) -> "DQNUpdate":
        """See :meth:`Update.build`."""
        supplied = hidden_layers(config, spaces[0], config.hidden, config.norm)
        network = QNetwork(
            *spaces,
            network=own_layers("q_network", config.q_network) or supplied,
            td_target=config.td_target,
            learning_rate=config.learning_rate,
            clip_delta=config.clip_delta,
            loss=config.critic_loss,
            masked=config.action_mask,
            **network_options(config, "q_network"),
        )
        return cls(network, config)

    @property
    def policy(self) -> QNetwork:
        """The Q-network; the policy takes the action with the largest value."""
        return self.network

    @property
    def count(self) -> UpdateCounter | None:
        """See :attr:`ddpg.algorithms.base.Update.count`."""
        return self._count

    @property
    def value(self) -> QNetwork:
        """The Q-network."""
        return self.network

    @property
    def learning_rates(self) -> list[OptimizerSpec]:
        """The learning rate of the Q-network."""
        return [OptimizerSpec(self.network, self.config.learning_rate, self.config.learning_rate_schedule)]

    @property
    def action_size(self) -> int:
        """1: an action is stored as its index."""
        return 1

    @property
    def target_reads_online(self) -> bool:
        """See :attr:`ddpg.algorithms.base.Update.target_reads_online`."""
        return self._online or self.config.double_q

    @property
    def _online(self) -> bool:
        return self.network.td_path.bootstraps_online or self.config.target == "online"

    @property
    def steps(self) -> list[OptimizerStep]:
        """The only optimiser step."""
        return [self.step]

    def target(self, batch: Batch) -> tf.Tensor:
        """y = r + γ(1 − terminated)·max Q′(s′, ·), ``[B, 1]``.

        With ``double_q`` (van Hasselt, Guez & Silver 2016, eq. 4) the online network chooses the action and
        the target network evaluates it, which counters the upward bias of a maximum over noisy values. With
        ``residual_gradient`` the online network does both, so that y depends on the weights. With
        ``target="online"`` it does both too, as DQN 3.0 without ``target_q``, but no gradient flows through y.
        """
        values = (self.network if self._online else self.network.target)(batch.next_observations)
        if self.config.double_q:
            chosen = tf.expand_dims(tf.argmax(self.network(batch.next_observations), axis=1), 1)
            next_q = self.network.taken(values, chosen)
        else:
            next_q = tf.reduce_max(values, axis=1, keepdims=True)
        return bootstrap(batch, self.config.discount, next_q)

    def step(self, batch: Batch, y: tf.Tensor) -> Metrics:
        """Move the taken actions' values towards y by one optimiser step."""
        prediction = self.network.prediction(batch.observations, batch.actions)
        q, prioritised = prediction.q, self.config.prioritised
        metrics = {"loss": self.network.td_path.loss(q, y), "q_value": tf.reduce_mean(q)}
        gradients = self.network.td_gradients(*weight_samples(self.network, batch, prediction, y, prioritised))
        return apply_and_report(self.network, gradients, metrics | td_errors(q, y, prioritised))

    def update_targets(self) -> tf.Operation:
        """Return the op that moves the target network by τ, or copies the online one at the configured interval."""
        if self.config.target == "online":
            return tf.no_op()
        if self._count is None:
            return self.network.target_update()
        return self._count.advance(self.config.target_update_interval, self.network.target_sync)
