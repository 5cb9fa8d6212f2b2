"""Compute μ(s) of one observation in one call of machine code, compiled from the policy's NumPy program.

The program is lowered to the compiler's IR, where each register is a row or a weight matrix. The call converts the
observation to float32, normalises it, runs the network, and checks that observation and outputs are finite. It adds in
another order than NumPy, so outputs differ by rounding.
"""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ddpg.compiler.codegen import ENTRY, Module, UpdateKind
from ddpg.compiler.ir import ALL, COLUMNS, ELEMENTWISE_OPS, Node, Program, Unsupported
from ddpg.compiler.jit import compile_module, host_registers
from ddpg.compiler.llvm_builder import FunctionBuilder
from ddpg.compiler.memory_plan import aligned_block, constants_of, plan_memory
from ddpg.compiler.schedule import schedule
from ddpg.interaction.actions import BoxActions
from ddpg.policies.numpy_program import NumpyProgram, ProgramStep
from ddpg.replay.normalizers import CLIP, ObservationNormalizer

_FUNCTION = "act"
_FLOATS = frozenset(map(np.dtype, (np.float32, np.float64)))


class _Workspace:
    """The memory of the machine code, used by one call at a time.

    Args:
        size: size of the block, in floats.
        offsets, shapes: of the variables: the observation in float32, the weights, the normaliser's mean and factor.
        result: offset and shape of the action or the outputs.
        finite: offset of a number that is 0 if observation and outputs are finite, else NaN.

    Attributes:
        observation: the machine code's input, float64.
        addresses: the addresses of ``observation`` and ``block``.
        weights, transformation: the objects from which the variables were last copied, to detect changes.
    """

    def __init__(
        self,
        size: int,
        offsets: Sequence[int],
        shapes: Sequence[tuple[int, ...]],
        result: tuple[int, tuple[int, ...]],
        finite: int,
    ):
        self.block = aligned_block(size)
        self.variables = [self.view(offset, shape) for offset, shape in zip(offsets, shapes, strict=True)]
        self.result, self.finite = self.view(*result), self.view(finite, (1,))
        self.observation = np.zeros(shapes[0])
        arrays = self.observation, self.block
        self.addresses = tuple(ctypes.c_void_p(array.ctypes.data) for array in arrays)  # faster to pass than integers
        self.weights: object = None
        self.transformation: object = None

    def load_weights(self, program: NumpyProgram) -> None:
        """Copy the weights."""
        weights = program.registers  # NumpyProgram.load replaces the list, so its identity shows a change
        for variable, array in zip(self.variables[1:], program.parameters(weights), strict=False):
            variable[...] = array
        self.weights = weights

    def load_transformation(self, transformation: tuple[np.ndarray, np.ndarray]) -> None:
        """Copy the mean and the factor of the normaliser."""
        for variable, array in zip(self.variables[-2:], transformation, strict=True):
            variable[...] = array
        self.transformation = transformation

    def view(self, offset: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return a view of the block at ``offset``."""
        return self.block[offset : offset + math.prod(shape)].reshape(shape)


class NativePolicy:
    """Acts on one observation. Several threads can call it at the same time, even while the program loads new weights.

    Args:
        program: the network; changed weights are copied before the next call.
        shape: shape of an observation.
        normaliser: the observation normaliser, if any.
        box: with it, the result is an action in env units; without it, the network's outputs.

    Raises:
        Unsupported: if the compiler does not support an operation of the program, or fails.
    """

    def __init__(
        self,
        program: NumpyProgram,
        shape: tuple[int, ...],
        normaliser: ObservationNormalizer | None = None,
        box: BoxActions | None = None,
    ):
        self._program, self._shape, self._normaliser, self.box = program, shape, normaliser, box
        size = math.prod(shape)
        self._shapes = [shape, *(array.shape for array in program.parameters())]
        ir = Program()
        observation = inputs = ir.var_read(0, (1, size))
        if normaliser is not None:
            mean, factor = (ir.var_read(len(self._shapes) + index, (1, size)) for index in range(2))
            self._shapes += [shape, shape]
            inputs = _clipped(ir, _product(ir, ir.elementwise("sub", observation, mean), factor), -CLIP, CLIP)
        outputs = result = lower_to_ir(ir, program, inputs, first=1)
        if box is not None:
            half_range, middle = box.scaling
            scaled = ir.elementwise("add", _product(ir, outputs, ir.const(half_range)), ir.const(middle))
            result = _clipped(ir, scaled, *box.bounds)
        zeros = [ir.reduce_sum(_product(ir, one, ir.literal(0)), ALL) for one in (observation, outputs)]
        self._results = [ir.copy(result), ir.copy(ir.elementwise("add", *zeros))]
        kernels = schedule(ir, self._results)
        sizes = [math.prod(shape) for shape in self._shapes]
        self._plan = plan_memory([(kernels, self._results)], sizes)
        module = Module([UpdateKind(kernels)], self._plan, [], host_registers())
        self._size, self._constants = module.size, constants_of(ir, self._plan)
        self._compiled = compile_module(f"{module.text}\n\n{_function(size)}", pointers=2)
        self._run = self._compiled.short_function(_FUNCTION, pointers=2)
        self._free: list[_Workspace] = []

    def __call__(self, observation: npt.ArrayLike) -> np.ndarray | None:
        """Return the action, in the box's shape, or the outputs ``[1, n]``.

        Returns ``None`` if ``observation`` is not a float32 or float64 array of the right shape, or if a number in it
        or in the outputs is not finite. The caller then acts in NumPy, which raises the right error.
        """
        if type(observation) is not np.ndarray or observation.shape != self._shape or observation.dtype not in _FLOATS:
            return None
        try:
            workspace = self._free.pop()  # list.pop is atomic, so no other thread gets the same one
        except IndexError:
            workspace = self._new_workspace()
        if workspace.weights is not self._program.registers:
            workspace.load_weights(self._program)
        if self._normaliser is not None and workspace.transformation is not self._normaliser.transformation:
            workspace.load_transformation(self._normaliser.transformation)
        workspace.observation[...] = observation
        self._run(*workspace.addresses)
        result = workspace.result.copy() if workspace.finite.item() == 0 else None
        self._free.append(workspace)
        return result

    def _new_workspace(self) -> _Workspace:
        shape = self._results[0].shape if self.box is None else self.box.space.shape
        result, finite = (self._plan.values[id(node.base)] for node in self._results)
        workspace = _Workspace(self._size, self._plan.variables, self._shapes, (result, shape), finite)
        for offset, constant in self._constants:
            workspace.view(offset, constant.shape)[...] = constant.detail.array.reshape(constant.shape)
        return workspace


def _product(program: Program, one: Node, other: Node) -> Node:
    return program.elementwise("mul", one, other)


def _clipped(program: Program, value: Node, low: npt.ArrayLike, high: npt.ArrayLike) -> Node:
    at_least = program.elementwise("max", value, program.const(np.asarray(low)))
    return program.elementwise("min", at_least, program.const(np.asarray(high)))


def _function(size: int) -> str:
    """Return the LLVM IR of ``void act(double* observation, float* block)``: convert the observation, then run."""
    lines = FunctionBuilder()
    with lines.loop(0, size) as index:
        place = lines.add(f"getelementptr double, ptr %observation, i64 {index}")
        number = lines.add(f"load double, ptr {place}, align 8")
        lines.store(lines.add(f"fptrunc double {number} to float"), "%block", index)  # variable 0 has offset 0
    lines.do(f"call void @{ENTRY}(i64 1, i64 0, ptr %block, ptr %block, ptr %block)")
    head = f"define void @{_FUNCTION}(ptr %observation, ptr %block) nounwind {{"
    return "\n".join([head, *lines.lines, "  ret void", "}"])


def lower_to_ir(program: Program, source: NumpyProgram, observation: Node, first: int) -> Node:
    """Add the steps of a policy's NumPy program to an IR program.

    Args:
        program: the IR program.
        source: the NumPy program, which must have one input.
        observation: the input, one row.
        first: index of the IR variable that holds the first parameter of ``source``; the others follow.

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

    def whole(register: int) -> Node:  # the IR folds a uniform constant to a scalar; matmul and concat need a matrix
        value = node(register)
        return program.broadcast(value, _matrix_shape(arrays[register])) if value.kind == "literal" else value

    def keeps_rows(step: ProgramStep, expected: Sequence[Any], *inputs: Node) -> bool:
        """Return whether a step computes a row from rows, with one of the expected axes or shapes."""
        return all(row.shape[0] == 1 for row in inputs) and arrays[step.inputs[-1]].tolist() in expected

    for step in source.steps:
        kept = True
        if step.operation == "Reshape":  # it flattens the observation, which is a row in the IR already
            result = node(step.inputs[0])
            kept = result is observation and keeps_rows(step, [[-1, observation.size]], result)
        elif step.operation == "MatMul":
            result = program.matmul(whole(step.inputs[0]), whole(step.inputs[1]), False, False)
        elif step.operation == "Mean":
            row = node(step.inputs[0])
            kept = keeps_rows(step, (1, -1, [1], [-1]), row)
            total = program.reduce_sum(row, COLUMNS)
            result = program.elementwise("mul", total, program.literal(1 / row.size))
        elif step.operation == "ConcatV2":
            parts = tuple(whole(register) for register in step.inputs[:2])
            kept = keeps_rows(step, (1, -1), *parts)
            result = program.concat(parts)
        elif step.operation in ELEMENTWISE_OPS:
            result = program.elementwise(ELEMENTWISE_OPS[step.operation], *map(node, step.inputs))
        else:
            raise Unsupported(step.operation)
        if not kept:  # such as layers that are shared between parts of an observation, by reshaping it
            raise Unsupported(f"{step.operation} across rows")
        nodes[step.output] = result
    return nodes[source.result]


def _matrix_shape(array: np.ndarray) -> tuple[int, int]:
    if array.ndim > 2:
        raise Unsupported(f"weights of shape {array.shape}")
    rows, columns = (1, 1, *array.shape)[-2:]
    return rows, columns
