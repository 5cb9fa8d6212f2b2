"""Stepping one environment, or a vector of them, as N environments whose episodes restart by themselves.

Gymnasium and NumPy only. What differs between a plain environment and the autoreset modes of vector
environments is settled here; the learner sees transitions.
"""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from ddpg.errors import UsageError
from ddpg.experience.actions import first


class Episode(NamedTuple):
    """One finished episode: its undiscounted return (env units), its length (steps), its environment."""

    episode_return: float
    length: int
    index: int


class Transitions(NamedTuple):
    """What one step gave: arrays ``[n, ...]`` of the n ≤ N environments that really stepped.

    ``environments`` indexes those n among the N.
    """

    environments: slice | np.ndarray
    observations: np.ndarray
    rewards: np.ndarray
    next_observations: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    episodes: list[Episode]


def spaces_of(env: Any) -> tuple[gym.Space, gym.Space]:
    """Return the observation and action space of an env, a vector env, or a pair of spaces."""
    if isinstance(env, gym.vector.VectorEnv):
        return env.single_observation_space, env.single_action_space
    if isinstance(env, gym.Env):
        return env.observation_space, env.action_space
    if isinstance(env, (tuple, list)) and len(env) == 2 and all(isinstance(part, gym.Space) for part in env):
        return env[0], env[1]
    raise UsageError(
        f"env={env!r} is neither a gymnasium Env, nor a VectorEnv, nor a pair (observation_space, action_space); "
        "make one with gymnasium.make(...)"
    )


def make_interaction(env: gym.Env | gym.vector.VectorEnv, seed: int | None) -> "SingleInteraction | VectorInteraction":
    """Reset ``env`` with ``seed`` and return it as N environments.

    Raises:
        UsageError: a vector environment whose autoreset mode is neither NEXT_STEP nor SAME_STEP.
    """
    if isinstance(env, gym.vector.VectorEnv):
        return VectorInteraction(env, seed)
    return SingleInteraction(env, seed)


class SingleInteraction:
    """A plain environment as one of N = 1."""

    def __init__(self, env: gym.Env, seed: int | None):
        self.env = env
        self.count = 1
        self.observations = self._row(env.reset(seed=seed)[0])
        self._return, self._length = 0.0, 0

    @staticmethod
    def _row(observation) -> np.ndarray:
        return np.asarray(observation, np.float32)[None]

    def step(self, actions: np.ndarray) -> Transitions:
        """Step with the one of ``actions``, in env units; restart where the episode ended."""
        observations = self.observations
        observation, reward, terminated, truncated, _ = self.env.step(first(actions))
        next_observations = self.observations = self._row(observation)
        self._return += float(reward)
        self._length += 1
        episodes = []
        if terminated or truncated:
            episodes.append(Episode(self._return, self._length, 0))
            self._return, self._length = 0.0, 0
            self.observations = self._row(self.env.reset()[0])
        everyone = slice(None)
        return Transitions(everyone, observations, (reward,), next_observations, (terminated,), (truncated,), episodes)


class VectorInteraction:
    """A vector environment; NEXT_STEP and SAME_STEP autoreset.

    NEXT_STEP: the step after an episode's end ignores the action and returns the first observation of the
    next episode with reward 0. That row is no transition and is left out.

    SAME_STEP: the step that ends an episode already returns the next one's first observation; the true
    last one is in ``infos["final_obs"]``, and that is what the transition gets.
    """

    def __init__(self, env: gym.vector.VectorEnv, seed: int | None):
        mode = env.metadata.get("autoreset_mode")
        if mode not in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            raise UsageError(
                f"vector environment {env} has autoreset_mode {mode}; expected AutoresetMode.NEXT_STEP or SAME_STEP, "
                'declared in its metadata: gymnasium.make_vec(..., vector_kwargs={"autoreset_mode": "NextStep"})'
            )
        self.env = env
        self.count = env.num_envs
        self._same_step = mode == AutoresetMode.SAME_STEP
        self.observations = np.array(env.reset(seed=seed)[0], np.float32)
        self._ended = np.zeros(self.count, bool)
        self._returns = np.zeros(self.count)
        self._lengths = np.zeros(self.count, int)

    def step(self, actions: np.ndarray) -> Transitions:
        """Step with N ``actions`` as the vector environment takes them, in env units."""
        observations = self.observations
        # A copy: vector environments may write every step into the same array.
        returned, rewards, terminated, truncated, infos = self.env.step(actions)
        self.observations = np.array(returned, np.float32)
        done = terminated | truncated
        next_observations = self.observations
        if self._same_step and done.any():
            next_observations = self.observations.copy()
            for index in np.flatnonzero(done):
                next_observations[index] = infos["final_obs"][index]
        real = ~self._ended
        self._returns[real] += rewards[real]
        self._lengths[real] += 1
        episodes = []
        for index in np.flatnonzero(done & real):
            episodes.append(Episode(float(self._returns[index]), int(self._lengths[index]), int(index)))
            self._returns[index], self._lengths[index] = 0.0, 0
        if not self._same_step:
            self._ended = done
        fields = (observations, rewards, next_observations, terminated, truncated)
        return Transitions(real, *(field[real] for field in fields), episodes)
