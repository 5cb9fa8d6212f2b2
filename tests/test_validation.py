"""Validation of numbers, rewards and flags, and its error messages."""

import warnings
from decimal import Decimal

import gymnasium as gym
import numpy as np
import pytest
from refusals import refuses

from ddpg import UsageError
from ddpg.interaction import spaces
from ddpg.interaction import validation as values

Box = gym.spaces.Box


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


NO_NUMBERS = [
    ("abc", "x str array"),
    (["1", "2", "3"], "x list strings"),
    ({"a": 1}, "x dict"),
    (None, "x None"),
    ([[1, 2], [3]], "x list rows shapes"),
    ([1 + 2j, 0, 0], "x list complex numbers"),
    (np.zeros(3, complex), "x array complex numbers"),
    (np.array([1, None, 2]), "x array objects"),
    ([Decimal(1), 2, 3], "x list objects"),
    ([10**30, 0, 0], f"x {10**30} 64 bits float32"),
    pytest.param(10**400, "x 1329 bits 64 bits float32", id="1329 bits"),
    ([10**30, None, 0], "x list objects"),
    (np.zeros(3, "datetime64[s]"), "x array dates"),
]


@pytest.mark.parametrize(("value", "message"), NO_NUMBERS)
def test_what_is_not_numeric_is_refused(value, message):
    for refuse in (
        lambda: values.as_float32(value, "x"),
        lambda: spaces.as_batch(Box(-1, 1, (3,)), value, "x"),
        lambda: spaces.as_column(value, 3, "x"),
    ):
        with refuses(UsageError, message):
            refuse()


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
def test_integers_that_float32_would_round_are_refused(dtype):
    exact = np.array([2**24, 0, 1], dtype)
    np.testing.assert_array_equal(values.as_float32(exact, "x").astype(np.int64), exact.astype(np.int64))
    with refuses(UsageError, "x 16777217 [2]"):
        values.as_float32(exact[::-1] + np.array([0, 0, 1], dtype), "x")
    smallest = np.array([np.iinfo(np.int64).min])
    with refuses(UsageError, "-9223372036854775808"):
        values.as_float32(smallest, "x")


@pytest.mark.parametrize("value", [1e300, -1e39, np.inf, -np.inf, np.nan])
def test_values_beyond_float32_are_refused(value):
    with refuses(UsageError, "x [0, 1]"):
        values.as_float32([[0.0, value]], "x")
    with refuses(UsageError, "reward"):
        values.validate_reward(value)


def test_values_within_float32_are_accepted():
    largest = np.full((2, 3), np.finfo(np.float32).max)
    assert values.as_float32(largest, "x") is largest
    for dtype in (bool, np.uint8, np.int16, np.float16, np.float64, np.longdouble):
        found = values.as_float32(np.ones((2, 3), dtype), "x")
        assert found.dtype == np.float32
        assert (found == 1).all()
    assert values.as_float32(np.full(3, 3e38), "x").dtype == np.float32
    assert values.as_float32([], "x").shape == (0,)


@pytest.mark.parametrize("value", [True, False, np.True_, np.False_, 0, 1, np.int64(1), np.array(True), np.array(0)])
def test_flags_are_accepted(value):
    assert values.validate_flag(value, "x") is bool(value)
    found = values.validate_flags([value, False], 2, "x")
    assert found.dtype == bool
    assert found.tolist() == [bool(value), False]


@pytest.mark.parametrize("value", [None, np.nan, 1.0, 2, -1, "True", np.array(1.0), [True], np.array([True]), {}])
def test_what_is_not_a_flag_is_refused(value):
    with refuses(UsageError, "x flag True False"):
        values.validate_flag(value, "x")
    with refuses(UsageError, "x"):
        values.validate_flags([value, value], 2, "x")


def test_a_wrong_number_of_flags_is_refused():
    with refuses(UsageError, "x (3,) (2,)"):
        values.validate_flags(np.zeros(3, bool), 2, "x")


def test_flags_of_floats_are_refused_with_the_cast_to_give():
    with refuses(UsageError, "x 0 1 floats .astype(bool)"):
        values.validate_flags(np.zeros(2, np.float32), 2, "x")


def test_no_flags_are_flags_of_no_transitions():
    assert values.validate_flags([], 0, "x").dtype == bool


@pytest.mark.parametrize("value", [1, 1.0, True, np.float32(1), np.float64(1), np.int64(1), np.array(1.0), np.True_])
def test_rewards_are_accepted(value):
    found = values.validate_reward(value)
    assert (type(found), found) == (float, 1.0)


def test_a_reward_may_exceed_64_bits():
    assert values.validate_reward(10**20) == 1e20
    for value, named in ((10**40, str(10**40)), (-(10**40), str(-(10**40))), (10**400, "1329 bits")):
        with refuses(UsageError, f"reward holds {named} finite number float32 3.403e+38"):
            values.validate_reward(value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "reward None one number"),
        ("1", "reward str one number float(reward)"),
        (1j, "reward"),
        (np.array([1.0]), "reward (1,)"),
        ([1.0], "reward (1,)"),
        (10**400, "reward"),
    ],
)
def test_what_is_not_a_reward_is_refused(value, message):
    with refuses(UsageError, message):
        values.validate_reward(value)


# -- masked entries -----------------------------------------------------------------------------------

MASKED = np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])


@pytest.mark.parametrize("value", [MASKED, [MASKED, MASKED], ((np.zeros(3), MASKED),), np.ma.masked])
@pytest.mark.parametrize("read", [values.validate_numeric, values.as_float32])
def test_masked_entries_are_refused(value, read):
    with pytest.raises(UsageError) as caught:
        read(value, "x")
    assert "x is a masked array" in str(caught.value)


def test_the_first_masked_entry_is_named():
    with refuses(UsageError, "[1] masked"):
        values.as_float32(MASKED, "x")


def test_masked_rewards_and_flags_are_refused():
    masked = np.ma.masked_array([True, False], mask=[False, True])
    for read in (
        lambda: values.validate_reward(np.ma.masked, "x"),
        lambda: values.validate_rewards(np.ma.masked_array([1.0, 2.0], mask=[True, False]), 2, "x"),
        lambda: values.validate_flag(np.ma.masked_array(True, mask=True), "x"),
        lambda: values.validate_flags(masked, 2, "x"),
    ):
        with refuses(UsageError, "masked"):
            read()


def test_a_masked_array_without_masked_entries_is_plain_data():
    for value in (np.ma.masked_array([1.0, 2.0]), np.ma.masked_array([1.0, 2.0], mask=[False, False])):
        array = values.as_float32(value, "x")
        assert type(array) is np.ndarray
        assert array.tolist() == [1, 2]
    assert values.validate_flags(np.ma.masked_array([True, False]), 2, "x").tolist() == [True, False]
