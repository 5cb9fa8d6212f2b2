"""One DDPG update, as ops: Lillicrap et al. 2015, Algorithm 1, from the minibatch on.

| symbol | shape | meaning |
|---|---|---|
| batch | [B, ...] | transitions (s, a, r, s′, terminated) from memory: :class:`ddpg.experience.replay.Batch` |
| y | [B, 1] | the TD target |
| q | [B, 1] | Q(s, a), the prediction |

The steps are separate so that two drivers can use them: run one by one in a session to look inside, or
chained (:func:`ddpg_update`) and fused into one compiled call. See :mod:`ddpg.updates.learner`.
"""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from ddpg.experience.replay import Batch
from ddpg.gradients import td
from ddpg.networks.actor import ActorNetwork
from ddpg.networks.base import Network
from ddpg.networks.critic import CriticNetwork

Metrics = dict[str, tf.Tensor]

SATURATED = 0.99  # half-ranges from the middle: there tanh passes on 2 % of its gradient


def ddpg_update(actor: ActorNetwork, critic: CriticNetwork, batch: Batch, gamma: float) -> Metrics:
    """Return the metrics of one whole update; fetching them runs it.

    The control dependencies are the algorithm: each line reads what the line before it wrote.
    """
    y = td_target(actor, critic, batch, gamma)
    critic_metrics = critic_step(critic, batch, y)
    with tf.control_dependencies(list(critic_metrics.values())):
        actor_metrics = actor_step(actor, critic, batch.observations)
    with tf.control_dependencies(list(actor_metrics.values())):
        moved = target_step(actor, critic)
    with tf.control_dependencies([moved]):
        return {name: tf.identity(value) for name, value in (critic_metrics | actor_metrics).items()}


def td_target(actor: ActorNetwork, critic: CriticNetwork, batch: Batch, gamma: float) -> tf.Tensor:
    """y = r + γ(1 − terminated)·Q′(s′, μ′(s′)), ``[B, 1]``.

    Only *terminated* masks the bootstrap: where an episode was cut by a time limit, s′ still has a
    value. μ′ is clipped to the box before Q′ sees it: a linear actor (inverting, zeroing) can stand
    outside, where Q′ was never trained and max-like errors feed themselves. ``residual_gradient`` takes
    the online networks instead: only then does y depend on the weights it differentiates for.
    """
    online = critic.td_path.bootstraps_online
    policy, value = (actor, critic) if online else (actor.target, critic.target)
    next_actions = tf.clip_by_value(policy(batch.next_observations), actor.low, actor.high)
    next_q = value(batch.next_observations, next_actions)
    return batch.rewards + gamma * (1.0 - batch.terminated) * next_q


def critic_step(critic: CriticNetwork, batch: Batch, y: tf.Tensor) -> Metrics:
    """Move Q(s, a) towards y by one optimiser step; the metrics are ready when it is done."""
    q = critic(batch.observations, batch.actions, training=True)
    metrics = {"critic_loss": td.mean_square(q, y), "q_value": tf.reduce_mean(q)}
    return after_step(critic, critic.td_gradients(q, y), metrics)


def actor_step(actor: ActorNetwork, critic: CriticNetwork, states: tf.Tensor) -> Metrics:
    """Move μ along ∇θJ by one optimiser step; only the actor's weights change.

    The second application of critic and actor, for the metrics, costs nothing compiled: XLA merges equal
    expressions.
    """
    actions = actor(states)
    gradients = critic.action_gradient(states, actions)
    metrics = {
        "actor_loss": -tf.reduce_mean(critic(states, actions)),
        "action_gradient_norm": _mean_norm(gradients),
        "bounded_gradient_norm": _mean_norm(actor.bound_action_gradient(gradients, actions)),
        "actions_outside": _share(actor, actions, beyond=1.0),
        "actions_saturated": _share(actor, actions, beyond=SATURATED),
    }
    return after_step(actor, actor.policy_gradient(actor, critic, states), metrics)


def target_step(actor: ActorNetwork, critic: CriticNetwork) -> tf.Operation:
    """Move both targets by τ: θ′ ← τθ + (1 − τ)θ′."""
    return tf.group(actor.target_update(), critic.target_update())


def _mean_norm(gradients: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.norm(gradients, axis=1))


def _share(actor: ActorNetwork, actions: tf.Tensor, beyond: float) -> tf.Tensor:
    """Return the share of the numbers in ``actions`` more than ``beyond`` half-ranges from the middle."""
    distance = tf.abs(actions - (actor.high + actor.low) / 2) / ((actor.high - actor.low) / 2)
    return tf.reduce_mean(tf.cast(distance > beyond, tf.float32))


def after_step(network: Network, gradients: list, metrics: Metrics) -> Metrics:
    """Apply ``gradients``; return ``metrics``, taken before the step, in a form that waits for it."""
    with tf.control_dependencies(list(metrics.values())):
        step = network.apply_gradients(gradients)
    with tf.control_dependencies([step]):
        return {name: tf.identity(value) for name, value in metrics.items()}


@dataclasses.dataclass(frozen=True)
class DDPGUpdate:
    """The update of one actor and critic, whole and in its phases: what a driver needs to know."""

    actor: ActorNetwork
    critic: CriticNetwork
    gamma: float

    metrics: ClassVar[tuple[str, ...]] = (
        "critic_loss",
        "q_value",
        "actor_loss",
        "action_gradient_norm",
        "bounded_gradient_norm",
        "actions_outside",
        "actions_saturated",
    )

    @property
    def network(self) -> CriticNetwork:
        """The network with the TD path."""
        return self.critic

    @property
    def action_size(self) -> int:
        """A: numbers in a stored action."""
        return self.critic.action_size

    def whole(self, batch: Batch) -> Metrics:
        """See :func:`ddpg_update`."""
        return ddpg_update(self.actor, self.critic, batch, self.gamma)

    def target(self, batch: Batch) -> tf.Tensor:
        """See :func:`td_target`."""
        return td_target(self.actor, self.critic, batch, self.gamma)

    def steps(self, batch: Batch, y: tf.Tensor) -> list[Metrics]:
        """Return the optimiser steps' metrics; fetching one after the other takes the steps."""
        return [critic_step(self.critic, batch, y), actor_step(self.actor, self.critic, batch.observations)]

    def move(self) -> tf.Operation:
        """See :func:`target_step`."""
        return target_step(self.actor, self.critic)
