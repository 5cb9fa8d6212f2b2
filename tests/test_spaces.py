"""Boxes: what is accepted, and the affine map to [-1, 1]."""

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ddpg import UsageError, spaces

Box = gym.spaces.Box


@given(
    hnp.arrays(np.float64, 3, elements=st.floats(-1e3, 1e3)),
    hnp.arrays(np.float64, 3, elements=st.floats(1e-2, 1e3)),
    hnp.arrays(np.float32, (5, 3), elements=st.floats(-1, 1, width=32)),
    st.sampled_from([np.float32, np.float64]),
)
def test_scaling_stays_inside_and_comes_back(low, width, action, dtype):
    low, high = low.astype(dtype), (low + width).astype(dtype)
    space = Box(low, high, dtype=dtype)
    scaling = spaces.ActionScaling(space)
    in_env = scaling.to_env(action)
    assert in_env.dtype == dtype
    assert all(space.contains(row) for row in in_env)
    resolution = 4 * np.finfo(np.float32).eps * (1 + np.abs([low, high]).max() / width.min())
    np.testing.assert_allclose(scaling.to_unit(in_env), action, atol=max(1e-5, resolution))


def test_ends_and_middle_map_exactly():
    scaling = spaces.ActionScaling(Box(np.array([-1, 0.5], np.float32), np.array([3, 1], np.float32)))
    unit = np.array([[-1, -1], [0, 0], [1, 1]], np.float32)
    np.testing.assert_array_equal(scaling.to_env(unit), np.array([[-1, 0.5], [1, 0.75], [3, 1]], np.float32))


def test_matrix_actions():
    space = Box(-2, 4, (2, 3), np.float32)
    scaling = spaces.ActionScaling(space)
    assert scaling.unit_space.shape == (6,)
    in_env = scaling.to_env(np.zeros((5, 6), np.float32))
    assert in_env.shape == (5, 2, 3)
    assert (in_env == 1).all()
    assert scaling.to_unit(in_env).shape == (5, 6)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gym.spaces.Discrete(3), "needs a DQN"),
        (gym.spaces.MultiBinary(3), "is not a Box"),
        (Box(0, 5, (2,), np.int32), "expected a Box of floats"),
        (Box(-np.inf, np.inf, (2,), np.float32), "infinite bounds"),
        (Box(np.zeros(2, np.float32), np.array([1, 0], np.float32)), "zero width"),
        (Box(-1, 1, (), np.float32), "at least one number"),
    ],
)
def test_action_spaces_refused(space, message):
    with pytest.raises(UsageError, match=message):
        spaces.check_action_space(space)


def test_observation_spaces_refused():
    with pytest.raises(UsageError, match="FlattenObservation"):
        spaces.check_observation_space(gym.spaces.Dict(a=Box(-1, 1, (1,))))


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 6), (4, 2, 3), (4, 6)])
def test_batches_are_recognised(shape):
    batch, single = spaces.as_batch(Box(-1, 1, (2, 3)), np.zeros(shape), "x")
    assert batch.shape == ((1, 2, 3) if shape in ((6,), (2, 3), (1, 6)) else (4, 2, 3))
    assert single == (shape in ((6,), (2, 3)))
    assert batch.dtype == np.float32


def test_wrong_shape_and_nan_are_named():
    with pytest.raises(UsageError, match=r"observation has shape \(5,\); expected \(3,\), or a batch \(B, 3\)"):
        spaces.as_batch(Box(-1, 1, (3,)), np.zeros(5), "observation")
    with pytest.raises(UsageError, match=r"observation holds nan at index \[1\]"):
        spaces.as_batch(Box(-1, 1, (3,)), [0, np.nan, 0], "observation")
    with pytest.raises(UsageError, match=r"holds -inf at index \[0, 2\]"):
        spaces.check_finite(np.array([[0, 0, -np.inf]]), "x")
    spaces.check_finite(np.full(3, 1e30, np.float32), "x")  # its square is infinite, it is not
