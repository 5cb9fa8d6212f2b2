"""Formulas of the diagnostics, by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ddpg.agents.diagnostics import dormant_share, effective_learning_rate, feature_rank, total_norm


def test_dormant_units_of_one_layer():
    """Means of |h| are 4, 2, 0 and 0.01, and their mean is 1.5025: the scores are 2.66, 1.33, 0 and 0.0067."""
    layer = np.array([[4.0, -3.0, 0.0, 0.02], [-4.0, 1.0, 0.0, 0.0]], np.float32)
    assert dormant_share([layer]) == 0.5
    assert dormant_share([layer], tau=0.0) == 0.25
    assert dormant_share([layer], tau=2.0) == 0.75


def test_a_score_that_equals_tau_is_dormant():
    """The means 1 and 3 average 2, so the first score is 0.5."""
    layer = np.array([[1.0, 3.0]])
    assert dormant_share([layer], tau=0.5) == 0.5
    assert dormant_share([layer], tau=0.499) == 0.0


def test_layers_are_scored_separately_and_counted_together():
    """Scored together, all units of the second layer would be dormant; scored by layer, 1 of 5 is."""
    assert dormant_share([np.array([[1000.0, 1000.0]]), np.array([[1e-3, 1e-3, 0.0]])]) == 0.2


def test_units_of_a_layer_without_any_activation_are_dormant():
    assert dormant_share([np.zeros((3, 4)), np.ones((3, 4))], tau=0.0) == 0.5


def test_a_channel_is_one_unit():
    """In a convolution's output [B, height, width, 2], the second channel is active at one of eight positions."""
    image = np.zeros((2, 2, 2, 2))
    image[..., 0], image[1, 0, 1, 1] = 1.0, 0.08
    assert dormant_share([image]) == 0.5  # means 1 and 0.01, scores 1.98 and 0.0198
    assert dormant_share([image], tau=0.0) == 0.0


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 8)), elements=st.floats(0, 9, width=32)),
    st.floats(0, 1),
    st.integers(-6, 6),
)
def test_dormancy_does_not_depend_on_a_layers_scale(layer, tau, exponent):
    layer = np.where(layer < 1e-3, 0, layer)
    share = dormant_share([layer], tau)
    assert 0 <= share <= 1
    assert dormant_share([layer * np.float32(2.0**exponent)], tau) == share
    assert dormant_share([layer], 0.0) <= share


def test_feature_rank_of_known_singular_values():
    """Singular values 97, 2, 0.6 and 0.4, in sum 100: one has 97 % of it, two 99 %, and three 99.6 %."""
    features = np.diag([97.0, 2.0, 0.6, 0.4])
    assert feature_rank(features) == 2
    assert feature_rank(features, left_out=0.03) == 1
    assert feature_rank(features, left_out=0.005) == 3
    assert feature_rank(features, left_out=0.0) == 4


def test_feature_rank_counts_directions_not_units():
    one = np.arange(1.0, 5.0)
    assert feature_rank(np.outer(one, [1.0, 2.0, 3.0])) == 1
    assert feature_rank(np.eye(5)) == 5
    assert feature_rank(np.zeros((4, 3), np.float32)) == 0


@pytest.mark.parametrize("number", [np.inf, np.nan])
def test_features_that_overflow_have_no_rank(number):
    """NumPy's singular values would raise LinAlgError, and end the run."""
    assert np.isnan(feature_rank(np.float32([[1.0, 2.0], [3.0, number]])))


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 6)), elements=st.floats(-9, 9)))
def test_feature_rank_is_at_most_the_smaller_side(features):
    assert 0 <= feature_rank(features) <= min(features.shape)


def test_norm_of_several_arrays():
    """√(3² + 4² + 12²) = 13."""
    assert total_norm([np.array([[3.0], [4.0]]), np.array([12.0])]) == 13.0
    assert total_norm([]) == 0.0
    assert total_norm([np.full(3, 1e25, np.float32)]) == pytest.approx(math.sqrt(3) * 1e25)  # float32 would overflow


def test_effective_learning_rate():
    """Weights (3, 4) and 12 have norm 13, and the step (0, 1.3) and 0 has norm 1.3, a tenth."""
    before, after = [np.array([3.0, 4.0]), np.array([12.0])], [np.array([3.0, 5.3]), np.array([12.0])]
    assert effective_learning_rate(before, after) == pytest.approx(0.1)
    assert effective_learning_rate(before, before) == 0.0
    assert effective_learning_rate([np.zeros(2)], [np.ones(2)]) == 0.0


def test_effective_learning_rate_resolves_steps_of_float32():
    before = np.ones(4, np.float32)
    assert effective_learning_rate([before], [np.nextafter(before, np.float32(2))]) == pytest.approx(2.0**-23)
