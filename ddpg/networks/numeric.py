"""Running a network's symbolic methods on NumPy arrays, in the default session."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg.errors import UsageError

v1 = tf.compat.v1


class NumericRuns:
    """The numeric methods of one network: each builds its ops once, and runs them from then on.

    Args:
        graph: the network's.
        owner: the network's name, for messages.
    """

    def __init__(self, graph: tf.Graph, owner: str):
        self._graph, self._owner = graph, owner
        self._built: dict[str, tuple[list[tf.Tensor], Any]] = {}

    def __call__(self, name: str, function: Callable, *arrays: np.ndarray) -> Any:
        """Run ``function(*placeholders)`` on ``arrays``; its ops are built at the first call of ``name``.

        Raises:
            UsageError: no default session, or one of another graph.
        """
        session = v1.get_default_session()
        if session is None:
            raise UsageError(
                f"no default session for the numeric methods of the {self._owner}; call them inside "
                "`with tf.compat.v1.Session().as_default():`, after global_variables_initializer()"
            )
        if session.graph is not self._graph:
            raise UsageError(f"the default session runs another graph than the one the {self._owner} was built in")
        if name not in self._built:
            with self._graph.as_default(), v1.name_scope(f"{self._owner}_numeric/{name}/"):
                # Batches may differ in length from call to call: the first axis stays open.
                shapes = [[None, *array.shape[1:]] if array.ndim else [] for array in arrays]
                inputs = [v1.placeholder(array.dtype, shape) for array, shape in zip(arrays, shapes, strict=True)]
                self._built[name] = inputs, function(*inputs)
        inputs, fetches = self._built[name]
        return session.run(fetches, dict(zip(inputs, arrays, strict=True)))
