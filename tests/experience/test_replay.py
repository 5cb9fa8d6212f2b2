"""The replay ring."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpg import Batch, ReplayBuffer, UsageError


def fill(buffer, start, count):
    """Add transitions numbered from ``start``; every field tells its number."""
    numbers = np.arange(start, start + count, dtype=np.float32)
    column = numbers[:, None]
    buffer.add(column * [1, 10], column + 0.5, numbers, column * [1, 10] + 1, numbers % 2 == 0, numbers % 3 == 0)


@given(st.integers(1, 20), st.lists(st.integers(1, 20), min_size=1, max_size=10))
def test_ring_keeps_the_newest(capacity, counts):
    counts = [min(count, capacity) for count in counts]
    buffer = ReplayBuffer(capacity, (2,), 1)
    for index, count in enumerate(counts):
        fill(buffer, sum(counts[:index]), count)
    total = sum(counts)
    assert len(buffer) == min(total, capacity)
    arrays = buffer.arrays()
    assert sorted(arrays["rewards"][:, 0]) == list(range(max(0, total - capacity), total))
    np.testing.assert_array_equal(arrays["next_observations"], arrays["observations"] + 1)
    np.testing.assert_array_equal(arrays["actions"], arrays["rewards"] + 0.5)
    np.testing.assert_array_equal(arrays["terminated"], arrays["rewards"] % 2 == 0)
    np.testing.assert_array_equal(arrays["truncated"], arrays["rewards"] % 3 == 0)


def test_samples_have_leading_axes_and_consistent_rows(rng):
    buffer = ReplayBuffer(50, (2,), 1)
    fill(buffer, 0, 40)
    batch = buffer.sample(rng, 5, 7)
    assert [field.shape for field in batch] == [(5, 7, 2), (5, 7, 1), (5, 7, 1), (5, 7, 2), (5, 7, 1)]
    assert all(field.dtype == np.float32 for field in batch)
    np.testing.assert_array_equal(batch.actions, batch.rewards + 0.5)
    np.testing.assert_array_equal(batch.observations[..., 1:], batch.rewards * 10)
    assert batch.rewards.max() < 40  # never a row that was not written


def test_sampling_is_uniform(rng):
    buffer = ReplayBuffer(10, (2,), 1)
    fill(buffer, 0, 10)
    counts = np.bincount(buffer.sample(rng, 100, 1000).rewards.astype(int).ravel(), minlength=10)
    assert np.abs(counts / 1e5 - 0.1).max() < 0.005


@pytest.mark.parametrize(("capacity", "restored"), [(8, 8), (8, 20), (20, 20)])
def test_restore_goes_on_where_it_was(capacity, restored):
    buffer, other = ReplayBuffer(capacity, (2,), 1), ReplayBuffer(restored, (2,), 1)
    fill(buffer, 0, 8)
    fill(buffer, 8, 3)
    other.restore(buffer.arrays())
    fill(other, 11, 2)
    fill(buffer, 11, 2)
    rewards = other.arrays()["rewards"][:, 0]
    if capacity == restored:
        np.testing.assert_array_equal(rewards, buffer.arrays()["rewards"][:, 0])
    else:
        np.testing.assert_array_equal(rewards, np.arange(3, 13))


def test_errors(rng):
    with pytest.raises(UsageError, match="capacity 0"):
        ReplayBuffer(0, (2,), 1)
    buffer = ReplayBuffer(4, (2,), 1)
    with pytest.raises(UsageError, match="empty"):
        buffer.sample(rng, 1, 1)
    large = ReplayBuffer(10, (2,), 1)
    fill(large, 0, 10)
    with pytest.raises(UsageError, match="10 stored transitions do not fit"):
        buffer.restore(large.arrays())
    with pytest.raises(UsageError, match="observations has shape"):
        ReplayBuffer(10, (3,), 1).restore(large.arrays())


def test_padding_adds_rows_of_zeros():
    batch = Batch(*(np.ones((2, 3, size), np.float32) for size in (4, 1, 1, 4, 1)))
    padded = batch.padded(5)
    for before, after in zip(batch, padded, strict=True):
        np.testing.assert_array_equal(after[:2], before)
        assert after.shape == (5, *before.shape[1:])
        assert not after[2:].any()
        assert after.dtype == before.dtype
