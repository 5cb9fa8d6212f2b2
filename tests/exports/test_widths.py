"""Programs from files are held to the shapes of their arrays before they run."""

import numpy as np
import pytest

from ddpg import UsageError
from ddpg.acting.program import Step
from ddpg.acting.standalone import OPERATIONS
from ddpg.exports import widths
from ddpg.exports.widths import result_width

ROW, COLUMN = np.ones((1, 3), np.float32), np.ones((5, 1), np.float32)
MATRIX, AXIS = np.ones((3, 4), np.float32), np.array(1, np.int32)


def test_widths_by_hand():
    """s + row, its mean beside it: 3 + 1 numbers, of which a layer makes 4, then 8."""
    steps = [
        Step("AddV2", (0, 1), 4),
        Step("Mean", (4, 3), 5),
        Step("ConcatV2", (4, 5, 3), 6),
        Step("Tanh", (4,), 7),
        Step("MatMul", (7, 2), 8),
        Step("ConcatV2", (8, 6, 3), 9),
    ]
    assert result_width(steps, {1: ROW, 2: MATRIX, 3: AXIS}, (3,), 9) == 8


def test_every_operation_is_known():
    assert widths._ONE | widths._TWO | {"MatMul", "Reshape", "ConcatV2", "Mean"} == set(OPERATIONS)


@pytest.mark.parametrize(
    ("step", "array", "message"),
    [
        (Step("AddV2", (0, 1), 2), COLUMN, "expected one row"),
        (Step("ConcatV2", (0, 1, 3), 2), COLUMN, "expected one row"),
        (Step("MatMul", (1, 3), 2), COLUMN, "no matrix"),
        (Step("AddV2", (0, 1), 2), np.ones((1, 4), np.float32), "combines rows of"),
        (Step("AddV2", (0,), 2), ROW, "has 1 inputs, expected 2"),
        (Step("AddV2", (0, 2), 2), ROW, "reads register 2, which is not set"),
        (Step("AddV2", (0, 1), 1), ROW, "sets register 1 again"),
        (Step("MatMul", (0, 1), 2), ROW, "by no matrix of as many rows"),
        (Step("Reshape", (0, 1), 2), np.array([-1, 1]), "is no flattening"),
        (Step("Mean", (0, 1), 2), np.array([0]), "is no mean of a row"),
        (Step("ConcatV2", (0, 0, 1), 2), np.array(0), "joins something else"),
        (Step("AddV2", (0, 1), 2), np.ones((1, 3), np.int32), "dtype int32"),
    ],
    ids=lambda value: value.operation if isinstance(value, Step) else "",
)
def test_steps_that_do_not_fit(step, array, message):
    with pytest.raises(UsageError, match=message):
        result_width([step], {1: array, 3: AXIS}, (3,), 2)


def test_nothing_grows_without_bound():
    steps = [Step("ConcatV2", (number and number + 9, number and number + 9, 3), number + 10) for number in range(40)]
    with pytest.raises(UsageError, match="makes rows of 1572864 numbers, expected 1 to 1048576"):
        result_width(steps, {3: AXIS}, (3,), 49)


def test_a_result_that_nobody_computes():
    with pytest.raises(UsageError, match="is register 1, which no step sets"):
        result_width([Step("AddV2", (0, 1), 2)], {1: ROW}, (3,), 1)
