"""Conversion between flat actions in [-1, 1] and an environment's Box or parameterised actions."""

import gymnasium as gym
import numpy as np
import pytest
from conftest import assert_close
from environments import Aiming
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from refusals import refuses

from ddpg import FlattenParameterisedAction, UsageError
from ddpg.checkpoints.space_json import describe_space
from ddpg.interaction.actions import BoxActions, DiscreteActions, ParameterisedActions, make_actions, unbatch
from ddpg.replay.hindsight import check_goals

Box = spaces.Box
UNIT = hnp.arrays(np.float32, (4, 6), elements=st.floats(-1.5, 1.5, width=32))


@given(
    hnp.arrays(np.float64, 3, elements=st.floats(-1e3, 1e3)),
    hnp.arrays(np.float64, 3, elements=st.floats(1e-2, 1e3)),
    hnp.arrays(np.float32, (5, 3), elements=st.floats(-1, 1, width=32)),
    st.sampled_from([np.float32, np.float64]),
)
def test_box_actions_are_in_the_space_and_convert_back(low, width, action, dtype):
    low, high = low.astype(dtype), (low + width).astype(dtype)
    space = Box(low, high, dtype=dtype)
    actions = BoxActions(space)
    in_env = actions.to_env(action)
    assert in_env.dtype == dtype
    assert all(space.contains(row) for row in in_env)
    resolution = 4 * np.finfo(np.float32).eps * (1 + np.abs([low, high]).max() / width.min())
    for row, expected in zip(in_env, action, strict=True):
        np.testing.assert_allclose(actions.to_flat(row)[0], expected, atol=max(1e-5, resolution))


def test_actions_at_the_bounds_of_a_narrow_box_far_from_zero_are_accepted():
    """A float32 near 1000 has steps of 6e-5, a hundredth of this box's half-range."""
    space = Box(np.array([1000.0]), np.array([1000.01]), dtype=np.float64)
    for bound, expected in ((space.low, -1), (space.high, 1)):
        np.testing.assert_allclose(BoxActions(space).to_flat(bound), [[expected]], atol=0.02)
    with refuses(UsageError, "outside"):
        BoxActions(space).to_flat(space.high + 0.001)


@pytest.mark.parametrize(("low", "high"), [(1e8, 1e8 + 1), (-1e300, 1e300), (-1e-300, 1e-300)])
def test_bounds_that_float32_cannot_resolve(low, high):
    """Scaling is in float64: quarters of the box convert back to 1e-7, and values beyond a bound are refused."""
    actions = BoxActions(Box(low, high, (1,), np.float64))
    for flat in (-1, -0.5, 0, 0.5, 1):
        action = actions.to_env(np.array([[flat]], np.float32))[0]
        found = actions.to_flat(action)
        assert (found.dtype, found.shape) == (np.float32, (1, 1))
        np.testing.assert_allclose(found, [[flat]], atol=1e-7)
    for outside in (high + 0.1 * (high - low), np.inf, np.nan):
        with refuses(UsageError, "outside"):
            actions.to_flat([outside])


def test_a_bound_rounded_to_float32_is_accepted():
    space = Box(np.array([1000.0]), np.array([1000.01]), dtype=np.float64)
    rounded = space.high.astype(np.float32)
    assert rounded > space.high
    assert BoxActions(space).to_flat(rounded).tolist() == [[1.0]]


def test_ends_and_middle_map_exactly():
    actions = BoxActions(Box(np.array([-1, 0.5], np.float32), np.array([3, 1], np.float32)))
    unit = np.array([[-1, -1], [0, 0], [1, 1]], np.float32)
    np.testing.assert_array_equal(actions.to_env(unit), np.array([[-1, 0.5], [1, 0.75], [3, 1]], np.float32))


def test_matrix_actions():
    actions = BoxActions(Box(-2, 4, (2, 3), np.float32))
    assert actions.size == 6
    in_env = actions.to_env(np.zeros((5, 6), np.float32))
    assert in_env.shape == (5, 2, 3)
    assert (in_env == 1).all()
    assert actions.to_flat(in_env[0]).shape == (1, 6)
    with refuses(UsageError, "action"):
        actions.to_flat(in_env)


def test_parameterised_layout():
    """A row holds three scores, then aim's x in [0, 10], then wave's two parameters in [-1, 1]."""
    row = np.array([[0.1, 0.7, -0.2, 0.5, 1.0, -2.0]], np.float32)
    actions = ParameterisedActions(Aiming.tuple_space)
    assert (actions.size, actions.scores) == (6, 3)
    choice, (x, y, nothing) = unbatch(actions.to_env(row))
    assert choice == 1
    np.testing.assert_array_equal(x, [7.5])
    np.testing.assert_array_equal(y, [1.0, -1.0])
    assert nothing.shape == (0,)
    for part in (x, y, nothing):
        np.clip(part, -1, 1, out=part)  # environments may write into their action
    choice, parameters = unbatch(ParameterisedActions(Aiming.one_of_space).to_env(row))
    assert choice == 1
    np.testing.assert_array_equal(parameters, [1.0, -1.0])


def test_discrete_actions_may_start_anywhere():
    space = spaces.Tuple((spaces.Discrete(2, start=5), spaces.Tuple((Box(0, 1, (1,)), Box(0, 1, (1,))))))
    actions = make_actions(space)
    assert unbatch(actions.to_env(np.array([[0.0, 1.0, 0.0, 0.0]], np.float32)))[0] == 6
    np.testing.assert_array_equal(actions.to_flat((6, ([0.5], [1.0]))), [[-1, 1, 0, 1]])
    with refuses(UsageError, "5 6"):
        actions.to_flat((1, ([0.5], [1.0])))


@given(UNIT, st.sampled_from([Aiming.tuple_space, Aiming.one_of_space]))
def test_parameterised_actions_are_in_the_space_and_convert_back(rows, space):
    actions = make_actions(space)
    batch = actions.to_env(rows)
    if space is Aiming.tuple_space:
        assert batch_space(space, 4).contains(batch)
    for row in rows:
        one = unbatch(actions.to_env(row[None]))
        assert space.contains(one)
        again = unbatch(actions.to_env(actions.to_flat(one)))
        assert again[0] == one[0]
        assert_close(_numbers(again), _numbers(one), atol=1e-5)
    assert space.contains(unbatch(batch))


def _numbers(action):
    parameters = action[1]
    return parameters if isinstance(parameters, tuple) else (parameters,)


@given(UNIT)
def test_clipping_before_storing_does_not_change_the_choice(rows):
    actions = make_actions(Aiming.tuple_space)
    np.testing.assert_array_equal(actions.to_env(rows)[0], actions.to_env(np.clip(rows, -1, 1))[0])


NO_WIDTH = Box(np.zeros(1, np.float32), np.zeros(1, np.float32))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.OneOf((Box(0, 1, (1,)), Box(-np.inf, np.inf, (1,)))), "parameters action 1 infinite bounds"),
        (spaces.Tuple((spaces.Discrete(1), spaces.Tuple((NO_WIDTH,)))), "parameters action 0"),
        (spaces.Tuple((spaces.Discrete(2), spaces.Tuple((Box(0, 1, (1,)),)))), "parameters"),
        (spaces.Tuple((spaces.Discrete(1), Box(0, 1, (1,)))), "parameterised"),
        (spaces.OneOf((spaces.OneOf((Box(0, 1, (1,)),)),)), "parameters action 0"),
        (spaces.OneOf((spaces.Discrete(2),)), "parameters action 0"),
        (spaces.Dict(a=Box(0, 1, (1,))), "Box"),
    ],
)
def test_unsupported_spaces_are_refused(space, message):
    with refuses(UsageError, message):
        make_actions(space)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (np.zeros(6), "parameters"),
        ((3, ([1.0], [0.0, 0.0], [])), "3"),
        ((0.5, ([1.0], [0.0, 0.0], [])), "0.5 3"),
        ((0, ([1.0],)), "1 3"),
        ((0, ([11.0], [0.0, 0.0], [])), "action"),
        ((0, ([np.nan], [0.0, 0.0], [])), "nan"),
    ],
)
def test_invalid_actions_are_refused(action, message):
    with refuses(UsageError, message):
        make_actions(Aiming.tuple_space).to_flat(action)


@pytest.mark.parametrize("space", [Aiming.tuple_space, Aiming.one_of_space])
def test_flatten_parameterised_action(space):
    env = FlattenParameterisedAction(Aiming(space))
    assert env.action_space == Box(-1.0, 1.0, (6,), np.float32)
    env.reset(seed=0)
    assert env.step(np.array([1, -1, -1, 0.4, 0, 0]))[1] == pytest.approx(1.0)  # aim(7)
    assert env.step(np.array([-1, 1, -1, 0, 1, 1]))[1] == pytest.approx(-1.0)  # wave(1, 1)
    assert env.num_clipped_actions == 0
    assert env.step(np.array([2, -1, -1, 1.5, 0, 0]))[1] == pytest.approx(1 - 0.6**2)  # aim(10)
    assert env.num_clipped_actions == 1
    np.testing.assert_allclose(env.flatten(unbatch(make_actions(space).to_env(np.ones((1, 6)))))[:4], [1, -1, -1, 1])
    with refuses(UsageError, "(6,)"):
        env.step(np.zeros(5))
    with refuses(UsageError, "nan"):
        env.step(np.full(6, np.nan))


def test_flatten_parameterised_action_refuses_other_spaces():
    with refuses(UsageError, "wrapper"):
        FlattenParameterisedAction(gym.make("Pendulum-v1"))


@pytest.mark.parametrize("parameters", [np.zeros((2, 1), np.float32), {0: [0.0], 1: [0.0]}, "ab"])
def test_parameters_of_all_choices_are_a_tuple(parameters):
    boxes = gym.spaces.Tuple([gym.spaces.Box(-1.0, 1.0, (1,), np.float32)] * 2)
    actions = make_actions(gym.spaces.Tuple((gym.spaces.Discrete(2), boxes)))
    assert actions.to_flat((0, ([0.0], [0.5]))).tolist() == [[1, -1, 0, 0.5]]
    with pytest.raises(UsageError) as caught:
        actions.to_flat((0, parameters))
    assert " ".join(repr(parameters).split()) in " ".join(str(caught.value).split())


def test_an_unsigned_choice_is_compared_as_a_number():
    space = spaces.Tuple((spaces.Discrete(2, start=-3), spaces.Tuple((Box(0, 1, (1,)), Box(0, 1, (1,))))))
    with refuses(UsageError, "choice 0", "from -3 to -2"):
        make_actions(space).to_flat((np.uint8(0), ([0.0], [0.0])))


@pytest.mark.parametrize(
    ("action", "advised"), [(np.array([6.0]), True), (5.5, False), (8.0, False), (np.int64(8), False)]
)
def test_conversion_is_advised_where_it_helps(action, advised):
    with pytest.raises(UsageError) as caught:
        DiscreteActions(spaces.Discrete(3, start=5)).to_flat(action)
    assert ("astype(int)" in str(caught.value)) == advised


WIDE = Box(np.arange(4.0).reshape(2, 2) - 9, np.arange(4.0).reshape(2, 2), dtype=np.float64)  # its text has three lines
PARAMETERISED = spaces.Tuple((spaces.Discrete(2), spaces.Tuple((WIDE, WIDE))))


@pytest.mark.parametrize("action", [3, np.int8(3), np.uint64(3), np.array(3, np.uint64)])
def test_a_discrete_action_may_be_an_integer_of_any_width(action):
    assert DiscreteActions(spaces.Discrete(5, start=-1)).to_flat(action).tolist() == [[4.0]]


@pytest.mark.parametrize("action", [4, -2, 2**70, np.uint64(2**64 - 1), np.array(7), [2**2000], 1.5, "1", None])
def test_other_discrete_actions_are_refused(action):
    """Gymnasium 1.1 reads the largest unsigned integer as -1, and fails for integers of more than 64 bits."""
    with refuses(UsageError, "Discrete(4, start=-1)"):
        DiscreteActions(spaces.Discrete(4, start=-1)).to_flat(action)


def observing(space):
    env = Aiming()
    env.observation_space = space
    return env


@pytest.mark.parametrize(
    "refused",
    [
        lambda: make_actions(WIDE).to_flat(np.full((2, 2), 99.0)),
        lambda: make_actions(spaces.Tuple((WIDE, WIDE))),
        lambda: make_actions(spaces.OneOf((WIDE, Box(-np.inf, np.inf)))),
        lambda: make_actions(PARAMETERISED).to_flat(5),
        lambda: make_actions(PARAMETERISED).to_flat((7, (WIDE.low, WIDE.low))),
        lambda: FlattenParameterisedAction(Aiming(WIDE)),
        lambda: describe_space(spaces.Dict({"a": WIDE})),
        lambda: check_goals(observing(WIDE), 4),
    ],
)
def test_an_error_that_names_a_space_is_one_line(refused):
    with refuses(UsageError, "Box([[-9. -8.] [-7. -6.]]") as caught:
        refused()
    assert "\n" not in str(caught.value)
