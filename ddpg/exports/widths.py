"""How wide every register of a NumPy program is, found without computing it.

A program from a file may be made to grow: a few bytes can join a register with itself until it fills the memory. So
what a file holds is only ever run when each of its steps has been seen to fit.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ddpg.acting.program import Step
from ddpg.errors import UsageError

LARGEST = 1 << 20  # numbers in a row of a register
MOST = 1 << 23  # in the rows of all registers, which are kept to the end of a call
_ONE = {"Neg", "Square", "Sqrt", "Rsqrt", "Tanh", "Sigmoid", "Softplus", "Softsign", "Elu", "Selu"}
_TWO = {"BiasAdd", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum"}


def result_width(
    steps: Sequence[Step], arrays: Mapping[int, np.ndarray], observation_shape: tuple[int, ...], result: int
) -> int:
    """Return how many numbers a row of the program's output has.

    Register 0 holds the observations ``[B, *observation_shape]``; every other one, ``[B, width]`` or ``[1, width]``.

    Raises:
        UsageError: a register that is used before it is set, or set twice; shapes that do not fit; more than
            ``LARGEST`` numbers a row, or ``MOST`` in those of all registers; a result that no observation changes.
    """
    for register, array in arrays.items():
        if not array.size:
            raise _refusal(f"the array of register {register}", f"has shape {array.shape}, without a number")
    widths = {register: _width(array) for register, array in arrays.items()}
    moving = {0}  # registers of a row for each observation
    total = 0
    size = int(np.prod(observation_shape))
    if len(observation_shape) == 1:
        widths[0] = size
    for number, step in enumerate(steps):
        where = f"step {number}, {step.operation}"
        if step.output in widths or step.output in arrays or step.output == 0:
            raise _refusal(where, f"sets register {step.output} again")
        for register in step.inputs:
            if register not in widths and not (register == 0 and step.operation == "Reshape"):
                raise _refusal(where, f"reads register {register}, which is not set")
        width = _step_width(where, step, arrays, widths, size)
        if not 1 <= width <= LARGEST:
            raise _refusal(where, f"makes rows of {width} numbers, expected 1 to {LARGEST}")
        widths[step.output] = width
        total += width
        if total > MOST:
            raise _refusal(where, f"brings a row of all registers to {total} numbers, expected at most {MOST}")
        if moving & set(step.inputs):
            moving.add(step.output)
    if result not in widths or result in arrays:
        raise _refusal("the result", f"is register {result}, which no step sets")
    if result not in moving:
        raise _refusal("the result", f"is register {result}, which does not depend on the observations")
    return widths[result]


def _width(array: np.ndarray) -> int:
    return array.shape[-1] if array.ndim else 1


def _step_width(where: str, step: Step, arrays: Mapping[int, np.ndarray], widths: dict[int, int], size: int) -> int:
    """Return the width of what one step computes from registers that are set."""
    registers = list(step.inputs)
    expected = 1 if step.operation in _ONE else 3 if step.operation == "ConcatV2" else 2
    if len(registers) != expected:
        raise _refusal(where, f"has {len(registers)} inputs, expected {expected}")
    fixed = [arrays.get(register) for register in registers]
    if step.operation == "MatMul":
        matrix = fixed[1]
        if matrix is None or matrix.dtype.kind != "f" or matrix.ndim != 2 or matrix.shape[0] != widths[registers[0]]:
            raise _refusal(where, f"multiplies {widths[registers[0]]} numbers by no matrix of as many rows")
        _check_rows(where, fixed[:1])
        return matrix.shape[1]
    if step.operation == "Reshape":
        shape = fixed[1]
        if shape is None or shape.dtype.kind not in "iu" or shape.tolist() != [-1, size] or registers[0] != 0:
            raise _refusal(where, f"is no flattening of observations to [-1, {size}]")
        return size
    if step.operation == "Mean":
        axis = fixed[1]
        if axis is None or axis.dtype.kind not in "iu" or np.atleast_1d(axis).tolist() not in ([1], [-1]):
            raise _refusal(where, "is no mean of a row")
        _check_rows(where, fixed[:1])
        return 1
    if step.operation == "ConcatV2":
        axis = fixed[2]
        if axis is None or axis.dtype.kind not in "iu" or axis.ndim or int(axis) not in (1, -1):
            raise _refusal(where, "joins something else than rows")
        _check_rows(where, fixed[:2])
        return widths[registers[0]] + widths[registers[1]]
    assert step.operation in _ONE | _TWO, step.operation
    _check_rows(where, fixed)
    found = {widths[register] for register in registers}
    if len(found - {1}) > 1:
        raise _refusal(where, f"combines rows of {sorted(found)} numbers")
    return max(found)


def _check_rows(where: str, arrays: Sequence[np.ndarray | None]) -> None:
    """Refuse an array of many rows: with those of observations it would make a row for every pair."""
    for array in arrays:
        if array is not None and (array.dtype.kind != "f" or array.ndim > 2 or (array.ndim == 2 and len(array) != 1)):
            raise _refusal(where, f"uses an array of shape {array.shape} and dtype {array.dtype}, expected one row")


def _refusal(where: str, what: str) -> UsageError:
    return UsageError(f"the program is not one of a policy: {where}, {what}; export the policy again")
