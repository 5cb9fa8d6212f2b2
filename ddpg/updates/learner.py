"""Two drivers of one symbolic update: fused and compiled to train, step by step to look inside."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg.experience.replay import Batch, stored_dtype
from ddpg.updates.base import Update

v1 = tf.compat.v1


class FusedLearner:
    """Up to K updates in one session call, compiled by XLA.

    The loop around the update runs inside the compiled function, over minibatches
    ``[K, B, ...]`` that cross into the session once. The number of updates is an input, so fewer than K
    use the same compiled code.

    Args:
        update: the symbolic update; its networks' graph is extended.
        batch_size: B.
        updates_per_call: K.
        jit: compile with XLA; otherwise the same graph runs op by op.
        fetch: variables to read after the last update, in the same call.
    """

    def __init__(
        self,
        update: Update,
        *,
        batch_size: int,
        updates_per_call: int,
        jit: bool = True,
        fetch: Sequence = (),
    ):
        self.updates_per_call = updates_per_call
        self._metrics = update.metrics
        with update.value.graph.as_default(), v1.name_scope("learner/"):
            count = v1.placeholder(tf.int32, [], name="updates")
            minibatches = placeholders(update, (updates_per_call, batch_size))

            def updates(count: tf.Tensor, *fields: tf.Tensor) -> list[tf.Tensor]:
                def one(index: tf.Tensor, *sums: tf.Tensor) -> list[tf.Tensor]:
                    metrics = update.whole(_as_float(Batch(*(f[index] for f in fields))))
                    # The index waits for the update too, so that uncompiled iterations cannot overlap.
                    with tf.control_dependencies(list(metrics.values())):
                        return [
                            index + 1,
                            *(total + metrics[m] for total, m in zip(sums, update.metrics, strict=True)),
                        ]

                start = [tf.constant(0), *(tf.constant(0.0) for _ in update.metrics)]
                _, *sums = tf.while_loop(lambda index, *_: index < count, one, start, parallel_iterations=1)
                return [total / tf.cast(count, tf.float32) for total in sums]

            function = tf.function(updates, jit_compile=jit, autograph=False)
            means = function(count, *minibatches)
            with tf.control_dependencies(means):
                self._fetches = [means, [variable.read_value() for variable in fetch]]
        self._feeds = [count, *minibatches]
        self._session = None

    def update(
        self, session: tf.compat.v1.Session, batch: Batch, updates: int
    ) -> tuple[dict[str, float], list[np.ndarray]]:
        """Run ``updates`` ≤ K updates on minibatches ``[K, B, ...]``.

        Returns:
            Metrics averaged over the updates, and the values of the fetched variables afterwards.
        """
        if session is not self._session:
            self._call = session.make_callable(self._fetches, feed_list=self._feeds)
            self._session = session
        means, fetched = self._call(np.int32(updates), *batch)
        return dict(zip(self._metrics, map(float, means), strict=True)), fetched


class SteppedLearner:
    """Updates step by step, one session run each: target, optimiser steps, target networks.

    The target y crosses into NumPy and is fed back, which is what ``td_target="placeholder"`` means.
    """

    updates_per_call = 1

    def __init__(self, update: Update, *, batch_size: int, fetch: Sequence = ()):
        self._metrics = update.metrics
        with update.value.graph.as_default(), v1.name_scope("stepped_learner/"):
            self._batch = placeholders(update, (batch_size,))
            self._y = v1.placeholder(tf.float32, [batch_size, 1], name="y")
            batch = _as_float(self._batch)
            self._target = update.target(batch)
            self._steps = [step(batch, self._y) for step in update.steps]
            self._moved = update.move()
            self._fetch = [variable.read_value() for variable in fetch]

    def update(
        self, session: tf.compat.v1.Session, batch: Batch, updates: int
    ) -> tuple[dict[str, float], list[np.ndarray]]:
        """Run ``updates`` updates on minibatches ``[K, B, ...]``; returns as :meth:`FusedLearner.update`."""
        totals = dict.fromkeys(self._metrics, 0.0)
        for index in range(updates):
            feeds = {placeholder: field[index] for placeholder, field in zip(self._batch, batch, strict=True)}
            feeds[self._y] = session.run(self._target, feeds)
            for step in self._steps:
                for name, value in session.run(step, feeds).items():
                    totals[name] += float(value)
            session.run(self._moved)
        return {name: total / updates for name, total in totals.items()}, session.run(self._fetch)


def placeholders(update: Update, lead: tuple[int, ...]) -> Batch:
    """Return placeholders for minibatches with the leading axes ``lead``, in the types in which they are stored."""
    space = update.value.observation_space
    images = stored_dtype(space)

    def placeholder(name: str, shape: Sequence[int], dtype: Any = np.float32) -> tf.Tensor:
        return v1.placeholder(dtype, [*lead, *shape], name=name)

    return Batch(
        observations=placeholder("observations", space.shape, images),
        actions=placeholder("actions", [update.action_size]),
        rewards=placeholder("rewards", [1]),
        next_observations=placeholder("next_observations", space.shape, images),
        terminated=placeholder("terminated", [1]),
    )


def _as_float(batch: Batch) -> Batch:
    """Images cross into the session as they are stored, a byte a pixel, and become float32 there."""
    return Batch(*(tf.cast(field, tf.float32) for field in batch))
