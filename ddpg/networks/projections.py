"""Scale variables back to a fixed length after every step of the optimiser: weights, and the gains of norms.

Weights into a unit: SimbaV2 (Lee et al. 2025, arXiv 2502.15280). Gains and offsets: FlashSAC (arXiv 2604.04539).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from ddpg.errors import UsageError, brief
from ddpg.networks.observer import observed

SHORTEST = 1e-12  # a smaller length counts as this one, to avoid a division by 0


class Projection(NamedTuple):
    """Variables of one shape that are scaled together.

    Attributes:
        variables: the variables; their squares are added.
        axes: the axes over which the length is computed; each index of the other axes has its own length.
        length: the length after scaling.
    """

    variables: tuple[tf.Variable, ...]
    axes: tuple[int, ...]
    length: float = 1.0


def unit_weights(variables: Sequence[tf.Variable]) -> list[Projection]:
    """Return projections that scale the weights into each unit to length 1.

    The last axis of a kernel, dense or convolutional, counts units. Biases and gains, of rank 1, are left out.
    """
    kernels = [variable for variable in variables if variable.trainable and variable.shape.rank > 1]
    return [Projection((kernel,), tuple(range(kernel.shape.rank - 1))) for kernel in kernels]


def note_affine(gain: tf.Variable, offset: tf.Variable | None = None) -> None:
    """Register a norm's gain γ and offset β for ``affine_projection``; norms of this package register themselves.

    Together they, d numbers each, are scaled to length √d, that of γ = 1 and β = 0. Variables that are not trained stay
    unchanged; ``offset=None``: the norm has none.

    Raises:
        UsageError: if one of them is not a ``tf.Variable``, or their shapes differ.
    """
    if (found := observed()) is None:
        return
    pair = [gain] if offset is None else [gain, offset]
    for variable in pair:
        if not isinstance(variable, tf.Variable):
            raise UsageError(f"a norm's gain or offset is {brief(variable)}; give its tf.Variable (Keras: gamma.value)")
    if len({tuple(variable.shape.as_list()) for variable in pair}) > 1:
        raise UsageError(
            f"a norm's gain has shape {gain.shape}, and its offset {pair[-1].shape}; give two of one shape"
        )
    if gain.trainable and not any(gain is known.variables[0] for known in found.norms):
        trained = tuple(variable for variable in pair if variable.trainable)
        found.norms.append(Projection(trained, tuple(range(gain.shape.rank)), math.sqrt(gain.shape.num_elements())))


def projected_after(step: tf.Operation, projections: Sequence[Projection]) -> tf.Operation:
    """Return the op that scales variables to their lengths after ``step``; where all numbers are 0 they stay 0."""
    with tf.control_dependencies([step]):
        projected = []
        for variables, axes, length in projections:
            values = [variable.read_value() for variable in variables]
            squares = [tf.reduce_sum(tf.square(value), axis=list(axes), keepdims=True) for value in values]
            now = tf.maximum(tf.sqrt(sum(squares[1:], squares[0])), SHORTEST)
            scale = now if length == 1 else now / length
            for variable, value in zip(variables, values, strict=True):
                projected.append(variable.assign(value / scale, read_value=False))
        return tf.group(step, *projected)
