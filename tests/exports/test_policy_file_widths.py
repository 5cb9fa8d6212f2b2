"""The shapes of a program from a file are checked before it runs."""

import numpy as np
import pytest
from refusals import refuses

from ddpg import UsageError
from ddpg.exports import policy_file
from ddpg.exports.policy_file import result_width
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
    assert policy_file._UNARY | policy_file._BINARY | {"MatMul", "Reshape", "ConcatV2", "Mean"} == set(OPERATIONS)


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
