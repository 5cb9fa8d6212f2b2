"""How many updates have been made, counted inside the graph, or by whoever runs it."""

import contextlib
import math
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1


class UpdateCount:
    """A variable that counts updates: fused updates can count by themselves, and checkpoints know where they were.

    An update reads it, and advances it when everything else is done. Or, built while the number is :meth:`held`, it
    does what the update of that number does, asks nothing, and leaves counting to whoever runs it.

    Args:
        name: the variable's.
    """

    def __init__(self, name: str):
        self.variable = v1.get_variable(name, initializer=np.int64(0), trainable=False, use_resource=True)
        self._held: int | None = None
        self._intervals: set[int] = set()

    @contextlib.contextmanager
    def held(self, made: int) -> Iterator[None]:
        """Build what the update after ``made`` others does."""
        self._held = made
        try:
            yield
        finally:
            self._held = None

    def due(self, made: int) -> tuple[bool, ...]:
        """Tell for every interval asked for so far, in order, whether the update after ``made`` others ends one."""
        return tuple((made + 1) % interval == 0 for interval in sorted(self._intervals))

    @property
    def firsts(self) -> list[int]:
        """The first update of each kind, by what is :meth:`due`: how many were made before it, the fewest first.

        What ends some intervals is a multiple of each, so of their least common multiple, which ends the same ones: it
        is the first of its kind. However long the intervals are, there are no more of those than sets of them.
        """
        numbers = {1}
        for interval in self._intervals:
            numbers |= {math.lcm(number, interval) for number in numbers}
        return [number - 1 for number in sorted(numbers)]

    def made(self) -> tf.Tensor:
        """Return the number of updates before the one under way, int64."""
        return self.variable.read_value()

    def every(self, interval: int, then: Callable, otherwise: Callable) -> tf.Tensor:
        """Return ``then()`` in every ``interval``-th update and ``otherwise()`` in the others: tensors of one kind.

        Only one of the two runs.
        """
        self._intervals.add(interval)
        if self._held is not None:
            return (then if (self._held + 1) % interval == 0 else otherwise)()
        return tf.cond(tf.equal((self.made() + 1) % interval, 0), then, otherwise)

    def move(self, interval: int, step: Callable[[], tf.Operation]) -> tf.Operation | tf.Tensor:
        """Run ``step`` in every ``interval``-th update; then count the update."""
        moved = self.every(interval, lambda: _done(step()), lambda: _done(tf.no_op()))
        if self._held is not None:
            return moved
        with tf.control_dependencies([moved]):
            return self.variable.assign_add(1, read_value=False)


def _done(op: tf.Operation) -> tf.Tensor:
    with tf.control_dependencies([op]):
        return tf.constant(True)
