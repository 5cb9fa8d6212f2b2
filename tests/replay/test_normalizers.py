"""Running statistics against those of all data at once, and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import lacking, refuses

from ddpg import UsageError
from ddpg.replay.normalizers import ObservationNormalizer, RewardNormalizer, range_note


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8), st.floats(-1e3, 1e3))
def test_running_moments_equal_those_of_all_data(counts, shift):
    rng = np.random.default_rng(0)
    parts = [shift + rng.normal(size=(count, 2, 3)) for count in [*counts, 2]]
    normaliser = ObservationNormalizer((2, 3))
    for part in parts:
        normaliser.update(part)
    everything = np.concatenate(parts)
    state = normaliser.state()
    assert state["count"] == len(everything)
    np.testing.assert_allclose(state["mean"], everything.mean(axis=0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(state["squares"] / len(everything), everything.var(axis=0), rtol=1e-6, atol=1e-9)


def test_observations_by_hand():
    """1, 3, 5, 7: mean 4, variance 5. The second number is constant."""
    normaliser = ObservationNormalizer((2,))
    np.testing.assert_allclose(normaliser(np.array([[3.0, -20.0]], np.float32)), [[3, -10]])  # no statistics yet
    normaliser.update(np.array([[1, 2], [3, 2], [5, 2]], np.float32))
    normaliser.update(np.array([[7, 2]], np.float32))
    raw = np.array([[[4, 2], [9, 2]], [[1e6, 3], [-1e6, 1]]], np.float32)
    scaled = normaliser(raw)
    np.testing.assert_allclose(scaled, [[[0, 0], [np.sqrt(5), 0]], [[10, 10], [-10, -10]]], rtol=1e-6)
    assert scaled.dtype == np.float32
    assert raw[0, 1, 0] == 9  # the argument is not changed
    assert normaliser.state()["count"] == 4


def test_scale_of_returns_by_hand():
    """γ = 0.5. Environment 0: G = 2, 3, then 1.5 + 0 at the end, and 4 in a new episode. Environment 1: G = -20."""
    normaliser = RewardNormalizer(0.5)
    assert normaliser.scale == 1
    normaliser.update(np.zeros(2), np.zeros(2, bool), [0, 1])
    assert normaliser.scale == 1  # not 0
    normaliser = RewardNormalizer(0.5)
    seen = []
    for rewards, ended, env_indices in [([2.0], [False], [0]), ([2.0], [False], [0]), ([0.0], [True], [0])]:
        normaliser.update(np.array(rewards), np.array(ended), env_indices)
    seen += [2, 3, 1.5]
    assert normaliser.scale == pytest.approx(max(np.std(seen), 3 / 5))
    normaliser.update(np.array([4.0, -20.0]), np.array([False, False]), [0, 1])
    seen += [4, -20]
    assert normaliser.scale == pytest.approx(max(np.std(seen), 20 / 5)) == pytest.approx(np.std(seen))
    normaliser.end_episodes(0)
    normaliser.update(np.array([1.0, 10.0]), np.array([False, False]), [0, 1])
    seen += [1, 0]  # environment 1 continued, with -10 + 10
    assert normaliser.scale == pytest.approx(np.std(seen))
    normaliser.end_episodes()
    normaliser.update(np.array([1.0, 5.0]), np.array([False, False]), [0, 1])
    assert normaliser.scale == pytest.approx(np.std([*seen, 1, 5]))


def test_a_rare_large_return_sets_the_scale():
    normaliser = RewardNormalizer(0.9)
    normaliser.update(np.array([100.0] + [0.0] * 999), np.ones(1000, bool), [0] * 1000)
    assert normaliser.scale == 20 > np.std([100.0] + [0.0] * 999)


@pytest.mark.parametrize("make", [lambda: ObservationNormalizer((2,)), lambda: RewardNormalizer(0.9)])
def test_saved_statistics(make, rng):
    one, other = make(), make()
    values = rng.normal(size=(50, 2))
    arguments = (values,) if isinstance(one, ObservationNormalizer) else (values[:, 0], np.ones(50, bool), [0] * 50)
    one.update(*arguments)
    other.restore(one.state())
    np.testing.assert_equal(one.state(), other.state())
    one.update(*arguments)
    other.update(*arguments)
    np.testing.assert_equal(one.state(), other.state())
    state = one.state()
    for changes, message in [
        ({"mean": np.zeros(7)}, "float64 (7,)"),
        ({"mean": state["mean"].astype(np.float32)}, "float32"),
        ({"count": np.asarray(-1)}, "0"),
        ({"count": np.asarray(1.0)}, "float64"),
        ({"squares": state["squares"] - 1e9}, "0"),
    ]:
        with refuses(UsageError, message):
            other.restore(state | changes)
    with refuses(UsageError, "expected"):
        other.restore({})


def test_an_invalid_largest_return_is_refused():
    normaliser = RewardNormalizer(0.9)
    for bad in (np.asarray(-1.0), np.zeros(1), np.asarray(1)):
        with refuses(UsageError, "largest return"):
            normaliser.restore(normaliser.state() | {"largest": bad})


def test_a_value_range_too_small_for_gamma_is_reported():
    """Rewards of 1 for T = 2 steps with gamma 0.9: the largest return, 1.9, is scaled to 5, and Q = 10 to 26.3."""
    q = 10 * 5 / 1.9
    assert lacking(range_note(0.9, 2, 10.0), "gamma=0.9", "2", "26.3", "10", "gamma=0") == []
    assert range_note(0.9, 2, q / 1.25 + 0.01) == ""
    assert range_note(0.9, 2, q / 1.25 - 0.01)
    assert range_note(0.4, 2, 1.0) == ""  # a range too small for any gamma is reported elsewhere
    assert range_note(0.9, None, 1.0) == ""
    assert range_note(1.0, 2, 1.0) == ""


@given(st.integers(1, 10**6), st.floats(0, 1, exclude_max=True))
def test_the_recommended_gamma_is_not_reported(steps, gamma):
    note = range_note(gamma, steps, 5.0)
    if note:
        assert range_note(float(note.rpartition("gamma=")[2].split()[0]), steps, 5.0) == ""
