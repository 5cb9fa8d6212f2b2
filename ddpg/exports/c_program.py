"""Lower a policy's NumPy program to the loops that C runs: dense layers, elementwise loops, means, concatenations.

Steps between constants alone are computed here, once; a bias joins its matrix product; ``int8`` weights have one scale
per output. :mod:`ddpg.exports.c_source` writes the result as text; :meth:`CProgram.outputs` computes it in NumPy.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from ddpg.policies.numpy_program import NumpyProgram, ProgramStep
from ddpg.policies.standalone import OPERATIONS

QUANTIZATIONS = ("int8",)


@dataclasses.dataclass(frozen=True)
class Value:
    """A row of numbers that is computed for each observation; number 0 is the observation itself, flattened."""

    number: int
    width: int


@dataclasses.dataclass(frozen=True)
class Constant:
    """An array of :attr:`CProgram.arrays`, a row of ``width`` numbers."""

    name: str
    width: int


Operand: TypeAlias = Value | Constant


@dataclasses.dataclass(frozen=True)
class Dense:
    """``output = bias + scale · (source · weights)``; without ``bias`` 0, without ``scale`` 1."""

    source: Operand
    weights: str
    bias: str | None
    scale: str | None
    output: Value


@dataclasses.dataclass(frozen=True)
class Elementwise:
    """``output[j] = operation(operands[0][j], ...)``; an operand of width 1 is the same for every j."""

    operation: str
    operands: tuple[Operand, ...]
    output: Value


@dataclasses.dataclass(frozen=True)
class Mean:
    """``output[0]`` is the mean of ``source``."""

    source: Value
    output: Value


@dataclasses.dataclass(frozen=True)
class Concat:
    """``output`` is one operand behind the other."""

    operands: tuple[Operand, ...]
    output: Value


CStep: TypeAlias = Dense | Elementwise | Mean | Concat


@dataclasses.dataclass(frozen=True)
class CProgram:
    """Straight-line loops over rows.

    Attributes:
        steps: in order of execution; each value is set once.
        arrays: constants by name: float32 rows ``[n]``, matrices ``[in, out]`` in float32 or int8.
        result: the network's outputs.
        observation_size: how many numbers an observation has.
    """

    steps: tuple[CStep, ...]
    arrays: dict[str, np.ndarray]
    result: Value
    observation_size: int

    def outputs(self, observations: np.ndarray, arrays: Mapping[str, np.ndarray] | None = None) -> np.ndarray:
        """Return the network's outputs ``[B, n]`` float32 for observations ``[B, ...]``, in NumPy.

        Args:
            observations: in env units.
            arrays: the constants, such as those read from a written file; by default the program's own.
        """
        arrays = self.arrays if arrays is None else arrays
        values = {0: np.asarray(observations, np.float32).reshape(len(observations), -1)}

        def read(operand: Operand) -> np.ndarray:
            return values[operand.number] if isinstance(operand, Value) else arrays[operand.name].reshape(1, -1)

        for step in self.steps:
            if isinstance(step, Dense):
                found = read(step.source) @ arrays[step.weights].astype(np.float32)
                found = found if step.scale is None else found * arrays[step.scale]
                found = found if step.bias is None else found + arrays[step.bias]
            elif isinstance(step, Elementwise):
                found = OPERATIONS[step.operation](*map(read, step.operands))
            elif isinstance(step, Mean):
                found = read(step.source).mean(axis=1, keepdims=True)
            else:
                rows = [np.broadcast_to(read(one), (len(observations), one.width)) for one in step.operands]
                found = np.concatenate(rows, axis=1)
            values[step.output.number] = found.astype(np.float32)
        return values[self.result.number]


def lower_to_c(program: NumpyProgram, observation_size: int, quantize: str | None = None) -> CProgram:
    """Lower a policy's program.

    Args:
        program: of one input, ``[B, *observation shape]``, with its weights.
        observation_size: how many numbers an observation has.
        quantize: ``"int8"``: matrices as integers from -127 to 127, with one float32 scale per output; the layers'
            inputs stay float32.
    """
    return _CLowering(program, observation_size, quantize).lowered()


def quantized(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights ``[in, out]`` as int8 and the scale of each output ``[out]``: symmetric, rounded to nearest."""
    scale = (np.abs(weights).max(axis=0) / 127).astype(np.float32)
    divisor = np.where(scale > 0, scale, 1)
    return np.clip(np.rint(weights / divisor), -127, 127).astype(np.int8), scale


class _CLowering:
    """The loops so far, and what each register of the NumPy program is in them."""

    def __init__(self, program: NumpyProgram, observation_size: int, quantize: str | None):
        self._program, self._quantize = program, quantize
        self._known: dict[int, np.ndarray] = dict(program.arrays())
        self._values: dict[int, Value] = {program.sources[0]: Value(0, observation_size)}
        self._uses = Counter(register for step in program.steps for register in step.inputs)
        self._uses[program.result] += 1
        self._arrays: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}
        self._steps: list[CStep] = []
        self._observation_size = observation_size

    def lowered(self) -> CProgram:
        """Return the program; nothing in it is computed in vain."""
        for step in self._program.steps:
            if all(register in self._known for register in step.inputs):
                inputs = [self._known[register] for register in step.inputs]
                self._known[step.output] = OPERATIONS[step.operation](*inputs)
            else:
                self._lower(step)
        result = self._values[self._program.result]
        return CProgram(tuple(self._steps), self._arrays, result, self._observation_size)

    def _lower(self, step: ProgramStep) -> None:
        if step.operation == "Reshape":  # of the observation, which is flat already
            self._values[step.output] = self._values[step.inputs[0]]
        elif step.operation == "MatMul":
            self._dense(step)
        elif step.operation == "Mean":
            source = self._values[step.inputs[0]]
            self._append(step, 1, lambda output: Mean(source, output))
        elif step.operation == "ConcatV2":
            operands = tuple(self._operand(register) for register in step.inputs[:2])
            self._append(step, sum(one.width for one in operands), lambda output: Concat(operands, output))
        elif not self._is_bias(step):
            operands = tuple(self._operand(register) for register in step.inputs)
            width = max(one.width for one in operands)
            self._append(step, width, lambda output: Elementwise(step.operation, operands, output))

    def _dense(self, step: ProgramStep) -> None:
        source, weights = self._operand(step.inputs[0]), self._known[step.inputs[1]].astype(np.float32)
        scale = None
        if self._quantize is None:
            name = self._array("weights", weights)
        else:
            integers, scales = quantized(weights)
            name, scale = self._array("weights", integers), self._array("scale", scales)
        self._append(step, weights.shape[1], lambda output: Dense(source, name, None, scale, output))

    def _is_bias(self, step: ProgramStep) -> bool:
        """Make a constant that is added to the last step's product, which nothing else reads, that layer's bias."""
        if step.operation not in ("BiasAdd", "AddV2") or not self._steps:
            return False
        last = self._steps[-1]
        if not isinstance(last, Dense) or last.bias is not None:
            return False
        for register, other in (step.inputs, step.inputs[::-1]):
            value = self._values.get(register)
            fits = value == last.output and other in self._known
            if fits and self._uses[register] == 1 and self._known[other].size in (1, last.output.width):
                row = np.broadcast_to(np.ravel(self._known[other]), last.output.width)
                self._steps[-1] = dataclasses.replace(last, bias=self._array("bias", row))
                self._values[step.output] = last.output
                return True
        return False

    def _append(self, step: ProgramStep, width: int, made) -> None:
        self._values[step.output] = Value(len(self._steps) + 1, width)
        self._steps.append(made(self._values[step.output]))

    def _operand(self, register: int) -> Operand:
        if register in self._values:
            return self._values[register]
        row = np.ravel(self._known[register]).astype(np.float32)
        if register not in self._names:
            self._names[register] = self._array("constant", row)
        return Constant(self._names[register], row.size)

    def _array(self, kind: str, array: np.ndarray) -> str:
        name = f"{kind}_{sum(other.startswith(kind) for other in self._arrays)}"
        self._arrays[name] = np.array(array)
        return name
