"""What an op's translation asks of those before it."""

from typing import Protocol

import numpy as np
import tensorflow as tf

from ddpg.native.program import Program, Value


class Translation(Protocol):
    """What is translated so far; see :mod:`ddpg.native.translate`."""

    program: Program

    def value(self, tensor: tf.Tensor) -> Value:
        """Return a tensor's value; it may be smaller than the tensor where it repeats itself."""

    def whole(self, tensor: tf.Tensor) -> Value:
        """Return a tensor's value in the tensor's own shape."""

    def fixed(self, tensor: tf.Tensor) -> np.ndarray:
        """Return the value of a constant."""

    def variable(self, handle: tf.Tensor) -> int:
        """Return a variable's number."""

    def stored(self, handle: tf.Tensor) -> Value:
        """Return a variable's value after the writes so far."""
