"""What an op that computes makes of values: functions of each place, sums, products, and what moves numbers about."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg.native.program import ALL, COLUMNS, ROWS, NoTranslation, Program, Shape, Value, folded, shape_of
from ddpg.native.repetition import check_repetition
from ddpg.native.translation import Translation

# Functions of each place's numbers that a loop knows by the same inputs in the same order.
_MAPS = {
    "AddV2": "add",
    "Add": "add",
    "BiasAdd": "add",
    "Sub": "sub",
    "Mul": "mul",
    "RealDiv": "div",
    "Maximum": "max",
    "Minimum": "min",
    "Neg": "neg",
    "Abs": "abs",
    "Sign": "sign",
    "Square": "square",
    "Sqrt": "sqrt",
    "Rsqrt": "rsqrt",
    "Exp": "exp",
    "Log": "log",
    "Tanh": "tanh",
    "Relu": "relu",
    "Elu": "elu",
    "Selu": "selu",
    "Sigmoid": "sigmoid",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
    "Less": "less",
    "LessEqual": "less_equal",
    "LogicalAnd": "mul",
    "Select": "select",
    "SelectV2": "select",
    "ReluGrad": "relu_gradient",
    "TanhGrad": "tanh_gradient",
    "EluGrad": "elu_gradient",
    "SeluGrad": "selu_gradient",
    "SigmoidGrad": "sigmoid_gradient",
    "SoftplusGrad": "softplus_gradient",
    "SoftsignGrad": "softsign_gradient",
    "RsqrtGrad": "rsqrt_gradient",
    "SqrtGrad": "sqrt_gradient",
}
_SAME = ("Identity", "StopGradient", "PreventGradient")
_RESHAPED = ("Reshape", "Squeeze", "ExpandDims")
_SPREAD = ("Tile", "BroadcastTo", "Fill")


def computed(translation: Translation, operation: tf.Operation) -> dict[str, Value]:
    """Return the values of an op's outputs, by their names.

    Raises:
        NoTranslation: an op, or a use of it, that programs do not know.
    """
    kind, inputs = operation.type, operation.inputs
    if kind == "IdentityN":
        return {output.name: translation.value(given) for given, output in zip(inputs, operation.outputs, strict=True)}
    if kind in _PARTED:
        return _PARTED[kind](translation, operation)
    if len(operation.outputs) != 1:
        raise NoTranslation(f"{kind} ({operation.name})")
    output = operation.outputs[0]
    return {output.name: _value(translation, operation, output)}


def _value(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    kind, inputs = operation.type, operation.inputs
    if kind in _SAME:
        return translation.value(inputs[0])
    if kind in _MAPS:
        if kind == "BiasAdd" and operation.get_attr("data_format") != b"NHWC":
            raise NoTranslation("BiasAdd of channels first")
        check_repetition(operation, output)
        return folded(translation.program, _MAPS[kind], *map(translation.value, inputs))
    if kind in _RESHAPED:
        return translation.program.view(translation.whole(inputs[0]), matrix_shape(output))
    if kind in _OTHERS:
        return _OTHERS[kind](translation, operation, output)
    raise NoTranslation(f"{kind} ({operation.name})")


def matrix_shape(tensor: tf.Tensor) -> Shape:
    """Return the rows and columns of a tensor in a program.

    Raises:
        NoTranslation: they are not known.
    """
    if not tensor.shape.is_fully_defined():
        raise NoTranslation(f"{tensor.name} of shape {tensor.shape}")
    return shape_of(tuple(tensor.shape))


def _axes(translation: Translation, operation: tf.Operation) -> str | None:
    """Return what a reduction runs over, or None: nothing."""
    rank = operation.inputs[0].shape.rank
    axes = sorted({int(axis) % max(rank, 1) for axis in np.atleast_1d(translation.fixed(operation.inputs[1]))})
    if not axes or rank == 0:
        return None
    if len(axes) == rank:
        return ALL
    if rank != 2:
        raise NoTranslation(f"{operation.type} of rank {rank} over {axes}")
    return ROWS if axes == [0] else COLUMNS


def _sum(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    over = _axes(translation, operation)
    whole = translation.whole(operation.inputs[0])
    total = whole if over is None else translation.program.sums(whole, over)
    return translation.program.view(total, matrix_shape(output))


def _mean(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    total = _sum(translation, operation, output)
    count = math.prod(operation.inputs[0].shape) / math.prod(output.shape)
    return folded(translation.program, "mul", total, translation.program.literal(1 / count))


def _half_squares(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    program = translation.program
    squares = program.map("square", translation.whole(operation.inputs[0]))
    return program.map("mul", program.sums(squares, ALL), program.literal(0.5))


def _bias_gradient(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    if operation.inputs[0].shape.rank != 2:
        raise NoTranslation(f"{operation.type} of rank {operation.inputs[0].shape.rank} ({operation.name})")
    return translation.program.view(
        translation.program.sums(translation.whole(operation.inputs[0]), ROWS), matrix_shape(output)
    )


def _matrix_product(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    one, other = map(translation.whole, operation.inputs)
    return translation.program.product(one, other, operation.get_attr("transpose_a"), operation.get_attr("transpose_b"))


def _join(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    *parts, axis = operation.inputs
    rank = output.shape.rank or 1
    along = int(translation.fixed(axis)) % rank
    if along == 0:
        return _one_after_another(translation, parts, output)
    if rank != 2:
        raise NoTranslation(f"{operation.name} of rank {rank} along axis {along}")
    return translation.program.join(tuple(map(translation.whole, parts)))


def _pack(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    if operation.get_attr("axis") != 0:
        raise NoTranslation(f"{operation.name} along axis {operation.get_attr('axis')}")
    return _one_after_another(translation, operation.inputs, output)


def _one_after_another(translation: Translation, parts: Sequence[tf.Tensor], output: tf.Tensor) -> Value:
    """Rows below rows: in memory, as long rows side by side."""
    program = translation.program
    rows = [program.view(translation.whole(part), (1, math.prod(part.shape))) for part in parts]
    return program.view(program.join(tuple(rows)), matrix_shape(output))


def _unpacked(translation: Translation, operation: tf.Operation) -> dict[str, Value]:
    argument, count = operation.inputs[0], operation.get_attr("num")
    if operation.get_attr("axis") != 0:
        raise NoTranslation(f"{operation.name} along axis {operation.get_attr('axis')}")
    program, size = translation.program, math.prod(argument.shape) // count
    rows = program.view(translation.whole(argument), (count, size))
    return {
        output.name: program.view(program.window(rows, row, 0, (1, size)), matrix_shape(output))
        for row, output in enumerate(operation.outputs)
    }


def _slice(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    argument, begin, _ = operation.inputs
    if argument.shape.rank != 2:
        raise NoTranslation(f"{operation.name} of rank {argument.shape.rank}")
    row, column = map(int, translation.fixed(begin))
    return translation.program.window(translation.whole(argument), row, column, matrix_shape(output))


def _spread(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    argument = operation.inputs[1 if operation.type == "Fill" else 0]
    if operation.type == "BroadcastTo" and output.shape.rank > 2 and argument.shape.rank > 0:
        raise NoTranslation(f"{operation.name} to rank {output.shape.rank}")
    value, shape = translation.value(argument), matrix_shape(output)
    if any(have not in (1, want) for have, want in zip(value.shape, shape, strict=True)):
        raise NoTranslation(f"{operation.name}: {value.shape} repeated to {shape}")
    return translation.program.spread(value, shape)


def _cast(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    # What is true is 1 in programs too.
    if operation.inputs[0].dtype not in (tf.float32, tf.bool) or output.dtype != tf.float32:
        raise NoTranslation(f"{operation.name} from {operation.inputs[0].dtype.name} to {output.dtype.name}")
    return translation.value(operation.inputs[0])


def _sum_of_all(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    total, *others = map(translation.value, operation.inputs)
    for other in others:
        total = folded(translation.program, "add", total, other)
    return total


def _squared_difference(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    check_repetition(operation, output)
    return translation.program.map("square", translation.program.map("sub", *map(translation.value, operation.inputs)))


def _exponentials(program: Program, logits: Value) -> tuple[Value, Value, Value]:
    """Return logits less their row's largest, e to the power of them, and the sums of these over each row."""
    shifted = program.map("sub", logits, program.largest(logits))
    powers = program.map("exp", shifted)
    return shifted, powers, program.sums(powers, COLUMNS)


def _softmax(translation: Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    if output.shape.rank != 2:
        raise NoTranslation(f"{operation.name} of rank {output.shape.rank}")
    program = translation.program
    shifted, powers, total = _exponentials(program, translation.whole(operation.inputs[0]))
    if operation.type == "LogSoftmax":
        return program.map("sub", shifted, program.map("log", total))
    return program.map("div", powers, total)


def _cross_entropy(translation: Translation, operation: tf.Operation) -> dict[str, Value]:
    program = translation.program
    logits, labels = map(translation.whole, operation.inputs)
    shifted, powers, total = _exponentials(program, logits)
    losses = program.sums(program.map("mul", labels, program.map("sub", program.map("log", total), shifted)), COLUMNS)
    values = (
        program.view(losses, matrix_shape(operation.outputs[0])),
        program.map("sub", program.map("div", powers, total), labels),
    )
    return {output.name: value for output, value in zip(operation.outputs, values, strict=True)}


def _split(translation: Translation, operation: tf.Operation) -> dict[str, Value]:
    axis, argument = operation.inputs
    if argument.shape.rank != 2:
        raise NoTranslation(f"{operation.name} of rank {argument.shape.rank}")
    whole, (rows, columns) = translation.whole(argument), matrix_shape(operation.outputs[0])
    across = int(translation.fixed(axis)) % 2
    return {
        output.name: translation.program.window(
            whole, *((0, part * columns) if across else (part * rows, 0)), (rows, columns)
        )
        for part, output in enumerate(operation.outputs)
    }


_PARTED = {"Unpack": _unpacked, "Split": _split, "SoftmaxCrossEntropyWithLogits": _cross_entropy}

_OTHERS: dict[str, Callable[[Translation, Any, tf.Tensor], Value]] = {
    "Cast": _cast,
    "Sum": _sum,
    "Mean": _mean,
    "L2Loss": _half_squares,
    "BiasAddGrad": _bias_gradient,
    "MatMul": _matrix_product,
    "ConcatV2": _join,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    "Pack": _pack,
    "ZerosLike": lambda translation, *_: translation.program.literal(0),
    "OnesLike": lambda translation, *_: translation.program.literal(1),
    "Slice": _slice,
    "AddN": _sum_of_all,
    "SquaredDifference": _squared_difference,
    **dict.fromkeys(_SPREAD, _spread),
}
