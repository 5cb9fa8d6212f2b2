"""Evaluations in the middle of training, whose time is not training's."""

import time
from types import SimpleNamespace

import gymnasium as gym

SEED, EPISODES = 10_000, 10


class Evaluation:
    """Asks the policy of the moment, and takes note of the time.

    Args:
        env: an environment of its own.
        task: ``act``, ``goal``, and the time at which the command ``began``.

    Attributes:
        mean: the last one's mean return.
    """

    def __init__(self, env: gym.Env, task: SimpleNamespace):
        self._env, self._task = env, task
        self._first = self._spent = 0.0
        self.mean = float("-inf")

    def at(self, step: int) -> dict | None:
        """Evaluate before this step, the first one excepted; return the times where the goal is reached."""
        before = time.time()
        if step == 1:
            self._first = before
            return None
        self.mean = mean_return(self._env, self._task.act)
        spent, self._spent = self._spent, self._spent + time.time() - before
        if self.mean < self._task.goal:
            return None
        return {
            "seconds": before - self._task.began - spent,
            "training_seconds": before - self._first - spent,
            "steps": step,
            "evaluation_seconds": self._spent,
            "mean_return": self.mean,
        }


def mean_return(env: gym.Env, act) -> float:
    """Return the mean return of episodes of fixed seeds."""
    total = 0.0
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=SEED + episode)
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total += float(reward)
            over = terminated or truncated
    return total / EPISODES
