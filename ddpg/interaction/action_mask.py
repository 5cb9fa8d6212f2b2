"""Action masks: which discrete actions a state allows, as the last numbers of its observation.

Because the mask is part of the observation, the replay memory, vectors, workers and checkpoints carry it along, and the
next state's mask is available where the target is computed.
"""

from typing import Any, TypeGuard

import gymnasium as gym
import numpy as np

from ddpg.errors import UsageError, brief
from ddpg.interaction.spaces import check_discrete_space, spaces_of, wrappers_of
from ddpg.interaction.transitions import Transitions
from ddpg.interaction.validation import as_float32

KEY = "action_mask"  # of an info dict, or of a Dict observation
FORBIDDEN = -1e9  # the value of an action that a mask forbids: below all others, and finite


class MaskedBox(gym.spaces.Box):
    """A Box ``[d + n]`` whose last n numbers are the mask of a Discrete action space: 1 where an action is allowed."""


class ActionMask(gym.Wrapper, gym.utils.RecordConstructorArgs):
    """Appends the action mask of an environment to its observation, which :class:`ddpg.DQN` then reads.

    The mask is ``observation["action_mask"]`` where the observation space is a Dict with that key, otherwise
    ``info["action_mask"]`` of every ``reset`` and ``step``: n numbers 0 or 1, or bools, one for each action, at least
    one of them 1 unless the state is terminal. The rest of the observation is flattened as gymnasium flattens it.

    Args:
        env: an environment with a Discrete action space.

    Raises:
        UsageError: if its actions are not Discrete, its observations cannot be flattened to numbers, or a mask is not
            as above, or an observation of integers has one beyond ±2^24, which float32 would round. During learning a
            bad mask or integer raises :class:`~ddpg.errors.EnvironmentFault` instead.
    """

    def __init__(self, env: gym.Env):
        gym.utils.RecordConstructorArgs.__init__(self)
        gym.Wrapper.__init__(self, env)
        self._choices = int(check_discrete_space(env.action_space).n)
        space = env.observation_space
        self._rest, self._in_observation = space, has_mask(space)
        if has_mask(space):
            self._rest = without_mask(space)
            if not self._rest:
                raise UsageError(f"observation space {brief(space)} has nothing besides {KEY!r}")
        try:
            flat = gym.spaces.flatten_space(self._rest)
        except NotImplementedError:
            flat = None
        if not isinstance(flat, gym.spaces.Box):
            raise UsageError(f"observation space {brief(self._rest)} is not one that gymnasium flattens to a Box")
        zeros, ones = np.zeros(self._choices, np.float32), np.ones(self._choices, np.float32)
        low, high = (
            np.concatenate([end.astype(np.float32), mask]) for end, mask in ((flat.low, zeros), (flat.high, ones))
        )
        self.observation_space = MaskedBox(low, high, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Reset the environment; see ``gymnasium.Env.reset``."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._joined(observation, info, terminated=False), info

    def step(self, action: Any) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        """Step the environment; see ``gymnasium.Env.step``."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._joined(observation, info, bool(terminated)), reward, terminated, truncated, info

    def _joined(self, observation: Any, info: Any, terminated: bool) -> np.ndarray:
        holder = observation if self._in_observation else info
        if not (isinstance(holder, dict) and KEY in holder):
            raise UsageError(
                f"{'the observation' if self._in_observation else 'info'} has no {KEY!r}, which ActionMask reads after "
                "every reset and step; have the environment give it, or leave ActionMask out"
            )
        mask = check_mask(holder[KEY], self._choices, terminated)
        rest = {key: value for key, value in observation.items() if key != KEY} if self._in_observation else observation
        flat: np.ndarray = np.asarray(gym.spaces.flatten(self._rest, rest))
        if flat.dtype.kind in "iu":  # floats are checked by the reader of observations, which may drop bad ones
            flat = as_float32(flat, "observation")
        return np.concatenate([flat.astype(np.float32), mask])


def has_mask(space: Any) -> TypeGuard[gym.spaces.Dict]:
    """Return whether observations of ``space`` hold an action mask under the key ``"action_mask"``."""
    return isinstance(space, gym.spaces.Dict) and KEY in space.spaces


def without_mask(space: gym.spaces.Dict) -> gym.spaces.Dict:
    """Return ``space`` without its action mask, with the parts in the order in which :class:`ActionMask` has them."""
    return gym.spaces.Dict({key: part for key, part in space.items() if key != KEY})


def has_masked_observations(env: Any) -> bool:
    """Return whether an environment, a vector or a pair of spaces has the observations of :class:`ActionMask`."""
    if isinstance(env, (tuple, list)):
        return bool(env) and isinstance(env[0], MaskedBox)
    spaces = (getattr(env, name, None) for name in ("single_observation_space", "observation_space"))
    return any(isinstance(space, MaskedBox) for space in spaces)


def check_mask_kept(env: Any, given: bool) -> None:
    """Refuse an environment with an action mask that its observations no longer hold in the place where DQN reads it.

    A wrapper that leaves a Dict without the mask has removed it on purpose.

    Args:
        env: an environment, a vector or a pair of spaces, not with the observations of :class:`ActionMask`.
        given: whether ``action_mask=True`` says that the observations end in the mask nevertheless.

    Raises:
        UsageError: if its observations are a Dict with a mask; or, unless ``given``, if a wrapper outside
            :class:`ActionMask`, or around such a Dict, changed them.
    """
    space, _ = spaces_of(env)
    if has_mask(space):
        raise UsageError(
            f"observation space {brief(space)} holds {KEY!r}, which DQN reads at the end of a flat observation; wrap "
            "the environment in ddpg.ActionMask, at the command line with --wrap ActionMask"
        )
    for wrapper in () if given else wrappers_of(env):
        if isinstance(space, (MaskedBox, gym.spaces.Dict)):
            return
        space, _ = spaces_of(wrapper.env)
        if isinstance(space, MaskedBox) or has_mask(space):
            raise UsageError(
                f"{type(wrapper).__name__} changes observations that hold an action mask, so DQN would not find it and "
                "would take forbidden actions; make ddpg.ActionMask, which flattens the other parts of a Dict, the "
                "outermost wrapper of observations, or give action_mask=True if they still end in the mask"
            )


def check_masked_space(space: gym.Space, actions: gym.spaces.Discrete) -> None:
    """Check that observations of ``space`` can end in the mask of ``actions``.

    Raises:
        UsageError: if they are not vectors with more numbers than there are actions.
    """
    if not (isinstance(space, gym.spaces.Box) and len(space.shape) == 1 and space.shape[0] > actions.n):
        raise UsageError(
            f"action_mask=True reads a mask of {actions.n} numbers at the end of each observation, and those of "
            f"{brief(space)} are not [d + {actions.n}]; wrap the environment in ddpg.ActionMask, at the command line "
            "with --wrap ActionMask"
        )


def masks_of(observations: np.ndarray, choices: int) -> np.ndarray:
    """Return the masks in observations ``[N, d + choices]``: which actions are allowed, ``[N, choices]`` bool."""
    return observations[:, -choices:] > 0.5


def check_masks(
    observations: np.ndarray, choices: int, terminated: np.ndarray | bool = True, name: str = "observations"
) -> np.ndarray:
    """Return the masks at the end of observations ``[N, d + choices]``, checked, ``[N, choices]``.

    Raises:
        UsageError: if one is not numbers 0 or 1, or allows nothing in a state that is not ``terminated``; of several
            observations, the message has the first bad one's row and their ``name``.
    """
    masks = observations[:, -choices:]
    right = ((masks == 0) | (masks == 1)).all(axis=1) & (masks.any(axis=1) | terminated)
    if not right.all():
        row = int(right.argmin())
        check_mask(masks[row], choices, where=_row(row, masks, f" of {name}"))
    return masks


def _row(row: int, rows: np.ndarray, of: str = "") -> str:
    return f"row {row}{of}: " if len(rows) > 1 else ""


def check_masked(transitions: Transitions, choices: int) -> None:
    """Check the masks at the end of observations, and that the actions are allowed.

    Raises:
        UsageError: if a mask is not numbers 0 or 1, allows nothing in a state that is not terminal, or forbids the
            action that was taken.
    """
    masks = check_masks(transitions.observations, choices, terminated=False)
    check_masks(transitions.next_observations, choices, transitions.terminated, "next_observations")
    taken = transitions.actions[:, 0].astype(int)
    forbidden = masks[np.arange(len(masks)), taken] == 0
    if forbidden.any():
        row = int(forbidden.argmax())
        raise UsageError(
            f"{_row(row, masks)}action {taken[row]} (counted from 0) is forbidden by its {KEY}={brief(masks[row])}"
        )


def check_mask(mask: Any, choices: int, terminated: bool = False, where: str = "") -> np.ndarray:
    """Return an action mask as float32 ``[choices]``.

    Raises:
        UsageError: if it is not ``choices`` numbers 0 or 1, or allows nothing in a state that is not terminal.
    """
    array = np.asarray(mask)
    if array.shape != (choices,) or array.dtype.kind not in "buif" or not ((array == 0) | (array == 1)).all():
        raise UsageError(f"{where}{KEY}={brief(mask)} must be {choices} numbers, 0 or 1, one for each action")
    if not (terminated or array.any()):
        raise UsageError(
            f"{where}{KEY}={brief(mask)} allows no action in a state that is not terminal; allow one at least"
        )
    return array.astype(np.float32)
