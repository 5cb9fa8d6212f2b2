"""Lower an update's TensorFlow graph to the IR, from its metrics back to the minibatch and the variables."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from ddpg.compiler.ir import LoweringContext, Node, Program, Unsupported, fold_elementwise, shape_of
from ddpg.compiler.op_lowering import lower_op, matrix_shape


def _assign(operation: str | None) -> Callable[[LoweringContext, tf.Operation], None]:
    def write(context: LoweringContext, op: tf.Operation) -> None:
        handle, given = op.inputs
        value = context.value(given)
        if operation:
            value = context.program.elementwise(operation, context.var_read(handle), value)
        index = context.variable(handle)
        context.program.write(index, context.program.broadcast(value, context.var_read(handle).shape))

    return write


def _gradient_descent(context: LoweringContext, op: tf.Operation) -> None:
    handle, rate, gradient = op.inputs
    program = context.program
    step = program.elementwise("mul", context.value(rate), context.value(gradient))
    program.write(context.variable(handle), program.elementwise("sub", context.var_read(handle), step))


def _momentum(context: LoweringContext, op: tf.Operation) -> None:
    handle, slot, rate, gradient, momentum = op.inputs
    if op.get_attr("use_nesterov"):
        raise Unsupported("Nesterov momentum")
    program = context.program
    kept = program.elementwise("mul", context.var_read(slot), context.value(momentum))
    moved = program.elementwise("add", kept, context.value(gradient))
    step = program.elementwise("mul", context.value(rate), moved)
    after = program.elementwise("sub", context.var_read(handle), step)
    program.write(context.variable(slot), moved)
    program.write(context.variable(handle), after)


def _rmsprop(context: LoweringContext, op: tf.Operation) -> None:
    handle, squares, moved, *hyper, gradient = op.inputs
    rate, decay, momentum, epsilon = map(context.value, hyper)
    program, gradient = context.program, context.value(gradient)
    difference = program.elementwise("sub", program.elementwise("square", gradient), context.var_read(squares))
    scale = fold_elementwise(program, "sub", program.literal(1), decay)
    mean = program.elementwise("add", context.var_read(squares), program.elementwise("mul", difference, scale))
    root = program.elementwise("rsqrt", program.elementwise("add", mean, epsilon))
    step = program.elementwise("mul", program.elementwise("mul", rate, gradient), root)
    step = program.elementwise("add", program.elementwise("mul", context.var_read(moved), momentum), step)
    after = program.elementwise("sub", context.var_read(handle), step)
    for target, value in ((squares, mean), (moved, step), (handle, after)):
        program.write(context.variable(target), value)


def _adam(context: LoweringContext, op: tf.Operation) -> None:
    handle, first, second, power1, power2, rate, beta1, beta2, epsilon, gradient = op.inputs
    if op.get_attr("use_nesterov"):
        raise Unsupported("Adam with Nesterov momentum")
    program, one = context.program, context.program.literal(1)
    power1, power2, rate, beta1, beta2, epsilon, gradient = map(
        context.value, (power1, power2, rate, beta1, beta2, epsilon, gradient)
    )
    root = program.elementwise("sqrt", program.elementwise("sub", one, power2))
    step = program.elementwise("div", program.elementwise("mul", rate, root), program.elementwise("sub", one, power1))

    def averaged(slot: tf.Tensor, beta: Node, new: Node) -> Node:
        old = context.var_read(slot)
        return program.elementwise(
            "add",
            old,
            program.elementwise(
                "mul", program.elementwise("sub", new, old), fold_elementwise(program, "sub", one, beta)
            ),
        )

    mean = averaged(first, beta1, gradient)
    square = averaged(second, beta2, program.elementwise("square", gradient))
    down = program.elementwise(
        "div",
        program.elementwise("mul", mean, step),
        program.elementwise("add", program.elementwise("sqrt", square), epsilon),
    )
    after = program.elementwise("sub", context.var_read(handle), down)
    for target, value in ((first, mean), (second, square), (handle, after)):
        program.write(context.variable(target), value)


WRITES: dict[str, Callable[[LoweringContext, tf.Operation], None]] = {
    "AssignVariableOp": _assign(None),
    "AssignAddVariableOp": _assign("add"),
    "AssignSubVariableOp": _assign("sub"),
    "ResourceApplyGradientDescent": _gradient_descent,
    "ResourceApplyMomentum": _momentum,
    "ResourceApplyRMSProp": _rmsprop,
    "ResourceApplyAdam": _adam,
}


def lower(
    fetches: Sequence[tf.Tensor], fields: Mapping[str, tf.Tensor], variables: Sequence
) -> tuple[Program, list[Node]]:
    """Return the program that computes ``fetches``, scalars, with every write that they wait for.

    Args:
        fetches: where to begin.
        fields: the placeholders of the minibatch, by name.
        variables: all that may be read or written; a program knows them by their place here.

    Raises:
        Unsupported: an op, or a shape, that programs do not know.
    """
    operations = list(ops_in_order(fetches))
    context = _Lowering(_constants(operations), fields, variables)
    for operation in operations:
        context.add(operation)
    # What a variable was when it was read, whatever is written to it later.
    program, values = context.program, map(context.whole, fetches)
    return program, [program.copy(value) if value.base.kind == "var_read" else value for value in values]


def ops_in_order(fetches: Sequence[tf.Tensor]) -> Iterator[tf.Operation]:
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
        if _depends_on_inputs(operation) or any(tensor.op.name in moving for tensor in operation.inputs):
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


def _depends_on_inputs(operation: tf.Operation) -> bool:
    """Whether an op whose inputs do not move may still do so, or needs functions of its graph."""
    functions = any(value.HasField("func") or value.list.func for value in operation.node_def.attr.values())
    kind = operation.type
    return operation.op_def.is_stateful or functions or kind in ("Placeholder", "NoOp") or "Random" in kind


class _Lowering:
    def __init__(self, constants: Mapping[str, np.ndarray], fields: Mapping[str, tf.Tensor], variables: Sequence):
        self.program = Program()
        self._constants = constants
        self._values: dict[str, Node] = {}
        self._variables = {variable.handle.name: index for index, variable in enumerate(variables)}
        self._shapes = [shape_of(tuple(variable.shape)) for variable in variables]
        for name, placeholder in fields.items():
            if placeholder.dtype != tf.float32:
                raise Unsupported(f"{name} of {placeholder.dtype.name}")
            self._values[placeholder.name] = self.program.input(name, matrix_shape(placeholder))

    def value(self, tensor: tf.Tensor) -> Node:
        """Return a tensor's value; it may be smaller than the tensor where it repeats itself."""
        if tensor.name in self._constants:
            return self.program.const(self._constants[tensor.name])
        if tensor.name not in self._values:
            raise Unsupported(f"{tensor.op.type} ({tensor.name})")
        return self._values[tensor.name]

    def whole(self, tensor: tf.Tensor) -> Node:
        """Return a tensor's value in the tensor's own shape."""
        return self.program.broadcast(self.value(tensor), matrix_shape(tensor))

    def constant_value(self, tensor: tf.Tensor) -> np.ndarray:
        """Return the value of a constant."""
        if tensor.name not in self._constants:
            raise Unsupported(f"{tensor.name} must be constant")
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
            self._values[operation.outputs[0].name] = self.program.var_read(index, self._shapes[index])
            return
        self._values |= lower_op(self, operation)

    def variable(self, handle: tf.Tensor) -> int:
        """Return a variable's number."""
        if handle.name not in self._variables:
            raise Unsupported(f"the variable {handle.name}")
        return self._variables[handle.name]

    def var_read(self, handle: tf.Tensor) -> Node:
        """Return a variable's value after the writes so far."""
        index = self.variable(handle)
        return self.program.var_read(index, self._shapes[index])
