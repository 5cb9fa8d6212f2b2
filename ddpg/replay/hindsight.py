"""Hindsight experience replay: relabel transitions with goals reached later in the episode. NumPy only.

In an environment with goals (gymnasium-robotics' protocol) an observation is a Dict of ``observation``,
``achieved_goal`` and ``desired_goal``, and ``compute_reward(achieved, desired, info)`` returns the reward of a step.
The agent sees the observation flattened by ``gymnasium.wrappers.FlattenObservation``, with the parts in the Dict's
order, or by :class:`ddpg.ActionMask`, which appends the mask.
"""

import warnings
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gym_spaces

from ddpg.errors import EnvironmentFault, UsageError, brief, format_error, users_level
from ddpg.interaction.action_mask import MaskedBox, has_mask, without_mask
from ddpg.interaction.env_calls import call
from ddpg.interaction.spaces import spaces_of, wrappers_of
from ddpg.interaction.validation import check_finite, validate_numeric
from ddpg.replay.buffer import ReplayBuffer
from ddpg.replay.minibatch import Batch

PARTS = ("observation", "achieved_goal", "desired_goal")
GOALS = gym_spaces.Box, gym_spaces.MultiBinary, gym_spaces.Discrete, gym_spaces.MultiDiscrete  # spaces of goals
TOLERANCE = 1e-3  # of rewards that are computed anew from float32 goals, relative to the largest
NEAR = 1e-5  # of the distance to the goal: a larger part than float32 rounds


class Hindsight:
    """Relabels a share k / (k + 1) of the drawn transitions with goals that were reached later in the same episode.

    This is the strategy ``future`` (Andrychowicz et al. 2017, sections 3.3 and 4.5), applied when sampling: the new
    goal is the goal achieved after a step drawn uniformly between this step and the last stored step of the episode.
    The reward is recomputed; ``terminated`` is left unchanged, as in Stable-Baselines3.

    Args:
        replay: the replay buffer.
        goals: k, the number of relabelled transitions for each unchanged one.
        space: the observation space before flattening.
        compute_reward: ``(achieved [n, *goal shape], desired [n, *goal shape], {}) -> [n]``, as the goals' spaces have
            them; a warning is given where the stored rewards are others.
    """

    def __init__(self, replay: ReplayBuffer, goals: int, space: gym_spaces.Dict, compute_reward: Callable):
        self._replay, self._share, self._compute_reward = replay, goals / (goals + 1), compute_reward
        ends = np.cumsum([gym_spaces.flatdim(part) for part in space.values()]).tolist()
        parts = dict(zip(space, map(slice, [0, *ends[:-1]], ends), strict=True))
        self._achieved, self._desired = parts["achieved_goal"], parts["desired_goal"]
        self._spaces = space["achieved_goal"], space["desired_goal"]
        self._compared = False

    def __call__(self, batch: Batch, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        """Relabel some transitions of ``batch``, drawn from ``rows`` ``[K, B]``, in place, and return it.

        Raises:
            EnvironmentFault: if the environment's ``compute_reward`` raised, does not accept several goals at once, or
                did not return finite numbers.
        """
        if not self._compared:
            self._compare(batch)
            self._compared = True
        chosen = rng.random(rows.shape) < self._share
        goals = self._replay.observations.next_obs(self._later(rows[chosen], rng))[:, self._achieved]
        batch.observations[chosen, self._desired] = goals
        batch.next_observations[chosen, self._desired] = goals
        batch.rewards[chosen, 0] = self._rewards(batch.next_observations[chosen][:, self._achieved], goals)
        return batch

    def _compare(self, batch: Batch) -> None:
        """Warn of stored rewards that depend on more than the goals: relabelled ones leave the rest of it out.

        Goals are stored as float32, so near a threshold the reward may be another: each row is also compared with the
        achieved goal moved a little towards the desired one, and away from it. One row in a hundred may differ.
        """
        before, after = (rows.reshape(-1, rows.shape[-1]) for rows in (batch.observations, batch.next_observations))
        same_goal = (before[:, self._desired] == after[:, self._desired]).all(axis=1)
        achieved, desired = after[same_goal, self._achieved], after[same_goal, self._desired]
        stored = batch.rewards.reshape(-1)[same_goal]
        if not len(stored):
            return
        found = self._rewards(achieved, desired)
        tolerance = TOLERANCE * np.abs(stored).max()
        wrong = ~np.isclose(found, stored, TOLERANCE, tolerance)
        for nearer in (NEAR, -NEAR) if all(map(_is_box_of_floats, self._spaces)) else ():
            moved = achieved + np.float32(nearer) * (desired - achieved)
            wrong &= ~np.isclose(self._rewards(moved, desired), stored, TOLERANCE, tolerance)
        if 100 * wrong.sum() <= len(stored):
            return
        row = int(wrong.argmax())
        reached, goal = (goals[0].tolist() for goals in self._shaped(achieved[row : row + 1], desired[row : row + 1]))
        warnings.warn(
            f"hindsight: compute_reward of the environment returns {found[row]:g} for achieved_goal {brief(reached)} "
            f"and desired_goal {brief(goal)}, but the reward of that step was {stored[row]:g} (so {wrong.sum()} of "
            f"{len(stored)} differ); relabelled transitions have compute_reward's, with info={{}}, and leave out what "
            "else decides the reward, such as an action's cost, noise, a wrapper, or another environment of a vector",
            stacklevel=users_level(),
        )

    def _shaped(self, achieved: np.ndarray, desired: np.ndarray) -> list[np.ndarray]:
        """Return flat goals ``[n, G]`` as their spaces have them, ``[n, *goal shape]``."""
        shaped = []
        for space, rows in zip(self._spaces, (achieved, desired), strict=True):
            if not isinstance(space, (gym_spaces.Box, gym_spaces.MultiBinary)):
                rows = np.array([gym_spaces.unflatten(space, row) for row in rows])
            elif not _is_box_of_floats(space):
                rows = rows.astype(space.dtype)  # such as cells of a grid, which may be indices
            shaped.append(rows.reshape(-1, *(space.shape or ())))
        return shaped

    def _rewards(self, achieved: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """Return the environment's rewards ``[n]`` for achieved goals ``[n, G]`` and desired goals ``[n, G]``."""
        what = "compute_reward of the environment"
        returned = call(
            self._compute_reward,
            *self._shaped(achieved, goals),
            {},
            fault=lambda error: EnvironmentFault(f"{what}: {format_error(error)}"),
        )
        try:
            rewards = validate_numeric(returned, what)
            check_finite(rewards, what)
        except UsageError as error:
            raise EnvironmentFault(str(error)) from None
        if rewards.shape != (len(goals),):
            given = (len(goals), *(self._spaces[0].shape or ()))
            raise EnvironmentFault(
                f"{what} returned shape {rewards.shape} for {len(goals)} goals; expected {(len(goals),)}: it gets all "
                f"of them at once, with shape {given}, so let it keep the first axis, as gymnasium-robotics does"
            )
        return rewards

    def _later(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return for each row a row drawn uniformly from itself and the later rows of its episode."""
        picked, last, under_way = rows.copy(), rows, np.arange(len(rows))
        seen = 1
        while len(under_way):
            following, continues = self._replay.observations.next_rows(last)
            under_way, last = under_way[continues], following[continues]
            seen += 1
            # Reservoir sampling: the n-th row seen replaces the choice with probability 1/n, so all are equally likely.
            takes = rng.random(len(under_way)) * seen < 1
            picked[under_way[takes]] = last[takes]
        return picked


def _is_box_of_floats(space: gym_spaces.Space) -> bool:
    return isinstance(space, gym_spaces.Box) and space.dtype.kind == "f"


def make_hindsight(
    env: Any, replay: ReplayBuffer, goals: int
) -> Callable[[Batch, np.ndarray, np.random.Generator], Batch]:
    """Return the function that relabels transitions of ``env``; without an ``env``, one that raises ``UsageError``."""
    if env is None:
        return _refuse
    space, compute_reward = check_goals(env, goals)
    return Hindsight(replay, goals, space, compute_reward)


def check_goals(env: Any, goals: int) -> tuple[gym_spaces.Dict, Callable]:
    """Return the observation space of ``env`` before flattening, and its ``compute_reward``.

    Raises:
        UsageError: if the environment has no goals, or they are no arrays of a fixed size; ``goals``, the option's
            value, is for the message.
    """
    # The environments of a vector are alike, so take the first; a vector in other processes has no ``envs``.
    inner = (getattr(env.unwrapped, "envs", None) or [env])[0].unwrapped
    space = getattr(inner, "observation_space", None)
    flat, actions = spaces_of(env)
    mask = gym_spaces.flatdim(actions) if isinstance(flat, MaskedBox) else 0
    if mask and has_mask(space):
        space = without_mask(space)
    if not (isinstance(space, gym_spaces.Dict) and set(space) == set(PARTS) and hasattr(inner, "compute_reward")):
        raise UsageError(
            f"hindsight={goals} needs an environment with goals, whose observations are a Dict of {', '.join(PARTS)} "
            f"and which has compute_reward; {inner} has {brief(space)}, or it lives in another process: step a vector "
            "in this one (SyncVectorEnv, --vectorization sync)"
        )
    for part in PARTS[1:]:
        if not isinstance(space[part], GOALS):
            raise UsageError(
                f"hindsight={goals}: {part} is {brief(space[part])}; compute_reward gets many goals as one array, so "
                f"expected {', '.join(kind.__name__ for kind in GOALS[:-1])} or {GOALS[-1].__name__}"
            )
    changing = [one for one in wrappers_of(env) if isinstance(one, _CHANGE) and not isinstance(one, _LEAVE)]
    if changing or gym_spaces.flatdim(space) + mask != gym_spaces.flatdim(flat):
        raise UsageError(
            f"hindsight={goals} recomputes rewards from the environment's own observations, and "
            f"{type(changing[0]).__name__ if changing else 'a wrapper'} changes observations or rewards: wrap it in "
            "gymnasium.wrappers.FlattenObservation or ddpg.ActionMask only, and use normalize_observations or "
            "normalize_rewards"
        )
    return space, inner.compute_reward


_CHANGE = (
    *(gym.ObservationWrapper, gym.RewardWrapper, gym.wrappers.NormalizeReward),
    *(getattr(gym.wrappers, name) for name in ("RepeatAction", "MaxAndSkipObservation") if hasattr(gym.wrappers, name)),
    *(gym.vector.VectorObservationWrapper, gym.vector.VectorRewardWrapper, gym.wrappers.vector.NormalizeReward),
)
# Wrappers of environments and of vectors that do not change the values of an observation.
_LEAVE = tuple(
    getattr(module, name)
    for module in (gym.wrappers, gym.wrappers.vector)
    for name in ("FlattenObservation", "ReshapeObservation", "DtypeObservation")
)


def _refuse(batch: Batch, rows: np.ndarray, rng: np.random.Generator) -> Batch:
    raise UsageError(
        "hindsight asks the environment for rewards, and this agent has no environment; load it with env=..."
    )
