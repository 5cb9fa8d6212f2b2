"""Lower a network's TensorFlow graph to a NumPy program, so that acting does not pay for a session call.

A network is described only once, by the TensorFlow ops that it builds; this module walks them from the output back to
the input. If an op has no translation (pooling, for example), it raises :class:`UnsupportedOp`, and the caller runs the
graph in its session instead.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg.compiler.slices import strided_index
from ddpg.policies.numpy_program import NumpyProgram, ProgramStep
from ddpg.policies.standalone import OPERATIONS

# Attribute values for which an op equals its NumPy counterpart; an op with another value is not translated.
_REQUIRED: dict[str, dict[str, Any]] = {
    "Mean": {"keep_dims": True},
    "BiasAdd": {"data_format": b"NHWC"},
}

_RESHAPED = ("Reshape", "Squeeze", "ExpandDims")
_PADDINGS = {b"VALID": 0, b"SAME": 1}  # as numbers of the operation Conv2D

_ELEMENTWISE = {"AddV2", "Sub", "Mul", "RealDiv", "Neg", "Square", "Sqrt", "Rsqrt"}

# The constant with which an op does nothing, as when actions are scaled from [-1, 1] to [-1, 1]; such ops are dropped.
_NEUTRAL = {"Mul": 1, "AddV2": 0}


class UnsupportedOp(Exception):
    """An op has no counterpart in NumPy; the text is its type, such as ``MaxPool``."""


def lower_to_numpy(
    output: tf.Tensor, sources: Sequence[tf.Tensor], variables: Sequence[tf.Variable], images: bool = True
) -> tuple[NumpyProgram, list[int]]:
    """Translate the graph between ``sources`` and ``output``.

    Args:
        output: ``[B, A]``.
        sources: the placeholders from which it is computed, in the order of the program's inputs.
        variables: those that the graph reads, and maybe others.
        images: whether to translate what is computed of images before they are flattened, such as convolutions.

    Returns:
        The program, without values, and the index in ``variables`` of each one whose value it loads.

    Raises:
        UnsupportedOp: if some op has no translation.
    """
    translation = _NumpyLowering(sources, images)
    result = translation.visit(output)
    program = NumpyProgram(
        translation.steps,
        translation.size,
        translation.constants,
        list(translation.handles),
        sources=range(len(sources)),
        result=result,
    )
    indices = {variable.handle.name: index for index, variable in enumerate(variables)}
    return program, [indices[handle.name] for handle in translation.handles.values()]


class _NumpyLowering:
    """The program so far; registers are numbered in the order of their creation, beginning with the sources."""

    def __init__(self, sources: Sequence[tf.Tensor], images: bool):
        self.size, self._images = len(sources), images
        self.constants: dict[int, np.ndarray] = {}
        self.handles: dict[int, tf.Tensor] = {}
        self._registers = {source.name: register for register, source in enumerate(sources)}
        self._shapes: dict[int, tf.TensorShape] = {register: source.shape for register, source in enumerate(sources)}
        self.steps: list[ProgramStep] = []

    def visit(self, tensor: tf.Tensor) -> int:
        """Return the register that holds ``tensor``."""
        if tensor.name not in self._registers:
            self._registers[tensor.name] = self._translate(tensor)
        return self._registers[tensor.name]

    def _translate(self, tensor: tf.Tensor) -> int:
        operation = tensor.op
        if operation.type in ("Identity", "StopGradient"):
            return self.visit(operation.inputs[0])
        if operation.type == "IdentityN":  # tf.custom_gradient wraps its outputs in this op
            return self.visit(operation.inputs[tensor.value_index])
        if operation.type == "ReadVariableOp":
            self.handles[self._new(tensor)] = operation.inputs[0]
            return self.size - 1
        if operation.type == "Const":
            return self._constant(tensor, tf.make_ndarray(operation.get_attr("value")))
        if operation.type in ("Relu", "Relu6"):
            positive = self._step("Maximum", (self.visit(operation.inputs[0]), self._number(tensor, 0)), tensor)
            small = operation.type == "Relu6"
            return self._step("Minimum", (positive, self._number(tensor, 6)), tensor) if small else positive
        if operation.type == "LeakyRelu" and 0 <= (alpha := operation.get_attr("alpha")) <= 1:
            value = self.visit(operation.inputs[0])
            return self._step(
                "Maximum", (value, self._step("Mul", (value, self._number(tensor, alpha)), tensor)), tensor
            )
        if operation.type == "Transpose":
            return self._transposed(tensor, self.visit(operation.inputs[0]), tf.get_static_value(operation.inputs[1]))
        if operation.type == "Conv2D":
            return self._convolution(tensor)
        if operation.type == "Pow":
            return self._power(tensor)
        if (columns := _columns(tensor)) is not None:
            # A product instead of a slice: every format has it, and of 0 and 1 it is exact.
            source, places = columns
            chosen = np.eye(source.shape[1], dtype=tensor.dtype.as_numpy_dtype)[:, places]
            return self._step("MatMul", (self.visit(source), self._constant(tensor, chosen)), tensor)
        if operation.type == "Reshape" and (rows := _restored_rows(tensor)) is not None:
            return self.visit(rows)
        if operation.type == "Reshape" and _is_vector_as_row(tensor):
            return self.visit(operation.inputs[0])
        if (sizes := _sizes_after_reshape(tensor)) is not None:
            shape = self._constant(tensor, np.array(sizes, np.int32))
            return self._step("Reshape", (self.visit(operation.inputs[0]), shape), tensor)
        required = _REQUIRED.get(operation.type, {})
        if operation.type not in OPERATIONS or any(operation.get_attr(name) != v for name, v in required.items()):
            raise UnsupportedOp(operation.type)
        inputs = tuple(self.visit(source) for source in operation.inputs)
        if operation.type == "MatMul":
            inputs = tuple(
                self._transposed(tensor, place, [1, 0]) if operation.get_attr(name) else place
                for place, name in zip(inputs, ("transpose_a", "transpose_b"), strict=True)
            )
        if operation.type == "ConcatV2":
            return self._joined(inputs, tensor)
        neutral = _NEUTRAL.get(operation.type)
        for kept, other in (inputs, inputs[::-1]) if neutral is not None else ():
            if self._shapes[kept] == tensor.shape and np.all(self.constants.get(other, np.nan) == neutral):
                return kept
        return self._step(operation.type, inputs, tensor)

    def _transposed(self, tensor: tf.Tensor, place: int, order: Sequence[int] | None) -> int:
        if order is None:
            raise UnsupportedOp("Transpose")
        return self._step("Transpose", (place, self._constant(tensor, np.array(order, np.int32))), tensor)

    def _convolution(self, tensor: tf.Tensor) -> int:
        operation = tensor.op
        (images, filters), strides = operation.inputs, operation.get_attr("strides")
        padding = _PADDINGS.get(operation.get_attr("padding"))
        if operation.get_attr("data_format") != b"NHWC" or padding is None or images.shape[3] != filters.shape[2]:
            raise UnsupportedOp("Conv2D with channels first or in groups, or with zeros added by hand")
        if {*operation.get_attr("dilations")} != {1}:
            raise UnsupportedOp("Conv2D with dilated filters")
        how = self._constant(tensor, np.array([*strides[1:3], padding], np.int32))
        return self._step("Conv2D", (self.visit(images), self.visit(filters), how), tensor)

    def _power(self, tensor: tf.Tensor) -> int:
        """Multiply: the program has no powers."""
        value, exponent = tensor.op.inputs[0], tf.get_static_value(tensor.op.inputs[1])
        if exponent is None or np.size(exponent) != 1 or exponent not in (1, 2, 3):
            raise UnsupportedOp("Pow")
        base = product = self.visit(value)
        for _ in range(int(exponent) - 1):
            product = self._step("Mul", (product, base), tensor)
        return product

    def _joined(self, inputs: tuple[int, ...], tensor: tf.Tensor) -> int:
        """Join any number of matrices, two at a time: the program's operation takes two."""
        first, *others, axis = inputs
        for other in others:
            first = self._step("ConcatV2", (first, other, axis), tensor)
        return first

    def _step(self, operation: str, inputs: tuple[int, ...], tensor: tf.Tensor) -> int:
        if all(place in self.constants for place in inputs):
            function = NumpyProgram.operations[operation]
            return self._constant(tensor, function(*(self.constants[place] for place in inputs)))
        # The program stores a vector [n] as a row [1, n]. That broadcasts with matrices as the vector does, and
        # elementwise ops of vectors alone give the same numbers.
        vectors = operation in _ELEMENTWISE and all((self._shapes[place].rank or 0) <= 1 for place in inputs)
        rank = tensor.shape.rank or 0
        if not ((rank == 1 and vectors) or rank == 2 or (rank > 2 and self._images)):
            raise UnsupportedOp(tensor.op.type)
        self.steps.append(ProgramStep(operation, inputs, self._new(tensor)))
        return self.size - 1

    def _number(self, tensor: tf.Tensor, number: float) -> int:
        return self._constant(tensor, np.asarray(number, tensor.dtype.as_numpy_dtype))

    def _constant(self, tensor: tf.Tensor, value: np.ndarray) -> int:
        self.constants[self._new(tensor)] = value
        return self.size - 1

    def _new(self, tensor: tf.Tensor) -> int:
        self._shapes[self.size] = tensor.shape
        self.size += 1
        return self.size - 1


def _restored_rows(tensor: tf.Tensor) -> tf.Tensor | None:
    """Return the matrix that a chain of reshapes restores in ``tensor``, or ``None`` if it does not restore one."""
    source = tensor
    while source.op.type == "Reshape":
        source = source.op.inputs[0]
    same = source.shape.rank == 2 and tensor.shape.rank == 2 and source.shape[1] == tensor.shape[1]
    return source if same and tensor.shape[1] is not None else None


def _sizes_after_reshape(tensor: tf.Tensor) -> list[int] | None:
    """Return the shape that an op reshapes to, with -1 for the number of rows; ``None`` if it does something else."""
    operation = tensor.op
    known = operation.type in _RESHAPED
    if operation.type == "StridedSlice":  # x[..., None]
        given = [tf.get_static_value(value) for value in operation.inputs[1:]]
        index = () if any(value is None for value in given) else strided_index(operation, *given)
        known = None in index and all(part in (None, ...) or part == slice(None, None, 1) for part in index)
    if not known or tensor.shape.rank is None:
        return None
    sizes = [-1 if size is None else size for size in tensor.shape.as_list()]
    return sizes if sizes.count(-1) <= 1 else None


def _is_vector_as_row(tensor: tf.Tensor) -> bool:
    """Return whether the op reshapes ``[n]`` to ``[1, n]``, which is how the program stores vectors anyway."""
    source = tensor.op.inputs[0].shape
    return source.rank == 1 and source[0] is not None and tensor.shape.as_list() == [1, source[0]]


def _columns(tensor: tf.Tensor) -> tuple[tf.Tensor, np.ndarray] | None:
    """Return the matrix and the indices of its columns that a slice or a part of a split consists of, or ``None``."""
    operation, inputs = tensor.op, tensor.op.inputs
    if operation.type in ("Split", "SplitV"):
        axis, source = (inputs[0], inputs[1]) if operation.type == "Split" else (inputs[2], inputs[0])
        index: tuple = (slice(None, None, 1),) * (source.shape.rank or 0)
        widths = [output.shape[-1] for output in operation.outputs]
        if tf.get_static_value(axis) not in (1, -1) or None in widths:
            return None
        first = sum(widths[: tensor.value_index])
        index = *index[:1], slice(first, first + widths[tensor.value_index])
    elif operation.type in ("Slice", "StridedSlice"):
        source, given = inputs[0], [tf.get_static_value(value) for value in inputs[1:]]
        if any(value is None for value in given):
            return None
        if operation.type == "StridedSlice":
            index = strided_index(operation, *given)
        else:
            ends = (None if size == -1 else begin + size for begin, size in zip(*given, strict=True))
            index = tuple(slice(begin or None, end, 1) for begin, end in zip(given[0], ends, strict=True))
    else:
        return None
    rows_kept = all(part is ... or part == slice(None, None, 1) for part in index[:-1])
    if source.shape.rank != 2 or source.shape[1] is None or len(index) < 2 or not rows_kept:
        return None
    places = np.arange(2 * source.shape[1]).reshape(2, -1)[index]
    return (source, places[0]) if places.shape == (2, tensor.shape[-1]) else None
