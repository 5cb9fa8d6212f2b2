"""Write the loops of a policy's network as statements of C99.

Loops have constant bounds and run over the outputs of a layer innermost, which compilers turn into vector instructions
at ``-O2``; eight inputs are taken at a time, so that an output is loaded and stored once for eight products.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ddpg.exports.c_program import Concat, Constant, CProgram, CStep, Dense, Elementwise, Mean, Operand, Value

ROWS = 8  # inputs of a layer that one pass over its outputs takes
WIDTH = 110  # columns of the arrays

# `b > a ? b : a` is NaN where a is: a policy whose numbers overflow says so, and does not act.
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
    "Sigmoid": "(({0} >= 0.0f) ? 1.0f : expf({0})) / (1.0f + expf(-fabsf({0})))",
    "Softplus": "(({0} > 0.0f) ? {0} : 0.0f) + log1pf(expf(-fabsf({0})))",
    "Softsign": "{0} / (1.0f + fabsf({0}))",
    "Elu": "({0} > 0.0f) ? {0} : expm1f({0})",
    "Selu": "1.05070099f * (({0} > 0.0f) ? {0} : 1.67326324f * expm1f({0}))",
}


def number_text(value: Any) -> str:
    """Return the shortest decimal that is this float32 again, or an integer."""
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
    """Return the body of ``policy_outputs``: rows live in few arrays, each used again when its row was last read."""
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
    """Return whether a step is a layer of so many inputs that they are taken in blocks."""
    return isinstance(step, Dense) and len(program.arrays[step.weights]) >= ROWS


def _groups(steps: Sequence[CStep]) -> list[list[CStep]]:
    """Return the steps that share a loop: elementwise ones of the same width in a row."""
    groups: list[list[CStep]] = []
    for step in steps:
        last = groups[-1][-1] if groups else None
        joins = isinstance(step, Elementwise) and isinstance(last, Elementwise)
        # A row of one number that another row is combined with has to be complete before.
        if joins and last is not None and last.output.width == step.output.width:
            groups[-1].append(step)
        else:
            groups.append([step])
    return groups


def _operands(step: CStep) -> tuple[Operand, ...]:
    return step.operands if isinstance(step, (Elementwise, Concat)) else (step.source,)


def _values_read(group: Sequence[CStep]) -> list[Value]:
    """Return the values that a group reads and that are not its own, each once."""
    own = {step.output for step in group}
    found = (operand for step in group for operand in _operands(step) if isinstance(operand, Value))
    return [value for value in dict.fromkeys(found) if value not in own]


def _statements(
    group: Sequence[CStep], stored: Sequence[Value], places: dict[int, str], arrays: dict[str, np.ndarray]
) -> list[str]:
    def at(operand: Operand, index: str) -> str:
        """Return the expression of a number of a row."""
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
    """Add eight partial sums, which do not wait for each other."""
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

    def taken(indices: Sequence[str]) -> list[str]:
        products = [f"{source(index)} * {cast}{step.weights}[{index}][j]" for index in indices]
        first, *others = _sum(products).split(" + (")
        added = [f"{target}[j] += {first}", *(f"    + ({other}" for other in others)]
        return [f"for (j = 0; j < {width}; j++)", *(f"    {line}" for line in [*added[:-1], f"{added[-1]};"])]

    whole = rows - rows % ROWS
    if whole:
        indices = ["i", *(f"i + {offset}" for offset in range(1, ROWS))]
        lines += [f"for (i = 0; i < {whole}; i += {ROWS})", *(f"    {line}" for line in taken(indices))]
    if whole < rows:
        lines += taken([str(index) for index in range(whole, rows)])
    if step.scale is not None:
        bias = "" if step.bias is None else f"{step.bias}[j] + "
        lines += [f"for (j = 0; j < {width}; j++)", f"    {target}[j] = {bias}{step.scale}[j] * {target}[j];"]
    return lines


def _sum(terms: Sequence[str]) -> str:
    """Return the sum of terms, in pairs: shorter chains of additions, and smaller errors, than one after another."""
    if len(terms) == 1:
        return terms[0]
    half = (len(terms) + 1) // 2
    sides = [_sum(part) if len(part) == 1 else f"({_sum(part)})" for part in (terms[:half], terms[half:])]
    return " + ".join(sides)
