"""Check a user's own layers, activation and bounding: their exceptions, their results, and that TensorFlow runs them.

An error is one line that names the option, the function and the expected shape. Without the check, the output layer
would fail with TensorFlow's message about its own matrix product.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.func_graph import FuncGraph

from ddpg._tflearn import tflearn
from ddpg.config.imports import name_of
from ddpg.errors import UsageError, brief, own_code

v1 = tf.compat.v1


def own_layers(option: str, network: Any) -> Callable[..., tf.Tensor] | None:
    """Return ``network`` with a check of its result; ``None`` for ``None``. Messages name the ``option`` that holds it.

    A network is ``(states [B, ...][, actions [B, A]]) -> features [B, ...]``.

    Raises:
        UsageError: when the returned function is called, if ``network`` raises an exception, gives a variable a
            regularizer, whose loss no update would descend, assigns to a variable in inference mode, or does not return
            a float32 tensor with a row for each state and fixed sizes of all other axes.
    """
    if network is None:
        return None
    name = name_of(network)

    def layers(*inputs: tf.Tensor) -> tf.Tensor:
        before = len(v1.losses.get_regularization_losses())
        made = len(v1.get_default_graph().get_operations())
        with own_code(f"{option}={name} on {_shapes(inputs)}", network):
            features = network(*inputs)
        if len(v1.losses.get_regularization_losses()) > before:
            raise UsageError(
                f"{option}={name} gives a variable a regularizer, whose loss would not be trained; leave it out, and "
                "use the option weight_decay or, for critics, critic_l2"
            )
        if not tf.get_static_value(tflearn.get_training_mode()) and (assigned := assignments(made)):
            raise UsageError(
                f"{option}={name} assigns to {variable_of(assigned[0])} in inference mode, so that acting and each use "
                "of the network in an update, of its target too, would change the variable; assign only if "
                "tf.get_static_value(tflearn.get_training_mode()), with tflearn of ddpg._tflearn"
            )
        _check_features(features, inputs, f"{option}={name}")
        return features

    return functools.update_wrapper(layers, network, assigned=(), updated=())  # for inspect.unwrap


def shape_kept(option: str, function: Callable[..., Any]) -> Callable[..., tf.Tensor]:
    """Return a function on tensors, such as an activation, with a check of its result; messages name it by ``option``.

    Raises:
        UsageError: when the returned function is called, if ``function`` raises an exception, or does not return a
            float32 tensor of its first argument's shape.
    """
    which = f"{option}={name_of(function)}"

    def checked(tensor: tf.Tensor, *others: Any) -> tf.Tensor:
        tensor = tf.convert_to_tensor(tensor)
        with own_code(f"{which} on {_text(tensor.shape)}", function):
            result = function(tensor, *others)
        expected = f"expected a float32 tensor of shape {_text(tensor.shape)}, that of its first argument"
        if not isinstance(result, tf.Tensor):
            raise UsageError(f"{which} returned {brief(result)}; {expected}")
        if result.dtype != tf.float32 or not result.shape.is_compatible_with(tensor.shape):
            raise UsageError(f"{which} returned {result.dtype.name} {_text(result.shape)}; {expected}")
        return result

    return checked


def assignments(made: int) -> list[tf.Operation]:
    """Return the ops of the default graph that assign to variables, without initialisers and the first ``made`` ops."""
    initializers = {variable.initializer.name for variable in v1.global_variables()}
    return [
        operation
        for operation in v1.get_default_graph().get_operations()[made:]
        if operation.type.startswith(("Assign", "ResourceApply", "ResourceScatter"))
        and operation.name not in initializers
    ]


def variable_of(assignment: tf.Operation) -> str:
    """Return the name of the variable that an op assigns to, also inside functions, which capture its handle."""
    handle = assignment.inputs[0]
    while isinstance(handle.graph, FuncGraph):
        handle = next(outer for outer, inner in handle.graph.captures if inner is handle)
    return str(handle.op.name)


def try_networks(networks: Iterable[Any], session: Any, options: str) -> None:
    """Run networks on two states of zeros in a session, because some errors in layers show only when they run.

    Raises:
        UsageError: if TensorFlow cannot run a network here, or its output does not have as many rows as its input; the
            message names the user's ``options``.
    """
    for network in networks:
        inputs = network.placeholders()
        states = {tensor: np.zeros((2, *tensor.shape[1:]), np.float32) for tensor in inputs}
        try:
            rows = len(session.run(network(*inputs), states))
        except tf.errors.OpError as error:
            raise UsageError(f"{options}: the {network.name} cannot be run: {reason_of(error)}") from error
        if rows != 2:
            raise UsageError(f"{options}: for 2 states the {network.name} returns {rows} rows; keep a row for each")


def reason_of(error: tf.errors.OpError) -> str:
    """Return why an op failed, in one line: TensorFlow's message without source locations.

    On a GPU an op can fail in several places at once; then the message lists "root errors", and the first is returned.
    """
    text = error.message
    if "\nNode: " in text:
        text = text.rpartition("\nNode: ")[2].partition("\n")[2]
    lines = [line.strip() for line in text.removeprefix("Graph execution error:").splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].endswith("root error(s) found."):
        return lines[1].partition(": ")[2]
    return lines[0] if lines else type(error).__name__


def _check_features(features: object, inputs: tuple[tf.Tensor, ...], which: str) -> None:
    expected = f"expected features [B, f], a float32 tensor with a row for each of its states, from {_shapes(inputs)}"
    if not isinstance(features, tf.Tensor):
        raise UsageError(f"{which} returned {brief(features)}; {expected}")
    if features.dtype != tf.float32:
        raise UsageError(f"{which} returned a tensor of {features.dtype.name}; {expected}")
    rows = inputs[0].shape.as_list()[0]
    shape = None if features.shape.rank is None else features.shape.as_list()
    if shape is None or len(shape) < 2 or None in shape[1:] or 0 in shape[1:] or shape[0] not in (None, rows):
        raise UsageError(f"{which} returned a tensor of shape {_text(features.shape)}; {expected}")


def _shapes(inputs: tuple[tf.Tensor, ...]) -> str:
    """Return the shapes of states and, for a critic, actions: ``states [B, 3], actions [B, 1]``."""
    return ", ".join(
        f"{what} {_text(tensor.shape)}" for what, tensor in zip(("states", "actions"), inputs, strict=False)
    )


def _text(shape: tf.TensorShape) -> str:
    if shape.rank is None:
        return "unknown"
    return "[" + ", ".join("B" if index == 0 and n is None else str(n) for index, n in enumerate(shape.as_list())) + "]"
