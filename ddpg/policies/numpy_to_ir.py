"""Lower a NumPy program, for one observation, to the compiler's IR: every register is a row, or a matrix of weights."""

import numpy as np

from ddpg.compiler.elementwise_ops import ELEMENTWISE_OPS
from ddpg.compiler.ir import COLUMNS, Node, Program, Unsupported
from ddpg.policies.numpy_program import NumpyProgram


def lower_to_ir(program: Program, source: NumpyProgram, observation: Node, first: int) -> Node:
    """Add the steps of a policy's NumPy program to an IR program.

    Args:
        program: the IR program.
        source: of one input.
        observation: the input, one row.
        first: the index of the variable that holds the first of the source's parameters; the others follow.

    Returns:
        The outputs, one row.

    Raises:
        Unsupported: if the IR cannot express an operation.
    """
    arrays = source.arrays()
    nodes = {source.sources[0]: observation}
    for index, (register, value) in enumerate(zip(source.parameter_registers, source.parameters(), strict=True)):
        nodes[register] = program.var_read(first + index, _matrix_shape(value))

    def node(register: int) -> Node:
        if register not in nodes:
            nodes[register] = program.const(arrays[register])
        return nodes[register]

    def whole(register: int) -> Node:  # a constant of equal numbers is one number, which elementwise readers broadcast
        value = node(register)
        return program.broadcast(value, _matrix_shape(arrays[register])) if value.kind == "literal" else value

    for step in source.steps:
        if step.operation == "Reshape":  # of the observation, which is a row already
            result = node(step.inputs[0])
        elif step.operation == "MatMul":
            result = program.matmul(whole(step.inputs[0]), whole(step.inputs[1]), False, False)
        elif step.operation == "Mean":
            row = node(step.inputs[0])
            total = program.reduce_sum(row, COLUMNS)
            result = program.elementwise("mul", total, program.literal(1 / row.size))
        elif step.operation == "ConcatV2":
            result = program.concat(tuple(whole(register) for register in step.inputs[:2]))
        elif step.operation in ELEMENTWISE_OPS:
            result = program.elementwise(ELEMENTWISE_OPS[step.operation], *map(node, step.inputs))
        else:
            raise Unsupported(step.operation)
        nodes[step.output] = result
    return nodes[source.result]


def _matrix_shape(array: np.ndarray) -> tuple[int, int]:
    if array.ndim > 2:
        raise Unsupported(f"weights of shape {array.shape}")
    rows, columns = (1, 1, *array.shape)[-2:]
    return rows, columns
