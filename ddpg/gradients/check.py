"""Looking at where gradients flow."""

import tensorflow as tf


def leaks(loss: tf.Tensor | list, variables: list) -> list[str]:
    """Name the variables a gradient of ``loss`` reaches; read off the real graph.

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
