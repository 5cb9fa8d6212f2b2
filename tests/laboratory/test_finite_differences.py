"""The laboratory's reference gradients are central differences without the coordinates near a kink."""

import numpy as np
import pytest

from ddpg.laboratory.finite_differences import STEP, FiniteDifferences, ReferenceGradient, central_differences
from ddpg.replay.minibatch import Batch


def test_a_coordinate_near_a_kink_is_not_believable():
    """|w₀| + w₁² at w₀ = 0.3 steps: the difference quotient is 0.3, or 0.6 with half the step, instead of 1."""
    weights = [np.array([0.3 * STEP, 2.0])]

    def loss(weights):
        return abs(weights[0][0]) + weights[0][1] ** 2

    expected = central_differences(loss, weights, [(0, 0), (0, 1)])
    np.testing.assert_allclose(expected.derivatives, [0.3, 4.0], rtol=1e-6)
    assert expected.believable.tolist() == [False, True]


def test_comparison_by_hand():
    """At the believable coordinates (3, 4) are expected and (3, 4.5) found; the third would be far off."""
    coordinates, derivatives = [(0, 0), (1, 2), (0, 1)], np.array([3.0, 4.0, 100.0])
    expected = ReferenceGradient(coordinates, derivatives, np.array([True, True, False]))
    found = expected.against([np.array([3.0, -1.0]), np.array([[0.0], [0.0], [4.5]])])
    assert (found["coordinates"], found["dropped"], found["max_abs"]) == (2, 1, 0.5)
    assert found["max_relative"] == 0.125
    assert found["cosine"] == pytest.approx((9 + 18) / (5 * 29.25**0.5))


def test_comparison_with_a_reference_of_zeros():
    nothing = ReferenceGradient([(0, 0), (0, 1)], np.zeros(2), np.ones(2, bool))
    right, wrong = (nothing.against([np.array(found)]) for found in ([0.0, 0.0], [0.0, 3.0]))
    assert (right["max_relative"], right["cosine"]) == (0, 1)
    assert (wrong["max_relative"], wrong["cosine"]) == (1, 0)


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e8])
def test_large_rewards_do_not_drown_the_difference(online, scale):
    """Q = w·s·a and μ = 0.5: ∂L/∂w = 2·mean((Q − y)·(s·a − γ·s′·0.5)) online, without the second term otherwise."""
    rng = np.random.default_rng(0)
    s, a, s2 = rng.uniform(0.5, 1, (3, 8, 1))
    rewards, w, gamma = scale * rng.normal(size=(8, 1)), 0.7, 0.9
    reference = object.__new__(FiniteDifferences)
    reference._q = lambda weights, states, actions: weights[0][0] * states * actions
    reference._weights = {name: [np.array([w])] for name in ("critic", "target_critic")}
    reference._batch = Batch(s, a, rewards, s2, np.zeros((8, 1)))
    reference._gamma = gamma
    reference._next_actions = dict.fromkeys(("actor", "target_actor"), np.full((8, 1), 0.5))
    moving = s * a - gamma * s2 * 0.5 * online
    expected = 2 * np.mean((w * s * a - rewards - gamma * w * s2 * 0.5) * moving)
    found = reference.td([(0, 0)], online)
    assert found.derivatives[0] == pytest.approx(expected, rel=1e-7)
    assert found.believable.all()
