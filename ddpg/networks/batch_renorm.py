"""Batch renormalization (Ioffe 2017, arXiv 1702.03275), as CrossQ's critics use it."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from ddpg._tflearn import tflearn

v1 = tf.compat.v1

R_MAX, D_MAX, DECAY, WARM_UP, EPSILON = 3.0, 5.0, 0.99, 100_000, 1e-3  # CrossQ's
R_MIN = 1 / R_MAX
SOFT = 1.0  # as epsilon, inputs are divided by √(σ² + 1): large scales become 1, small ones stay as they are
_STAYING = "statistics_stay"  # a graph collection; while it is not empty, statistics do not move


@contextlib.contextmanager
def frozen_statistics() -> Iterator[None]:
    """Layers built inside normalise by the batch's statistics in training mode, but do not move the averages."""
    collection = v1.get_default_graph().get_collection_ref(_STAYING)
    collection.append(True)
    try:
        yield
    finally:
        collection.pop()


def batch_renormalization(
    incoming: tf.Tensor, scope: str, warm_up: int = WARM_UP, epsilon: float = EPSILON, r_min: float = R_MIN
) -> tf.Tensor:
    """Normalise ``[B, n]`` over the batch in training mode, by moving averages in inference mode.

        x̂ = (x − μ_B)/σ_B · r + d,   r = clip(σ_B/σ, r_min, 3),   d = clip((μ_B − μ)/σ, ±5)

    Returns γ·x̂ + β; in inference mode γ·(x − μ)/σ + β. r and d carry no gradient; they make both modes agree while the
    batch is not far from the averages μ and σ. During the first ``warm_up`` training steps, while the averages settle,
    r = 1 and d = 0, which is batch normalisation. For a unit that is rarely, but then strongly, active, σ_B is small
    beside σ in nearly every batch: with ``r_min`` = 0 the modes agree there too.
    Unlike tflearn's, the layer knows its mode when it is built, so that in inference mode it is an affine map that
    NumPy can mirror.
    """
    with v1.variable_scope(scope, reuse=v1.AUTO_REUSE):
        size = [int(incoming.shape[-1])]
        zeros, ones = v1.zeros_initializer(), v1.ones_initializer()
        gain, bias = v1.get_variable("gamma", size, initializer=ones), v1.get_variable("beta", size, initializer=zeros)
        mean = v1.get_variable("moving_mean", size, initializer=zeros, trainable=False)
        variance = v1.get_variable("moving_variance", size, initializer=ones, trainable=False)
        steps = v1.get_variable("steps", [], initializer=zeros, trainable=False)
    if not tf.get_static_value(tflearn.get_training_mode()):
        scale = gain * tf.math.rsqrt(tf.reshape(variance, [1, *size]) + epsilon)
        return (incoming - mean) * scale + bias
    batch_mean, batch_variance = tf.nn.moments(incoming, axes=[0])
    deviation, batch_deviation = tf.sqrt(variance + epsilon), tf.sqrt(batch_variance + epsilon)
    settled = tf.cast(steps >= warm_up, tf.float32)
    r = tf.clip_by_value(batch_deviation / deviation, r_min, R_MAX)
    d = tf.clip_by_value((batch_mean - mean) / deviation, -D_MAX, D_MAX)
    r, d = tf.stop_gradient(1 + settled * (r - 1)), tf.stop_gradient(settled * d)
    # γ·x̂ + β with all per-column factors combined first: a pass computes and stores less.
    scale, shift = gain * r / batch_deviation, gain * d + bias
    moved = []
    if not v1.get_default_graph().get_collection(_STAYING):
        with tf.control_dependencies([r, d]):  # which read what is about to move
            moved = [
                mean.assign_sub((1 - DECAY) * (mean - batch_mean), read_value=False),
                variance.assign_sub((1 - DECAY) * (variance - batch_variance), read_value=False),
                steps.assign_add(1.0, read_value=False),
            ]
    with tf.control_dependencies(moved):
        return (incoming - batch_mean) * scale + shift
