"""A network as a straight-line program of NumPy calls, which runs without TensorFlow.

The program is plain data (op names and register numbers), so that it can be sent to a process that never
imports TensorFlow. :mod:`ddpg.policies.graph_to_numpy` reads it off a graph.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ddpg.policies.standalone import OPERATIONS


class ProgramStep(NamedTuple):
    """``registers[output] = OPERATIONS[operation](*registers[inputs])``."""

    operation: str
    inputs: tuple[int, ...]
    output: int


class NumpyProgram:
    """A network as a list of :class:`ProgramStep` over registers.

    Threads may call it at the same time, and while another one loads: each call uses the variables' values from when
    it began.

    Args:
        steps: in order of execution.
        size: how many registers there are.
        constants: ``{register: array}``.
        parameters: the registers of the network's variables, in the order of :meth:`load`.
        sources: the registers of the inputs, in the order of a call: a policy has one, a critic two.
        result: the register of the output, ``[B, A]``.

    Attributes:
        steps, size, sources, result: as given.
        operations: what each operation calls.
        parameter_registers: the registers of the network's variables.
        registers: the constants and the variables' values, by register; :meth:`load` puts another list in its place.
    """

    operations: ClassVar[Mapping[str, Callable[..., Any]]] = OPERATIONS

    def __init__(
        self,
        steps: Sequence[ProgramStep],
        size: int,
        constants: dict[int, np.ndarray],
        parameters: Sequence[int],
        sources: Sequence[int],
        result: int,
    ):
        self.steps = tuple(steps)
        self.size, self.sources, self.result = size, tuple(sources), result
        self.registers: list = [None] * size
        for register, value in constants.items():
            self.registers[register] = _as_row(value) if value.dtype.kind == "f" else value
        self.parameter_registers = list(parameters)
        self._source, *self._other_sources = sources
        # Resolved once: this loop is on the path of every environment step.
        self._calls = [(self.operations[step.operation], step.inputs, step.output) for step in steps]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_calls"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._calls = [(self.operations[step.operation], step.inputs, step.output) for step in self.steps]

    def load(self, arrays: Sequence[np.ndarray]) -> None:
        """Set the variables' values; with float64 ones (and inputs) the program computes in float64."""
        registers = self.registers.copy()
        for register, array in zip(self.parameter_registers, arrays, strict=True):
            registers[register] = _as_row(array)
        self.registers = registers  # one assignment: a call in progress keeps the old values

    def arrays(self) -> dict[int, np.ndarray]:
        """Return the constants and the variables' values, by register."""
        return {register: value for register, value in enumerate(self.registers) if value is not None}

    def parameters(self, registers: Sequence | None = None) -> list[np.ndarray]:
        """Return the variables' values, now or in earlier ``registers``, as :meth:`load` took them; vectors as rows."""
        registers = self.registers if registers is None else registers
        return [registers[register] for register in self.parameter_registers]

    def __call__(self, observations: np.ndarray, *others: np.ndarray) -> np.ndarray:
        """Return the program's output.

        Args:
            observations: the first input, ``[B, *observation shape]`` float32 or float64.
            others: the further inputs, such as a critic's actions ``[B, A]``.
        """
        registers = self.registers.copy()  # each call has its own registers
        registers[self._source] = observations
        if others:
            for register, value in zip(self._other_sources, others, strict=True):
                registers[register] = value
        for operation, inputs, output in self._calls:
            if len(inputs) == 2:
                registers[output] = operation(registers[inputs[0]], registers[inputs[1]])
            elif len(inputs) == 1:
                registers[output] = operation(registers[inputs[0]])
            else:
                registers[output] = operation(*[registers[register] for register in inputs])
        return registers[self.result]


def _as_row(array: np.ndarray) -> np.ndarray:
    """Return ``[n]`` as ``[1, n]``: NumPy adds arrays of equal rank four times as fast as it broadcasts."""
    return array[None] if array.ndim == 1 else array
