"""Lower a policy's network to loops in C: dense layers, elementwise loops, means, concatenations.

:func:`lower_to_c` builds the loops from a NumPy program. It adds a bias within its dense layer, and gives ``int8``
weights one scale per output. :meth:`CProgram.outputs` runs the loops in NumPy; :func:`network_text` writes them as C99
statements. Loop bounds are constant and the innermost loop runs over a layer's outputs, which compilers turn into
vector instructions at ``-O2``. One pass over the outputs handles eight inputs, so an output is loaded and stored once
per eight products.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ddpg.policies.numpy_program import NumpyProgram, ProgramStep
from ddpg.policies.standalone import OPERATIONS

QUANTIZATIONS = ("int8",)
ROWS = 8  # inputs of a layer that one pass over its outputs handles
WIDTH = 110  # longest line of an array in the C text

# `b > a ? b : a` is NaN if a is NaN, so an overflow reaches the outputs and the policy refuses to act.
_EXPRESSIONS = {
    "BiasAdd": "{0} + {1}",
    "AddV2": "{0} + {1}",
    "Sub": "{0} - {1}",
    "Mul": "{0} * {1}",
    "RealDiv": "{0} / {1}",
    "Maximum": "({1} > {0}) ? {1} : {0}",
    "Minimum": "({1} < {0}) ? {1} : {0}",
    "Neg": "-{0}",
    "Square": "{0} * {0}",
    "Sqrt": "sqrtf({0})",
    "Rsqrt": "1.0f / sqrtf({0})",
    "Tanh": "tanhf({0})",
    "Erf": "erff({0})",
    "Erfc": "erfcf({0})",
    "Sigmoid": "(({0} >= 0.0f) ? 1.0f : expf({0})) / (1.0f + expf(-fabsf({0})))",
    "Softplus": "(({0} > 0.0f) ? {0} : 0.0f) + log1pf(expf(-fabsf({0})))",
    "Softsign": "{0} / (1.0f + fabsf({0}))",
    "Elu": "({0} > 0.0f) ? {0} : expm1f({0})",
    "Selu": "1.05070099f * (({0} > 0.0f) ? {0} : 1.67326324f * expm1f({0}))",
}


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
    """``output = bias + scale · (source · weights)``; a missing ``bias`` counts as 0, a missing ``scale`` as 1."""

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
    """``output`` is the operands joined in order."""

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
        program: the network with its weights; its one input is ``[B, *observation shape]``.
        observation_size: how many numbers an observation has.
        quantize: ``"int8"`` stores matrices as integers from -127 to 127 with one float32 scale per output; the layers'
            inputs stay float32. ``None`` stores float32.
    """
    return _CLowering(program, observation_size, quantize).lowered()


def quantized(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights ``[in, out]`` as int8 and the scale of each output ``[out]``: symmetric, rounded to nearest."""
    scale = (np.abs(weights).max(axis=0) / 127).astype(np.float32)
    divisor = np.where(scale > 0, scale, 1)
    return np.clip(np.rint(weights / divisor), -127, 127).astype(np.int8), scale


class _CLowering:
    """The lowering in progress: the loops so far, and the value or constant for each register of the NumPy program."""

    def __init__(self, program: NumpyProgram, observation_size: int, quantize: str | None):
        self._program, self._quantize = program.folded(), quantize
        self._known: dict[int, np.ndarray] = self._program.arrays()
        self._values: dict[int, Value] = {program.sources[0]: Value(0, observation_size)}
        self._uses = Counter(register for step in self._program.steps for register in step.inputs)
        self._uses[program.result] += 1
        self._arrays: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}
        self._steps: list[CStep] = []
        self._observation_size = observation_size

    def lowered(self) -> CProgram:
        """Return the lowered program."""
        for step in self._program.steps:
            self._lower(step)
        result = self._values[self._program.result]
        return CProgram(tuple(self._steps), self._arrays, result, self._observation_size)

    def _lower(self, step: ProgramStep) -> None:
        if step.operation == "Reshape":  # of the observation, which is flat already
            self._values[step.output] = self._values[step.inputs[0]]
        elif step.operation == "MatMul":
            self._dense(step)
        elif step.operation == "Mean":
            self._steps.append(Mean(self._values[step.inputs[0]], self._output(step, 1)))
        elif step.operation == "ConcatV2":
            operands = tuple(self._operand(register) for register in step.inputs[:2])
            self._steps.append(Concat(operands, self._output(step, sum(one.width for one in operands))))
        elif not self._add_bias(step):
            operands = tuple(self._operand(register) for register in step.inputs)
            output = self._output(step, max(one.width for one in operands))
            self._steps.append(Elementwise(step.operation, operands, output))

    def _dense(self, step: ProgramStep) -> None:
        source, weights = self._operand(step.inputs[0]), self._known[step.inputs[1]].astype(np.float32)
        scale = None
        if self._quantize is None:
            name = self._array("weights", weights)
        else:
            integers, scales = quantized(weights)
            name, scale = self._array("weights", integers), self._array("scale", scales)
        self._steps.append(Dense(source, name, None, scale, self._output(step, weights.shape[1])))

    def _add_bias(self, step: ProgramStep) -> bool:
        """Make the constant that a step adds the bias of the dense layer before it; return whether that was possible.

        Nothing else may read the layer's product.
        """
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

    def _output(self, step: ProgramStep, width: int) -> Value:
        """Return the value that the next loop sets, which is the output of ``step``."""
        self._values[step.output] = Value(len(self._steps) + 1, width)
        return self._values[step.output]

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


def number_text(value: Any) -> str:
    """Return a number as a C literal: an integer, or the shortest decimal that reads back as the same float32."""
    return f"{value!s}f" if isinstance(value, np.float32) else str(int(value))


def _rows(array: np.ndarray, indent: str = "    ") -> str:
    if array.ndim > 1:
        return ",\n".join(f"{indent}{{\n{_rows(row, indent + '    ')}\n{indent}}}" for row in array)
    lines, line = [], indent
    for index, value in enumerate(array):
        number = number_text(value) + ("" if index == len(array) - 1 else ",")
        if len(line) + len(number) > WIDTH:
            lines.append(line.rstrip())
            line = indent
        line += f"{number} "
    return "\n".join([*lines, line.rstrip()])


def array_text(name: str, array: np.ndarray) -> str:
    """Return the definition of a constant array."""
    kind = "signed char" if array.dtype == np.int8 else "float"
    shape = "".join(f"[{size}]" for size in array.shape)
    return f"static const {kind} {name}{shape} = {{\n{_rows(array)}\n}};"


def network_text(program: CProgram) -> str:
    """Return the body of ``policy_outputs``; its rows share few arrays: one is reused after its row's last read."""
    groups = _groups(program.steps)
    last_read = {operand.number: index for index, group in enumerate(groups) for operand in _values_read(group)}
    last_read[program.result.number] = len(groups)
    widths: list[int] = []  # of the arrays
    free: list[int] = []
    places = {0: "observation"}
    body: list[str] = []
    for index, group in enumerate(groups):
        stored = [step.output for step in group if last_read.get(step.output.number, -1) > index]
        dying = [one.number for one in _values_read(group) if one.number and last_read[one.number] == index]
        for value in stored:
            if not free:
                free.append(len(widths))
                widths.append(0)
            array = min(free, key=lambda number: abs(widths[number] - value.width))
            free.remove(array)
            widths[array] = max(widths[array], value.width)
            places[value.number] = f"row_{array}"
        body += _statements(group, stored, places, program.arrays)
        free += [int(places.pop(number).removeprefix("row_")) for number in dying]
    width, result = program.result.width, places[program.result.number]
    body += [f"for (j = 0; j < {width}; j++)", f"    outputs[j] = {result}[j];"]
    declared = [
        f"float {', '.join(f'row_{array}[{size}]' for array, size in enumerate(widths))};",
        "int i, j;" if any(_blocks(step, program) for step in program.steps) else "int j;",
        *([""] if body[0] else []),
    ]
    return "\n".join(f"    {line}".rstrip() for line in declared + body)


def _blocks(step: CStep, program: CProgram) -> bool:
    """Return whether a step is a layer with enough inputs for the loop over blocks of ``ROWS``."""
    return isinstance(step, Dense) and len(program.arrays[step.weights]) >= ROWS


def _groups(steps: Sequence[CStep]) -> list[list[CStep]]:
    """Group the steps that share a loop: consecutive elementwise steps of the same width."""
    groups: list[list[CStep]] = []
    for step in steps:
        last = groups[-1][-1] if groups else None
        joins = isinstance(step, Elementwise) and isinstance(last, Elementwise)
        # Only of the same width: a row of one number has to be complete before a wider row can use it.
        if joins and last is not None and last.output.width == step.output.width:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _operands(step: CStep) -> tuple[Operand, ...]:
    return step.operands if isinstance(step, (Elementwise, Concat)) else (step.source,)


def _values_read(group: Sequence[CStep]) -> list[Value]:
    """Return the values from other groups that a group reads, each once."""
    own = {step.output for step in group}
    found = (operand for step in group for operand in _operands(step) if isinstance(operand, Value))
    return [value for value in dict.fromkeys(found) if value not in own]


def _statements(
    group: Sequence[CStep], stored: Sequence[Value], places: dict[int, str], arrays: dict[str, np.ndarray]
) -> list[str]:
    def at(operand: Operand, index: str) -> str:
        """Return the C expression of one number of a row."""
        if isinstance(operand, Constant) and operand.width == 1:
            return f"({literal})" if (literal := number_text(arrays[operand.name][0])).startswith("-") else literal
        name = operand.name if isinstance(operand, Constant) else places[operand.number]
        return f"{name}[{'0' if operand.width == 1 else index}]"

    step = group[0]
    if isinstance(step, Elementwise):
        own: dict[Operand, str] = {one.output: f"t{number}" for number, one in enumerate(group)}
        lines = [f"for (j = 0; j < {step.output.width}; j++) {{"]
        for one in group:
            assert isinstance(one, Elementwise)
            operands = [own.get(operand) or at(operand, "j") for operand in one.operands]
            lines.append(f"    const float {own[one.output]} = {_EXPRESSIONS[one.operation].format(*operands)};")
        return [*lines, *(f"    {places[value.number]}[j] = {own[value]};" for value in stored), "}"]
    target = places[step.output.number]
    if isinstance(step, Concat):
        lines, begin = [], 0
        for operand in step.operands:
            lines += [f"for (j = 0; j < {operand.width}; j++)", f"    {target}[{begin} + j] = {at(operand, 'j')};"]
            begin += operand.width
        return lines
    if isinstance(step, Mean):
        return _mean(places[step.source.number], step.source.width, target)
    return _dense(step, lambda index: at(step.source, index), target, arrays[step.weights])


def _mean(source: str, width: int, target: str) -> list[str]:
    """Write a mean with up to eight partial sums, which do not depend on each other and can be added in parallel."""
    lanes = min(ROWS, width)
    whole = width - width % lanes
    sums = [f"s{lane}" for lane in range(lanes)]
    lines = [
        "{",
        f"    float {', '.join(f'{name} = 0.0f' for name in sums)};",
        f"    for (j = 0; j < {whole}; j += {lanes}) {{",
    ]
    lines += [f"        {name} += {source}[j + {lane}];" for lane, name in enumerate(sums)] + ["    }"]
    rest = [f"{source}[{index}]" for index in range(whole, width)]
    return [*lines, f"    {target}[0] = ({_sum([*sums, *rest])}) / {width}.0f;", "}"]


def _dense(step: Dense, source: Callable[[str], str], target: str, weights: np.ndarray) -> list[str]:
    rows, width = weights.shape
    start = f"{step.bias}[j]" if step.bias is not None and step.scale is None else "0.0f"
    lines = ["", f"/* A layer of {rows} inputs and {width} outputs. */"]
    lines += [f"for (j = 0; j < {width}; j++)", f"    {target}[j] = {start};"]
    cast = "(float)" if weights.dtype == np.int8 else ""

    def add_products(indices: Sequence[str]) -> list[str]:
        products = [f"{source(index)} * {cast}{step.weights}[{index}][j]" for index in indices]
        first, *others = _sum(products).split(" + (")
        added = [f"{target}[j] += {first}", *(f"    + ({other}" for other in others)]
        return [f"for (j = 0; j < {width}; j++)", *(f"    {line}" for line in [*added[:-1], f"{added[-1]};"])]

    whole = rows - rows % ROWS
    if whole:
        indices = ["i", *(f"i + {offset}" for offset in range(1, ROWS))]
        lines += [f"for (i = 0; i < {whole}; i += {ROWS})", *(f"    {line}" for line in add_products(indices))]
    if whole < rows:
        lines += add_products([str(index) for index in range(whole, rows)])
    if step.scale is not None:
        bias = "" if step.bias is None else f"{step.bias}[j] + "
        lines += [f"for (j = 0; j < {width}; j++)", f"    {target}[j] = {bias}{step.scale}[j] * {target}[j];"]
    return lines


def _sum(terms: Sequence[str]) -> str:
    """Return the sum of terms, added in pairs: shorter chains of additions and smaller errors than term by term."""
    if len(terms) == 1:
        return terms[0]
    half = (len(terms) + 1) // 2
    sides = [_sum(part) if len(part) == 1 else f"({_sum(part)})" for part in (terms[:half], terms[half:])]
    return " + ".join(sides)
