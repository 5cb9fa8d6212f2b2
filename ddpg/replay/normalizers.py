"""Running statistics that normalize observations and rewards. NumPy only.

The replay buffer stores raw values and they are normalized when used, so stored values stay valid while the statistics
change.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ddpg.errors import UsageError

CLIP = 10.0  # standard deviations at which normalized observations are clipped
EPSILON = 1e-8  # added to the variance, so that a component that never changes becomes 0
TAIL = 5.0  # after scaling, the largest return seen so far is at most this
BEYOND = 1.25  # Q may be this many times as large as a critic's values before it is warned of
LARGEST_COUNT = 2**53


class RunningMoments:
    """Running mean and variance of vectors that arrive in batches (Chan, Golub & LeVeque 1979), in float64.

    Attributes:
        count: n, the number of vectors so far.
        mean: their mean.
        squares: the sum of squared deviations from the mean, so that the variance is ``squares / n``.
    """

    def __init__(self, shape: tuple[int, ...]):
        self.count, self.mean, self.squares = 0, np.zeros(shape), np.zeros(shape)

    def update(self, values: np.ndarray) -> None:
        """Add ``values`` ``[N, *shape]``."""
        added = len(values)
        if not added:
            return
        values = np.asarray(values, np.float64)
        mean = values.mean(axis=0)
        difference, total = mean - self.mean, self.count + added
        self.squares += np.square(values - mean).sum(axis=0) + np.square(difference) * (self.count * added / total)
        self.mean += difference * (added / total)
        self.count = total

    @property
    def variance(self) -> np.ndarray:
        """The variance of all vectors so far; 0 if there are none."""
        return self.squares / max(1, self.count)

    def state(self) -> dict[str, np.ndarray]:
        """Return the state for :meth:`restore`."""
        return {"count": np.asarray(self.count), "mean": self.mean.copy(), "squares": self.squares.copy()}

    def restore(self, arrays: Mapping[str, np.ndarray], what: str) -> None:
        """Restore what :meth:`state` returned; raise UsageError, which begins with ``what``, for anything else."""
        expected = {"count": ((), np.int64), "mean": (self.mean.shape, np.float64)}
        for name, (shape, dtype) in (expected | {"squares": expected["mean"]}).items():
            array = arrays.get(name)
            if array is None or array.shape != shape or array.dtype != dtype:
                found = "nothing" if array is None else f"{array.dtype} {array.shape}"
                raise UsageError(f"the {name} of the {what} is {found}, expected {np.dtype(dtype)} {shape}")
        if not 0 <= arrays["count"] <= LARGEST_COUNT or (arrays["squares"] < 0).any():
            raise UsageError(f"the {what} have a count or a sum of squares below 0; take another checkpoint")
        self.count = int(arrays["count"])
        self.mean, self.squares = arrays["mean"].copy(), arrays["squares"].copy()


class ObservationNormalizer:
    """Normalizes each component of an observation: (s − mean) / √(variance + 1e-8), clipped to ±10.

    Attributes:
        transformation: the mean to subtract and the factor to multiply with afterwards, before clipping; float32.
    """

    def __init__(self, shape: tuple[int, ...]):
        self._moments = RunningMoments(shape)
        self._refresh()

    def update(self, observations: np.ndarray) -> None:
        """Add observations ``[N, *shape]`` to the statistics."""
        self._moments.update(observations)
        self._refresh()

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return ``observations`` ``[..., *shape]`` normalized, float32. The statistics do not change."""
        mean, factor = self.transformation
        scaled = (observations - mean) * factor
        return np.minimum(np.maximum(scaled, np.float32(-CLIP), out=scaled), np.float32(CLIP), out=scaled)

    def state(self) -> dict[str, np.ndarray]:
        """Return the state for :meth:`restore`."""
        return self._moments.state()

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore what :meth:`state` returned; raise UsageError for anything else."""
        self._moments.restore(arrays, "observation statistics")
        self._refresh()

    def _refresh(self) -> None:
        moments = self._moments
        variance = moments.variance if moments.count else np.ones_like(moments.mean)
        # Both are set in one assignment, because another thread may be acting.
        factor = (1 / np.sqrt(variance + EPSILON)).astype(np.float32)
        self.transformation = moments.mean.astype(np.float32), factor


class RewardNormalizer:
    """Finds the scale by which rewards are divided: max(std(G), max|G| / 5) (SimbaV2, Lee et al. 2025).

    G ← γ·G + r is the running discounted return of each environment, reset to 0 at the start of an episode. Rewards are
    not shifted, because a shift would reward or punish long episodes.
    """

    def __init__(self, gamma: float):
        self._gamma = gamma
        self._moments = RunningMoments(())
        self._largest = 0.0
        self._returns: dict[int, float] = {}  # by environment

    @property
    def scale(self) -> float:
        """The divisor of rewards; 1 if every return so far was 0."""
        return max(float(np.sqrt(self._moments.variance)), self._largest / TAIL) or 1.0

    def update(self, rewards: np.ndarray, ended: np.ndarray, env_indices: Sequence[int]) -> None:
        """Update the statistics with rewards ``[N]`` of the environments ``env_indices``, in order of time."""
        returns = np.empty(len(rewards))
        for index, env_index in enumerate(env_indices):
            returns[index] = self._gamma * self._returns.get(env_index, 0.0) + float(rewards[index])
            self._returns[env_index] = 0.0 if ended[index] else returns[index]
        self._moments.update(returns)
        self._largest = max(self._largest, float(np.abs(returns).max(initial=0)))

    def end_episodes(self, env_index: int | None = None) -> None:
        """Reset the running return of one environment, or of all, to 0."""
        for ended in [*self._returns] if env_index is None else [env_index]:
            self._returns.pop(ended, None)

    def state(self) -> dict[str, np.ndarray]:
        """Return the state for :meth:`restore`; it does not include the running returns."""
        return self._moments.state() | {"largest": np.asarray(self._largest)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore what :meth:`state` returned; raise UsageError for anything else."""
        largest = arrays.get("largest", np.asarray(-1.0))
        if largest.shape != () or largest.dtype != np.float64 or largest < 0:
            raise UsageError(f"the largest return is {largest}, expected one number >= 0 of float64")
        self._moments.restore(arrays, "return statistics")
        self._largest = float(largest)
        self.end_episodes()


def range_note(gamma: float, episode_steps: int | None, largest: float) -> str:
    """Return a one-line warning if scaled rewards may add up to far more than a critic's values, or the empty string.

    :class:`RewardNormalizer` sees the return of T steps, r (1 − γᵀ)/(1 − γ) for a constant reward r, and scales it to
    at most 5. A truncated episode bootstraps, so Q is r/(1 − γ), 1/(1 − γᵀ) times as large. A little beyond the
    critic's values is allowed, since in most tasks Q stays below this bound.

    Args:
        gamma: γ.
        episode_steps: T, after which episodes are truncated; ``None``: never.
        largest: the largest absolute value that the critic can represent.
    """
    if episode_steps is None or gamma >= 1:
        return ""
    factor = 1 / (1 - gamma**episode_steps)
    if factor <= BEYOND or TAIL * factor <= BEYOND * largest:
        return ""
    return (
        f"gamma={gamma} looks about {1 / (1 - gamma):,.0f} steps ahead, but episodes are truncated after "
        f"{episode_steps:,}, and rewards are scaled by the returns of episodes: Q may reach {TAIL * factor:.3g}, "
        f"beyond the critic's values, which end at {largest:g}; take gamma={max(0, 1 - 2 / episode_steps):.6g} or "
        f"less, or wider values (v_min, v_max, atoms)"
    )
