"""An update as a function of NumPy arrays: translated, scheduled, compiled."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from ddpg.native.emit import Module
from ddpg.native.engine import Compiled, machine
from ddpg.native.memory import ALIGNMENT, lay_out, tables
from ddpg.native.schedule import schedule
from ddpg.native.translate import translate


class Kernel:
    """Updates one after the other, on weights of its own.

    Args:
        metrics: scalars; fetching them in a session runs one update.
        fields: the placeholders of the minibatch, by name.
        variables: all that the update reads or writes.

    Attributes:
        values: the variables' values, in their order: views into the kernel's memory, read and written in place.

    Raises:
        NoTranslation: the update has an op, a shape or an order that this compiler does not know.
    """

    def __init__(self, metrics: Sequence[tf.Tensor], fields: Mapping[str, tf.Tensor], variables: Sequence):
        program, outputs = translate(metrics, fields, variables)
        steps = schedule(program, outputs)
        shapes = [tuple(variable.shape) for variable in variables]
        layout = lay_out(steps, outputs, [math.prod(shape) for shape in shapes])
        sizes = [(name, math.prod(placeholder.shape)) for name, placeholder in fields.items()]
        module = Module(steps, layout, sizes, outputs, machine())
        self._compiled = Compiled(module.text, pointers=len(sizes) + 2)
        self._block = _aligned(layout.size + module.scratch)
        for offset, table in tables(program, layout):
            self._block[offset : offset + table.size] = table.detail.array.ravel()
        self.values = [
            self._block[offset : offset + math.prod(shape)].reshape(shape)
            for offset, shape in zip(layout.variables, shapes, strict=True)
        ]
        self._sums = np.zeros(len(outputs), np.float32)

    def run(self, count: int, fields: Sequence[np.ndarray]) -> np.ndarray:
        """Make ``count`` ≥ 1 updates on minibatches ``[K, B, ...]``, K ≥ ``count``; return the metrics' means."""
        arrays = [np.ascontiguousarray(field, np.float32) for field in fields]
        self._sums.fill(0)
        self._compiled.run(
            count, self._block.ctypes.data, *(array.ctypes.data for array in arrays), self._sums.ctypes.data
        )
        return self._sums / np.float32(count)


def _aligned(size: int) -> np.ndarray:
    """Return zeros that begin where a cache line does."""
    block = np.zeros(size + ALIGNMENT, np.float32)
    skipped = -(block.ctypes.data // block.itemsize) % ALIGNMENT
    return block[skipped : skipped + size]
