"""Compare two configurations: means over seeds, differences by seed, and the probability of improvement."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from ddpg.progress import format_number
from ddpg.runs.curves import centre_and_interval

_RESAMPLES = 10_000


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean with the ends of its 95 % bootstrap interval over seeds (env units, or a probability)."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{format_number(self.mean)} ({format_number(self.low)} to {format_number(self.high)})"


def mean_of(returns: Sequence[float]) -> Estimate:
    """Return the mean return over seeds with a percentile bootstrap interval."""
    return Estimate(*(float(one[0]) for one in centre_and_interval(np.array(returns)[:, None], "mean")))


def paired_difference(one: Sequence[float], other: Sequence[float]) -> Estimate:
    """Return the mean over seeds of ``one[i] - other[i]``, with a percentile bootstrap interval over the seeds.

    A seed of both configurations is resampled as a pair. It gives both the same initial weights, where their networks
    are equal, the same initial states and the same random numbers. Where that makes their returns alike, the interval
    is narrower than that of independent samples; where it does not, it is as wide.

    Args:
        one, other: returns by seed, of the same seeds in the same order.
    """
    differences = np.array(one, float) - np.array(other, float)
    means = _resampled(np.random.default_rng(0), len(differences)) @ differences / len(differences)
    return Estimate(float(differences.mean()), *_interval(means))


def probability_of_improvement(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Estimate:
    """Return the probability that a run of one configuration has a larger return than a run of the other.

    In an environment it is the share of all pairs of runs, one of each configuration, in which the first is larger, and
    ties count half: the Mann-Whitney statistic. Over environments it is averaged. The interval is a bootstrap,
    stratified by environment, which resamples the runs of both configurations independently (Agarwal et al. 2021, arXiv
    2108.13264, and their package rliable).

    Args:
        pairs: for each environment the returns of the one and of the other configuration.
    """
    generator = np.random.default_rng(0)
    shares, resampled = [], []
    for one, other in pairs:
        rows, columns = np.array(one, float)[:, None], np.array(other, float)
        larger = (rows > columns) + 0.5 * (rows == columns)
        shares.append(float(larger.mean()))
        first, second = (_resampled(generator, length) for length in larger.shape)
        resampled.append(np.sum(first @ larger * second, axis=1) / larger.size)
    return Estimate(float(np.mean(shares)), *_interval(np.mean(resampled, axis=0)))


def _resampled(generator: np.random.Generator, count: int) -> np.ndarray:
    """Return how often every bootstrap resample has each of ``count`` samples, ``[R, count]``."""
    return generator.multinomial(count, np.full(count, 1 / count), _RESAMPLES)


def _interval(values: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A configuration against another, on the seeds that both have.

    Attributes:
        seeds: how many; over several environments, in all of them.
        difference: :func:`paired_difference`, in env units; ``None`` over several environments, whose units differ.
        improvement: :func:`probability_of_improvement`.
    """

    seeds: int
    difference: Estimate | None
    improvement: Estimate


def compare(one: Mapping[int, float], other: Mapping[int, float]) -> Comparison | None:
    """Compare returns by seed; ``None`` if no seed has both."""
    pair = _common(one, other)
    if not pair[0]:
        return None
    return Comparison(len(pair[0]), paired_difference(*pair), probability_of_improvement([pair]))


def compare_over_environments(
    pairs: Sequence[tuple[Mapping[int, float], Mapping[int, float]]],
) -> Comparison | None:
    """Compare returns by seed in several environments; ``None`` if fewer than two have a seed of both."""
    found = [pair for pair in (_common(*one) for one in pairs) if pair[0]]
    if len(found) < 2:
        return None
    return Comparison(sum(len(one) for one, _ in found), None, probability_of_improvement(found))


def _common(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[list[float], list[float]]:
    seeds = [seed for seed in one if seed in other]
    return [one[seed] for seed in seeds], [other[seed] for seed in seeds]


def verdict(name: str, other: str, comparison: Comparison) -> str:
    """Return a sentence on whether ``name`` beats ``other``: the interval of their difference must exclude 0.

    Args:
        name, other: the two configurations.
        comparison: of these; one seed shows nothing.
    """
    difference = comparison.difference
    assert difference is not None
    figures = (
        f"difference by seed {difference}, probability of improvement {comparison.improvement}, "
        f"{comparison.seeds} fresh seeds each"
    )
    if comparison.seeds < 2:
        return (
            f"One seed each does not show whether {name} beats {other} (difference {format_number(difference.mean)})."
        )
    if difference.low > 0:
        return f"{name} beats {other}: {figures}."
    if difference.high < 0:
        return f"{name} does not beat {other}, it is worse: {figures}."
    return f"{name} does not beat {other}: no difference is shown ({figures})."
