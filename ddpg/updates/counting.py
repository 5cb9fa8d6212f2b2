"""How many updates have been made, counted inside the graph."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


class UpdateCount:
    """A variable that counts updates: fused updates can count by themselves, and checkpoints know where they were.

    An update reads it, and advances it when everything else is done.

    Args:
        name: the variable's.
    """

    def __init__(self, name: str):
        self.variable = v1.get_variable(name, initializer=np.int64(0), trainable=False, use_resource=True)

    def made(self) -> tf.Tensor:
        """Return the number of updates before the one under way, int64."""
        return self.variable.read_value()

    def every(self, interval: int, then: Callable, otherwise: Callable) -> tf.Tensor:
        """Return ``then()`` in every ``interval``-th update and ``otherwise()`` in the others: tensors of one kind.

        Only one of the two runs.
        """
        return tf.cond(tf.equal((self.made() + 1) % interval, 0), then, otherwise)

    def move(self, interval: int, step: Callable[[], tf.Operation]) -> tf.Operation:
        """Run ``step`` in every ``interval``-th update; then count the update."""
        moved = self.every(interval, lambda: _done(step()), lambda: _done(tf.no_op()))
        with tf.control_dependencies([moved]):
            return self.variable.assign_add(1, read_value=False)


def _done(op: tf.Operation) -> tf.Tensor:
    with tf.control_dependencies([op]):
        return tf.constant(True)
