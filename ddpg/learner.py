"""Two drivers of one symbolic update: fused and compiled to train, step by step to look inside."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ddpg import update
from ddpg.networks.actor import ActorNetwork
from ddpg.networks.critic import CriticNetwork
from ddpg.replay import Batch

v1 = tf.compat.v1

METRICS = ("critic_loss", "q_value", "actor_loss", "action_gradient_norm")


class FusedLearner:
    """Up to K updates in one session call, compiled by XLA.

    The loop around :func:`ddpg.update.ddpg_update` runs inside the compiled function, over minibatches
    ``[K, B, ...]`` that cross into the session once. The number of updates is an input, so fewer than K
    use the same compiled code.

    Args:
        actor: the policy, built in the graph this learner extends.
        critic: its action-value function.
        gamma: discount factor γ.
        batch_size: B.
        updates_per_call: K.
        jit: compile with XLA; otherwise the same graph runs op by op.
        fetch: variables to read after the last update, in the same call.
    """

    def __init__(
        self,
        actor: ActorNetwork,
        critic: CriticNetwork,
        *,
        gamma: float,
        batch_size: int,
        updates_per_call: int,
        jit: bool = True,
        fetch: Sequence = (),
    ):
        self.updates_per_call = updates_per_call
        with actor.graph.as_default(), v1.name_scope("learner/"):
            count = v1.placeholder(tf.int32, [], name="updates")
            minibatches = _placeholders(actor, critic, (updates_per_call, batch_size))

            def updates(count: tf.Tensor, *fields: tf.Tensor) -> list[tf.Tensor]:
                def one(index: tf.Tensor, *sums: tf.Tensor) -> list[tf.Tensor]:
                    metrics = update.ddpg_update(actor, critic, Batch(*(f[index] for f in fields)), gamma)
                    # The index waits for the update too, so that uncompiled iterations cannot overlap.
                    with tf.control_dependencies(list(metrics.values())):
                        return [
                            index + 1,
                            *(total + metrics[m] for total, m in zip(sums, METRICS, strict=True)),
                        ]

                start = [tf.constant(0), *(tf.constant(0.0) for _ in METRICS)]
                _, *sums = tf.while_loop(lambda index, *_: index < count, one, start, parallel_iterations=1)
                return [total / tf.cast(count, tf.float32) for total in sums]

            function = tf.function(updates, jit_compile=jit, autograph=False)
            means = function(count, *minibatches)
            with tf.control_dependencies(means):
                self._fetches = [means, [variable.read_value() for variable in fetch]]
        self._feeds = [count, *minibatches]
        self._session = None

    def update(self, session: v1.Session, batch: Batch, updates: int) -> tuple[dict[str, float], list[np.ndarray]]:
        """Run ``updates`` ≤ K updates on minibatches ``[K, B, ...]``.

        Returns:
            Metrics averaged over the updates, and the values of the fetched variables afterwards.
        """
        if session is not self._session:
            self._call = session.make_callable(self._fetches, feed_list=self._feeds)
            self._session = session
        means, fetched = self._call(np.int32(updates), *batch)
        return dict(zip(METRICS, map(float, means), strict=True)), fetched


class SteppedLearner:
    """Updates step by step, one session run each: target, critic, actor, EMA.

    The target y crosses into NumPy and is fed back, which is what ``td_target="placeholder"`` means.
    """

    updates_per_call = 1

    def __init__(
        self,
        actor: ActorNetwork,
        critic: CriticNetwork,
        *,
        gamma: float,
        batch_size: int,
        fetch: Sequence = (),
    ):
        with actor.graph.as_default(), v1.name_scope("stepped_learner/"):
            self._batch = _placeholders(actor, critic, (batch_size,))
            self._y = v1.placeholder(tf.float32, [batch_size, 1], name="y")
            self._target = update.td_target(actor, critic, self._batch, gamma)
            self._critic = update.critic_step(critic, self._batch, self._y)
            self._actor = update.actor_step(actor, critic, self._batch.observations)
            self._moved = update.target_step(actor, critic)
            self._fetch = [variable.read_value() for variable in fetch]

    def update(self, session: v1.Session, batch: Batch, updates: int) -> tuple[dict[str, float], list[np.ndarray]]:
        """Run ``updates`` updates on minibatches ``[K, B, ...]``; returns as :meth:`FusedLearner.update`."""
        totals = dict.fromkeys(METRICS, 0.0)
        for index in range(updates):
            feeds = {placeholder: field[index] for placeholder, field in zip(self._batch, batch, strict=True)}
            y = session.run(self._target, feeds)
            metrics = session.run(self._critic, feeds | {self._y: y})
            metrics |= session.run(self._actor, feeds)
            session.run(self._moved)
            totals = {name: totals[name] + float(metrics[name]) for name in METRICS}
        return {name: total / updates for name, total in totals.items()}, session.run(self._fetch)


def _placeholders(actor: ActorNetwork, critic: CriticNetwork, lead: tuple[int, ...]) -> Batch:
    observation, action = actor.observation_space.shape, (critic.action_size,)
    shapes = Batch(observation, action, (1,), observation, (1,))
    return Batch(
        *(
            v1.placeholder(tf.float32, [*lead, *shape], name=name)
            for name, shape in zip(Batch._fields, shapes, strict=True)
        )
    )
