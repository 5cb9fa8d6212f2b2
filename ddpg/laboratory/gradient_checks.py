"""Check gradients: what they reach, whether paths agree, and whether they match finite differences."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ddpg.errors import UsageError, did_you_mean


def leaks(loss: tf.Tensor | list, variables: list) -> list[str]:
    """Return the names of the variables that a gradient of ``loss`` reaches in its graph.

    Args:
        loss: a tensor, or several.
        variables: variables that should be out of reach, such as ``critic.target_variables``.

    Returns:
        Names of the variables for which ``tf.gradients`` finds a path; empty if there is none.
    """
    return [
        variable.name
        for variable, gradient in zip(variables, tf.gradients(loss, variables), strict=True)
        if gradient is not None
    ]


def compare(gradients: Mapping[str, Sequence], reference: str | Sequence) -> dict[str, float]:
    """Measure how far the gradients of several paths are from one of them.

    Args:
        gradients: ``{path: gradients}``; each a list of arrays, of tensors, or of ``(gradient, variable)``
            pairs. Tensors are run in the default session, all in one call: on the same feeds and weights.
        reference: one of the paths, or a list of the same kinds.

    Returns:
        ``{path: largest absolute difference over all elements}``.

    Raises:
        UsageError: if ``reference`` is not one of the paths, or the lists differ in length or shapes.
    """
    if isinstance(reference, str):
        if reference not in gradients:
            hint = did_you_mean(reference, gradients)
            raise UsageError(f"reference={reference!r} is not one of the paths {list(gradients)}{hint}")
        reference = gradients[reference]
    arrays, expected = _evaluated([{name: _values(name, g) for name, g in gradients.items()}, _values("", reference)])
    shapes = [array.shape for array in expected]
    for name, values in arrays.items():
        if [array.shape for array in values] != shapes:
            raise UsageError(f"{name!r} has gradients of shapes {[a.shape for a in values]}, the reference {shapes}")
    return {
        name: max(float(np.abs(a - b).max()) for a, b in zip(values, expected, strict=True))
        for name, values in arrays.items()
    }


def finite_difference(
    function: Callable[[list[np.ndarray]], float],
    arrays: Sequence[np.ndarray],
    coordinates: Sequence[tuple[int, int]],
    step: float = 1e-6,
) -> np.ndarray:
    """Differentiate by central differences, (f(x + h) − f(x − h))/2h, at sampled coordinates.

    The error is of order h²·f‴ by the step and 1e-16·f/h by rounding. A kink (of a ReLU) within h spoils it:
    where two step sizes disagree, neither is right.

    Args:
        function: a scalar of a list of float64 arrays, computed in float64.
        arrays: where to differentiate; copied as float64.
        coordinates: ``[(which array, index into it flattened)]``.
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
    values = [gradient[0] if isinstance(gradient, tuple) else gradient for gradient in gradients]
    if any(value is None for value in values):
        raise UsageError(f"{name!r} has no gradient for some variable (None): the path does not reach it")
    return values


def _evaluated(values):
    """Replace the tensors in a structure by their values, in one run of the default session."""
    leaves = tf.nest.flatten(values)
    tensors = [leaf for leaf in leaves if tf.is_tensor(leaf)]
    if tensors:
        session = tf.compat.v1.get_default_session()
        if session is None:
            raise UsageError("compare of tensors needs a default session: call it inside `with session.as_default():`")
        results = iter(session.run(tensors))
        leaves = [next(results) if tf.is_tensor(leaf) else leaf for leaf in leaves]
    return tf.nest.pack_sequence_as(values, [np.asarray(leaf) for leaf in leaves])
