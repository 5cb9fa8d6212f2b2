"""Train an algorithm of Stable-Baselines3 or SBX once, and evaluate it as our studies evaluate.

The argument is JSON with the algorithm and its options (``benchmarks/learning/peer_algorithms.py``). Each evaluation is
printed at once as a line of JSON. The script runs in the package's virtual environment, so it imports nothing of ours.
"""

import importlib
import json
import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise


class Evaluations(BaseCallback):
    """Evaluates every ``interval`` steps without noise; the time of evaluations is not counted."""

    def __init__(self, env: gym.Env, interval: int, episodes: int, seed: int):
        super().__init__()
        self._env, self._interval, self._episodes, self._seed = env, interval, episodes, seed
        self._since, self._seconds = time.perf_counter(), 0.0

    def _on_step(self) -> bool:
        if self.num_timesteps % self._interval == 0:
            self._seconds += time.perf_counter() - self._since
            row = (self.num_timesteps, self._mean_return(), self._seconds)
            print(json.dumps({"evaluation": row}), flush=True)
            self._since = time.perf_counter()
        return True

    def _mean_return(self) -> float:
        """Return the mean return of the same episodes every time: only the first reset is seeded."""
        observation, _ = self._env.reset(seed=self._seed)
        returns = np.zeros(self._episodes)
        for episode in range(self._episodes):
            ended = False
            while not ended:
                action, _ = self.model.predict(observation, deterministic=True)
                observation, reward, terminated, truncated, _ = self._env.step(action)
                returns[episode] += float(reward)
                ended = terminated or truncated
            observation, _ = self._env.reset()
        return float(returns.mean())


def make_agent(task: dict, env: gym.Env) -> Any:
    """Return the agent that the task describes."""
    options = dict(task["options"])
    if task["exploration_noise"] is not None:
        size = env.action_space.shape
        options["action_noise"] = NormalActionNoise(np.zeros(size), task["exploration_noise"] * np.ones(size))
    algorithm = getattr(importlib.import_module(task["package"]), task["algorithm"])
    return algorithm("MlpPolicy", env, learning_starts=task["learning_starts"], seed=task["seed"], **options)


def main() -> None:
    """Train and evaluate the agent that the argument describes."""
    task = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    agent = make_agent(task, gym.make(task["env"]))
    seed = task["seed"] + 1_000_000  # as ddpg.runs.evaluation.evaluation_seed
    evaluations = Evaluations(gym.make(task["env"]), task["evaluation_interval"], task["evaluation_episodes"], seed)
    agent.learn(task["steps"], callback=evaluations)


main()
