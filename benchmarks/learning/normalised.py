"""Normalise returns, so that several tasks have one score: 0 is a random policy, 1 a reference agent."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

RESAMPLES = 2000

# Returns of uniformly random actions and of TD3 after a million steps in the v4 environments, as in MR.Q's paper
# (Fujimoto et al. 2025, arXiv 2501.16142, appendix on environments). Our v5 environments differ a little (Hopper's and
# Walker2d's models, the rewards of Ant and Humanoid), so these numbers are a scale, not a competitor.
REFERENCES = {
    "HalfCheetah-v5": (-289.415, 10574.0),
    "Hopper-v5": (18.791, 3226.0),
    "Walker2d-v5": (2.791, 3946.0),
    "Ant-v5": (-70.288, 3942.0),
    "Humanoid-v5": (120.423, 5165.0),
}


def normalised(env_id: str, returns: Sequence[float]) -> np.ndarray:
    """Return normalised ``returns`` (env units): 0 for the random policy's return, 1 for the reference's."""
    random, reference = REFERENCES[env_id]
    return (np.asarray(returns, float) - random) / (reference - random)


def across_tasks(scores: Mapping[str, Sequence[float]]) -> tuple[float, float, float]:
    """Return the interquartile mean over all runs of all tasks, and the ends of its 95 % interval.

    The bootstrap is stratified: seeds are resampled within each task (Agarwal et al. 2021, arXiv 2108.13264,
    section 4.1).

    Args:
        scores: normalised returns by task, at least one for each.
    """
    generator = np.random.default_rng(0)
    tasks = [np.asarray(values, float) for values in scores.values()]
    drawn = [task[generator.integers(0, len(task), (RESAMPLES, len(task)))] for task in tasks]
    resampled = stats.trim_mean(np.concatenate(drawn, axis=1), 0.25, axis=1)
    low, high = np.percentile(resampled, [2.5, 97.5])
    return float(stats.trim_mean(np.concatenate(tasks), 0.25)), float(low), float(high)
