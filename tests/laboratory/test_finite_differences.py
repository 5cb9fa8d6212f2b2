"""The laboratory's reference: central differences that know which of them to believe."""

import numpy as np
import pytest

from ddpg.laboratory.finite_differences import STEP, Expected, central_differences


def test_a_kink_within_the_step_is_not_believed():
    """|w₀| + w₁² at w₀ = 0.3 steps: the difference there is 0.3, with half the step 0.6; neither is 1."""
    weights = [np.array([0.3 * STEP, 2.0])]

    def loss(weights):
        return abs(weights[0][0]) + weights[0][1] ** 2

    expected = central_differences(loss, weights, [(0, 0), (0, 1)])
    np.testing.assert_allclose(expected.derivatives, [0.3, 4.0], rtol=1e-6)
    assert expected.believable.tolist() == [False, True]


def test_comparison_by_hand():
    """At the believable coordinates (3, 4) are expected and (3, 4.5) found; the third would be far off."""
    coordinates, derivatives = [(0, 0), (1, 2), (0, 1)], np.array([3.0, 4.0, 100.0])
    expected = Expected(coordinates, derivatives, np.array([True, True, False]))
    found = expected.against([np.array([3.0, -1.0]), np.array([[0.0], [0.0], [4.5]])])
    assert (found["coordinates"], found["dropped"], found["max_abs"]) == (2, 1, 0.5)
    assert found["max_relative"] == 0.125
    assert found["cosine"] == pytest.approx((9 + 18) / (5 * 29.25**0.5))
