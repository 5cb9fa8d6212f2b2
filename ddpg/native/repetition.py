"""Whether what repeats itself in a tensor does so, too, where the tensor is rows and columns."""

import math

import tensorflow as tf

from ddpg.native.program import NoTranslation, shape_of


def check_repetition(operation: tf.Operation, output: tf.Tensor) -> None:
    """Refuse inputs that repeat themselves otherwise than a matrix does, once they are rows and columns.

    Raises:
        NoTranslation: they do.
    """
    rank = output.shape.rank
    if rank == 2 and operation.type == "Select" and operation.inputs[0].shape.rank == 1:
        raise NoTranslation(f"{operation.name}: rows chosen by a vector")  # as version 1 of it does
    if rank is not None and rank <= 2:
        return
    for given in operation.inputs:
        shape = tuple(given.shape) if given.shape.is_fully_defined() and rank is not None else (0,)
        if math.prod(shape) == 1:
            continue
        rows, *columns = [1] * ((rank or 0) - len(shape)) + [*shape]
        same = columns == [*output.shape[1:]] or set(columns) == {1}
        if not same or shape_of(shape) != (rows, math.prod(columns)):
            raise NoTranslation(f"{operation.name}: {shape} repeated to {tuple(output.shape)}")
