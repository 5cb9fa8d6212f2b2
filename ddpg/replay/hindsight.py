"""Hindsight experience replay: relabel transitions with goals reached later in the episode. NumPy only.

In an environment with goals (gymnasium-robotics' protocol) an observation is a Dict of ``observation``,
``achieved_goal`` and ``desired_goal``, and ``compute_reward(achieved, desired, info)`` returns the reward of a step.
The agent sees the observation flattened by ``gymnasium.wrappers.FlattenObservation``, with the parts in the Dict's
order.
"""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces as gym_spaces

from ddpg.errors import EnvironmentFault, UsageError
from ddpg.interaction.env_calls import call
from ddpg.interaction.env_errors import format_error
from ddpg.interaction.env_runner import wrappers_of
from ddpg.interaction.validation import check_finite, validate_numeric
from ddpg.replay.buffer import ReplayBuffer
from ddpg.replay.minibatch import Batch

PARTS = ("observation", "achieved_goal", "desired_goal")


class Hindsight:
    """Relabels a share k / (k + 1) of the drawn transitions with goals that were reached later in the same episode.

    This is the strategy ``future`` (Andrychowicz et al. 2017, sections 3.3 and 4.5), applied when sampling: the new
    goal is the goal achieved after a step drawn uniformly between this step and the last stored step of the episode.
    The reward is recomputed; ``terminated`` is left unchanged, as in Stable-Baselines3.

    Args:
        replay: the replay buffer.
        goals: k, the number of relabelled transitions for each unchanged one.
        space: the observation space before flattening.
        compute_reward: ``(achieved [n, G], desired [n, G], {}) -> [n]``.
    """

    def __init__(self, replay: ReplayBuffer, goals: int, space: gym_spaces.Dict, compute_reward: Callable):
        self._replay, self._share, self._compute_reward = replay, goals / (goals + 1), compute_reward
        ends = np.cumsum([gym_spaces.flatdim(part) for part in space.values()]).tolist()
        parts = dict(zip(space, map(slice, [0, *ends[:-1]], ends), strict=True))
        self._achieved, self._desired = parts["achieved_goal"], parts["desired_goal"]

    def __call__(self, batch: Batch, rows: np.ndarray, rng: np.random.Generator) -> Batch:
        """Relabel some transitions of ``batch``, drawn from ``rows`` ``[K, B]``, in place, and return it.

        Raises:
            EnvironmentFault: if the environment's ``compute_reward`` raised, does not accept several goals at once, or
                did not return finite numbers.
        """
        chosen = rng.random(rows.shape) < self._share
        goals = self._replay.observations.next_obs(self._later(rows[chosen], rng))[:, self._achieved]
        batch.observations[chosen, self._desired] = goals
        batch.next_observations[chosen, self._desired] = goals
        batch.rewards[chosen, 0] = self._rewards(batch.next_observations[chosen][:, self._achieved], goals)
        return batch

    def _rewards(self, achieved: np.ndarray, goals: np.ndarray) -> np.ndarray:
        """Return the environment's rewards ``[n]`` for achieved goals ``[n, G]`` and desired goals ``[n, G]``."""
        what = "compute_reward of the environment"
        returned = call(
            self._compute_reward,
            achieved,
            goals,
            {},
            fault=lambda error: EnvironmentFault(f"{what}: {format_error(error)}"),
        )
        try:
            rewards = validate_numeric(returned, what)
            check_finite(rewards, what)
        except UsageError as error:
            raise EnvironmentFault(str(error)) from None
        if rewards.shape != (len(goals),):
            raise EnvironmentFault(
                f"{what} returned shape {rewards.shape} for {len(goals)} goals; expected one reward for each row: let "
                "it work on the last axis, as gymnasium-robotics does"
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


def make_hindsight(
    env: Any, replay: ReplayBuffer, goals: int
) -> Callable[[Batch, np.ndarray, np.random.Generator], Batch]:
    """Return the function that relabels transitions of ``env``; without an ``env``, one that raises ``UsageError``.

    Raises:
        UsageError: if the environment has no goals.
    """
    if env is None:
        return _refuse
    # The environments of a vector are alike, so take the first; a vector in other processes has no ``envs``.
    inner = (getattr(env.unwrapped, "envs", None) or [env])[0].unwrapped
    space = getattr(inner, "observation_space", None)
    if not (isinstance(space, gym_spaces.Dict) and set(space) == set(PARTS) and hasattr(inner, "compute_reward")):
        raise UsageError(
            f"hindsight={goals} needs an environment with goals, whose observations are a Dict of {', '.join(PARTS)} "
            f"and which has compute_reward; {inner} has {space}, or it lives in another process"
        )
    flat = env.single_observation_space if isinstance(env, gym.vector.VectorEnv) else env.observation_space
    changed = next(
        (wrapper for wrapper in wrappers_of(env) if isinstance(wrapper, _CHANGE) and _changes(wrapper)), None
    )
    if changed is not None or gym_spaces.flatdim(space) != gym_spaces.flatdim(flat):
        raise UsageError(
            f"hindsight={goals} recomputes rewards from the environment's own observations, and "
            f"{'a wrapper' if changed is None else type(changed).__name__} changes observations or rewards: wrap it in "
            "gymnasium.wrappers.FlattenObservation only, and use normalize_observations or normalize_rewards"
        )
    return Hindsight(replay, goals, space, inner.compute_reward)


_CHANGE = (
    *(gym.ObservationWrapper, gym.RewardWrapper, gym.wrappers.NormalizeReward),
    *(getattr(gym.wrappers, name) for name in ("RepeatAction", "MaxAndSkipObservation") if hasattr(gym.wrappers, name)),
    *(gym.vector.VectorObservationWrapper, gym.vector.VectorRewardWrapper, gym.wrappers.vector.NormalizeReward),
)
# Wrappers of environments and of vectors that do not change the values of an observation.
_LEAVE = ("FlattenObservation", "ReshapeObservation", "DtypeObservation")


def _changes(wrapper: Any) -> bool:
    return not isinstance(
        wrapper, tuple(getattr(module, name) for module in (gym.wrappers, gym.wrappers.vector) for name in _LEAVE)
    )


def _refuse(batch: Batch, rows: np.ndarray, rng: np.random.Generator) -> Batch:
    raise UsageError(
        "hindsight asks the environment for rewards, and this agent has no environment; load it with env=..."
    )
