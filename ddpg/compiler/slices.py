"""What a slice in TensorFlow's graph takes of a tensor: NumPy's index for it, and the block of the tensor's matrix."""

import math
from typing import Any

import numpy as np
import tensorflow as tf


def strided_index(operation: tf.Operation, begin: np.ndarray, end: np.ndarray, strides: np.ndarray) -> tuple[Any, ...]:
    """Return NumPy's index for what a ``StridedSlice``, or its gradient, takes of a tensor."""

    def marked(mask: str, place: int) -> bool:
        return bool(operation.get_attr(f"{mask}_mask") >> place & 1)

    def along(place: int) -> Any:
        if marked("ellipsis", place):
            return ...
        if marked("new_axis", place):
            return None
        if marked("shrink_axis", place):
            return int(begin[place])
        first = None if marked("begin", place) else int(begin[place])
        return slice(first, None if marked("end", place) else int(end[place]), int(strides[place]))

    return tuple(map(along, range(len(strides))))


def block_of(index: tuple[Any, ...], sizes: tuple[int, ...], columns: int) -> tuple[int, int, tuple[int, int]] | None:
    """Return first row, first column and shape of the block that an index takes; ``None`` if it takes no block.

    The index is NumPy's, into an array of shape ``sizes``, whose numbers fill a matrix of ``columns`` row by row.
    """
    taken = np.arange(math.prod(sizes)).reshape(sizes)[index].ravel()
    if not taken.size:
        return None
    (row, column), (last_row, last_column) = (divmod(int(place), columns) for place in taken[[0, -1]])
    block = columns * np.arange(row, last_row + 1)[:, None] + np.arange(column, last_column + 1)
    return (row, column, block.shape) if np.array_equal(block.ravel(), taken) else None
