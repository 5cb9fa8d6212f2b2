"""The shapes of a program from a file are checked before it runs."""

import numpy as np
import pytest
from refusals import refuses

from ddpg import UsageError
from ddpg.exports import policy_file
from ddpg.exports.policy_file import register_shapes, result_width
from ddpg.policies.numpy_program import ProgramStep
from ddpg.policies.standalone import OPERATIONS

ROW, COLUMN = np.ones((1, 3), np.float32), np.ones((5, 1), np.float32)
MATRIX, AXIS = np.ones((3, 4), np.float32), np.array(1, np.int32)


def test_widths_by_hand():
    """s + row has 3 numbers, 4 with its mean; a layer computes another 4, so both together are 8."""
    steps = [
        ProgramStep("AddV2", (0, 1), 4),
        ProgramStep("Mean", (4, 3), 5),
        ProgramStep("ConcatV2", (4, 5, 3), 6),
        ProgramStep("Tanh", (4,), 7),
        ProgramStep("MatMul", (7, 2), 8),
        ProgramStep("ConcatV2", (8, 6, 3), 9),
    ]
    assert result_width(steps, {1: ROW, 2: MATRIX, 3: AXIS}, (3,), 9) == 8


def test_every_operation_has_a_shape_rule():
    others = {"MatMul", "Conv2D", "Reshape", "Transpose", "ConcatV2", "Mean"}
    assert policy_file._UNARY | policy_file._BINARY | others == set(OPERATIONS)


IMAGE = (3, 8, 6)  # channels in front
ORDER, SAME = np.array([0, 2, 3, 1]), np.array([2, 3, 1])  # strides 2 and 3, with zeros around the image
FILTERS, CHANNELS = np.ones((3, 3, 3, 5), np.float32), np.ones((1, 5), np.float32)


def test_shapes_of_images_by_hand():
    """8 x 6 pixels become 4 x 2 positions of 5 filters; their mean is one number, and they are 40 in a row."""
    steps = [
        ProgramStep("Transpose", (0, 1), 10),
        ProgramStep("Conv2D", (10, 2, 3), 11),
        ProgramStep("BiasAdd", (11, 4), 12),
        ProgramStep("Mean", (12, 5), 13),
        ProgramStep("Sub", (12, 13), 14),
        ProgramStep("Reshape", (14, 6), 15),
    ]
    arrays = {1: ORDER, 2: FILTERS, 3: SAME, 4: CHANNELS, 5: np.array([1, 2, -1]), 6: np.array([-1, 40])}
    shapes, images = register_shapes(steps, arrays, IMAGE), (4, 2, 5)
    assert [shapes[register] for register in range(10, 16)] == [(8, 6, 3), images, images, (1, 1, 1), images, (40,)]
    assert result_width(steps, arrays, IMAGE, 15) == 40


@pytest.mark.parametrize(
    ("step", "array", "message"),
    [
        (ProgramStep("Transpose", (0, 1), 3), np.array([1, 0, 2, 3]), "columns"),
        (ProgramStep("Transpose", (0, 1), 3), np.array([0, 1, 1, 2]), "columns"),
        (ProgramStep("Reshape", (0, 1), 3), np.array([-1]), "Reshape 144"),
        (ProgramStep("Reshape", (0, 1), 3), np.array([-1, 48]), "Reshape 144"),
        (ProgramStep("Mean", (0, 1), 3), np.array([1, 2]), "Mean axis 1"),
        (ProgramStep("Mean", (0, 1), 3), np.array([1, 1, 2]), "Mean axis 1"),
        (ProgramStep("AddV2", (0, 1), 3), np.ones((1, 8, 1), np.float32), "combines (3, 8, 6) (8, 1)"),
        (ProgramStep("AddV2", (0, 1), 3), np.ones((3, 8, 6), np.float32), "row"),
        (ProgramStep("MatMul", (0, 1), 3), np.ones((6, 2), np.float32), "MatMul (3, 8, 6)"),
        (ProgramStep("ConcatV2", (0, 0, 1), 3), np.array(1), "ConcatV2 axis 1"),
        (ProgramStep("Conv2D", (0, 1, 4), 3), FILTERS, "Conv2D (3, 8, 6)"),
        (ProgramStep("Conv2D", (0, 1, 4), 3), np.ones((3, 3, 6), np.float32), "Conv2D"),
        (ProgramStep("Conv2D", (0, 1, 1), 3), np.ones((3, 3, 6, 1), np.float32), "Conv2D strides"),
        (ProgramStep("Conv2D", (0, 1, 5), 3), np.ones((4, 3, 6, 1), np.float32), "Conv2D (4, 3)"),
        (ProgramStep("Conv2D", (0, 1, 6), 3), np.ones((3, 3, 6, 1), np.float32), "Conv2D strides"),
        (ProgramStep("Conv2D", (0, 1, 7), 3), np.ones((3, 3, 6, 1), np.float32), "Conv2D strides"),
    ],
    ids=lambda value: value.operation if isinstance(value, ProgramStep) else "",
)
def test_inconsistent_steps_on_images_are_refused(step, array, message):
    others = {4: SAME, 5: np.array([1, 1, 0]), 6: np.array([0, 1, 1]), 7: np.array([1, 1, 2])}
    with refuses(UsageError, message):
        register_shapes([step], {1: array, **others}, IMAGE)


@pytest.mark.parametrize(
    ("image", "filters"),
    [((1 << 20, 1, 1), (1, 1 << 20)), ((1, 1 << 20, 1), (1 << 20, 1)), ((1000, 1000, 1), (1, 1 << 10))],
    ids=["wider", "higher", "patches"],
)
def test_a_convolution_that_needs_much_memory_is_refused(image, filters):
    """Such filters and images are a few megabytes, and the zeros around them, or all patches, gigabytes."""
    steps, arrays = [ProgramStep("Conv2D", (0, 1, 2), 3)], {1: np.ones((*filters, 1, 1), np.float32)}
    with refuses(UsageError, f"numbers {policy_file.MOST}"):
        register_shapes(steps, arrays | {2: np.array([1, 1, 1])}, image)


def test_a_result_of_images_is_refused():
    with refuses(UsageError, "result (3, 8, 6)"):
        result_width([ProgramStep("Neg", (0,), 1)], {}, IMAGE, 1)


@pytest.mark.parametrize(
    ("step", "array", "message"),
    [
        (ProgramStep("AddV2", (0, 1), 2), COLUMN, "row"),
        (ProgramStep("ConcatV2", (0, 1, 3), 2), COLUMN, "row"),
        (ProgramStep("MatMul", (1, 3), 2), COLUMN, "MatMul 1"),
        (ProgramStep("AddV2", (0, 1), 2), np.ones((1, 4), np.float32), "combines"),
        (ProgramStep("AddV2", (0,), 2), ROW, "inputs 1 2"),
        (ProgramStep("AddV2", (0, 2), 2), ROW, "register 2"),
        (ProgramStep("AddV2", (0, 1), 1), ROW, "register 1 again"),
        (ProgramStep("MatMul", (0, 1), 2), ROW, "MatMul 3"),
        (ProgramStep("Reshape", (0, 1), 2), np.array([-1, 1]), "Reshape 3"),
        (ProgramStep("Mean", (0, 1), 2), np.array([0]), "Mean axis 1"),
        (ProgramStep("ConcatV2", (0, 0, 1), 2), np.array(0), "ConcatV2 axis 1"),
        (ProgramStep("AddV2", (0, 1), 2), np.ones((1, 3), np.int32), "dtype int32"),
    ],
    ids=lambda value: value.operation if isinstance(value, ProgramStep) else "",
)
def test_inconsistent_steps_are_refused(step, array, message):
    with refuses(UsageError, message):
        result_width([step], {1: array, 3: AXIS}, (3,), 2)


def test_repeated_concatenation_is_refused():
    steps = [
        ProgramStep("ConcatV2", (number and number + 9, number and number + 9, 3), number + 10) for number in range(40)
    ]
    with refuses(UsageError, "1572864 1048576"):
        result_width(steps, {3: AXIS}, (3,), 49)


def test_a_result_that_no_step_computes_is_refused():
    with refuses(UsageError, "register 1"):
        result_width([ProgramStep("AddV2", (0, 1), 2)], {1: ROW}, (3,), 1)
