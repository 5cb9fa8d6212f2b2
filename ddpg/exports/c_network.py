"""Lower a policy's network to loops in C: dense layers, convolutions, elementwise loops, means, concatenations.

:func:`lower_to_c` builds the loops from a NumPy program. It adds a bias within its layer, and gives ``int8`` weights
one scale per output. :meth:`CProgram.outputs` runs the loops in NumPy; :func:`network_text` writes them as C99
statements. Loop bounds are constant, except where filters reach beyond an image, and the innermost loop runs over a
layer's outputs, which compilers turn into vector instructions at ``-O2``. One pass over the outputs handles eight
inputs, so an output is loaded and stored once per eight products.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ddpg.exports.policy_file import register_shapes
from ddpg.policies.numpy_program import NumpyProgram, ProgramStep
from ddpg.policies.standalone import OPERATIONS, positions

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
    """A row of numbers that is computed for each observation, images flattened; number 0 is the observation itself."""

    number: int
    width: int


@dataclasses.dataclass(frozen=True)
class Constant:
    """An array of :attr:`CProgram.arrays`, a row of ``width`` numbers."""

    name: str
    width: int


Operand: TypeAlias = Value | Constant


class Window(NamedTuple):
    """How the filters of a convolution move: the image's height, width and channels, the filters' height and width.

    ``how`` is as in the NumPy program: stride down, stride across, and whether zeros surround the image.
    """

    image: tuple[int, int, int]
    reach: tuple[int, int]
    how: tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Layer:
    """``output = bias + scale · (source · weights)``; a missing ``bias`` counts as 0, a missing ``scale`` as 1.

    With a ``window`` it is a convolution, which computes this at each position of the filters; each row of the matrix
    ``weights`` then belongs to a number under a filter.
    """

    source: Operand
    weights: str
    scale: str | None
    output: Value
    window: Window | None = None
    bias: str | None = None

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The source."""
        return (self.source,)


@dataclasses.dataclass(frozen=True)
class Loop:
    """``output = operation(operands)``: an elementwise operation, where a shorter operand is repeated, or another one.

    The others are ``ConcatV2``, ``Mean`` over the whole row, and ``Transpose``, whose source has axes of ``sizes`` that
    ``output`` has in ``order``.
    """

    operation: str
    operands: tuple[Operand, ...]
    output: Value
    sizes: tuple[int, ...] = ()
    order: tuple[int, ...] = ()

    @property
    def is_elementwise(self) -> bool:
        """Whether each number of ``output`` depends on one number of each operand only."""
        return self.operation in _EXPRESSIONS


CStep: TypeAlias = Layer | Loop


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

        def read(operand: Operand, width: int | None = None) -> np.ndarray:
            found = values[operand.number] if isinstance(operand, Value) else arrays[operand.name].reshape(1, -1)
            return found if width is None or operand.width in (1, width) else np.tile(found, width // operand.width)

        for step in self.steps:
            source = read(step.operands[0])
            if isinstance(step, Layer):
                weights = arrays[step.weights].astype(np.float32)
                if step.window is None:
                    found = source @ weights
                else:
                    image, reach, how = step.window
                    filters = weights.reshape(*reach, image[2], -1)
                    found = OPERATIONS["Conv2D"](source.reshape(-1, *image), filters, how)
                found = found if step.scale is None else found * arrays[step.scale]
                found = (found if step.bias is None else found + arrays[step.bias]).reshape(len(source), -1)
            elif step.is_elementwise:
                found = OPERATIONS[step.operation](*(read(one, step.output.width) for one in step.operands))
            elif step.operation == "Transpose":
                axes = source.reshape(-1, *step.sizes)
                found = axes.transpose(0, *(1 + axis for axis in step.order)).reshape(len(axes), -1)
            elif step.operation == "Mean":
                found = source.mean(axis=1, keepdims=True)
            else:
                rows = [np.broadcast_to(read(one), (len(observations), one.width)) for one in step.operands]
                found = np.concatenate(rows, axis=1)
            values[step.output.number] = found.astype(np.float32)
        return values[self.result.number]


def lower_to_c(program: NumpyProgram, observation_shape: Sequence[int], quantize: str | None = None) -> CProgram:
    """Lower a policy's program.

    Args:
        program: the network with its weights; its one input is ``[B, *observation_shape]``.
        observation_shape: of one observation.
        quantize: ``"int8"`` stores matrices and filters as integers from -127 to 127 with one float32 scale per output;
            the layers' inputs stay float32. ``None`` stores float32.
    """
    return _CLowering(program, observation_shape, quantize).lowered()


def quantized(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weights ``[in, out]`` as int8 and the scale of each output ``[out]``: symmetric, rounded to nearest."""
    scale = (np.abs(weights).max(axis=0) / 127).astype(np.float32)
    divisor = np.where(scale > 0, scale, 1)
    return np.clip(np.rint(weights / divisor), -127, 127).astype(np.int8), scale


class _CLowering:
    """The lowering in progress: the loops so far, and the value or constant for each register of the NumPy program."""

    def __init__(self, program: NumpyProgram, observation_shape: Sequence[int], quantize: str | None):
        self._program, self._quantize = program.folded(), quantize
        self._known: dict[int, np.ndarray] = self._program.arrays()
        self._shapes = register_shapes(self._program.steps, self._known, tuple(observation_shape))
        self._observation_size = math.prod(observation_shape)
        self._values: dict[int, Value] = {program.sources[0]: Value(0, self._observation_size)}
        self._uses = Counter(register for step in self._program.steps for register in step.inputs)
        self._uses[program.result] += 1
        self._arrays: dict[str, np.ndarray] = {}
        self._names: dict[int, str] = {}
        self._steps: list[CStep] = []

    def lowered(self) -> CProgram:
        """Return the lowered program."""
        for step in self._program.steps:
            self._lower(step)
        result = self._values[self._program.result]
        return CProgram(tuple(self._steps), self._arrays, result, self._observation_size)

    def _lower(self, step: ProgramStep) -> None:
        if step.operation == "Reshape":  # of numbers that are flat already
            self._values[step.output] = self._values[step.inputs[0]]
        elif step.operation in ("MatMul", "Conv2D"):
            self._layer(step)
        elif not self._add_bias(step):
            registers = step.inputs if step.operation in _EXPRESSIONS else step.inputs[:-1]  # the last one has axes
            loop = Loop(step.operation, tuple(map(self._operand, registers)), self._output(step))
            if step.operation == "Transpose":
                order = tuple(map(int, self._known[step.inputs[1]][1:] - 1))
                loop = dataclasses.replace(loop, sizes=self._shapes[step.inputs[0]], order=order)
            self._steps.append(loop)

    def _layer(self, step: ProgramStep) -> None:
        source, filters = self._operand(step.inputs[0]), self._known[step.inputs[1]].astype(np.float32)
        weights = filters.reshape(-1, filters.shape[-1])
        scale = None
        if self._quantize is None:
            name = self._array("weights", weights)
        else:
            integers, scales = quantized(weights)
            name, scale = self._array("weights", integers), self._array("scale", scales)
        window = None
        if step.operation == "Conv2D":
            height, width, channels = self._shapes[step.inputs[0]]
            how = tuple(self._known[step.inputs[2]].tolist())
            window = Window((height, width, channels), filters.shape[:2], how)
        self._steps.append(Layer(source, name, scale, self._output(step), window))

    def _add_bias(self, step: ProgramStep) -> bool:
        """Make the constant that a step adds the bias of the layer before it; return whether that was possible.

        Nothing else may read the layer's product.
        """
        if step.operation not in ("BiasAdd", "AddV2") or not self._steps:
            return False
        last = self._steps[-1]
        if not isinstance(last, Layer) or last.bias is not None:
            return False
        width = self._arrays[last.weights].shape[1]
        for register, other in (step.inputs, step.inputs[::-1]):
            value = self._values.get(register)
            fits = value == last.output and other in self._known
            if fits and self._uses[register] == 1 and self._known[other].size in (1, width):
                row = np.broadcast_to(np.ravel(self._known[other]), width)
                self._steps[-1] = dataclasses.replace(last, bias=self._array("bias", row))
                self._values[step.output] = last.output
                return True
        return False

    def _output(self, step: ProgramStep) -> Value:
        """Return the value that the next loop sets, which is the output of ``step``."""
        self._values[step.output] = Value(len(self._steps) + 1, math.prod(self._shapes[step.output]))
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
    body, widths = _network(program)
    declared = [
        f"float {', '.join(f'row_{array}[{size}]' for array, size in enumerate(widths))};",
        "int i, j;" if any(_blocks(step, program) for step in program.steps) else "int j;",
        *([""] if body[0] else []),
    ]
    return "\n".join(f"    {line}".rstrip() for line in declared + body)


def stack_bytes(program: CProgram) -> int:
    """Return how many bytes the arrays of :func:`network_text` take on the stack."""
    return 4 * sum(_network(program)[1])


def _network(program: CProgram) -> tuple[list[str], list[int]]:
    """Return the statements of a program, and the widths of the arrays that hold its rows."""
    groups = _groups(program.steps)
    last_read = {operand.number: index for index, group in enumerate(groups) for operand in _values_read(group)}
    last_read[program.result.number] = len(groups)
    widths: list[int] = []
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
    return [*body, f"for (j = 0; j < {width}; j++)", f"    outputs[j] = {result}[j];"], widths


def _blocks(step: CStep, program: CProgram) -> bool:
    """Return whether a step is a layer with a loop over its inputs, of which a dense one may have too few."""
    return isinstance(step, Layer) and (step.window is not None or len(program.arrays[step.weights]) >= ROWS)


def _groups(steps: Sequence[CStep]) -> list[list[CStep]]:
    """Group the steps that share a loop: consecutive elementwise steps of the same width."""
    groups: list[list[CStep]] = []
    for step in steps:
        last = groups[-1][-1] if groups else None
        joins = all(isinstance(one, Loop) and one.is_elementwise for one in (last, step))
        # Only of the same width: a row of one number has to be complete before a wider row can use it.
        if joins and last is not None and last.output.width == step.output.width:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _values_read(group: Sequence[CStep]) -> list[Value]:
    """Return the values from other groups that a group reads, each once."""
    own = {step.output for step in group}
    found = (operand for step in group for operand in step.operands if isinstance(operand, Value))
    return [value for value in dict.fromkeys(found) if value not in own]


def _statements(
    group: Sequence[CStep], stored: Sequence[Value], places: dict[int, str], arrays: dict[str, np.ndarray]
) -> list[str]:
    def at(operand: Operand, index: str) -> str:
        """Return the C expression of one number of a row."""
        if isinstance(operand, Constant) and operand.width == 1:
            return f"({literal})" if (literal := number_text(arrays[operand.name][0])).startswith("-") else literal
        name = operand.name if isinstance(operand, Constant) else places[operand.number]
        if operand.width not in (1, step.output.width) and isinstance(step, Loop) and step.is_elementwise:
            index += f" % {operand.width}"
        return f"{name}[{'0' if operand.width == 1 else index}]"

    step = group[0]
    if isinstance(step, Loop) and step.is_elementwise:
        own: dict[Operand, str] = {one.output: f"t{number}" for number, one in enumerate(group)}
        lines = [f"for (j = 0; j < {step.output.width}; j++) {{"]
        for one in group:
            assert isinstance(one, Loop)
            operands = [own.get(operand) or at(operand, "j") for operand in one.operands]
            lines.append(f"    const float {own[one.output]} = {_EXPRESSIONS[one.operation].format(*operands)};")
        return [*lines, *(f"    {places[value.number]}[j] = {own[value]};" for value in stored), "}"]
    source, target = step.operands[0], places[step.output.number]
    if isinstance(step, Layer):
        if step.window is None:
            return _dense(step, lambda index: at(source, index), target, arrays[step.weights])
        assert isinstance(source, Value), "images depend on the observation"
        return _convolution(step, step.window, places[source.number], target, arrays[step.weights])
    if step.operation == "ConcatV2":
        lines, begin = [], 0
        for operand in step.operands:
            lines += [f"for (j = 0; j < {operand.width}; j++)", f"    {target}[{begin} + j] = {at(operand, 'j')};"]
            begin += operand.width
        return lines
    assert isinstance(source, Value), "a constant's mean or transposition is a constant"
    if step.operation == "Mean":
        return _mean(places[source.number], source.width, target)
    return _transposition(step, places[source.number], target)


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


def _transposition(step: Loop, source: str, target: str) -> list[str]:
    sizes = [step.sizes[axis] for axis in step.order]
    apart = [math.prod(step.sizes[axis + 1 :]) for axis in step.order]
    together = [math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    names = [f"i{axis}" for axis in range(len(sizes))]

    def place(distances: Sequence[int]) -> str:
        return " + ".join(_times(distance, name) for distance, name in zip(distances, names, strict=True))

    lines = [f"{'    ' * axis}for (i{axis} = 0; i{axis} < {size}; i{axis}++)" for axis, size in enumerate(sizes)]
    lines.append(f"{'    ' * len(sizes)}{target}[{place(together)}] = {source}[{place(apart)}];")
    return ["{", f"    int {', '.join(names)};", "", *_indented(lines), "}"]


def _times(factor: int, name: str) -> str:
    return name if factor == 1 else f"{factor} * {name}"


def _convolution(step: Layer, window: Window, source: str, target: str, weights: np.ndarray) -> list[str]:
    (height, width, channels), (tall, wide), (down, across, _) = window
    (above, below, high), (left, right, broad) = positions(*window)
    number = weights.shape[1]
    start, scaled = _start_and_scaling(step, "position", number)
    kind, cast = ("signed char", "(float)") if weights.dtype == np.int8 else ("float", "")
    column = _times(across, "x") + (f" - {left}" if left else "")
    outside = [f"row {sign}" for sign, zeros in (("< 0", above), (f">= {height}", below)) if zeros]
    inside = [f"const int row = {_times(down, 'y')} + k{f' - {above}' if above else ''};"]
    inside += [f"if ({' || '.join(outside)})", "    continue;"] if outside else []
    inside += [f"const int first = ({column} < 0) ? -({column}) : 0;"] if left else []
    inside += [f"const int end = ({column} > {width - wide}) ? {width} - ({column}) : {wide};"] if right else []
    first, end = " + first" if left else "", "end" if right else str(wide)
    inside += [
        f"const float *const seen = {source} + (row * {width} + {column}{first}) * {channels};",
        f"const {kind} (*const weights)[{number}] = {step.weights} + (k * {wide}{first}) * {channels};",
        f"const int count = {f'({end} - first)' if left else end} * {channels};",
        "",
    ]

    def add_products(count: int) -> list[str]:
        indices = ["i", *(f"i + {offset}" for offset in range(1, count))]
        return _add_products("position", number, [f"seen[{index}] * {cast}weights[{index}][j]" for index in indices])

    inside += [f"for (i = 0; i + {ROWS - 1} < count; i += {ROWS})", *_indented(add_products(ROWS))]
    inside += ["for (; i < count; i++)", *_indented(add_products(1))]
    lines = [
        f"float *const position = {target} + (y * {broad} + x) * {number};",
        "",
        *start,
        f"for (k = 0; k < {tall}; k++) {{",
        *_indented(inside),
        "}",
        *scaled,
    ]
    loops = [f"for (y = 0; y < {high}; y++)", f"    for (x = 0; x < {broad}; x++) {{", *_indented(lines, 2), "    }"]
    shape = f"{height} x {width} x {channels} numbers by {number} filters of {tall} x {wide}"
    return ["", f"/* A convolution of {shape}. */", "{", "    int k, x, y;", "", *_indented(loops), "}"]


def _dense(step: Layer, source: Callable[[str], str], target: str, weights: np.ndarray) -> list[str]:
    rows, width = weights.shape
    start, scaled = _start_and_scaling(step, target, width)
    lines = ["", f"/* A layer of {rows} inputs and {width} outputs. */", *start]
    cast = "(float)" if weights.dtype == np.int8 else ""

    def add_products(indices: Sequence[str]) -> list[str]:
        products = [f"{source(index)} * {cast}{step.weights}[{index}][j]" for index in indices]
        return _add_products(target, width, products)

    whole = rows - rows % ROWS
    if whole:
        indices = ["i", *(f"i + {offset}" for offset in range(1, ROWS))]
        lines += [f"for (i = 0; i < {whole}; i += {ROWS})", *_indented(add_products(indices))]
    if whole < rows:
        lines += add_products([str(index) for index in range(whole, rows)])
    return lines + scaled


def _start_and_scaling(step: Layer, target: str, width: int) -> tuple[list[str], list[str]]:
    """Return the loops before and after a layer's products are added up in ``target``."""
    start = f"{step.bias}[j]" if step.bias is not None and step.scale is None else "0.0f"
    begin = [f"for (j = 0; j < {width}; j++)", f"    {target}[j] = {start};"]
    if step.scale is None:
        return begin, []
    bias = "" if step.bias is None else f"{step.bias}[j] + "
    return begin, [f"for (j = 0; j < {width}; j++)", f"    {target}[j] = {bias}{step.scale}[j] * {target}[j];"]


def _add_products(target: str, width: int, products: Sequence[str]) -> list[str]:
    first, *others = _sum(products).split(" + (")
    added = [f"{target}[j] += {first}", *(f"    + ({other}" for other in others)]
    return [f"for (j = 0; j < {width}; j++)", *_indented([*added[:-1], f"{added[-1]};"])]


def _indented(lines: Sequence[str], levels: int = 1) -> list[str]:
    return ["    " * levels + line if line else "" for line in lines]


def _sum(terms: Sequence[str]) -> str:
    """Return the sum of terms, added in pairs: shorter chains of additions and smaller errors than term by term."""
    if len(terms) == 1:
        return terms[0]
    half = (len(terms) + 1) // 2
    sides = [_sum(part) if len(part) == 1 else f"({_sum(part)})" for part in (terms[:half], terms[half:])]
    return " + ".join(sides)
