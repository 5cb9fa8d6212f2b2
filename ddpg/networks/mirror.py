"""Read a network's graph as a NumPy program.

A network is described once, by the ops it builds; this walks them from the output back to the input.
Whatever it meets and cannot translate (a conditional, a convolution) makes the answer ``None``, and the
caller runs the graph in its session instead.
"""

import numpy as np
import tensorflow as tf

from ddpg.numpy_program import OPERATIONS, NumpyProgram, Step

# Attributes under which an op is what its NumPy counterpart does; any other value is not translated.
_REQUIRED = {
    "MatMul": {"transpose_a": False, "transpose_b": False},
    "Mean": {"keep_dims": True},
    "BiasAdd": {"data_format": b"NHWC"},
}


def mirror(output: tf.Tensor, source: tf.Tensor) -> tuple[NumpyProgram, list] | None:
    """Translate the graph between ``source`` and ``output``.

    Args:
        output: ``[B, A]``.
        source: the placeholder it is computed from.

    Returns:
        The program and the variables whose values it loads (as the tensors of their handles), or ``None``
        if some op has no translation.
    """
    registers: dict[str, int] = {source.name: 0}
    constants: dict[int, np.ndarray] = {}
    handles: dict[int, tf.Tensor] = {}
    steps: list[Step] = []

    def visit(tensor: tf.Tensor) -> int:
        if tensor.name in registers:
            return registers[tensor.name]
        operation = tensor.op
        if operation.type == "Identity":
            registers[tensor.name] = visit(operation.inputs[0])
            return registers[tensor.name]
        if operation.type in OPERATIONS:
            for attribute, expected in _REQUIRED.get(operation.type, {}).items():
                if operation.get_attr(attribute) != expected:
                    raise _NoTranslation
            inputs = tuple(visit(source) for source in operation.inputs)
            register = registers[tensor.name] = len(registers)
            steps.append(Step(operation.type, inputs, register))
            return register
        if operation.type == "ReadVariableOp":
            register = registers[tensor.name] = len(registers)
            handles[register] = operation.inputs[0]
            return register
        if operation.type == "Const":
            register = registers[tensor.name] = len(registers)
            constants[register] = tf.make_ndarray(operation.get_attr("value"))
            return register
        raise _NoTranslation

    try:
        result = visit(output)
    except _NoTranslation:
        return None
    program = NumpyProgram(steps, len(registers), constants, list(handles), 0, result)
    return program, list(handles.values())


class _NoTranslation(Exception):
    """An op without a NumPy counterpart."""
