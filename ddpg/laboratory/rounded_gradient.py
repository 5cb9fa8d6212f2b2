"""How far a gradient is off where matrix products round their arguments to bfloat16, as ``precision="bfloat16"`` does.

The compiler's interpreter computes it in NumPy, so no processor with such instructions is needed.
"""

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from ddpg.compiler.interpreter import interpret
from ddpg.compiler.ir import Node, Program, Unsupported
from ddpg.compiler.lowering import lower


class RoundedGradient:
    """A gradient's ops, lowered to products of bfloat16 numbers.

    Args:
        session: of the gradients' graph.
        gradients: to compute.
        fields: the placeholders that they depend on.
        variables: those that they depend on.
    """

    def __init__(
        self,
        session: tf.compat.v1.Session,
        gradients: Sequence[tf.Tensor],
        fields: Sequence[tf.Tensor],
        variables: Sequence[tf.Variable],
    ):
        self._session, self._fields, self._variables = session, fields, variables
        named = {field.name: field for field in fields}
        self._lowered: tuple[Program, list[Node]] | None = None
        with contextlib.suppress(Unsupported):
            self._lowered = lower(gradients, named, variables, "bfloat16")

    def error(self, feeds: Mapping[tf.Tensor, np.ndarray], exact: Sequence[np.ndarray]) -> dict[str, float] | None:
        """Compare with the gradients in float32, over all weights.

        Args:
            feeds: the fields' values.
            exact: the gradients in float32.

        Returns:
            ``relative_norm`` of the difference, and the ``cosine``; ``None`` if the compiler does not know an op.
        """
        if self._lowered is None:
            return None
        values = {field.name: np.asarray(feeds[field], np.float32) for field in self._fields}
        variables = [np.array(value) for value in self._session.run(self._variables)]
        found, expected = (
            np.concatenate([np.ravel(array) for array in arrays]).astype(np.float64)
            for arrays in (interpret(*self._lowered, values, variables), exact)
        )
        sizes = np.linalg.norm(found), np.linalg.norm(expected)
        return {
            "relative_norm": float(np.linalg.norm(found - expected) / sizes[1]),
            "cosine": float(found @ expected / (sizes[0] * sizes[1])),
        }
