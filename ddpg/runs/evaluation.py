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
    """Undiscounted returns (env units) and lengths (steps) of whole episodes.

    ``clipped_actions`` counts the actions that the policy had to clip to their box.
    ``successes`` tells, where the environment says it (``info["is_success"]`` at the end), which succeeded.
    """

    returns: np.ndarray
    lengths: np.ndarray
    clipped_actions: int = 0
    successes: np.ndarray | None = None

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
            "clipped_actions": self.clipped_actions,
            **({} if self.successes is None else {"success_rate": float(self.successes.mean())}),
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
    returns, lengths, successes = [], [], []
    clipped_before = getattr(policy, "num_clipped_predictions", 0)
    for _ in tqdm(range(episodes), desc="evaluating", unit="episode", disable=not progress_bar):
        observation, _ = env.reset(seed=seed if not returns else None)
        total, length, done = 0.0, 0, False
        while not done:
            action, _ = policy.predict(observation, deterministic=deterministic)
            observation, reward, terminated, truncated, info = env.step(action)
            total += float(reward)
            length += 1
            done = terminated or truncated
        returns.append(total)
        lengths.append(length)
        if "is_success" in info:
            successes.append(bool(info["is_success"]))
    return Evaluation(
        np.asarray(returns),
        np.asarray(lengths),
        getattr(policy, "num_clipped_predictions", 0) - clipped_before,
        np.asarray(successes) if len(successes) == episodes else None,
    )
