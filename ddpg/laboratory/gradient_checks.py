"""Check gradients: which variables they reach, whether paths agree, and how finite differences and bfloat16 differ.

:class:`RoundedGradient` computes a gradient again as ``precision="bfloat16"`` and ``"bfloat16x3"`` do, with the
compiler's NumPy interpreter, so that it needs no processor with bfloat16 instructions.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg.compiler.interpreter import interpret
from ddpg.compiler.ir import PRECISIONS, Node, Program, Unsupported
from ddpg.compiler.lowering import lower
from ddpg.errors import UsageError, brief, did_you_mean
from ddpg.gradients.td import dense

ROUNDED = tuple(name for name in PRECISIONS if name != "float32")


def leaks(loss: tf.Tensor | list, variables: tf.Variable | list, constants: Any = ()) -> list[str]:
    """Return the names of the variables that a gradient of ``loss`` reaches in its graph.

    Args:
        loss: a tensor, or several.
        variables: variables that should be out of reach, such as ``critic.target_variables``; one, or several.
        constants: a tensor through which no gradient passes, or several.

    Returns:
        Names of the variables for which ``tf.gradients`` finds a path; empty if there is none.

    Raises:
        UsageError: if an argument holds something else than tensors and variables.
    """
    losses, variables, stops = (tf.nest.flatten([given]) for given in (loss, variables, constants))
    for given in (*losses, *variables, *stops):  # tf.gradients finds no gradient from a number or to a name
        if not tf.is_tensor(given):
            raise UsageError(f"leaks takes tensors and variables of a graph, and got {brief(given)}")
    gradients = tf.gradients(losses, variables, stop_gradients=stops)
    return [variable.name for variable, gradient in zip(variables, gradients, strict=True) if gradient is not None]


def compare(gradients: Mapping[str, Sequence], reference: str | Sequence) -> dict[str, float]:
    """Measure how much the gradients of several paths differ from a reference.

    Args:
        gradients: ``{path: gradients}``; each a list of arrays, of tensors or ``tf.IndexedSlices``, or of
            ``(gradient, variable)`` pairs. Tensors are run in one call of the default session, with the same weights.
        reference: one of the paths, or such a list.

    Returns:
        ``{path: largest absolute difference over all elements}``.

    Raises:
        UsageError: if ``reference`` is not one of the paths, or the lists hold something else or differ in length or
            shapes.
    """
    if not isinstance(gradients, Mapping):
        raise UsageError(f"gradients={brief(gradients)} must be a dict of lists of gradients, by path")
    if isinstance(reference, str):
        if reference not in gradients:
            hint = did_you_mean(reference, gradients)
            raise UsageError(f"reference={reference!r} is not one of the paths {list(gradients)}{hint}")
        reference = gradients[reference]
    arrays, expected = _evaluated(
        [{name: _values(name, g) for name, g in gradients.items()}, _values("reference", reference)]
    )
    shapes = [array.shape for array in expected]
    for name, values in arrays.items():
        if [array.shape for array in values] != shapes:
            raise UsageError(f"{name!r} has gradients of shapes {[a.shape for a in values]}, the reference {shapes}")
    return {
        name: max((float(np.abs(a - b).max(initial=0)) for a, b in zip(values, expected, strict=True)), default=0.0)
        for name, values in arrays.items()
    }


def relative(error: float, size: float) -> float:
    """Return ``error / size``; relative to a gradient of zeros an error is 1, and no error 0."""
    return error / (size or error or 1.0)


def cosine(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the cosine of the angle between two vectors; if one is zero, 1 where both are, else 0."""
    lengths = np.linalg.norm(found) * np.linalg.norm(expected)
    return float(found @ expected / lengths) if lengths else float(not np.any(found - expected))


def finite_difference(
    function: Callable[[list[np.ndarray]], float],
    arrays: Sequence[np.ndarray],
    coordinates: Sequence[tuple[int, int]],
    step: float = 1e-6,
) -> np.ndarray:
    """Differentiate by central differences, (f(x + h) − f(x − h))/2h, at sampled coordinates.

    The error is of order h²·f‴ from the step and 1e-16·f/h from rounding. A kink (of a ReLU) within h makes it
    wrong: if two step sizes disagree, trust neither.

    Args:
        function: computes a scalar from a list of float64 arrays, in float64.
        arrays: the point at which to differentiate; copied as float64.
        coordinates: ``[(index of the array, index into the flattened array)]``.
        step: h.

    Returns:
        The derivatives, float64, one for each coordinate.
    """
    arrays = [np.array(array, np.float64, order="C") for array in arrays]
    derivatives = np.empty(len(coordinates))
    for row, (which, index) in enumerate(coordinates):
        flat = arrays[which].reshape(-1)
        value = flat[index]
        flat[index] = value + step
        above = function(arrays)
        flat[index] = value - step
        below = function(arrays)
        flat[index] = value
        derivatives[row] = (above - below) / (2 * step)
    return derivatives


def _values(name: str, gradients: Sequence) -> list:
    several = isinstance(gradients, list | tuple | np.ndarray)
    pairs = [(g if isinstance(g, tuple) and len(g) == 2 else (g, None)) for g in gradients] if several else []
    values = [dense(gradient) for gradient, _ in pairs]
    if not several or any(isinstance(value, list | tuple | str) for value in values):
        raise UsageError(
            f"{name!r} has the gradients {brief(gradients)}, expected a list of arrays, of tensors or of pairs "
            "(gradient, variable), one for each variable"
        )
    if any(value is None for value in values):
        raise UsageError(f"{name!r} has no gradient for some variable (None): the path does not reach it")
    return values


def _evaluated(values):
    """Replace the tensors in a structure by their values, in one call of the default session."""
    leaves = tf.nest.flatten(values)
    tensors = [leaf for leaf in leaves if tf.is_tensor(leaf)]
    if tensors:
        session = tf.compat.v1.get_default_session()
        if session is None:
            raise UsageError("compare of tensors needs a default session: call it inside `with session.as_default():`")
        results = iter(session.run(tensors))
        leaves = [next(results) if tf.is_tensor(leaf) else leaf for leaf in leaves]
    return tf.nest.pack_sequence_as(values, [np.asarray(leaf) for leaf in leaves])


class RoundedGradient:
    """A gradient computed with matrix products of rounded numbers.

    Args:
        session: of the gradients' graph.
        gradients: the gradients in float32.
        fields, variables: the placeholders and variables that they depend on.
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
            self._lowered = lower(gradients, named, variables)

    def errors(
        self, feeds: Mapping[tf.Tensor, np.ndarray], exact: Sequence[np.ndarray]
    ) -> dict[str, dict[str, float] | None]:
        """Compare the gradient in each precision with the ``exact`` float32 gradient, over all weights.

        Returns:
            For each of :data:`ROUNDED`: ``relative_norm`` of the difference, and the ``cosine``; ``None`` if the
            compiler does not know an op.
        """
        if self._lowered is None:
            return dict.fromkeys(ROUNDED)
        program, nodes = self._lowered
        values = {field.name: np.asarray(feeds[field], np.float32) for field in self._fields}
        variables = self._session.run(self._variables)
        expected = _flat(exact)
        size = float(np.linalg.norm(expected))
        found: dict[str, dict[str, float] | None] = {}
        for precision in ROUNDED:
            program.precision = precision
            rounded = _flat(interpret(program, nodes, values, [np.array(value) for value in variables]))
            error = float(np.linalg.norm(rounded - expected))
            found[precision] = {"relative_norm": relative(error, size), "cosine": cosine(rounded, expected)}
        return found


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return all numbers of ``arrays``, in float64."""
    return np.concatenate([np.ravel(array) for array in arrays]).astype(np.float64)
