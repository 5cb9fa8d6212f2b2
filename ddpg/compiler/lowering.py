"""Lower an update's TensorFlow graph to the IR: turn each op that the metrics depend on into nodes and writes.

Tensors become float32 matrices of fixed shape, constants are folded, and optimizers become arithmetic and writes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg.compiler import optimizer_steps
from ddpg.compiler.ir import (
    ALL,
    COLUMNS,
    ELEMENTWISE_OPS,
    ROWS,
    Convolution,
    Node,
    Program,
    Shape,
    Unsupported,
    fold_elementwise,
    shape_of,
)
from ddpg.compiler.slices import block_of, strided_index

v1 = tf.compat.v1

_SAME = ("Identity", "StopGradient", "PreventGradient")
_RESHAPED = ("Reshape", "Squeeze", "ExpandDims")


def lower(
    fetches: Sequence[tf.Tensor], fields: Mapping[str, tf.Tensor], variables: Sequence, precision: str = "float32"
) -> tuple[Program, list[Node]]:
    """Return the program that computes ``fetches``, with all writes that they depend on, and the fetches' nodes.

    Args:
        fetches: tensors to compute.
        fields: the placeholders of the minibatch, by name.
        variables: all variables that may be read or written; the program refers to them by index.
        precision: of the arguments of matrix products, see :data:`ddpg.compiler.ir.PRECISIONS`.

    Raises:
        Unsupported: if the IR cannot express an op, or a shape is not known.
    """
    operations = list(ops_in_order(fetches))
    context = _Lowering(Program(precision), _constants(operations), fields, variables)
    for operation in operations:
        context.add(operation)
    # A fetched variable is copied: later writes must not change the value that is returned.
    program, values = context.program, map(context.whole, fetches)
    return program, [program.copy(value) if value.base.kind == "var_read" else value for value in values]


def ops_in_order(fetches: Sequence[tf.Tensor | tf.Operation]) -> Iterator[tf.Operation]:
    """Yield the ops that ``fetches``, tensors or ops, depend on, each after its inputs and control inputs."""
    done: set[str] = set()
    stack = [(getattr(fetch, "op", fetch), False) for fetch in reversed(fetches)]
    while stack:
        operation, ready = stack.pop()
        if operation.name in done:
            continue
        if ready:
            done.add(operation.name)
            yield operation
            continue
        stack.append((operation, True))
        # TensorFlow lists control inputs in another order in every process; the program must not depend on it.
        waited_for = sorted(operation.control_inputs, key=lambda earlier: earlier.name)
        before = [*(tensor.op for tensor in operation.inputs), *waited_for]
        stack.extend((earlier, False) for earlier in reversed(before) if earlier.name not in done)


def _constants(operations: Sequence[tf.Operation]) -> dict[str, np.ndarray]:
    """Return the values of tensors that depend on no variable and no minibatch, or only on its shape."""
    values: dict[str, np.ndarray] = {}
    computed: dict[str, tf.Operation] = {}
    varying: set[str] = set()
    for operation in operations:
        if operation.type == "Const":
            values[operation.outputs[0].name] = tf.make_ndarray(operation.get_attr("value"))
        elif operation.type == "ShapeN" and all(tensor.shape.is_fully_defined() for tensor in operation.inputs):
            for shape, tensor in zip(operation.outputs, operation.inputs, strict=True):
                values[shape.name] = np.array(sizes_of(tensor), shape.dtype.as_numpy_dtype)
        elif _depends_on_inputs(operation) or any(tensor.op.name in varying for tensor in operation.inputs):
            varying.add(operation.name)
        elif operation.outputs:
            computed[operation.name] = operation
    return values | _evaluated(computed) if computed else values


def _evaluated(operations: dict[str, tf.Operation]) -> dict[str, np.ndarray]:
    """Return the outputs of ops that depend only on constants and on each other, by name."""
    # In a separate graph, without control inputs, because a constant has the same value at any time.
    some = next(iter(operations.values()))
    definition = v1.GraphDef(versions=some.graph.as_graph_def(from_version=1 << 62).versions)
    arguments = {tensor.op.name: tensor.op for operation in operations.values() for tensor in operation.inputs}
    for operation in (arguments | operations).values():
        node = definition.node.add()
        node.CopyFrom(operation.node_def)
        node.attr.pop("_class", None)  # a placement constraint that names ops outside this graph
        del node.input[:]
        node.input.extend(name for name in operation.node_def.input if not name.startswith("^"))
    # Each op runs only once, so optimising the graph would take longer than it saves.
    config = v1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    names = [tensor.name for operation in operations.values() for tensor in operation.outputs]
    with tf.Graph().as_default() as graph, v1.Session(graph=graph, config=config) as session:
        tf.import_graph_def(definition, name="")
        return session.run({name: name for name in names})


def _depends_on_inputs(operation: tf.Operation) -> bool:
    """Return whether an op varies even if its inputs are constant, calls functions of its graph or returns no array."""
    functions = any(value.HasField("func") or value.list.func for value in operation.node_def.attr.values())
    kind = operation.type
    varies = operation.op_def.is_stateful or functions or kind in ("Placeholder", "NoOp") or "Random" in kind
    return varies or any(tensor.dtype in (tf.variant, tf.resource) for tensor in operation.outputs)


class _Lowering:
    """The program so far, and the nodes of the tensors lowered so far; arguments as in :func:`lower`."""

    def __init__(
        self,
        program: Program,
        constants: Mapping[str, np.ndarray],
        fields: Mapping[str, tf.Tensor],
        variables: Sequence,
    ):
        self.program = program
        self._constants = constants
        self._values: dict[str, Node] = {}
        self._variables = {variable.handle.name: index for index, variable in enumerate(variables)}
        self._shapes = [shape_of(sizes_of(variable)) for variable in variables]
        for name, placeholder in fields.items():
            if placeholder.dtype != tf.float32:
                raise Unsupported(f"{name} of {placeholder.dtype.name}")
            self._values[placeholder.name] = self.program.input(name, matrix_shape(placeholder))

    def value(self, tensor: tf.Tensor) -> Node:
        """Return a tensor's node, which may be smaller than the tensor and then broadcasts to it."""
        if tensor.name in self._constants:
            return self.program.const(self._constants[tensor.name])
        if tensor.name not in self._values:
            raise Unsupported(f"{tensor.op.type} ({tensor.name})")
        return self._values[tensor.name]

    def whole(self, tensor: tf.Tensor) -> Node:
        """Return a tensor's node in the tensor's full shape."""
        return self.program.broadcast(self.value(tensor), matrix_shape(tensor))

    def constant_value(self, tensor: tf.Tensor) -> np.ndarray:
        """Return the value of a constant."""
        if tensor.name not in self._constants:
            raise Unsupported(f"{tensor.name} must be constant")
        return self._constants[tensor.name]

    def add(self, operation: tf.Operation) -> None:
        """Lower one op; the ops that it depends on must be lowered already.

        Raises:
            Unsupported: if the IR cannot express the op, or this use of it.
        """
        kind, outputs = operation.type, operation.outputs
        if kind in ("NoOp", "VarHandleOp", "Placeholder"):
            return
        if outputs and all(output.name in self._constants for output in outputs):
            return
        if kind in _WRITES:
            _WRITES[kind](self, operation)
        elif kind in _SEVERAL_OUTPUTS:
            nodes = _SEVERAL_OUTPUTS[kind](self, operation)
            self._values |= {output.name: node for output, node in zip(outputs, nodes, strict=True)}
        elif len(outputs) == 1:
            self._values[outputs[0].name] = self._lowered(operation, outputs[0])
        else:
            raise Unsupported(f"{kind} ({operation.name})")

    def _lowered(self, operation: tf.Operation, output: tf.Tensor) -> Node:
        kind, inputs = operation.type, operation.inputs
        if kind == "ReadVariableOp":
            return self.var_read(inputs[0])
        if kind in _SAME:
            return self.value(inputs[0])
        if kind in ELEMENTWISE_OPS:
            if kind == "BiasAdd" and operation.get_attr("data_format") != b"NHWC":
                raise Unsupported("BiasAdd of channels first")
            return self.elementwise(operation, output, ELEMENTWISE_OPS[kind])
        if kind in _RESHAPED:
            return self.program.reshape(self.whole(inputs[0]), matrix_shape(output))
        if kind in _OTHERS:
            return _OTHERS[kind](self, operation, output)
        raise Unsupported(f"{kind} ({operation.name})")

    def elementwise(self, operation: tf.Operation, output: tf.Tensor, function: str) -> Node:
        """Return a function applied to each element of an op's inputs, broadcast as TensorFlow broadcasts them."""
        program = self.program
        if not broadcasts_channels(operation, output):
            check_broadcast(operation, output)
            return fold_elementwise(program, function, *map(self.value, operation.inputs))
        result = fold_elementwise(program, function, *map(self.by_pixel, operation.inputs))
        *pixels, channels = sizes_of(output)
        return program.reshape(program.broadcast(result, (math.prod(pixels), channels)), matrix_shape(output))

    def by_pixel(self, tensor: tf.Tensor) -> Node:
        """Return a tensor's node with a row for each pixel, or one row that is repeated for every pixel."""
        value = self.value(tensor)
        if value.size == 1:
            return value
        *pixels, channels = sizes_of(tensor)
        return self.program.reshape(self.whole(tensor), (math.prod(pixels), channels))

    def variable(self, handle: tf.Tensor) -> int:
        """Return a variable's index."""
        if handle.name not in self._variables:
            raise Unsupported(f"the variable {handle.name}")
        return self._variables[handle.name]

    def var_read(self, handle: tf.Tensor) -> Node:
        """Return a variable's value after the writes so far."""
        index = self.variable(handle)
        return self.program.var_read(index, self._shapes[index])


def check_broadcast(operation: tf.Operation, output: tf.Tensor) -> None:
    """Refuse a broadcast above rank 2 that would give different results with flattened matrices."""
    rank = output.shape.rank
    if rank == 2 and operation.type == "Select" and operation.inputs[0].shape.rank == 1:
        raise Unsupported(f"{operation.name}: rows chosen by a vector")  # TensorFlow 1's rule
    if rank is not None and rank <= 2:
        return
    for given in operation.inputs:
        shape = sizes_of(given) if given.shape.is_fully_defined() and rank is not None else (0,)
        if math.prod(shape) == 1:
            continue
        rows, *columns = [1] * ((rank or 0) - len(shape)) + [*shape]
        same = columns == output.shape.as_list()[1:] or set(columns) == {1}
        if not same or shape_of(shape) != (rows, math.prod(columns)):
            raise Unsupported(f"{operation.name}: {shape} repeated to {sizes_of(output)}")


def broadcasts_channels(operation: tf.Operation, output: tf.Tensor) -> bool:
    """Return whether an op's result are images, and its inputs images too, or numbers repeated for every pixel."""
    if output.shape.rank != 4 or not output.shape.is_fully_defined():
        return False
    *pixels, channels = sizes_of(output)
    for given in operation.inputs:
        if not given.shape.is_fully_defined():
            return False
        *own, last = [1] * (4 - given.shape.rank) + [*sizes_of(given)]
        if own not in (pixels, [1, 1, 1]) or last not in (1, channels):
            return False
    return True


def sizes_of(tensor: tf.Tensor | tf.Variable) -> tuple[int, ...]:
    """Return a shape as numbers, which its elements are not after ``tf.compat.v1.disable_v2_tensorshape()``."""
    return tuple(tensor.shape.as_list())


def matrix_shape(tensor: tf.Tensor) -> Shape:
    """Return the rows and columns of a tensor as a matrix; a shape that is not fully known is unsupported."""
    if not tensor.shape.is_fully_defined():
        raise Unsupported(f"{tensor.name} of shape {tensor.shape}")
    return shape_of(sizes_of(tensor))


def _axes(context: _Lowering, operation: tf.Operation) -> str | None:
    """Return the axes that a reduction sums over, all but the last for ROWS; ``None`` if it sums over none."""
    rank = operation.inputs[0].shape.rank
    axes = sorted({int(axis) % max(rank, 1) for axis in np.atleast_1d(context.constant_value(operation.inputs[1]))})
    if not axes or rank == 0:
        return None
    if rank > 2:  # an axis of one element may be summed over or not
        axes = sorted({*axes, *(axis for axis, size in enumerate(sizes_of(operation.inputs[0])) if size == 1)})
    if len(axes) == rank:
        return ALL
    if axes == [*range(1, rank)]:
        return COLUMNS
    if axes == [*range(rank - 1)]:
        return ROWS
    raise Unsupported(f"{operation.type} of rank {rank} over {axes}")


def _sum(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    over = _axes(context, operation)
    values = context.whole(operation.inputs[0])
    total = values if over is None else _reduced(context, values, operation.inputs[0], over)
    return context.program.reshape(total, matrix_shape(output))


def _reduced(context: _Lowering, values: Node, tensor: tf.Tensor, over: str) -> Node:
    if over == ROWS:
        last = sizes_of(tensor)[-1]
        values = context.program.reshape(values, (values.size // last, last))
    return context.program.reduce_sum(values, over)


def _mean(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    total = _sum(context, operation, output)
    count = math.prod(sizes_of(operation.inputs[0])) / math.prod(sizes_of(output))
    return fold_elementwise(context.program, "mul", total, context.program.literal(1 / count))


def _max(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    return context.program.reshape(
        _largest(context, operation, context.whole(operation.inputs[0])), matrix_shape(output)
    )


def _min(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    program = context.program
    negative = program.elementwise("neg", context.whole(operation.inputs[0]))
    return program.reshape(program.elementwise("neg", _largest(context, operation, negative)), matrix_shape(output))


def _largest(context: _Lowering, operation: tf.Operation, values: Node) -> Node:
    over = _axes(context, operation)
    if over not in (None, COLUMNS):
        raise Unsupported(f"{operation.type} of other numbers than those of a row ({operation.name})")
    return values if over is None else context.program.reduce_max(values)


def _arg_max(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    """Return the first column with each row's maximum: minus the largest of minus those columns."""
    program, values = context.program, context.whole(operation.inputs[0])
    if _axes(context, operation) != COLUMNS:
        raise Unsupported(f"ArgMax of other numbers than those of a row ({operation.name})")
    columns = -np.arange(values.shape[1])
    largest = program.elementwise("equal", values, program.reduce_max(values))
    places = program.elementwise("select", largest, program.const(columns), program.literal(-values.shape[1]))
    return program.reshape(program.elementwise("neg", program.reduce_max(places)), matrix_shape(output))


def _l2_loss(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    program = context.program
    squares = program.elementwise("square", context.whole(operation.inputs[0]))
    return program.elementwise("mul", program.reduce_sum(squares, ALL), program.literal(0.5))


def _bias_gradient(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    gradient = operation.inputs[0]
    if operation.get_attr("data_format") != b"NHWC":
        raise Unsupported(f"{operation.type} of channels first ({operation.name})")
    return context.program.reshape(_reduced(context, context.whole(gradient), gradient, ROWS), matrix_shape(output))


def _matmul(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    one, other = map(context.whole, operation.inputs)
    return context.program.matmul(one, other, operation.get_attr("transpose_a"), operation.get_attr("transpose_b"))


def _convolution(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    """Return a convolution or a gradient; in the place of its result, a gradient's op has the result's shape."""
    kind, place = _CONVOLUTIONS[operation.type]
    tensors = [*operation.inputs]
    tensors[place : place + 1] = [output]
    one, other = (context.whole(tensor) for tensor in tensors if tensor is not output)
    result = context.program.convolution(kind, one, other, _sizes_of_convolution(operation, *tensors))
    return context.program.reshape(result, matrix_shape(output))


def _sizes_of_convolution(
    operation: tf.Operation, images: tf.Tensor, filters: tf.Tensor, outputs: tf.Tensor
) -> Convolution:
    """Return the sizes of a convolution from the shapes of its images, filters and result."""
    count, *whole, channels = sizes_of(images)
    *reach, per_filter, number = sizes_of(filters)
    _, *found, _ = sizes_of(outputs)
    padding = operation.get_attr("padding").decode()
    if operation.get_attr("data_format") != b"NHWC" or channels != per_filter or padding == "EXPLICIT":
        raise Unsupported(f"{operation.name}: channels first or in groups, or padding={padding}")
    if {*operation.get_attr("dilations")} != {1}:
        raise Unsupported(f"{operation.name}: dilated filters")
    strides = operation.get_attr("strides")[1:3]
    missing = [
        max((out - 1) * stride + filter_size - size, 0)
        for out, stride, filter_size, size in zip(found, strides, reach, whole, strict=True)
    ]
    return Convolution(
        images=(count, whole[0], whole[1], channels),
        filters=(reach[0], reach[1], channels, number),
        outputs=(found[0], found[1]),
        strides=(strides[0], strides[1]),
        before=(missing[0] // 2, missing[1] // 2),  # TensorFlow's rule for SAME; nothing is missing for VALID
    )


def _transpose(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    argument, order = operation.inputs[0], tuple(context.constant_value(operation.inputs[1]).tolist())
    if len(order) < 3 or order[0] != 0:
        raise Unsupported(f"{operation.name}: another transposition than of each image's axes")
    return context.program.transpose(context.whole(argument), sizes_of(argument), order, matrix_shape(output))


def _concat(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    *parts, axis = operation.inputs
    rank = output.shape.rank or 1
    along = int(context.constant_value(axis)) % rank
    if along == 0:
        return _stack_rows(context, parts, output)
    if rank != 2:
        raise Unsupported(f"{operation.name} of rank {rank} along axis {along}")
    return context.program.concat(tuple(map(context.whole, parts)))


def _pack(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    if operation.get_attr("axis") != 0:
        raise Unsupported(f"{operation.name} along axis {operation.get_attr('axis')}")
    return _stack_rows(context, operation.inputs, output)


def _stack_rows(context: _Lowering, parts: Sequence[tf.Tensor], output: tf.Tensor) -> Node:
    """Stack tensors along the first axis: in row-major memory they are long rows side by side."""
    program = context.program
    rows = [program.reshape(context.whole(part), (1, math.prod(sizes_of(part)))) for part in parts]
    return program.reshape(program.concat(tuple(rows)), matrix_shape(output))


def _unpack(context: _Lowering, operation: tf.Operation) -> list[Node]:
    argument, count = operation.inputs[0], operation.get_attr("num")
    if operation.get_attr("axis") != 0:
        raise Unsupported(f"{operation.name} along axis {operation.get_attr('axis')}")
    program, size = context.program, math.prod(sizes_of(argument)) // count
    rows = program.reshape(context.whole(argument), (count, size))
    return [
        program.reshape(program.slice(rows, row, 0, (1, size)), matrix_shape(output))
        for row, output in enumerate(operation.outputs)
    ]


def _slice(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    argument, begin, _ = operation.inputs
    if argument.shape.rank != 2:
        raise Unsupported(f"{operation.name} of rank {argument.shape.rank}")
    row, column = map(int, context.constant_value(begin))
    return context.program.slice(context.whole(argument), row, column, matrix_shape(output))


def _strided_slice(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    argument = operation.inputs[0]
    whole = context.whole(argument)
    row, column, shape = _block(context, operation, sizes_of(argument))
    return context.program.reshape(context.program.slice(whole, row, column, shape), matrix_shape(output))


def _strided_slice_gradient(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    """Return the gradient of the block, with zeros around it."""
    program, (rows, columns) = context.program, matrix_shape(output)
    row, column, (high, wide) = _block(context, operation, sizes_of(output))
    block = program.reshape(context.whole(operation.inputs[4]), (high, wide))
    band = _side_by_side(program, [(high, column), block, (high, columns - column - wide)])
    above, below = row * columns, (rows - row - high) * columns
    whole = _side_by_side(program, [(1, above), program.reshape(band, (1, high * columns)), (1, below)])
    return program.reshape(whole, (rows, columns))


def _side_by_side(program: Program, parts: Sequence[Node | Shape]) -> Node:
    """Return matrices side by side; a shape stands for zeros, and is left out if it has none."""
    nodes = [
        part if isinstance(part, Node) else program.broadcast(program.literal(0), part)
        for part in parts
        if isinstance(part, Node) or part[1]
    ]
    return nodes[0] if len(nodes) == 1 else program.concat(tuple(nodes))


def _block(context: _Lowering, operation: tf.Operation, sizes: tuple[int, ...]) -> tuple[int, int, Shape]:
    index = strided_index(operation, *(context.constant_value(tensor) for tensor in operation.inputs[1:4]))
    found = block_of(index, sizes, shape_of(sizes)[1])
    if found is None:
        raise Unsupported(f"{operation.name}: nothing, or other parts of a tensor than a block of rows and columns")
    return found


def _power(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    program, value = context.program, context.value(operation.inputs[0])
    exponent = context.constant_value(operation.inputs[1])
    if exponent.size != 1 or exponent.item() not in (0, 1, 2, 3):
        raise Unsupported(f"{operation.name}: another power than 0, 1, 2 or 3")
    times = [value] * int(exponent.item())
    product = program.literal(1) if not times else times[0]
    for factor in times[1:]:
        product = program.elementwise("mul", product, factor)
    return product


def _leaky_relu(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    program, value = context.program, context.value(operation.inputs[-1])
    given = context.value(operation.inputs[0])  # the value, or for the gradient what it is multiplied by
    small = program.elementwise("mul", given, program.literal(operation.get_attr("alpha")))
    return program.elementwise("select", program.elementwise("greater", value, program.literal(0)), given, small)


def _broadcast(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    argument = operation.inputs[1 if operation.type == "Fill" else 0]
    value, shape = context.value(argument), matrix_shape(output)
    if operation.type != "Fill" and output.shape.rank == 4 and sizes_of(argument)[:-1] in ((1, 1, 1), ()):
        *pixels, channels = sizes_of(output)
        if value.shape[1] in (1, channels):  # repeated for each pixel
            return context.program.reshape(context.program.broadcast(value, (math.prod(pixels), channels)), shape)
    if operation.type == "BroadcastTo" and output.shape.rank > 2 and argument.shape.rank > 0:
        raise Unsupported(f"{operation.name} to rank {output.shape.rank}")
    if any(have not in (1, want) for have, want in zip(value.shape, shape, strict=True)):
        raise Unsupported(f"{operation.name}: {value.shape} repeated to {shape}")
    return context.program.broadcast(value, shape)


def _cast(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    # The IR's comparisons give 1 and 0, and the place of a maximum is a whole number, so casts of these change nothing.
    if operation.inputs[0].dtype not in (tf.float32, tf.bool, tf.int32, tf.int64) or output.dtype != tf.float32:
        raise Unsupported(f"{operation.name} from {operation.inputs[0].dtype.name} to {output.dtype.name}")
    return context.value(operation.inputs[0])


def _add_n(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    total, *others = map(context.value, operation.inputs)
    for other in others:
        total = fold_elementwise(context.program, "add", total, other)
    return total


def _squared_difference(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    return context.program.elementwise("square", context.elementwise(operation, output, "sub"))


def _exponentials(program: Program, logits: Node) -> tuple[Node, Node, Node]:
    """Return the logits minus their row's maximum, the exponentials of these, and each row's sum of exponentials."""
    shifted = program.elementwise("sub", logits, program.reduce_max(logits))
    powers = program.elementwise("exp_nonpositive", shifted)
    return shifted, powers, program.reduce_sum(powers, COLUMNS)


def _softmax(context: _Lowering, operation: tf.Operation, output: tf.Tensor) -> Node:
    if output.shape.rank != 2:
        raise Unsupported(f"{operation.name} of rank {output.shape.rank}")
    program = context.program
    shifted, powers, total = _exponentials(program, context.whole(operation.inputs[0]))
    if operation.type == "LogSoftmax":
        return program.elementwise("sub", shifted, program.elementwise("log", total))
    return program.elementwise("div", powers, total)


def _cross_entropy(context: _Lowering, operation: tf.Operation) -> list[Node]:
    program = context.program
    logits, labels = map(context.whole, operation.inputs)
    shifted, powers, total = _exponentials(program, logits)
    surprisals = program.elementwise("sub", program.elementwise("log", total), shifted)  # -log p
    losses = program.reduce_sum(program.elementwise("mul", labels, surprisals), COLUMNS)
    return [
        program.reshape(losses, matrix_shape(operation.outputs[0])),
        program.elementwise("sub", program.elementwise("div", powers, total), labels),
    ]


def _split(context: _Lowering, operation: tf.Operation) -> list[Node]:
    axis, argument = operation.inputs[:2] if operation.type == "Split" else operation.inputs[2::-2]
    if argument.shape.rank != 2:
        raise Unsupported(f"{operation.name} of rank {argument.shape.rank}")
    whole, shapes = context.whole(argument), [*map(matrix_shape, operation.outputs)]
    across = int(context.constant_value(axis)) % 2
    firsts = np.cumsum([0, *(shape[across] for shape in shapes)]).tolist()
    return [
        context.program.slice(whole, 0 if across else first, first if across else 0, shape)
        for first, shape in zip(firsts, shapes, strict=False)
    ]


def _assign(operation: str | None) -> Callable[[_Lowering, tf.Operation], None]:
    def write(context: _Lowering, op: tf.Operation) -> None:
        handle, given = op.inputs
        value = context.value(given)
        if operation:
            value = context.program.elementwise(operation, context.var_read(handle), value)
        index = context.variable(handle)
        context.program.write(index, context.program.broadcast(value, context.var_read(handle).shape))

    return write


def _optimizer(step: Callable[..., Sequence[Node]]) -> Callable[[_Lowering, tf.Operation], None]:
    def write(context: _Lowering, op: tf.Operation) -> None:
        if "use_nesterov" in op.node_def.attr and op.get_attr("use_nesterov"):
            raise Unsupported(f"{op.type} with Nesterov momentum")
        handles = [tensor for tensor in op.inputs if tensor.dtype == tf.resource]
        others = [tensor for tensor in op.inputs if tensor.dtype != tf.resource]
        after = step(context.program, *map(context.var_read, handles), *map(context.value, others))
        trained, *slots = zip(handles, after, strict=True)
        for handle, value in (*slots, trained):
            context.program.write(context.variable(handle), value)

    return write


_WRITES: dict[str, Callable[[_Lowering, tf.Operation], None]] = {
    "AssignVariableOp": _assign(None),
    "AssignAddVariableOp": _assign("add"),
    "AssignSubVariableOp": _assign("sub"),
    "ResourceApplyGradientDescent": _optimizer(optimizer_steps.gradient_descent),
    "ResourceApplyMomentum": _optimizer(optimizer_steps.momentum),
    "ResourceApplyRMSProp": _optimizer(optimizer_steps.rmsprop),
    "ResourceApplyAdam": _optimizer(optimizer_steps.adam),
}


_SEVERAL_OUTPUTS: dict[str, Callable[[_Lowering, tf.Operation], list[Node]]] = {
    "IdentityN": lambda context, operation: [*map(context.value, operation.inputs)],
    "Unpack": _unpack,
    **dict.fromkeys(("Split", "SplitV"), _split),
    "SoftmaxCrossEntropyWithLogits": _cross_entropy,
}

# The IR's kind, and the place of the result among images, filters and the convolution's result.
_CONVOLUTIONS = {
    "Conv2D": ("convolution", 2),
    "Conv2DBackpropFilter": ("filter_gradient", 1),
    "Conv2DBackpropInput": ("image_gradient", 0),
}
_OTHERS: dict[str, Callable[[_Lowering, Any, tf.Tensor], Node]] = {
    "Cast": _cast,
    "Sum": _sum,
    "Mean": _mean,
    "Max": _max,
    "Min": _min,
    "ArgMax": _arg_max,
    "L2Loss": _l2_loss,
    "BiasAddGrad": _bias_gradient,
    "MatMul": _matmul,
    **dict.fromkeys(_CONVOLUTIONS, _convolution),
    "Transpose": _transpose,
    "ConcatV2": _concat,
    **dict.fromkeys(("Softmax", "LogSoftmax"), _softmax),
    "Pack": _pack,
    "ZerosLike": lambda context, *_: context.program.literal(0),
    "OnesLike": lambda context, *_: context.program.literal(1),
    "Slice": _slice,
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_gradient,
    "Pow": _power,
    **dict.fromkeys(("LeakyRelu", "LeakyReluGrad"), _leaky_relu),
    "AddN": _add_n,
    "SquaredDifference": _squared_difference,
    **dict.fromkeys(("Tile", "BroadcastTo", "Fill"), _broadcast),
}
