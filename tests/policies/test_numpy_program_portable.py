"""Portable programs give the same bits on every processor: sums in a fixed order, exponentials from float64."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ddpg.policies.numpy_program import NumpyProgram, PortableProgram, ProgramStep
from ddpg.policies.standalone import OPERATIONS


def dense(matrix, activation="Tanh"):
    """Return ``activation(x W)`` as a portable program."""
    steps = [ProgramStep("MatMul", (0, 1), 2), ProgramStep(activation, (2,), 3)]
    return PortableProgram.of(NumpyProgram(steps, 4, {1: matrix}, [], [0], 3))


def sum_in_order(row, matrix):
    """Return ``row @ matrix``, summed from the first row on, rounding each product and each sum to float32."""
    totals = []
    for column in matrix.T:
        total = row[0] * column[0]
        for value, weight in zip(row[1:], column[1:], strict=True):
            total = total + value * weight
        totals.append(total)
    return np.array(totals, np.float32)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 70), st.integers(1, 40), st.sampled_from("CF"), st.integers(0, 2**32 - 1))
@example(1, 13, 1, "C", 0)  # NumPy's reduction sums a single column in pairs
def test_products_are_summed_in_order(batch, rows, columns, order, seed):
    rng = np.random.default_rng(seed)
    matrix = np.asarray(rng.standard_normal((rows, columns), np.float32), order=order)
    observations = rng.standard_normal((batch, rows), np.float32)
    found = dense(matrix, "Neg")(observations)
    assert found.dtype == np.float32
    for row, outputs in zip(observations, found, strict=True):
        assert (-outputs).tobytes() == sum_in_order(row, matrix).tobytes()


def test_the_order_of_summation_matters():
    """BLAS sums these products in another order, so the test above can fail."""
    rng = np.random.default_rng(0)
    matrix, row = rng.standard_normal((256, 256), np.float32), rng.standard_normal((1, 256), np.float32)
    assert (row @ matrix).tobytes() != sum_in_order(row[0], matrix).tobytes()
    np.testing.assert_allclose(row @ matrix, -dense(matrix, "Neg")(row), rtol=0, atol=1e-4)


def test_tanh_is_rounded_correctly():
    values = np.linspace(-9, 9, 2001, dtype=np.float32)[:, None]
    found = dense(np.ones((1, 1), np.float32))(values)
    assert found.tobytes() == np.array([math.tanh(value) for value in values[:, 0]], np.float32).tobytes()


EXPONENTIALS = ("Tanh", "Sigmoid", "Softplus", "Elu", "Selu")


@pytest.mark.parametrize("name", sorted({*OPERATIONS} - {"MatMul", "Conv2D", *EXPONENTIALS}))
def test_other_operations_are_those_of_all_programs(name):
    """They sum in a fixed order only, and IEEE 754 prescribes each rounding."""
    assert PortableProgram.operations[name] is OPERATIONS[name]


@pytest.mark.parametrize("name", EXPONENTIALS)
def test_exponentials_are_rounded_from_float64(name):
    values = np.linspace(-9, 9, 501, dtype=np.float32)
    found = PortableProgram.operations[name](values)
    assert found.dtype == np.float32
    assert found.tobytes() == OPERATIONS[name](values.astype(np.float64)).astype(np.float32).tobytes()
