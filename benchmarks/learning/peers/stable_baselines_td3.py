"""Train Stable-Baselines3's TD3 once, evaluated as a study evaluates; prints what came of it as JSON.

Only its own package, NumPy and gymnasium: it runs in a virtual environment of its own. Its options are the package's
own (two critics, batch 256, rates 1e-3, tau 0.005, policy delay 2, target noise 0.2 within 0.5, layers 400-300) but for
what rl-baselines3-zoo sets for MuJoCo: 10 000 random steps first, and exploration noise N(0, 0.1).
"""

import json
import sys
import time

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3 import TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.noise import NormalActionNoise


class Evaluations(BaseCallback):
    """Evaluates every ``interval`` steps without noise; the clock stands still meanwhile."""

    def __init__(self, env: gym.Env, interval: int, episodes: int, seed: int):
        super().__init__()
        self._env, self._interval, self._episodes, self._seed = env, interval, episodes, seed
        self.rows: list[tuple[int, float, float]] = []
        self._since, self._seconds = time.perf_counter(), 0.0

    def _on_step(self) -> bool:
        if self.num_timesteps % self._interval == 0:
            self._seconds += time.perf_counter() - self._since
            self.rows.append((self.num_timesteps, self._mean_return(), self._seconds))
            print(self.rows[-1], file=sys.stderr, flush=True)
            self._since = time.perf_counter()
        return True

    def _mean_return(self) -> float:
        """Return the mean of the same episodes every time: the first reset is seeded, the others go on from it."""
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


def main() -> None:
    """Train what the argument asks for."""
    task = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    env = gym.make(task["env"])
    size = env.action_space.shape
    agent = TD3(
        "MlpPolicy",
        env,
        learning_starts=task["learning_starts"],
        action_noise=NormalActionNoise(np.zeros(size), 0.1 * np.ones(size)),
        policy_kwargs={"net_arch": [400, 300]},
        seed=task["seed"],
        device="cpu",
    )
    seed = task["seed"] + 1_000_000  # as ddpg.runs.evaluation.evaluation_seed
    evaluations = Evaluations(gym.make(task["env"]), task["evaluation_interval"], task["evaluation_episodes"], seed)
    agent.learn(task["steps"], callback=evaluations)
    print(json.dumps({"evaluations": evaluations.rows}))


main()
