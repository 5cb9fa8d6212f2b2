"""Running statistics that normalize observations and rewards. NumPy only.

Memory holds them as the environment gave them: statistics that go on do not make what is stored wrong.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ddpg.errors import UsageError

CLIP = 10.0  # deviations: beyond, an observation tells nothing but that it is far
EPSILON = 1e-8  # of a variance: a number that never changes becomes 0
TAIL = 5.0  # the largest return that was seen is at most this, after scaling
LARGEST_COUNT = 2**53


class RunningMoments:
    """Mean and variance of vectors that come in batches (Chan, Golub & LeVeque 1979), in float64.

    Attributes:
        count: n, how many so far.
        mean: their mean.
        squares: the sum of squared deviations from it, so that the variance is ``squares / n``.
    """

    def __init__(self, shape: tuple[int, ...]):
        self.count, self.mean, self.squares = 0, np.zeros(shape), np.zeros(shape)

    def update(self, values: np.ndarray) -> None:
        """Take in ``values`` ``[N, *shape]``."""
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
        """The variance of all so far; 0 of none."""
        return self.squares / max(1, self.count)

    def state(self) -> dict[str, np.ndarray]:
        """Return what :meth:`restore` takes."""
        return {"count": np.asarray(self.count), "mean": self.mean.copy(), "squares": self.squares.copy()}

    def restore(self, arrays: Mapping[str, np.ndarray], what: str) -> None:
        """Take back what :meth:`state` returned.

        Raises:
            UsageError: if :meth:`state` could not have returned ``arrays``; the message begins with ``what``.
        """
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
    """(s − mean) / √(variance + 1e-8), each number by its own, clipped to ±10.

    Args:
        shape: of an observation.
    """

    def __init__(self, shape: tuple[int, ...]):
        self._moments = RunningMoments(shape)
        self._refresh()

    def update(self, observations: np.ndarray) -> None:
        """Take in observations ``[N, *shape]``."""
        self._moments.update(observations)
        self._refresh()

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Return ``observations`` ``[..., *shape]`` normalised, float32. The statistics stay as they are."""
        mean, factor = self._transformation
        scaled = (observations - mean) * factor
        return np.minimum(np.maximum(scaled, np.float32(-CLIP), out=scaled), np.float32(CLIP), out=scaled)

    @property
    def transformation(self) -> tuple[np.ndarray, np.ndarray]:
        """What is subtracted, and what multiplied with then, before clipping; float32."""
        return self._transformation

    def state(self) -> dict[str, np.ndarray]:
        """Return what :meth:`restore` takes."""
        return self._moments.state()

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take back what :meth:`state` returned.

        Raises:
            UsageError: if :meth:`state` could not have returned ``arrays``.
        """
        self._moments.restore(arrays, "observation statistics")
        self._refresh()

    def _refresh(self) -> None:
        moments = self._moments
        variance = moments.variance if moments.count else np.ones_like(moments.mean)
        # Both at once: another thread may be acting.
        factor = (1 / np.sqrt(variance + EPSILON)).astype(np.float32)
        self._transformation = moments.mean.astype(np.float32), factor


class RewardNormalizer:
    """The scale of returns: rewards are divided by max(std(G), max|G| / 5) (SimbaV2, Lee et al. 2025).

    G ← γ·G + r is the running discounted return of each environment, from 0 at an episode's start. Rewards are not
    shifted: that would change what an episode's length is worth.

    Args:
        gamma: γ.
    """

    def __init__(self, gamma: float):
        self._gamma = gamma
        self._moments = RunningMoments(())
        self._largest = 0.0
        self._returns: dict[int, float] = {}  # by environment

    @property
    def scale(self) -> float:
        """What rewards are to be divided by; 1 where every return was 0 so far."""
        return max(float(np.sqrt(self._moments.variance)), self._largest / TAIL) or 1.0

    def update(self, rewards: np.ndarray, ended: np.ndarray, env_indices: Sequence[int]) -> None:
        """Update the statistics with rewards ``[N]``, in order, of the environments ``env_indices``."""
        returns = np.empty(len(rewards))
        for index, env_index in enumerate(env_indices):
            returns[index] = self._gamma * self._returns.get(env_index, 0.0) + float(rewards[index])
            self._returns[env_index] = 0.0 if ended[index] else returns[index]
        self._moments.update(returns)
        self._largest = max(self._largest, float(np.abs(returns).max(initial=0)))

    def end_episodes(self, env_index: int | None = None) -> None:
        """Reset the running return of one environment to 0, or of all."""
        for ended in [*self._returns] if env_index is None else [env_index]:
            self._returns.pop(ended, None)

    def state(self) -> dict[str, np.ndarray]:
        """Return what :meth:`restore` takes; the returns under way are not part of it."""
        return self._moments.state() | {"largest": np.asarray(self._largest)}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take back what :meth:`state` returned.

        Raises:
            UsageError: if :meth:`state` could not have returned ``arrays``.
        """
        largest = arrays.get("largest", np.asarray(-1.0))
        if largest.shape != () or largest.dtype != np.float64 or largest < 0:
            raise UsageError(f"the largest return is {largest}, expected one number >= 0 of float64")
        self._moments.restore(arrays, "return statistics")
        self._largest = float(largest)
        self.end_episodes()
