"""Whether one configuration is better than another on the seeds of both, and how sure that is."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from ddpg.progress import significant
from ddpg.runs.curves import centre_and_interval

_RESAMPLES = 10_000


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over seeds with the ends of its 95 % bootstrap interval (env units)."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{significant(self.mean)} ({significant(self.low)} to {significant(self.high)})"


def mean_of(returns: Sequence[float]) -> Estimate:
    """Return the mean of what each seed returned, and the percentile bootstrap of the seeds."""
    return Estimate(*(float(one[0]) for one in centre_and_interval(np.array(returns)[:, None], "mean")))


def difference_of(one: Sequence[float], other: Sequence[float]) -> Estimate:
    """Return the mean of ``one`` less that of ``other``; the seeds of both are drawn again, each for itself.

    A seed is another network and other noise in each of two configurations: they are no pairs.
    """
    generator = np.random.default_rng(0)
    means = [
        values[generator.integers(0, len(values), (_RESAMPLES, len(values)))].mean(axis=1)
        for values in (np.array(one), np.array(other))
    ]
    low, high = np.percentile(means[0] - means[1], [2.5, 97.5])
    return Estimate(float(np.mean(one) - np.mean(other)), float(low), float(high))


def verdict(name: str, other: str, difference: Estimate, seeds: int) -> str:
    """Return in a sentence whether ``name`` beats ``other``: whether the interval of their difference leaves out 0.

    Args:
        name, other: what was compared.
        difference: of :func:`difference_of`.
        seeds: of each; of one alone nothing can be said.
    """
    told = f"difference of means {difference}, {seeds} fresh seeds each"
    if seeds < 2:
        return f"One seed each does not show whether {name} beats {other} (difference {significant(difference.mean)})."
    if difference.low > 0:
        return f"{name} beats {other}: {told}."
    if difference.high < 0:
        return f"{name} does not beat {other}, it is worse: {told}."
    return f"{name} does not beat {other}: no difference is shown ({told})."
