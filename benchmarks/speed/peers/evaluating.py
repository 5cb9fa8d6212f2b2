"""Evaluate the policy during training, without counting the evaluations' time."""

import time
from types import SimpleNamespace

import gymnasium as gym

SEED, EPISODES = 10_000, 10


class Evaluation:
    """Evaluates the current policy, and subtracts the time of evaluations from that of training.

    Args:
        env: an environment for evaluations only.
        task: has ``act``, ``goal``, and the time ``began`` at which the command started.

    Attributes:
        mean: mean return of the last evaluation.
    """

    def __init__(self, env: gym.Env, task: SimpleNamespace):
        self._env, self._task = env, task
        self._first = self._spent = 0.0
        self.mean = float("-inf")

    def at(self, step: int) -> dict | None:
        """Evaluate before this step, except before the first one; return the times if the goal is reached."""
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
    """Return the mean return of episodes with fixed seeds."""
    total = 0.0
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=SEED + episode)
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            total += float(reward)
            over = terminated or truncated
    return total / EPISODES
