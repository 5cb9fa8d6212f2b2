"""Comparison of configurations: means, paired differences, probability of improvement, intervals, and the verdict."""

import dataclasses
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddpg.studies.comparison import (
    Comparison,
    Estimate,
    compare,
    compare_over_environments,
    estimate,
    paired_difference,
    probability_of_improvement,
    verdict,
)
from ddpg.studies.study_report import ALL, compared, comparison_markdown

RETURNS = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=6)


def test_the_interval_of_a_mean_is_within_the_range_of_the_seeds():
    found = estimate([1.0, 2.0, 6.0], "mean")
    assert found.mean == 3
    assert 1 <= found.low < 3 < found.high <= 6


def test_equal_differences_have_an_interval_of_width_zero():
    """However far apart the returns of the seeds are."""
    assert paired_difference([10.0, 200.0, -70.0], [7.0, 197.0, -73.0]) == Estimate(3.0, 3.0, 3.0)


@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_infinite_returns_are_estimated_without_warnings(value):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimate([value, 1.0], "mean").mean == value
        assert paired_difference([value, 2.0], [1.0, 1.0]).mean == value
        assert math.isnan(paired_difference([value, 2.0], [value, 1.0]).mean)


def test_seeds_are_resampled_as_pairs():
    """Resamples of the differences 0, 4 have means 0, 2, 4 with probabilities 1/4, 1/2, 1/4."""
    assert paired_difference([1.0, 9.0], [1.0, 5.0]) == Estimate(2.0, 0.0, 4.0)


def test_the_interval_is_that_of_all_resamples():
    """The differences 0, 0, 9 have 27 resamples, with means 0, 3, 6, 9 in 8, 12, 6 and 1 of them."""
    estimate = paired_difference([0.0, 0.0, 9.0], [0.0, 0.0, 0.0])
    assert (estimate.mean, estimate.low, estimate.high) == (3, 0, 9)  # 1/27 is more than 2.5 %
    estimate = paired_difference([0.0, 0.0, 0.0, 8.0], [0.0] * 4)  # means 8 and 6: 1/256 and 12/256, 4.7 %
    assert (estimate.mean, estimate.low, estimate.high) == (2, 0, 6)


def test_the_probability_counts_all_pairs_of_runs():
    """1 and 4 against 2 and 2: two of four pairs are larger. A resample may be 1, 1 or 4, 4 (probability 1/4 each)."""
    assert probability_of_improvement([([1.0, 4.0], [2.0, 2.0])]) == Estimate(0.5, 0.0, 1.0)
    assert probability_of_improvement([([5.0, 4.0, 9.0], [2.0, 3.0])]) == Estimate(1.0, 1.0, 1.0)
    assert probability_of_improvement([([0.0, 2.0, 4.0], [1.0])]).mean == pytest.approx(2 / 3)


def test_a_tie_counts_as_half():
    assert probability_of_improvement([([1.0], [1.0])]) == Estimate(0.5, 0.5, 0.5)


def test_environments_have_equal_weight_and_are_resampled_separately():
    assert probability_of_improvement([([1.0], [0.0] * 9), ([0.0] * 5, [1.0])]) == Estimate(0.5, 0.5, 0.5)
    one = probability_of_improvement([([1.0, 4.0], [2.0, 2.0])] * 2)
    assert (one.mean, one.low, one.high) == (0.5, 0.0, 1.0)  # 0 and 1 have probability 1/16 each
    two = probability_of_improvement([([1.0, 4.0], [2.0, 2.0])] * 4)
    assert 0 < two.low < 0.5 < two.high < 1


@settings(max_examples=30, deadline=None)
@given(RETURNS, RETURNS)
def test_the_probability_is_the_mean_over_pairs_and_both_directions_sum_to_one(one, other):
    estimate = probability_of_improvement([(one, other)])
    pairs = [1.0 if x > y else 0.5 if x == y else 0.0 for x in one for y in other]
    assert estimate.mean == pytest.approx(np.mean(pairs))
    assert 0 <= estimate.low <= estimate.high <= 1
    assert probability_of_improvement([(other, one)]).mean == pytest.approx(1 - estimate.mean)


@settings(max_examples=30, deadline=None)
@given(RETURNS, st.floats(-5, 5))
def test_a_constant_shift_is_found_exactly(returns, shift):
    estimate = paired_difference([one + shift for one in returns], returns)
    assert dataclasses.astuple(estimate) == pytest.approx((shift,) * 3, abs=1e-12)


def test_only_common_seeds_are_compared():
    comparison = compare({0: 1.0, 1: 2.0, 7: 100.0}, {1: 5.0, 0: 4.0, 3: -100.0})
    assert (comparison.seeds, comparison.difference) == (2, Estimate(-3.0, -3.0, -3.0))
    assert comparison.improvement == Estimate(0.0, 0.0, 0.0)
    assert compare({0: 1.0}, {1: 1.0}) is None


def test_a_comparison_over_environments_needs_several():
    pair = {0: 2.0, 1: 3.0}, {0: 1.0, 1: 1.0}
    assert compare_over_environments([pair, ({5: 0.0}, {6: 0.0})]) is None
    comparison = compare_over_environments([pair, pair[::-1]])
    assert (comparison.seeds, comparison.difference, comparison.improvement) == (4, None, Estimate(0.5, 0.5, 0.5))


FINALS = [
    ("A", "base", {0: 1.0, 1: 2.0}),
    ("A", "new", {0: 3.0, 1: 4.0}),
    ("B", "base", {0: 10.0}),
    ("B", "new", {0: 5.0}),
    ("C", "new", {0: 5.0}),
    ("A", "other", {}),
]


def test_every_configuration_is_compared_with_the_first_in_each_environment():
    rows = compared(FINALS)
    assert [(row["env"], row["config"], row["reference"], row["seeds"]) for row in rows] == [
        ("A", "new", "base", 2),
        ("B", "new", "base", 1),
        (ALL, "new", "base", 3),
    ]
    assert [row["difference"] for row in rows[:2]] == [2, -5]
    assert np.isnan(rows[2]["difference"])
    assert [row["improvement"] for row in rows] == [1, 0, 0.5]
    assert comparison_markdown(rows).splitlines() == [
        "| environment | configuration | seeds | final return minus base's | improvement |",
        "|---|---|---|---|---|",
        "| A | new | 2 | 2 (2 to 2) | 1 (1 to 1) |",
        "| B | new | 1 | -5 | one seed |",
        "| all environments | new | 3 |  | 0.5 (0.5 to 0.5) |",
    ]


def test_a_single_configuration_has_no_comparison():
    assert compared(FINALS[:1]) == []


@pytest.mark.parametrize(
    ("low", "high", "seeds", "sentence"),
    [
        (0.1, 2, 5, "new beats old: difference by seed 1 (0.1 to 2), probability of improvement 0.9 (0.5 to 1), 5 "),
        (-0.1, 2, 5, "new does not beat old: no difference is shown"),
        (-2, -0.1, 5, "new does not beat old, it is worse"),
        (0.1, 2, 1, "One seed each does not show whether new beats old"),
    ],
)
def test_the_verdict_depends_on_whether_the_interval_excludes_zero(low, high, seeds, sentence):
    comparison = Comparison(seeds, Estimate(1.0, low, high), Estimate(0.9, 0.5, 1.0))
    assert sentence in verdict("new", "old", comparison)
