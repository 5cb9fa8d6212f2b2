"""Stepping one environment, or a vector of them, as N environments whose episodes restart by themselves.

Gymnasium and NumPy only. What differs between a plain environment and the autoreset modes of vector
environments is settled here, and rewards and flags are checked; observations are whatever ``read`` makes of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from ddpg.errors import UsageError
from ddpg.experience.transitions import EVERYONE, Episode
from ddpg.experience.values import LARGEST, as_flag, as_flags, as_reward, as_rewards

Read = Callable[[Any], Any]


class Step(NamedTuple):
    """What one step gave, of the n ≤ N environments that really stepped.

    ``rewards`` (float64, env units), ``terminated`` and ``truncated`` (bool) are ``[n]``; ``environments``
    indexes those n among the N. ``last`` holds, by environment, the true last observation of an episode that
    ended where the stepper's ``observations`` are already the first of the next one.
    """

    environments: slice | np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    last: dict[int, Any]
    episodes: list[Episode]


def as_it_is(observation: Any) -> Any:
    """Leave an observation as the environment returned it: for whoever looks at it before the next step only."""
    return observation


def make_stepper(
    env: gym.Env | gym.vector.VectorEnv, seed: int | None, read: Read = as_it_is, read_all: Read = as_it_is
) -> "SingleStepper | VectorStepper":
    """Reset ``env`` with ``seed`` and return what steps it.

    Args:
        env: one environment, or a vector.
        seed: of this reset; later episodes go on from it.
        read: translates the observation of one environment as soon as it is returned.
        read_all: translates those of a vector's N environments.

    Raises:
        UsageError: neither, or a vector environment whose autoreset mode is neither NEXT_STEP nor SAME_STEP.
    """
    if isinstance(env, gym.vector.VectorEnv):
        return VectorStepper(env, seed, read, read_all)
    if isinstance(env, gym.Env):
        return SingleStepper(env, seed, read)
    raise UsageError(
        f"env={env!r} is neither a gymnasium Env nor a VectorEnv; make one with gymnasium.make(...) or make_vec(...)"
    )


class SingleStepper:
    """A plain environment as one of N = 1."""

    count = 1

    def __init__(self, env: gym.Env, seed: int | None, read: Read = as_it_is):
        self.env = env
        self._read = read
        self._restart(seed)

    def _restart(self, seed: int | None = None) -> None:
        self._observations = self._read(self.env.reset(seed=seed)[0])
        self._return, self._length = 0.0, 0

    @property
    def observations(self) -> Any:
        """What was read where the environment is now; a new episode's start after one ended, or a step raised."""
        if self._observations is None:
            self._restart()
        return self._observations

    def step(self, action: Any) -> Step:
        """Step with one ``action``, in env units."""
        self._observations = None  # should anything below raise, the episode is lost
        observation, reward, terminated, truncated, info = self.env.step(action)
        # Read before anything else: the environment may write its next observation into the same array.
        current = self._read(observation)
        reward = as_reward(reward)
        terminated, truncated = as_flag(terminated, "terminated"), as_flag(truncated, "truncated")
        self._return += reward
        self._length += 1
        last, episodes = {}, []
        if terminated or truncated:
            episodes.append(Episode(self._return, self._length, 0, _success(info)))
            last[0] = current
        else:  # a next episode begins when somebody looks: after the last one of an evaluation nobody does
            self._observations = current
        return Step(EVERYONE, np.array([reward]), np.array([terminated]), np.array([truncated]), last, episodes)


class VectorStepper:
    """A vector environment; NEXT_STEP and SAME_STEP autoreset.

    NEXT_STEP: the step after an episode's end ignores the action and returns the first observation of the
    next episode with reward 0. That row is no transition and is left out.

    SAME_STEP: the step that ends an episode already returns the next one's first observation; the true
    last one is in ``infos["final_obs"]``, and that is what ``last`` gets.
    """

    def __init__(self, env: gym.vector.VectorEnv, seed: int | None, read: Read = as_it_is, read_all: Read = as_it_is):
        mode = env.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise UsageError(
                f"vector environment {env} has autoreset_mode {mode}; expected AutoresetMode.NEXT_STEP or SAME_STEP, "
                'declared in its metadata: gymnasium.make_vec(..., vector_kwargs={"autoreset_mode": "NextStep"})'
            )
        self.env = env
        self.count = env.num_envs
        self._same_step = mode == AutoresetMode.SAME_STEP
        self._read, self._read_all = read, read_all
        self._restart(seed)

    def _restart(self, seed: int | None = None) -> None:
        self._observations = self._read_all(self.env.reset(seed=seed)[0])
        self._ended = np.zeros(self.count, bool)
        self._returns = np.zeros(self.count)
        self._lengths = np.zeros(self.count, int)

    @property
    def observations(self) -> Any:
        """What was read where the environments are now; after a step that raised, those are new episodes' starts."""
        if self._observations is None:
            self._restart()
        return self._observations

    def step(self, actions: Any) -> Step:
        """Step with N ``actions`` as the vector environment takes them, in env units."""
        self._observations = None  # should anything below raise, the episodes are lost
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        current = self._read_all(observations)
        rewards = as_rewards(rewards, self.count)
        terminated = as_flags(terminated, self.count, "terminated")
        truncated = as_flags(truncated, self.count, "truncated")
        stepped = ~self._ended
        done = terminated | truncated
        # Indexing by a mask copies: the environment may write the next step into the same arrays.
        step = Step(stepped, rewards[stepped], terminated[stepped], truncated[stepped], {}, [])
        _check_rewards(step.rewards, np.flatnonzero(stepped))
        self._returns[stepped] += step.rewards
        self._lengths[stepped] += 1
        for index in map(int, np.flatnonzero(done & stepped)):
            if self._same_step:
                step.last[index] = self._read(_last(infos, index))
            success = _vector_success(infos, index, self._same_step)
            step.episodes.append(Episode(float(self._returns[index]), int(self._lengths[index]), index, success))
            self._returns[index], self._lengths[index] = 0.0, 0
        if not self._same_step:
            self._ended = done
        self._observations = current
        return step


def _check_rewards(rewards: np.ndarray, environments: np.ndarray) -> None:
    good = np.abs(rewards) <= LARGEST
    if not good.all():
        place = int(np.argmin(good))
        as_reward(float(rewards[place]), f"reward of environment {environments[place]}")


def _last(infos: dict[str, Any], index: int) -> Any:
    if "final_obs" not in infos:
        raise UsageError(
            'the vector environment ended a SAME_STEP episode without infos["final_obs"], its last observation; '
            "return it there, as gymnasium's own vector environments do, or use AutoresetMode.NEXT_STEP"
        )
    return infos["final_obs"][index]


def _success(info: dict[str, Any]) -> bool | None:
    return bool(info["is_success"]) if info.get("is_success") is not None else None


def _vector_success(infos: dict[str, Any], index: int, same_step: bool) -> bool | None:
    """Return what environment ``index`` said of its episode that ended; in SAME_STEP mode that is in ``final_info``."""
    if same_step:
        infos = infos.get("final_info", {})
        if not isinstance(infos, dict):  # an info for each environment
            return _success(infos[index] or {})
    values, said = infos.get("is_success"), infos.get("_is_success")
    return bool(values[index]) if values is not None and (said is None or said[index]) else None
