"""The sum tree against a plain array."""

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from scipy import stats

from ddpg.replay.priorities import SumTree


class Tree(RuleBasedStateMachine):
    """A tree of integers, whose sums are exact, against an array."""

    @initialize(count=st.integers(1, 70))
    def start(self, count):
        self.tree, self.plain = SumTree(count), np.zeros(count)

    @rule(data=st.data(), values=st.lists(st.integers(0, 9), min_size=1, max_size=100))
    def set_some(self, data, values):
        one_of = st.lists(st.integers(0, len(self.plain) - 1), min_size=len(values), max_size=len(values))
        indexes = np.array(data.draw(one_of))
        self.tree.set(indexes, np.array(values, float))
        for index, value in zip(indexes, values, strict=True):  # the last of equal indices wins
            self.plain[index] = value

    @rule(data=st.data(), value=st.integers(0, 9))
    def set_one(self, data, value):
        index = data.draw(st.integers(0, len(self.plain) - 1))
        self.tree.set(np.array([index]), value)
        self.plain[index] = value

    @invariant()
    def numbers_and_total_equal_the_arrays(self):
        np.testing.assert_array_equal(self.tree[: len(self.plain)], self.plain)
        assert self.tree.total == self.plain.sum()

    @precondition(lambda self: self.plain.any())
    @invariant()
    def every_place_is_found(self):
        places = np.arange(0, self.plain.sum(), 0.5)
        expected = np.searchsorted(np.cumsum(self.plain), places, side="right")
        np.testing.assert_array_equal(self.tree.find(places), expected)
        np.testing.assert_array_equal(self.tree.find(places[:, None]), expected[:, None])


def test_a_tree_behaves_like_an_array():
    # Without shrinking, which takes minutes; the examples are short anyway.
    quick = settings(max_examples=50, stateful_step_count=10, phases=[Phase.generate], deadline=None)
    run_state_machine_as_test(Tree, settings=quick)


def test_frequencies(rng):
    """100 numbers that were each set twice, drawn 200 000 times: chi-square test against their shares."""
    tree, numbers = SumTree(100), rng.exponential(size=100)
    tree.set(np.arange(100), rng.exponential(size=100))
    tree.set(np.arange(100), numbers)
    drawn = np.bincount(tree.find(rng.random(200_000) * tree.total), minlength=100)
    assert stats.chisquare(drawn, 200_000 * numbers / numbers.sum()).pvalue > 0.001
    assert stats.chisquare(drawn, np.full(100, 2000)).pvalue < 1e-9


def test_sums_are_exact_after_large_numbers_are_replaced(rng):
    """After a small number replaces 1e16, no rounding error of it is left."""
    tree = SumTree(8)
    tree.set(np.arange(8), 0.1)
    before = tree.total
    tree.set(np.array([3]), 1e16)
    tree.set(np.array([3]), 0.1)
    assert tree.total == before
