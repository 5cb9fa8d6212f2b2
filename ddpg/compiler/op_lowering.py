"""Lower one TensorFlow op to IR: elementwise functions, reductions, matrix products, data movement."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg.compiler.ir import (
    ALL,
    COLUMNS,
    ROWS,
    LoweringContext,
    Node,
    Program,
    Shape,
    Unsupported,
    check_broadcast,
    fold_elementwise,
    shape_of,
)

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


def lower_op(context: LoweringContext, operation: tf.Operation) -> dict[str, Node]:
    """Return the values of an op's outputs, by their names.

    Raises:
        Unsupported: an op, or a use of it, that programs do not know.
    """
    kind, inputs = operation.type, operation.inputs
    if kind == "IdentityN":
        return {output.name: context.value(given) for given, output in zip(inputs, operation.outputs, strict=True)}
    if kind in _PARTED:
        return _PARTED[kind](context, operation)
    if len(operation.outputs) != 1:
        raise Unsupported(f"{kind} ({operation.name})")
    output = operation.outputs[0]
    return {output.name: _value(context, operation, output)}


def _value(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    kind, inputs = operation.type, operation.inputs
    if kind in _SAME:
        return context.value(inputs[0])
    if kind in _MAPS:
        if kind == "BiasAdd" and operation.get_attr("data_format") != b"NHWC":
            raise Unsupported("BiasAdd of channels first")
        check_broadcast(operation, output)
        return fold_elementwise(context.program, _MAPS[kind], *map(context.value, inputs))
    if kind in _RESHAPED:
        return context.program.reshape(context.whole(inputs[0]), matrix_shape(output))
    if kind in _OTHERS:
        return _OTHERS[kind](context, operation, output)
    raise Unsupported(f"{kind} ({operation.name})")


def matrix_shape(tensor: tf.Tensor) -> Shape:
    """Return the rows and columns of a tensor in a program.

    Raises:
        Unsupported: they are not known.
    """
    if not tensor.shape.is_fully_defined():
        raise Unsupported(f"{tensor.name} of shape {tensor.shape}")
    return shape_of(tuple(tensor.shape))


def _axes(context: LoweringContext, operation: tf.Operation) -> str | None:
    """Return what a reduction runs over, or None: nothing."""
    rank = operation.inputs[0].shape.rank
    axes = sorted({int(axis) % max(rank, 1) for axis in np.atleast_1d(context.constant_value(operation.inputs[1]))})
    if not axes or rank == 0:
        return None
    if len(axes) == rank:
        return ALL
    if rank != 2:
        raise Unsupported(f"{operation.type} of rank {rank} over {axes}")
    return ROWS if axes == [0] else COLUMNS


def _sum(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    over = _axes(context, operation)
    whole = context.whole(operation.inputs[0])
    total = whole if over is None else context.program.reduce_sum(whole, over)
    return context.program.reshape(total, matrix_shape(output))


def _mean(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    total = _sum(context, operation, output)
    count = math.prod(operation.inputs[0].shape) / math.prod(output.shape)
    return fold_elementwise(context.program, "mul", total, context.program.literal(1 / count))


def _half_squares(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    program = context.program
    squares = program.elementwise("square", context.whole(operation.inputs[0]))
    return program.elementwise("mul", program.reduce_sum(squares, ALL), program.literal(0.5))


def _bias_gradient(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    if operation.inputs[0].shape.rank != 2:
        raise Unsupported(f"{operation.type} of rank {operation.inputs[0].shape.rank} ({operation.name})")
    return context.program.reshape(
        context.program.reduce_sum(context.whole(operation.inputs[0]), ROWS), matrix_shape(output)
    )


def _matrix_product(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    one, other = map(context.whole, operation.inputs)
    return context.program.matmul(one, other, operation.get_attr("transpose_a"), operation.get_attr("transpose_b"))


def _concat(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    *parts, axis = operation.inputs
    rank = output.shape.rank or 1
    along = int(context.constant_value(axis)) % rank
    if along == 0:
        return _one_after_another(context, parts, output)
    if rank != 2:
        raise Unsupported(f"{operation.name} of rank {rank} along axis {along}")
    return context.program.concat(tuple(map(context.whole, parts)))


def _pack(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    if operation.get_attr("axis") != 0:
        raise Unsupported(f"{operation.name} along axis {operation.get_attr('axis')}")
    return _one_after_another(context, operation.inputs, output)


def _one_after_another(context: LoweringContext, parts: Sequence[tf.Tensor], output: tf.Tensor) -> Node:
    """Rows below rows: in memory, as long rows side by side."""
    program = context.program
    rows = [program.reshape(context.whole(part), (1, math.prod(part.shape))) for part in parts]
    return program.reshape(program.concat(tuple(rows)), matrix_shape(output))


def _unpacked(context: LoweringContext, operation: tf.Operation) -> dict[str, Node]:
    argument, count = operation.inputs[0], operation.get_attr("num")
    if operation.get_attr("axis") != 0:
        raise Unsupported(f"{operation.name} along axis {operation.get_attr('axis')}")
    program, size = context.program, math.prod(argument.shape) // count
    rows = program.reshape(context.whole(argument), (count, size))
    return {
        output.name: program.reshape(program.slice(rows, row, 0, (1, size)), matrix_shape(output))
        for row, output in enumerate(operation.outputs)
    }


def _slice(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    argument, begin, _ = operation.inputs
    if argument.shape.rank != 2:
        raise Unsupported(f"{operation.name} of rank {argument.shape.rank}")
    row, column = map(int, context.constant_value(begin))
    return context.program.slice(context.whole(argument), row, column, matrix_shape(output))


def _broadcast(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    argument = operation.inputs[1 if operation.type == "Fill" else 0]
    if operation.type == "BroadcastTo" and output.shape.rank > 2 and argument.shape.rank > 0:
        raise Unsupported(f"{operation.name} to rank {output.shape.rank}")
    value, shape = context.value(argument), matrix_shape(output)
    if any(have not in (1, want) for have, want in zip(value.shape, shape, strict=True)):
        raise Unsupported(f"{operation.name}: {value.shape} repeated to {shape}")
    return context.program.broadcast(value, shape)


def _cast(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    # What is true is 1 in programs too.
    if operation.inputs[0].dtype not in (tf.float32, tf.bool) or output.dtype != tf.float32:
        raise Unsupported(f"{operation.name} from {operation.inputs[0].dtype.name} to {output.dtype.name}")
    return context.value(operation.inputs[0])


def _sum_of_all(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    total, *others = map(context.value, operation.inputs)
    for other in others:
        total = fold_elementwise(context.program, "add", total, other)
    return total


def _squared_difference(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    check_broadcast(operation, output)
    return context.program.elementwise(
        "square", context.program.elementwise("sub", *map(context.value, operation.inputs))
    )


def _exponentials(program: Program, logits: Node) -> tuple[Node, Node, Node]:
    """Return logits less their row's largest, e to the power of them, and the sums of these over each row."""
    shifted = program.elementwise("sub", logits, program.reduce_max(logits))
    powers = program.elementwise("exp_nonpositive", shifted)
    return shifted, powers, program.reduce_sum(powers, COLUMNS)


def _softmax(context: LoweringContext, operation: tf.Operation, output: tf.Tensor) -> Node:
    if output.shape.rank != 2:
        raise Unsupported(f"{operation.name} of rank {output.shape.rank}")
    program = context.program
    shifted, powers, total = _exponentials(program, context.whole(operation.inputs[0]))
    if operation.type == "LogSoftmax":
        return program.elementwise("sub", shifted, program.elementwise("log", total))
    return program.elementwise("div", powers, total)


def _cross_entropy(context: LoweringContext, operation: tf.Operation) -> dict[str, Node]:
    program = context.program
    logits, labels = map(context.whole, operation.inputs)
    shifted, powers, total = _exponentials(program, logits)
    losses = program.reduce_sum(
        program.elementwise("mul", labels, program.elementwise("sub", program.elementwise("log", total), shifted)),
        COLUMNS,
    )
    values = (
        program.reshape(losses, matrix_shape(operation.outputs[0])),
        program.elementwise("sub", program.elementwise("div", powers, total), labels),
    )
    return {output.name: value for output, value in zip(operation.outputs, values, strict=True)}


def _split(context: LoweringContext, operation: tf.Operation) -> dict[str, Node]:
    axis, argument = operation.inputs
    if argument.shape.rank != 2:
        raise Unsupported(f"{operation.name} of rank {argument.shape.rank}")
    whole, (rows, columns) = context.whole(argument), matrix_shape(operation.outputs[0])
    across = int(context.constant_value(axis)) % 2
    return {
        output.name: context.program.slice(
            whole, *((0, part * columns) if across else (part * rows, 0)), (rows, columns)
        )
        for part, output in enumerate(operation.outputs)
    }


_PARTED = {"Unpack": _unpacked, "Split": _split, "SoftmaxCrossEntropyWithLogits": _cross_entropy}

_OTHERS: dict[str, Callable[[LoweringContext, Any, tf.Tensor], Node]] = {
    "Cast": _cast,
    "Sum": _sum,
    "Mean": _mean,
    "L2Loss": _half_squares,
    "BiasAddGrad": _bias_gradient,
    "MatMul": _matrix_product,
    "ConcatV2": _concat,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    "Pack": _pack,
    "ZerosLike": lambda context, *_: context.program.literal(0),
    "OnesLike": lambda context, *_: context.program.literal(1),
    "Slice": _slice,
    "AddN": _sum_of_all,
    "SquaredDifference": _squared_difference,
    **dict.fromkeys(_SPREAD, _broadcast),
}
