"""Priorities and their sampling, by hand."""

import numpy as np
import pytest
from refusals import refuses
from scipy import stats

from ddpg import ReplayBuffer, UsageError
from ddpg.replay.priorities import Priorities
from ddpg.replay.sampling import Sampler


def stored(buffer, count):
    column = np.arange(count, dtype=np.float32)
    flags = np.zeros(count, bool)
    buffer.add(column[:, None], column[:, None], column, column[:, None], flags, flags)


@pytest.mark.parametrize(
    ("kind", "exponent", "expected"),
    [
        ("proportional", None, [1e-6**0.6, 0.5**0.6, 1, 32**0.6]),
        ("proportional", 1.0, [0, 0.5, 1, 32]),
        ("lap", None, [1, 1, 1, 4]),  # 32^0.4 = 2^2
        ("lap", 0.0, [1, 1, 1, 1]),
    ],
)
def test_priorities_of_errors(kind, exponent, expected):
    priorities = Priorities(kind, exponent, 6)
    priorities.update(np.array([[3, 2], [1, 0]]), np.array([[32, -1], [0.5, 0]], np.float32))
    np.testing.assert_allclose(priorities.state(4)["priorities"], expected, rtol=1e-5, atol=2e-6)
    priorities.add(np.array([4, 5]))  # new rows get the largest priority so far
    np.testing.assert_allclose(priorities.state(6)["priorities"][4:], max(expected), rtol=1e-5)
    priorities.update(np.arange(6), np.zeros(6))
    priorities.add(np.array([5]))  # so far, not the current largest
    assert priorities.state(6)["priorities"][5] == pytest.approx(max(expected), rel=1e-5)


def test_weights_by_hand():
    """Priorities 1, 3 and 4 of three: P = 1/8, 3/8, 1/2; N·P = 3/8, 9/8, 3/2. The least likely row has weight 1."""
    priorities = Priorities("proportional", 1.0, 3)
    priorities.update(np.arange(3), np.array([1.0, 3.0, 4.0]))
    rows = np.array([[0, 1, 2, 1], [1, 2, 2, 2]])
    expected = np.array([[1, 1 / 3, 1 / 4, 1 / 3], [1, 3 / 4, 3 / 4, 3 / 4]])
    for correction in (0.0, 0.5, 1.0):
        weights = priorities.weights(rows, correction)
        np.testing.assert_allclose(weights, expected[..., None] ** correction, rtol=1e-5)
        assert weights.dtype == np.float32
    assert Priorities("lap", None, 3).weights(rows, 1.0) is None


@pytest.mark.parametrize("kind", ["proportional", "lap"])
@pytest.mark.parametrize("errors", [[0, 0, 0], [1e-3, 1, 2], [1e30, 0, 1], [3e38, 3e38, 3e38]])
def test_a_large_exponent_leaves_priorities_and_weights_finite(kind, errors, rng):
    """(10⁻⁶)^100 is 0 in float64, and (10³⁰)^100 infinite."""
    buffer = ReplayBuffer(5, (1,), 1)
    stored(buffer, 3)
    sampler = Sampler(buffer, 1, 0.9, Priorities(kind, 100.0, 5))
    sampler.sample(rng, 1, 1, 1.0)
    sampler.update(np.arange(3), np.array(errors, np.float32))
    state = sampler.state()
    assert (state["priorities"] > 0).all()
    assert np.isfinite([*state["priorities"], state["priorities"].sum(), state["largest_priority"]]).all()
    for correction in (0.4, 1.0):
        batch, _ = sampler.sample(rng, 4, 8, correction)
        if kind == "proportional":
            assert np.isfinite(batch.weights).all()
            assert (batch.weights.max(axis=1) == 1).all()
    sampler.restore(state)


def test_draws_are_proportional_to_priorities(rng):
    """Rows 0 to 3 with priorities 1, 2, 3, 4, in a memory that is not full."""
    buffer = ReplayBuffer(7, (1,), 1)
    stored(buffer, 4)
    sampler = Sampler(buffer, 1, 0.9, Priorities("proportional", 1.0, 7))
    first, rows = sampler.sample(rng, 4, 5000, 1.0)
    assert stats.chisquare(np.bincount(rows.ravel(), minlength=4)).pvalue > 0.001  # all new, so uniform
    np.testing.assert_array_equal(first.weights, 1)
    np.testing.assert_array_equal(first.discounts, np.float32(0.9))
    sampler.update(np.arange(4), np.arange(1.0, 5))
    batch, rows = sampler.sample(rng, 4, 5000, 1.0)
    assert stats.chisquare(np.bincount(rows.ravel(), minlength=4), 2000 * np.arange(1, 5)).pvalue > 0.001
    np.testing.assert_array_equal(batch.rewards[..., 0], rows)
    np.testing.assert_allclose(batch.weights[..., 0], 1 / (1 + rows), rtol=1e-5)


class LargestRandom:
    """A stand-in for a generator whose numbers are all the largest below 1."""

    def random(self, shape):
        return np.full(shape, np.nextafter(1.0, 0.0))


def test_the_largest_random_number_draws_an_existing_row(rng):
    """By rounding, the sums of some sets of priorities seem to end early."""
    for size in range(1, 16):
        for _ in range(40):
            priorities = Priorities("proportional", 1.0, 16)
            priorities.update(np.arange(size), rng.exponential(size=size))
            (row,) = priorities.draw(LargestRandom(), (1,), size)
            assert row == size - 1


def test_overwritten_rows_get_the_priority_of_new_ones(rng):
    buffer = ReplayBuffer(3, (1,), 1)
    stored(buffer, 3)
    sampler = Sampler(buffer, 1, 0.9, Priorities("lap", 1.0, 3))
    sampler.sample(rng, 1, 1, 1.0)
    sampler.update(np.arange(3), np.array([7.0, 2.0, 5.0]))
    stored(buffer, 2)  # overwrites rows 0 and 1
    assert sampler.state()["priorities"].tolist() == [7, 7, 5]


@pytest.mark.parametrize("capacity", [5, 9])
def test_a_restored_memory_draws_what_the_saved_one_draws(rng, capacity):
    made = []
    for size in (5, capacity):
        buffer = ReplayBuffer(size, (1,), 1)
        made.append((buffer, Sampler(buffer, 1, 0.9, Priorities("proportional", None, size))))
    (buffer, sampler), (other_buffer, other) = made
    for _ in range(2):
        stored(buffer, 4)  # the ring wraps: its oldest is row 3
    sampler.sample(rng, 1, 1, 1.0)
    sampler.update(buffer.newest(4), np.array([1.0, 9.0, 0.1, 3.0]))
    stored(buffer, 1)  # not sampled yet
    other.restore(sampler.state())
    for a, b in zip((buffer, sampler), (other_buffer, other), strict=True):
        one, another = a.state(), b.state()
        if capacity == 5:
            np.testing.assert_equal(one, another)
    assert sampler.state()["priorities"][buffer.newest(5)].tolist() == (
        other.state()["priorities"][other_buffer.newest(5)].tolist()
    )
    if capacity == 5:
        draws = [s.sample(np.random.default_rng(3), 4, 8, 0.4)[1].tolist() for s in (sampler, other)]
        assert draws[0] == draws[1]


def test_invalid_priorities_are_refused(rng):
    buffer = ReplayBuffer(3, (1,), 1)
    stored(buffer, 3)
    sampler = Sampler(buffer, 1, 0.9, Priorities("lap", None, 3))
    state = sampler.state()
    for bad in (np.ones(2), np.ones(3, np.float32), np.array([1.0, 0.0, 1.0]), np.array([1.0, -1.0, 1.0])):
        with refuses(UsageError, "priorities 3 replay 0"):
            sampler.restore(state | {"priorities": bad})
    with refuses(UsageError, "largest 0.5 1.0"):
        sampler.restore(state | {"largest_priority": np.asarray(0.5)})
    sampler.restore(buffer.state())  # of a memory without priorities: all rows count as new
    assert sampler.state()["priorities"].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("foo", None, 4), "kind 'foo' proportional lap"),
        ((None, None, 4), "kind None"),
        (("lap", -0.5, 4), "exponent -0.5"),
        (("lap", float("nan"), 4), "exponent nan"),
        (("lap", "1", 4), "exponent '1'"),
        (("proportional", None, 0), "capacity 0"),
        (("proportional", None, 2.5), "capacity 2.5"),
    ],
)
def test_bad_options_are_refused(arguments, message):
    with refuses(UsageError, message):
        Priorities(*arguments)


@pytest.mark.parametrize("kind", ["proportional", "lap"])
@pytest.mark.parametrize("error", [np.nan, np.inf, -np.inf])
def test_errors_that_are_not_finite_change_nothing(kind, error):
    """With a sum of NaN every draw would be row 0."""
    priorities = Priorities(kind, 1.0, 4)
    priorities.update(np.arange(4), np.array([1, 2, 3, 4]))
    before = priorities.state(4)
    expected = before["priorities"].tolist()
    with refuses(UsageError, "errors NaN"):
        priorities.update(np.arange(4), np.array([1, error, 3, 9.0]))
    assert priorities.state(4)["priorities"].tolist() == expected
    assert priorities.largest == before["largest_priority"]


@pytest.mark.parametrize("kind", [None, "lap"])
def test_sampling_from_an_empty_memory_is_refused(rng, kind):
    priorities = kind and Priorities(kind, None, 3)
    with refuses(UsageError, "empty"):
        Sampler(ReplayBuffer(3, (1,), 1), 1, 0.9, priorities).sample(rng, 1, 1, 1.0)
