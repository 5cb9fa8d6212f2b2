"""Validation of a transition that a user's own loop passes to an agent."""

import gymnasium as gym
import numpy as np
import pytest
from environments import transition_rows
from refusals import refuses

from ddpg import UsageError
from ddpg.interaction.actions import BoxActions
from ddpg.interaction.transitions import check_transition, check_transitions

SPACE = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)
IMAGE = gym.spaces.Box(0, 255, (2, 2), np.uint8)
ACTIONS = BoxActions(gym.spaces.Box(-2.0, 4.0, (1,), np.float32))
GOOD = {
    "observation": [0.0, 1.0, 2.0],
    "action": [4.0],
    "reward": 1,
    "next_observation": np.array([[1, 2, 3]]),
    "terminated": np.True_,
    "truncated": 0,
}


def checked(space=SPACE, **changes):
    return check_transition(space, ACTIONS.to_flat, **(GOOD | changes))


def test_a_valid_transition_is_converted():
    transitions = checked(env_index=3)
    assert transition_rows(transitions) == [[3, [0, 1, 2], 1, [1, 2, 3], True, False]]
    assert transitions.actions.tolist() == [[1.0]]
    arrays = (transitions.observations, transitions.rewards, transitions.next_observations)
    assert [array.dtype for array in arrays] == [np.float32] * 3
    assert [array.dtype for array in (transitions.terminated, transitions.truncated)] == [bool] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observation": np.zeros((2, 3))}, "observation (2, 3)"),
        ({"next_observation": np.zeros((2, 3))}, "next_observation"),
        ({"observation": np.zeros((0, 3))}, "observe"),
        ({"next_observation": np.zeros(4)}, "next_observation (4,)"),
        ({"observation": "abc"}, "observation"),
        ({"next_observation": [1j, 0, 0]}, "next_observation"),
        ({"reward": None}, "reward None"),
        ({"reward": [1.0]}, "reward"),
        ({"reward": np.nan}, "reward nan"),
        ({"terminated": None}, "terminated None flag"),
        ({"truncated": np.nan}, "truncated nan flag"),
        ({"truncated": "no"}, "truncated no flag"),
        ({"action": [5.0]}, "action"),
    ],
)
def test_invalid_transitions_are_refused(changes, message):
    with refuses(UsageError, message):
        checked(**changes)


def test_image_observations_must_hold_bytes():
    image = np.array([[0, 255], [3, 4]])
    for dtype in (np.uint8, np.int64, np.float32):
        transitions = checked(IMAGE, observation=image.astype(dtype), next_observation=image)
        np.testing.assert_array_equal(transitions.observations, image[None])
    for bad in (image + 1, image - 1, image * 0.5):
        with refuses(UsageError, "next_observation uint8 255"):
            checked(IMAGE, observation=image, next_observation=bad)


def test_an_array_of_actions_is_translated_at_once(monkeypatch):
    """Row by row, 100,000 actions take a second."""
    states, actions = np.arange(12).reshape(4, 3), np.array([[-2], [1], [4], [2.5]], np.float32)
    others = (np.zeros(4), states, np.zeros(4, bool), np.zeros(4, bool), -1)
    expected = [[-1], [0], [1], [0.5]]
    assert check_transitions(SPACE, ACTIONS, states, list(actions), *others).actions.tolist() == expected
    for bad in (np.where(actions == 4, 9, actions), [[0], [0], [9], [0]]):
        with refuses(UsageError, "row 2: action outside"):
            check_transitions(SPACE, ACTIONS, states, bad, *others)
    monkeypatch.delattr(BoxActions, "to_flat")
    found = check_transitions(SPACE, ACTIONS, states, actions, *others).actions
    assert (found.tolist(), found.dtype) == (expected, np.float32)
