"""A NumPy program whose outputs have the same bits on every processor, for results that others are to reproduce.

``np.matmul`` adds in the order that the processor's BLAS kernel likes, and vectorised exponentials differ in their last
bits. A difference of 1e-7 in an action is enough for a chaotic simulation, such as a running cheetah, to end elsewhere.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ddpg.policies.numpy_program import NumpyProgram
from ddpg.policies.standalone import OPERATIONS

_TRANSCENDENTAL = ("Tanh", "Sigmoid", "Softplus", "Elu", "Selu")


def _product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return ``rows @ matrix``, ``[B, m]``: products rounded one by one, and added from the first row to the last.

    IEEE 754 prescribes the result of each product and sum, and their order is fixed here. ``np.add.reduce`` adds
    whole rows, but of a single column it adds numbers in pairs; ``np.add.accumulate`` never does, and is slower.
    """
    result = np.empty((len(rows), matrix.shape[1]), np.result_type(rows, matrix))
    for row, total in zip(rows, result, strict=True):
        products = np.multiply(row[:, None], matrix, order="C")
        if products.shape[1] == 1:
            total[:] = np.add.accumulate(products, axis=0)[-1]
        else:
            np.add.reduce(products, axis=0, out=total)
    return result


def _rounded(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation that computes in float64 and rounds.

    Float64 functions differ between processors by a few units of 2⁻⁵³; after rounding to float32, numbers differ only
    where such a unit decides between two neighbours: about one in ten million.
    """

    def rounded(values: np.ndarray) -> np.ndarray:
        return operation(values.astype(np.float64)).astype(values.dtype)

    return rounded


class PortableProgram(NumpyProgram):
    """A :class:`~ddpg.policies.numpy_program.NumpyProgram` that adds in a fixed order.

    It differs from the plain program by rounding alone.
    """

    operations = OPERATIONS | {"MatMul": _product} | {name: _rounded(OPERATIONS[name]) for name in _TRANSCENDENTAL}

    @classmethod
    def of(cls, program: NumpyProgram) -> "PortableProgram":
        """Return the same network, with the weights that it has now."""
        return cls(program.steps, program.size, program.arrays(), [], program.sources, program.result)
