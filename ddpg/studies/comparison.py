"""Statistics that compare two configurations: means over seeds, paired differences, probability of improvement."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from ddpg.progress import format_number
from ddpg.runs.curves import centre_and_interval

_RESAMPLES = 10_000


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean over seeds and the ends of its 95 % bootstrap interval (env units, or a probability); NaN if no seed."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.mean):
            return "none yet"
        return f"{format_number(self.mean)} ({format_number(self.low)} to {format_number(self.high)})"


NO_ESTIMATE = Estimate(*(math.nan,) * 3)


def estimate(values: Sequence[float], measure: str) -> Estimate:
    """Return the ``"mean"`` or interquartile mean (``"iqm"``) over seeds with a percentile bootstrap interval."""
    if not len(values):
        return NO_ESTIMATE
    return Estimate(*(float(one[0]) for one in centre_and_interval(np.array(values)[:, None], measure)))


@np.errstate(over="ignore", invalid="ignore")
def paired_difference(one: Sequence[float], other: Sequence[float]) -> Estimate:
    """Return the mean over seeds of ``one[i] - other[i]``, with a percentile bootstrap interval over the seeds.

    The two returns of a seed are resampled as a pair. A seed gives both configurations the same initial states, the
    same random numbers and, if their networks are equal, the same initial weights. If this correlates their returns,
    the interval is narrower than with independent samples; if not, it is as wide.
    """
    differences = np.array(one, float) - np.array(other, float)
    means = _resampled(np.random.default_rng(0), len(differences)) @ differences / len(differences)
    return Estimate(float(differences.mean()), *_interval(means))


def probability_of_improvement(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Estimate:
    """Return the probability that a run of one configuration has a larger return than a run of the other.

    In one environment it is the Mann-Whitney statistic: among all pairs with one run of each configuration, the share
    in which the first has the larger return; ties count half. It is averaged over environments. The interval is a
    bootstrap stratified by environment, which resamples the runs of both configurations independently (Agarwal et al.
    2021, arXiv 2108.13264, and their package rliable).

    Args:
        pairs: for each environment, the returns of the two configurations.
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
    """The comparison of two configurations on the seeds that both have.

    Attributes:
        seeds: number of common seeds, summed over the environments if there are several.
        difference: :func:`paired_difference`, in env units; ``None`` over several environments, whose units differ.
        improvement: :func:`probability_of_improvement`.
    """

    seeds: int
    difference: Estimate | None
    improvement: Estimate


def compare(one: Mapping[int, float], other: Mapping[int, float]) -> Comparison | None:
    """Compare returns by seed; return ``None`` if there is no common seed."""
    pair = _common(one, other)
    if not pair[0]:
        return None
    return Comparison(len(pair[0]), paired_difference(*pair), probability_of_improvement([pair]))


def compare_over_environments(
    pairs: Sequence[tuple[Mapping[int, float], Mapping[int, float]]],
) -> Comparison | None:
    """Compare returns by seed in several environments; ``None`` if fewer than two of them have a common seed."""
    found = [pair for pair in (_common(*one) for one in pairs) if pair[0]]
    if len(found) < 2:
        return None
    return Comparison(sum(len(one) for one, _ in found), None, probability_of_improvement(found))


def _common(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[list[float], list[float]]:
    seeds = [seed for seed in one if seed in other]
    return [one[seed] for seed in seeds], [other[seed] for seed in seeds]


def verdict(name: str, other: str, comparison: Comparison) -> str:
    """Return a sentence on whether ``name`` beats ``other``: the interval of their difference must exclude 0."""
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
