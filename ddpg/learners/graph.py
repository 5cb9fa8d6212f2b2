"""Learners that run an update in TensorFlow: compiled by XLA, op by op, or with one session call for each part."""

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ddpg.algorithms.base import TD_ERRORS, Update, check_metrics
from ddpg.compiler.lowering import ops_in_order
from ddpg.errors import UsageError
from ddpg.networks.own_layers import assignments, variable_of
from ddpg.replay.minibatch import Batch, stored_dtype

v1 = tf.compat.v1


class LearnerResult(NamedTuple):
    """The result of some updates.

    Attributes:
        metrics: means over the updates.
        fetched: values of the variables to fetch, after the last update.
        td_errors: |y − q| of every sample, ``[updates, B]``, if the replay is prioritised; else ``None``.
        finite: whether the weights are finite after the last update.
    """

    metrics: dict[str, float]
    fetched: list[np.ndarray]
    td_errors: np.ndarray | None
    finite: bool


class XLALearner:
    """Up to K updates in one session call, compiled by XLA.

    The loop over the minibatches ``[K, B, ...]`` is compiled too, so the session is called once. The number of updates
    is an input, so fewer than K updates use the same compiled code.

    Args:
        update: the symbolic update; its networks' graph is extended.
        batch_size: B.
        updates_per_call: K.
        fetch: variables to read after the last update, in the same call.
    """

    def __init__(self, update: Update, *, batch_size: int, updates_per_call: int, fetch: Sequence = ()):
        self.updates_per_call = updates_per_call
        self._metrics = update.metrics
        prioritised = int(update.config.prioritised is not None)
        with update.value.graph.as_default(), v1.name_scope("learner/"):
            count = v1.placeholder(tf.int32, [], name="updates")
            minibatches = placeholders(update, (updates_per_call, batch_size))

            def updates(count: tf.Tensor, *fields: tf.Tensor) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
                def one(index: tf.Tensor, sums: list[tf.Tensor], errors: list) -> tuple:
                    minibatch = Batch(**{name: f[index] for name, f in zip(minibatches.named(), fields, strict=True)})
                    made = len(v1.get_default_graph().get_operations())
                    metrics = update.update_op(as_float(minibatch))
                    check_assignments(update, made, list(metrics.values()))
                    with tf.control_dependencies(list(metrics.values())):
                        sums = [total + metrics[m] for total, m in zip(sums, update.metrics, strict=True)]
                        return index + 1, sums, [array.write(index, metrics[TD_ERRORS][:, 0]) for array in errors]

                # Each sample's TD error, if the replay is prioritised.
                errors = [tf.TensorArray(tf.float32, updates_per_call, element_shape=[batch_size])] * prioritised
                start = tf.constant(0), [tf.constant(0.0) for _ in update.metrics], errors
                _, sums, errors = tf.while_loop(lambda index, *_: index < count, one, start, parallel_iterations=1)
                return [total / tf.cast(count, tf.float32) for total in sums], [array.stack() for array in errors]

            means, errors = tf.function(updates, jit_compile=True, autograph=False)(count, *minibatches)
            with tf.control_dependencies(means):
                self._fetches = [means, [variable.read_value() for variable in fetch], errors, finite(update)]
        self._feeds = [count, *minibatches]
        self._session = None

    def update(self, session: tf.compat.v1.Session, batch: Batch, updates: int) -> LearnerResult:
        """Run ``updates`` ≤ K updates on as many minibatches, ``[updates, B, ...]``."""
        if session is not self._session:
            self._call = session.make_callable(self._fetches, feed_list=self._feeds)
            self._session = session
        minibatches = batch.padded(self.updates_per_call) if updates < self.updates_per_call else batch
        means, fetched, errors, finite = self._call(np.int32(updates), *minibatches)
        metrics = dict(zip(self._metrics, map(float, means), strict=True))
        return LearnerResult(metrics, fetched, errors[0][:updates] if errors else None, bool(finite))


class UncompiledLearner:
    """Runs each update in one session call, uncompiled; K is only the number of minibatches drawn at a time."""

    def __init__(self, update: Update, *, batch_size: int, updates_per_call: int, fetch: Sequence = ()):
        self.updates_per_call = updates_per_call
        self._metrics = update.metrics
        with update.value.graph.as_default() as graph, v1.name_scope("uncompiled_learner/"):
            made = len(graph.get_operations())
            self._batch = placeholders(update, (batch_size,))
            check_assignments(update, made, self._build(update, as_float(self._batch)))
            self._fetch = [variable.read_value() for variable in fetch], finite(update)

    def _build(self, update: Update, batch: Batch) -> list[Any]:
        """Build the update; return all tensors and ops that are run for it."""
        self._whole = update.update_op(batch)
        return list(self._whole.values())

    def _one(self, session: tf.compat.v1.Session, feeds: dict) -> dict[str, Any]:
        """Run one update and return its metrics."""
        return session.run(self._whole, feeds)

    def update(self, session: tf.compat.v1.Session, batch: Batch, updates: int) -> LearnerResult:
        """Run ``updates`` updates on as many minibatches; arguments and result as of :class:`XLALearner`."""
        totals = dict.fromkeys(self._metrics, 0.0)
        errors = []
        for index in range(updates):
            feeds = {placeholder: field[index] for placeholder, field in zip(self._batch, batch, strict=True)}
            for name, value in self._one(session, feeds).items():
                if name == TD_ERRORS:
                    errors.append(value[:, 0])
                else:
                    totals[name] += float(value)
        means = {name: total / updates for name, total in totals.items()}
        fetched, finite = session.run(self._fetch)
        return LearnerResult(means, fetched, np.stack(errors) if errors else None, bool(finite))


class SteppedLearner(UncompiledLearner):
    """Runs the parts of an update in separate session calls: target, optimiser steps, target networks.

    The target y is fetched to NumPy and fed back, as ``td_target="placeholder"`` requires.
    """

    def _build(self, update: Update, batch: Batch) -> list[Any]:
        self._target = update.target(batch)
        self._y = v1.placeholder(tf.float32, self._target.shape, name="y")
        self._steps = [step(batch, self._y) for step in update.steps]
        check_metrics(update, itertools.chain(*self._steps))
        self._moved = update.update_targets()
        return [self._target, *itertools.chain(*(step.values() for step in self._steps)), self._moved]

    def _one(self, session: tf.compat.v1.Session, feeds: dict) -> dict[str, Any]:
        feeds[self._y] = session.run(self._target, feeds)
        metrics: dict[str, Any] = {}
        for step in self._steps:
            metrics |= session.run(step, feeds)
        session.run(self._moved)
        return metrics


def check_assignments(update: Update, made: int, fetches: Sequence[Any]) -> None:
    """Refuse an update that assigns to a variable in an op that nothing waits for.

    Compiled by XLA the op would run, since it is in a ``tf.function``, but neither in a session nor in native code. The
    default graph had ``made`` ops before the update's were made; ``fetches`` are what is run for the update.

    Raises:
        UsageError: if there is such an op; the message names the variable.
    """
    run = {operation.name for operation in ops_in_order(fetches)}
    for operation in assignments(made):
        if operation.name not in run:
            raise UsageError(
                f"the update {type(update).__name__} assigns to {variable_of(operation)}, and nothing waits "
                "for that, so whether it is done would depend on the compiler; put what needs it, such as y or a "
                "metric, inside `with tf.control_dependencies([assignment]):`, and read the new value there with "
                "read_value()"
            )


def network_variables(update: Update) -> list[list[tf.Variable]]:
    """Return the variables of each trained network, without those of its target network and its optimiser."""
    return [network.variables for network, *_ in update.learning_rates]


def convolves(update: Update) -> bool:
    """Return whether a network has convolutions."""
    graph = update.value.graph
    return any(op.type.startswith(("Conv2D", "Conv3D", "DepthwiseConv2d")) for op in graph.get_operations())


def finite(update: Update) -> tf.Tensor:
    """Return whether all weights are finite, reading them when the op runs."""
    variables = [v for variables in network_variables(update) for v in variables if v.dtype.is_floating]
    weights = [variable.read_value() for variable in variables]
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(weight)) for weight in weights])


def placeholders(update: Update, lead: tuple[int, ...], float_images: bool = False) -> Batch:
    """Return placeholders for minibatches with the leading axes ``lead``, of the shapes that ``update`` reads.

    Images are bytes, as stored, or with ``float_images`` float32 too.
    """
    space = update.value.observation_space
    images = np.float32 if float_images else stored_dtype(space)

    def placeholder(name: str, shape: Sequence[int], dtype: Any = np.float32) -> tf.Tensor:
        return v1.placeholder(dtype, [*lead, *shape], name=name)

    config = update.config
    weighted = config.prioritised == "proportional"
    return Batch(
        observations=placeholder("observations", space.shape, images),
        actions=placeholder("actions", [update.action_size]),
        rewards=placeholder("rewards", [1]),
        next_observations=placeholder("next_observations", space.shape, images),
        terminated=placeholder("terminated", [1]),
        discounts=placeholder("discounts", [1]) if weighted or config.n_steps > 1 else None,
        weights=placeholder("weights", [1]) if weighted else None,
        cloning=placeholder("cloning", [1]) if getattr(config, "bc_final", 1.0) != 1 else None,
    )


def as_float(batch: Batch) -> Batch:
    """Cast a minibatch to float32 in the session: images are fed as stored, with one byte per channel of a pixel."""
    return batch.map(lambda field: tf.cast(field, tf.float32))
