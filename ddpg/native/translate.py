"""Read an update's graph as a program: the ops from its metrics back to the minibatch and the variables."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ddpg.native.operations import computed, matrix_shape
from ddpg.native.program import NoTranslation, Program, Value, shape_of
from ddpg.native.writes import WRITES


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
        if _moves(operation) or any(tensor.op.name in moving for tensor in operation.inputs):
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


def _moves(operation: tf.Operation) -> bool:
    """Whether an op whose inputs do not move may still do so, or needs functions of its graph."""
    functions = any(value.HasField("func") or value.list.func for value in operation.node_def.attr.values())
    kind = operation.type
    return operation.op_def.is_stateful or functions or kind in ("Placeholder", "NoOp") or "Random" in kind


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
            self._values[placeholder.name] = self.program.field(name, matrix_shape(placeholder))

    def value(self, tensor: tf.Tensor) -> Value:
        """Return a tensor's value; it may be smaller than the tensor where it repeats itself."""
        if tensor.name in self._constants:
            return self.program.constant(self._constants[tensor.name])
        if tensor.name not in self._values:
            raise NoTranslation(f"{tensor.op.type} ({tensor.name})")
        return self._values[tensor.name]

    def whole(self, tensor: tf.Tensor) -> Value:
        """Return a tensor's value in the tensor's own shape."""
        return self.program.spread(self.value(tensor), matrix_shape(tensor))

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
        self._values |= computed(self, operation)

    def variable(self, handle: tf.Tensor) -> int:
        """Return a variable's number."""
        if handle.name not in self._variables:
            raise NoTranslation(f"the variable {handle.name}")
        return self._variables[handle.name]

    def stored(self, handle: tf.Tensor) -> Value:
        """Return a variable's value after the writes so far."""
        index = self.variable(handle)
        return self.program.stored(index, self._shapes[index])
