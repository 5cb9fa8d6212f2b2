"""Checks of action and observation spaces, and of the arrays that users pass for them."""

import gymnasium as gym
import numpy as np
import pytest
from refusals import refuses

from ddpg import UsageError
from ddpg.interaction import spaces

Box = gym.spaces.Box


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gym.spaces.Discrete(3), "DQN"),
        (gym.spaces.MultiBinary(3), "Box ActionWrapper Discrete DQN"),
        (gym.spaces.MultiDiscrete([2, 3]), "Box ActionWrapper Discrete DQN"),
        (gym.spaces.Dict(a=Box(-1, 1, (1,))), "Box ActionWrapper Discrete DQN"),
        (Box(0, 5, (2,), np.int32), "floats"),
        (Box(-np.inf, np.inf, (2,), np.float32), "infinite bounds"),
        (Box(np.zeros(2, np.float32), np.array([1, 0], np.float32)), "zero"),
        (Box(-1, 1, (), np.float32), "() (1,)"),
        (Box(-1, 1, (2, 0), np.float32), "(2, 0) one"),
    ],
)
def test_unsupported_action_spaces_are_refused(space, message):
    with refuses(UsageError, message):
        spaces.check_action_space(space)


class Mission(gym.Space):
    """A kind of space that gymnasium does not know."""

    def __repr__(self):
        return "Mission()"


def test_unsupported_observation_spaces_are_refused():
    with refuses(UsageError, "FlattenObservation"):
        spaces.check_observation_space(gym.spaces.Dict(a=Box(-1, 1, (1,))))
    with refuses(UsageError, "() (1,)"):
        spaces.check_observation_space(Box(-1, 1, ()))


@pytest.mark.parametrize(
    ("space", "part"),
    [
        (gym.spaces.Dict(a=Box(-1, 1, (1,)), b=gym.spaces.Sequence(gym.spaces.Discrete(3))), "part 'b', Sequence"),
        (
            gym.spaces.Dict(a=gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.Graph(Box(0, 1, (1,)), None)))),
            "part 'a'[1], Graph",
        ),
        (gym.spaces.Sequence(gym.spaces.Discrete(3)), "it, Sequence"),
        (gym.spaces.Dict(a=Box(-1, 1, (1,)), b=Mission()), "part 'b', Mission"),
    ],
)
def test_the_part_of_a_space_that_does_not_flatten_is_named(space, part):
    """FlattenObservation does not make a Box of such a space, so that it is not what the message advises."""
    known = "Mission" not in str(space)
    for seen in (space, *([gym.spaces.flatten_space(space)] if known else [])):
        with refuses(UsageError, part, "FlattenObservation ObservationWrapper") as caught:
            spaces.check_observation_space(seen)
        assert "wrap the environment" not in str(caught.value)


class PooledVector(gym.vector.VectorEnv):
    """A vector of the user's own, whose ``envs`` is a property."""

    @property
    def envs(self):
        return [gym.wrappers.FlattenObservation(gym.make("Pendulum-v1"))]


def test_wrappers_of_a_vector_whose_envs_is_a_property():
    assert isinstance(next(spaces.wrappers_of(PooledVector())), gym.wrappers.FlattenObservation)


@pytest.mark.parametrize("space", [gym.spaces.MultiBinary(3), gym.spaces.MultiDiscrete([2, 3])])
def test_actions_of_several_choices_are_refused_with_advice(space):
    with refuses(UsageError, "Discrete DQN ActionWrapper Box DDPG"):
        spaces.check_discrete_space(space)


@pytest.mark.parametrize("shape", [(6,), (2, 3), (1, 6), (4, 2, 3), (4, 6)])
def test_batches_are_recognised(shape):
    batch, single = spaces.as_batch(Box(-1, 1, (2, 3)), np.zeros(shape), "x")
    assert batch.shape == ((1, 2, 3) if shape in ((6,), (2, 3), (1, 6)) else (4, 2, 3))
    assert single == (shape in ((6,), (2, 3)))
    assert batch.dtype == np.float32


def test_wrong_shape_and_nan_are_named():
    with refuses(UsageError, "observation (5,) (3,) batch 3"):
        spaces.as_batch(Box(-1, 1, (3,)), np.zeros(5), "observation")
    with refuses(UsageError, "observation nan [1]"):
        spaces.as_batch(Box(-1, 1, (3,)), [0, np.nan, 0], "observation")
    with refuses(UsageError, "observation inf [0, 2]"):
        spaces.as_batch(Box(-1, 1, (3,)), [[0, 0, -np.inf]], "observation")
    spaces.as_batch(Box(-1, 1, (3,)), np.full(3, 1e30, np.float32), "x")  # finite, although its square is not
