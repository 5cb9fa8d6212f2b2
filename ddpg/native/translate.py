"""Read an update's graph as a program: the ops from its metrics back to the minibatch and the variables."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg.native.program import ALL, COLUMNS, ROWS, NoTranslation, Program, Shape, Value, folded, shape_of
from ddpg.native.writes import WRITES

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
    "Tanh": "tanh",
    "Relu": "relu",
    "Greater": "greater",
    "GreaterEqual": "greater_equal",
    "Less": "less",
    "LessEqual": "less_equal",
    "LogicalAnd": "mul",
    "Select": "select",
    "SelectV2": "select",
    "ReluGrad": "relu_gradient",
    "TanhGrad": "tanh_gradient",
    "RsqrtGrad": "rsqrt_gradient",
}
_SAME = ("Identity", "StopGradient", "PreventGradient")
_RESHAPED = ("Reshape", "Squeeze", "ExpandDims")
_SPREAD = ("Tile", "BroadcastTo", "Fill")


def translate(
    fetches: Sequence[tf.Tensor], fields: Mapping[str, tf.Tensor], variables: Sequence
) -> tuple[Program, list[Value]]:
    """Return the program that computes ``fetches``, scalars, with every write that they wait for.

    Args:
        fetches: where to begin.
        fields: the placeholders of the minibatch, by name.
        variables: all that may be read or written; a program knows them by their place here.

    Raises:
        NoTranslation: an op, or a shape, that programs do not know.
    """
    operations = list(_in_order(fetches))
    translation = _Translation(_constants(operations), fields, variables)
    for operation in operations:
        translation.add(operation)
    # What a variable was when it was read, whatever is written to it later.
    program, values = translation.program, map(translation.whole, fetches)
    return program, [program.copied(value) if value.base.kind == "stored" else value for value in values]


def _in_order(fetches: Sequence[tf.Tensor]) -> Iterator[tf.Operation]:
    """Yield the ops behind ``fetches``, each after everything that it reads or waits for."""
    done: set[str] = set()
    stack = [(fetch.op, False) for fetch in reversed(fetches)]
    while stack:
        operation, ready = stack.pop()
        if operation.name in done:
            continue
        if ready:
            done.add(operation.name)
            yield operation
            continue
        stack.append((operation, True))
        # TensorFlow tells control inputs in an order of its own in every process; the program must not depend on it.
        waited_for = sorted(operation.control_inputs, key=lambda earlier: earlier.name)
        before = [*(tensor.op for tensor in operation.inputs), *waited_for]
        stack.extend((earlier, False) for earlier in reversed(before) if earlier.name not in done)


def _constants(operations: Sequence[tf.Operation]) -> dict[str, np.ndarray]:
    """Return the values of tensors that depend on no variable and no minibatch."""
    fixed: dict[str, tf.Tensor] = {}
    moving: set[str] = set()
    for operation in operations:
        stateful = operation.type in ("VarHandleOp", "Placeholder", "NoOp") or "Random" in operation.type
        if stateful or any(tensor.op.name in moving for tensor in operation.inputs):
            moving.add(operation.name)
        else:
            fixed |= {tensor.name: tensor for tensor in operation.outputs}
    # In a graph of their own, without what they wait for: what does not move is the same whenever it is computed.
    definition = tf.compat.v1.GraphDef(versions=operations[0].graph.as_graph_def(from_version=1 << 62).versions)
    for operation in {tensor.op.name: tensor.op for tensor in fixed.values()}.values():
        node = definition.node.add()
        node.CopyFrom(operation.node_def)
        node.attr.pop("_class", None)  # where to place it: beside ops that are not here
        del node.input[:]
        node.input.extend(name for name in operation.node_def.input if not name.startswith("^"))
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        tf.import_graph_def(definition, name="")
        return session.run({name: name for name in fixed})


class _Translation:
    def __init__(self, constants: Mapping[str, np.ndarray], fields: Mapping[str, tf.Tensor], variables: Sequence):
        self.program = Program()
        self._constants = constants
        self._values: dict[str, Value] = {}
        self._variables = {variable.handle.name: index for index, variable in enumerate(variables)}
        self._shapes = [shape_of(tuple(variable.shape)) for variable in variables]
        for name, placeholder in fields.items():
            if placeholder.dtype != tf.float32:
                raise NoTranslation(f"{name} of {placeholder.dtype.name}")
            self._values[placeholder.name] = self.program.field(name, _shape(placeholder))

    def value(self, tensor: tf.Tensor) -> Value:
        """Return a tensor's value; it may be smaller than the tensor where it repeats itself."""
        if tensor.name in self._constants:
            return self.program.constant(self._constants[tensor.name])
        if tensor.name not in self._values:
            raise NoTranslation(f"{tensor.op.type} ({tensor.name})")
        return self._values[tensor.name]

    def whole(self, tensor: tf.Tensor) -> Value:
        """Return a tensor's value in the tensor's own shape."""
        return self.program.spread(self.value(tensor), _shape(tensor))

    def fixed(self, tensor: tf.Tensor) -> np.ndarray:
        """Return the value of a constant."""
        if tensor.name not in self._constants:
            raise NoTranslation(f"{tensor.name} must be constant")
        return self._constants[tensor.name]

    def add(self, operation: tf.Operation) -> None:
        """Translate one op; those before it are there."""
        if all(output.name in self._constants for output in operation.outputs) and operation.outputs:
            return
        kind = operation.type
        if kind in ("NoOp", "VarHandleOp", "Placeholder"):
            return
        if kind in WRITES:
            WRITES[kind](self, operation)
            return
        if kind == "ReadVariableOp":
            index = self.variable(operation.inputs[0])
            self._values[operation.outputs[0].name] = self.program.stored(index, self._shapes[index])
            return
        if kind == "IdentityN":
            for given, output in zip(operation.inputs, operation.outputs, strict=True):
                self._values[output.name] = self.value(given)
            return
        if len(operation.outputs) != 1:
            raise NoTranslation(f"{kind} ({operation.name})")
        self._values[operation.outputs[0].name] = self._translated(operation)

    def variable(self, handle: tf.Tensor) -> int:
        """Return a variable's number."""
        if handle.name not in self._variables:
            raise NoTranslation(f"the variable {handle.name}")
        return self._variables[handle.name]

    def stored(self, handle: tf.Tensor) -> Value:
        """Return a variable's value after the writes so far."""
        index = self.variable(handle)
        return self.program.stored(index, self._shapes[index])

    def _translated(self, operation: tf.Operation) -> Value:
        kind, inputs, output = operation.type, operation.inputs, operation.outputs[0]
        if kind in _SAME:
            return self.value(inputs[0])
        if kind in _MAPS:
            if kind == "BiasAdd" and operation.get_attr("data_format") != b"NHWC":
                raise NoTranslation("BiasAdd of channels first")
            return folded(self.program, _MAPS[kind], *map(self.value, inputs))
        if kind in _RESHAPED:
            return self.program.view(self.whole(inputs[0]), _shape(output))
        if kind in OTHERS:
            return OTHERS[kind](self, operation, output)
        raise NoTranslation(f"{kind} ({operation.name})")


def _shape(tensor: tf.Tensor) -> Shape:
    if not tensor.shape.is_fully_defined():
        raise NoTranslation(f"{tensor.name} of shape {tensor.shape}")
    return shape_of(tuple(tensor.shape))


def _axes(translation: _Translation, operation: tf.Operation) -> str | None:
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


def _sum(translation: _Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    over = _axes(translation, operation)
    whole = translation.whole(operation.inputs[0])
    total = whole if over is None else translation.program.sums(whole, over)
    return translation.program.view(total, _shape(output))


def _mean(translation: _Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    total = _sum(translation, operation, output)
    count = math.prod(operation.inputs[0].shape) / math.prod(output.shape)
    return folded(translation.program, "mul", total, translation.program.literal(1 / count))


def _bias_gradient(translation: _Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    return translation.program.view(
        translation.program.sums(translation.whole(operation.inputs[0]), ROWS), _shape(output)
    )


def _matrix_product(translation: _Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    one, other = map(translation.whole, operation.inputs)
    return translation.program.product(one, other, operation.get_attr("transpose_a"), operation.get_attr("transpose_b"))


def _join(translation: _Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    *parts, axis = operation.inputs
    if output.shape.rank != 2 or int(translation.fixed(axis)) % 2 != 1:
        raise NoTranslation(f"{operation.name} along another axis than the last of two")
    return translation.program.join(tuple(map(translation.whole, parts)))


def _slice(translation: _Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    argument, begin, _ = operation.inputs
    if argument.shape.rank != 2:
        raise NoTranslation(f"{operation.name} of rank {argument.shape.rank}")
    row, column = map(int, translation.fixed(begin))
    return translation.program.window(translation.whole(argument), row, column, _shape(output))


def _spread(translation: _Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    argument = operation.inputs[1 if operation.type == "Fill" else 0]
    value, shape = translation.value(argument), _shape(output)
    if any(have not in (1, want) for have, want in zip(value.shape, shape, strict=True)):
        raise NoTranslation(f"{operation.name}: {value.shape} repeated to {shape}")
    return translation.program.spread(value, shape)


def _cast(translation: _Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    # What is true is 1 in programs too.
    if operation.inputs[0].dtype not in (tf.float32, tf.bool) or output.dtype != tf.float32:
        raise NoTranslation(f"{operation.name} from {operation.inputs[0].dtype.name} to {output.dtype.name}")
    return translation.value(operation.inputs[0])


def _sum_of_all(translation: _Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    total, *others = map(translation.value, operation.inputs)
    for other in others:
        total = folded(translation.program, "add", total, other)
    return total


def _squared_difference(translation: _Translation, operation: tf.Operation, output: tf.Tensor) -> Value:
    return translation.program.map("square", translation.program.map("sub", *map(translation.value, operation.inputs)))


OTHERS: dict[str, Callable[[_Translation, Any, tf.Tensor], Value]] = {
    "Cast": _cast,
    "Sum": _sum,
    "Mean": _mean,
    "BiasAddGrad": _bias_gradient,
    "MatMul": _matrix_product,
    "ConcatV2": _join,
    "Slice": _slice,
    "AddN": _sum_of_all,
    "SquaredDifference": _squared_difference,
    **dict.fromkeys(_SPREAD, _spread),
}
