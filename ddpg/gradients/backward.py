"""Identity ops with a custom backward pass, and the sample weights built on them.

TD paths differentiate a loss of the prediction q and the target y, and take no sample weights. So q passes through an
identity op that multiplies sample i's gradient by w_i in the backward pass. For L = 1/B Σ (q − y)² that is the gradient
of 1/B Σ w·(q − y)² with w constant.
"""

from collections.abc import Callable

import tensorflow as tf

v1 = tf.compat.v1

_NAME = "DDPGBackward"  # the registered gradient, and the graph collection of (op, backward function)


def with_backward(value: tf.Tensor, backward: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
    """Return ``value`` unchanged; the backward pass replaces its incoming gradient by ``backward(gradient)``.

    ``tf.custom_gradient`` keeps a global reference to every function and thus to its graph, which is then never freed.
    Here the graph itself keeps the functions.
    """
    graph = v1.get_default_graph()
    with graph.gradient_override_map({"IdentityN": _NAME}):
        result = tf.identity_n([value])[0]
    graph.get_collection_ref(_NAME).append((result.op.name, backward))
    return result


@tf.RegisterGradient(_NAME)
def _gradient(operation: tf.Operation, upstream: tf.Tensor) -> tf.Tensor:
    return dict(operation.graph.get_collection_ref(_NAME))[operation.name](upstream)


def weight_gradient(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return ``values`` ``[B, n]`` unchanged; the backward pass multiplies their gradient by ``weights`` ``[B, 1]``."""
    return with_backward(values, lambda gradient: gradient * weights)


def huber_weights(q: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """Return the weights ``[B, 1]`` that make mean squares twice the Huber loss: 1 / max(|δ|, 1) with δ = y − q.

    w·2(q − y) is 2(q − y) where |δ| ≤ 1 and ±2 beyond, the gradient that ``output_delta`` with ``clip_delta=1`` gives.
    """
    return 1.0 / tf.maximum(tf.abs(tf.stop_gradient(target - q)), 1.0)
