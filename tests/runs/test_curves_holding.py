"""How well a run keeps what it has learned: values worked out by hand, and properties."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpg.runs.curves import holding

NAN = math.nan


@pytest.mark.parametrize(
    ("returns", "kept", "dips"),
    [
        # Positive: plain ratios. 90 is the first at 80 %; of the three after it, 40 is below 60 %.
        ([10, 50, 90, 40, 100, 70], 0.7, 1 / 3),
        # Exactly 80 % counts as learned; exactly 60 % is no dip.
        ([0, 80, 60, 100], 1.0, 0.0),
        ([0, 79, 59, 100], 1.0, NAN),
        # The first, -200, is level 0: levels 0, 2/3, 1, 1/2.
        ([-200, 0, 100, -50], 0.5, 1.0),
        # All below 0: levels 0, 1, 0.9, 0.5, 0.95.
        ([-1200, -200, -300, -700, -250], 0.95, 1 / 3),
        # Worse than the first: the level is below 0.
        ([-100, 100, -200], -0.5, 1.0),
        # The first is the largest: learned at once.
        ([100, 50, 90], 0.9, 0.5),
        # Never above the floor: nothing to keep.
        ([-10, -20, -10], NAN, NAN),
        ([0, 0], NAN, NAN),
        ([], NAN, NAN),
        ([5.0], 1.0, NAN),
        ([1.0, NAN, 2.0], NAN, NAN),
        # A level, or the gain, overflows float64.
        ([1e-309, -1.0], NAN, NAN),
        ([-1.5e308, 1.5e308], NAN, NAN),
    ],
    ids=str,
)
def test_by_hand(returns, kept, dips):
    assert holding(returns) == pytest.approx((kept, dips), nan_ok=True)


# Multiples of 2^-10, so that no level overflows float64, however small the gain.
curves = st.lists(st.integers(-(2**20), 2**20).map(lambda n: n / 1024), min_size=2, max_size=12)


@given(curves, st.floats(0.1, 100))
def test_scaling_the_rewards_changes_nothing(returns, scale):
    found, scaled = holding(returns), holding(np.array(returns) * scale)
    assert found.kept == pytest.approx(scaled.kept, nan_ok=True)


@given(curves)
def test_bounds(returns):
    kept, dips = holding(returns)
    assert np.isnan(kept) or kept <= 1
    assert np.isnan(dips) or 0 <= dips <= 1
    assert np.isnan(kept) == (max(returns) <= min(0.0, returns[0]))


@given(st.lists(st.floats(), max_size=12))
def test_bounds_for_any_floats(returns):
    kept, dips = holding(returns)
    assert np.isnan(kept) or -np.inf < kept <= 1
    assert np.isnan(dips) or 0 <= dips <= 1
