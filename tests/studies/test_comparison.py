"""Means with intervals, and the sentence that says whether one beats the other."""

import pytest

from ddpg.studies.tuning_report import Estimate, difference_of, mean_of, verdict


def test_the_mean_and_an_interval_within_the_seeds():
    told = mean_of([1.0, 2.0, 6.0])
    assert told.mean == 3
    assert 1 <= told.low < 3 < told.high <= 6


def test_seeds_that_agree_leave_no_doubt():
    assert difference_of([5.0, 5.0], [2.0, 2.0, 2.0]) == Estimate(3.0, 3.0, 3.0)


def test_both_are_drawn_again():
    """Of [0, 2] the means drawn are 0, 1, 2 with shares 1/4, 1/2, 1/4, so −2 and 2 have 1/16 of their differences."""
    told = difference_of([0.0, 2.0], [0.0, 2.0])
    assert (told.mean, told.low, told.high) == (0, -2, 2)


@pytest.mark.parametrize(
    ("low", "high", "seeds", "says"),
    [
        (0.1, 2, 5, "new beats old: difference of means 1 (0.1 to 2), 5 fresh seeds each."),
        (-0.1, 2, 5, "new does not beat old: no difference is shown"),
        (-2, -0.1, 5, "new does not beat old, it is worse"),
        (0.1, 2, 1, "One seed each does not show whether new beats old"),
    ],
)
def test_the_verdict_is_by_whether_the_interval_leaves_out_zero(low, high, seeds, says):
    assert says in verdict("new", "old", Estimate(1.0, low, high), seeds)
