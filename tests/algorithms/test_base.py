"""The kinds of updates that alternate with several intervals, such as the actor's delay."""

import itertools
import math

import pytest
import tensorflow as tf

from ddpg.algorithms.base import UpdateCounter


def counting(*intervals):
    with tf.Graph().as_default():
        count = UpdateCounter("made")
        with count.assume_step(0):
            for interval in intervals:
                count.every(interval, int, int)
    return count


def by_enumeration(count, period):
    """Return the first update of each kind, found by checking every update of a period."""
    firsts = {}
    for made in range(period):
        firsts.setdefault(count.is_due(made), made)
    return [*firsts.values()]


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_the_first_update_of_each_kind_is_found_without_enumeration(number):
    for intervals in itertools.combinations_with_replacement(range(1, 11), number):
        count = counting(*intervals)
        assert count.firsts == by_enumeration(count, math.lcm(*intervals)), intervals


def test_a_huge_interval_costs_nothing():
    assert counting(2, 10**9).firsts == [0, 1, 10**9 - 1]
