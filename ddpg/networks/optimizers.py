"""Optimisers by name, with the settings that the field's tutorials use where a name alone does not say them."""

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from ddpg.errors import choose

train = tf.compat.v1.train

OPTIMIZERS: dict[str, Callable] = {
    "adam": train.AdamOptimizer,
    "rmsprop": train.RMSPropOptimizer,
    "sgd": train.GradientDescentOptimizer,
    "momentum": partial(train.MomentumOptimizer, momentum=0.9),
}


def with_beta1(optimizer: str | Callable, adam_beta1: float) -> str | Callable:
    """Return Adam with another decay of its first moment than 0.9; any ``optimizer`` as it is otherwise."""
    return optimizer if adam_beta1 == 0.9 else partial(train.AdamOptimizer, beta1=adam_beta1)


def make_optimizer(optimizer: str | Callable, learning_rate: tf.Variable) -> tf.compat.v1.train.Optimizer:
    """Return the optimiser of a name, or of a ``tf.compat.v1.train.Optimizer`` class, with a step size.

    Raises:
        UsageError: neither.
    """
    own = "a tf.compat.v1.train.Optimizer class"
    return choose("optimizer", optimizer, OPTIMIZERS, own)(learning_rate)
