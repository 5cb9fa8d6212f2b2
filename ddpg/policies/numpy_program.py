"""A network as a straight-line program of NumPy calls, which runs without TensorFlow.

The program is plain data (op names and register numbers), so that it can be sent to a process that never imports
TensorFlow. :mod:`ddpg.policies.graph_to_numpy` makes it from a graph.

A :class:`PortableProgram` gives nearly always the same bits on every processor, so that others can reproduce a result.
Plain NumPy does not: ``np.matmul`` adds in an order that depends on the processor's BLAS kernel, and the last bits of
vectorised exponentials differ. In a chaotic simulation, such as a running cheetah, a difference of 1e-7 in an action is
enough to change the outcome.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ddpg.policies.standalone import OPERATIONS, convolution

_TRANSCENDENTAL = ("Tanh", "Sigmoid", "Softplus", "Elu", "Selu")


class ProgramStep(NamedTuple):
    """``registers[output] = OPERATIONS[operation](*registers[inputs])``."""

    operation: str
    inputs: tuple[int, ...]
    output: int


class NumpyProgram:
    """A network as a list of :class:`ProgramStep` over registers.

    Several threads can call it at the same time, even while another thread loads new values: each call uses the values
    from its start.

    Args:
        steps: the steps, in order of execution.
        size: number of registers.
        constants: ``{register: array}``.
        parameters: the registers of the network's variables, in the order of :meth:`load`.
        sources: the registers of the inputs, in the order of a call: a policy has one, a critic two.
        result: the register of the output, ``[B, A]``.

    Attributes:
        operations: the function of each operation.
        parameter_registers: ``parameters``.
        registers: the constants and the variables' values, by register; :meth:`load` replaces the list.
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
        # Looked up once, because the loop over the calls runs in every environment step.
        self._calls = [(self.operations[step.operation], step.inputs, step.output) for step in steps]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_calls"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._calls = [(self.operations[step.operation], step.inputs, step.output) for step in self.steps]

    def load(self, arrays: Sequence[np.ndarray]) -> None:
        """Set the variables' values; with float64 values and inputs the program computes in float64."""
        registers = self.registers.copy()
        for register, array in zip(self.parameter_registers, arrays, strict=True):
            registers[register] = _as_row(array)
        self.registers = registers  # one assignment: a call in progress keeps the old values

    def folded(self) -> "NumpyProgram":
        """Return the same network with its current weights, whose steps all depend on the inputs.

        Steps that read only constants and weights, as in a layer with masked weights, are computed here.
        """
        known, steps = self.arrays(), []
        for step in self.steps:
            if all(register in known for register in step.inputs):
                known[step.output] = self.operations[step.operation](*(known[register] for register in step.inputs))
            else:
                steps.append(step)
        read = {register for step in steps for register in step.inputs}
        arrays = {register: array for register, array in known.items() if register in read}
        return NumpyProgram(steps, self.size, arrays, [], self.sources, self.result)

    def arrays(self) -> dict[int, np.ndarray]:
        """Return the constants and the variables' values, by register."""
        return {register: value for register, value in enumerate(self.registers) if value is not None}

    def parameters(self, registers: Sequence | None = None) -> list[np.ndarray]:
        """Return the variables' values, current or in earlier ``registers``, in the order of :meth:`load`.

        Vectors are returned as rows.
        """
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


def _product(rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Return ``rows @ matrix``, ``[B, m]``, with every product rounded and added in order from the first to the last.

    IEEE 754 prescribes the result of each product and sum, and this function fixes their order. ``np.add.reduce`` adds
    whole rows in order, but sums a single column pairwise; ``np.add.accumulate`` never sums pairwise, but is slower.
    """
    result = np.empty((len(rows), matrix.shape[1]), np.result_type(rows, matrix))
    for row, total in zip(rows, result, strict=True):
        products = np.multiply(row[:, None], matrix, order="C")
        if products.shape[1] == 1:
            total[:] = np.add.accumulate(products, axis=0)[-1]
        else:
            np.add.reduce(products, axis=0, out=total)
    return result


def _rounded(operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operation that computes in float64 and rounds to the type of its input.

    Float64 functions differ between processors by a few units of 2⁻⁵³. After rounding to float32, results differ only
    if such a unit decides between two neighbouring numbers: about one in ten million.
    """

    def rounded(values: np.ndarray) -> np.ndarray:
        return operation(values.astype(np.float64)).astype(values.dtype)

    return rounded


class PortableProgram(NumpyProgram):
    """A :class:`~ddpg.policies.numpy_program.NumpyProgram` that adds in a fixed order.

    Its results differ from the plain program's only by rounding.
    """

    operations: ClassVar = {
        **NumpyProgram.operations,
        "MatMul": _product,
        "Conv2D": functools.partial(convolution, product=_product),
        **{name: _rounded(OPERATIONS[name]) for name in _TRANSCENDENTAL},
    }

    @classmethod
    def of(cls, program: NumpyProgram) -> "PortableProgram":
        """Return the same network with its current weights."""
        return cls(program.steps, program.size, program.arrays(), [], program.sources, program.result)
