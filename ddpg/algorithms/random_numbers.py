"""Random numbers for updates: the same with every compiler, number of updates per call, and interruption of the run.

TensorFlow's stateless generators give different numbers for the same seed under XLA and without it. So this module is
Threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") in integer ops that
every learner computes alike. It encrypts the index of a number, so there is no state to save.
"""

import math
from collections.abc import Sequence

import tensorflow as tf

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


def threefry(key: tuple[tf.Tensor, tf.Tensor], counter: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return two words of random bits for the two words of ``counter``; all are uint32 and broadcast."""
    keys = (*key, tf.bitwise.bitwise_xor(tf.bitwise.bitwise_xor(*key), tf.constant(_PARITY, tf.uint32)))
    left, right = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            left = left + right
            rotated = tf.bitwise.bitwise_or(
                tf.bitwise.left_shift(right, tf.constant(rotation, tf.uint32)),
                tf.bitwise.right_shift(right, tf.constant(32 - rotation, tf.uint32)),
            )
            right = tf.bitwise.bitwise_xor(rotated, left)
        left = left + keys[(block + 1) % 3]
        right = right + keys[(block + 2) % 3] + tf.constant(block + 1, tf.uint32)
    return left, right


def standard_normal(shape: Sequence[int] | tf.Tensor, seed: int, count: tf.Tensor) -> tf.Tensor:
    """Return float32 samples of N(0, 1) by Box & Muller (1958), different for each ``seed`` and ``count``.

    Args:
        shape: shape of the result, int32.
        seed: in [0, 2³²).
        count: int64, whose lower 32 bits are used; ``[K]`` counts give results ``[K, *shape]``.
    """
    size = tf.reduce_prod(shape)
    places = tf.cast(tf.range((size + 1) // 2), tf.uint32)
    key = tf.constant(seed, tf.uint32), tf.zeros([], tf.uint32)
    counts = tf.cast(count, tf.uint32)[..., tf.newaxis] + tf.zeros_like(places)
    one, other = map(_uniform, threefry(key, (places, counts)))
    radius, angle = tf.sqrt(-2.0 * tf.math.log(one)), 2.0 * math.pi * other
    normal = tf.concat([radius * tf.cos(angle), radius * tf.sin(angle)], axis=-1)
    return tf.reshape(normal[..., :size], tf.concat([tf.shape(count), shape], axis=0))


def _uniform(bits: tf.Tensor) -> tf.Tensor:
    """Return the upper 24 bits as multiples of 2⁻²⁴ in (0, 1]: float32 holds each of them exactly."""
    upper = tf.cast(tf.bitwise.right_shift(bits, tf.constant(8, tf.uint32)), tf.int32)
    return tf.cast(upper + 1, tf.float32) * 2.0**-24
