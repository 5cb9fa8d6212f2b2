"""How much each sample counts in the critic's gradient, whatever the TD path.

A path differentiates a loss of the predictions q and the target y, and knows nothing of weights. So a weight stands
where the gradient comes back: forwards these are the identity, backwards sample i's gradient is multiplied by w_i. For
L = 1/B Σ (q − y)² that is the gradient of 1/B Σ w·(q − y)² with w a number.
"""

import tensorflow as tf

from ddpg.gradients.backward import with_backward


def weighted(values: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Return ``values`` ``[B, 1]`` as they are; a gradient that comes back is multiplied by ``weights`` ``[B, 1]``."""
    return with_backward(values, lambda gradient: gradient * weights)


def huber_weights(q: tf.Tensor, target: tf.Tensor, threshold: float = 1.0) -> tf.Tensor:
    """Return the weights that make mean squares twice the Huber loss: c / max(|δ|, c) with δ = y − q, ``[B, 1]``.

    w·2(q − y) is 2(q − y) within the threshold c and ±2c beyond, the gradient that ``output_delta`` with
    ``clip_delta`` gives.

    Args:
        q: predictions, ``[B, 1]``.
        target: y, ``[B, 1]``.
        threshold: c.
    """
    return threshold / tf.maximum(tf.abs(tf.stop_gradient(target - q)), threshold)
