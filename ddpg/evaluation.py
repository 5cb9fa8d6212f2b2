"""Returns of a policy over whole episodes."""

import dataclasses
from typing import Any

import gymnasium as gym
import numpy as np
from scipy import stats
from tqdm import tqdm

from ddpg.errors import UsageError


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Undiscounted returns (env units) and lengths (steps) of whole episodes."""

    returns: np.ndarray
    lengths: np.ndarray

    def summary(self) -> dict[str, Any]:
        """Return mean, spread and a 95 % confidence interval of the mean (Student's t)."""
        mean, count = float(self.returns.mean()), len(self.returns)
        error = float(self.returns.std(ddof=1) / np.sqrt(count)) if count > 1 else 0.0
        half = float(stats.t.ppf(0.975, count - 1)) * error if count > 1 else 0.0
        return {
            "episodes": count,
            "mean_return": mean,
            "std_return": float(self.returns.std(ddof=1)) if count > 1 else 0.0,
            "ci95_low": mean - half,
            "ci95_high": mean + half,
            "min_return": float(self.returns.min()),
            "max_return": float(self.returns.max()),
            "mean_length": float(self.lengths.mean()),
        }


def evaluate(
    policy,
    env: gym.Env,
    episodes: int = 10,
    seed: int | None = None,
    deterministic: bool = True,
    progress_bar=False,
) -> Evaluation:
    """Run whole episodes of ``policy`` in ``env``.

    Args:
        policy: anything with Stable-Baselines3's ``predict(observation, deterministic=) -> (action, state)``.
        env: a plain environment; it is reset, not closed.
        episodes: how many.
        seed: of the first reset; the later ones go on from it.
        deterministic: without exploration noise.
        progress_bar: show one on stderr.

    Raises:
        UsageError: fewer than one episode.
    """
    if episodes < 1:
        raise UsageError(f"episodes={episodes} must be at least 1")
    returns, lengths = [], []
    for _ in tqdm(range(episodes), desc="evaluating", unit="episode", disable=not progress_bar):
        observation, _ = env.reset(seed=seed if not returns else None)
        total, length, done = 0.0, 0, False
        while not done:
            action, _ = policy.predict(observation, deterministic=deterministic)
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            length += 1
            done = terminated or truncated
        returns.append(total)
        lengths.append(length)
    return Evaluation(np.asarray(returns), np.asarray(lengths))
