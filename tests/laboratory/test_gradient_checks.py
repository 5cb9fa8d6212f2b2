"""Comparisons of gradients, and central differences of NumPy functions."""

import numpy as np
import pytest
import tensorflow as tf
from refusals import refuses

from ddpg import UsageError
from ddpg.laboratory import gradient_checks


def test_compare_by_hand():
    one = [np.array([1.0, 2.0]), np.array([[3.0]])]
    other = [np.array([1.0, 2.5]), np.array([[2.0]])]
    assert gradient_checks.compare({"one": one, "other": other}, "one") == {"one": 0.0, "other": 1.0}
    assert gradient_checks.compare({"other": other}, one) == {"other": 1.0}


@pytest.mark.parametrize("nothing", [[], [np.zeros((0, 3))]])
def test_no_numbers_differ_by_0(nothing):
    assert gradient_checks.compare({"one": nothing, "other": nothing}, "one") == {"one": 0.0, "other": 0.0}


def test_compare_runs_tensors_and_pairs(session):
    x = tf.constant([2.0, 3.0])
    tensors = tf.gradients(tf.reduce_sum(x**2), [x])
    pairs = [(3 * x, "variable")]
    differences = gradient_checks.compare({"tensors": tensors, "pairs": pairs}, [np.array([4.0, 6.0])])
    assert differences == {"tensors": 0.0, "pairs": 3.0}


def test_compare_takes_the_gradient_of_rows(session):
    """Row 1 is read twice, and the others are not; the sparse value that a session returns for it is refused."""
    table = tf.compat.v1.get_variable("table", initializer=[[1.0], [3.0], [5.0]])
    session.run(table.initializer)
    rows = tf.gradients(tf.reduce_sum(tf.gather(table, [1, 1]) ** 2), [table])
    assert isinstance(rows[0], tf.IndexedSlices)
    whole = [np.array([[0.0], [12.0], [0.5]])]
    assert gradient_checks.compare({"rows": rows, "pairs": [(rows[0], table)]}, whole) == {"rows": 0.5, "pairs": 0.5}
    with refuses(UsageError, "'rows' list"):
        gradient_checks.compare({"rows": session.run(rows)}, whole)


def test_compare_runs_all_tensors_at_once(session):
    """A random tensor differs from itself in another run."""
    noise = tf.random.normal([3])
    assert gradient_checks.compare({"one": [noise], "other": [noise]}, "one")["other"] == 0


def test_compare_refuses_gradients_that_do_not_match(graph):
    one = [np.zeros(2)]
    with refuses(UsageError, "'surrogate'"):
        gradient_checks.compare({"surrogate": one}, "surogate")
    with refuses(UsageError, "shapes"):
        gradient_checks.compare({"one": one, "other": [np.zeros(3)]}, "one")
    with refuses(UsageError, "shapes"):
        gradient_checks.compare({"one": one, "other": [*one, *one]}, "one")
    with refuses(UsageError, "reach"):
        gradient_checks.compare({"one": one, "other": [(None, "variable")]}, "one")
    with refuses(UsageError, "'one' list"):
        gradient_checks.compare({"one": tf.zeros(2)}, one)
    with refuses(UsageError, "session"):
        gradient_checks.compare({"one": [tf.zeros(2)]}, one)


@pytest.mark.parametrize("wrong", [1.0, None, [[np.zeros(2)]], ["name"], [([np.zeros(2)], "variable")]])
def test_compare_refuses_other_than_lists_of_gradients(wrong):
    with refuses(UsageError, "'one' list"):
        gradient_checks.compare({"one": wrong}, [np.zeros(2)])
    with refuses(UsageError, "'reference' list"):
        gradient_checks.compare({"one": [np.zeros(2)]}, wrong)
    with refuses(UsageError, "dict"):
        gradient_checks.compare([wrong], [np.zeros(2)])


def test_leaks_takes_one_or_several_and_refuses_what_has_no_gradient(graph):
    x, y = (tf.compat.v1.get_variable(name, [2]) for name in "xy")
    total, other = tf.reduce_sum(x), tf.reduce_sum(y)
    assert gradient_checks.leaks(total, x) == gradient_checks.leaks([total], (x, y)) == ["x:0"]
    assert gradient_checks.leaks([total, [other]], [[y], [x]]) == ["y:0", "x:0"]
    assert gradient_checks.leaks(total + other, [x, y], total) == ["y:0"]
    for wrong in ((total, ["x:0"]), (1.0, [x]), (None, x), (total, x, None)):
        with refuses(UsageError, "tensors"):
            gradient_checks.leaks(*wrong)


def test_finite_difference_by_hand():
    """f = a₀·a₁² + 3·b₀₁ at a = (2, 5): ∂a₁ = 20, ∂b₀₁ = 3, ∂b₀₀ = 0."""
    arrays = [np.array([2.0, 5.0], np.float32), np.ones((1, 2))]

    def function(arrays):
        return arrays[0][0] * arrays[0][1] ** 2 + 3 * arrays[1][0, 1]

    derivatives = gradient_checks.finite_difference(function, arrays, [(0, 1), (1, 1), (1, 0)])
    np.testing.assert_allclose(derivatives, [20, 3, 0], rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(arrays[0], [2, 5])


def test_finite_difference_moves_one_coordinate_at_a_time():
    """The derivatives of a₀·a₁ at (2, 5) are 5 and 2 with any step, since a₀ is restored before a₁ moves."""
    derivatives = gradient_checks.finite_difference(
        lambda arrays: arrays[0][0] * arrays[0][1], [np.array([2.0, 5.0])], [(0, 0), (0, 1)], step=0.5
    )
    np.testing.assert_allclose(derivatives, [5, 2])


def test_finite_difference_is_central():
    """For x³ at 1, the central difference errs by h² = 0.01, a one-sided one by 0.31."""
    cubed = gradient_checks.finite_difference(lambda arrays: arrays[0][0] ** 3, [np.ones(1)], [(0, 0)], step=0.1)
    assert cubed[0] == pytest.approx(3.01)
