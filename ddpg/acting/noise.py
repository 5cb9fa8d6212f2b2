"""Exploration noise in units of the actions' half-range (so in [-1, 1] action space). NumPy only."""

from typing import Protocol

import numpy as np

from ddpg.errors import UsageError


class Noise(Protocol):
    """A source of exploration noise for N environments."""

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return the next noise, ``[N, A]`` float32, in half-ranges."""

    def reset(self, index: int) -> None:
        """Start afresh in environment ``index``: an episode began there."""


class GaussianNoise:
    """Independent N(0, scale²) at every step (TD3, Spinning Up)."""

    def __init__(self, scale: float, shape: tuple[int, int]):
        _check_scale(scale)
        self.scale, self.shape = np.float32(scale), shape

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return ``scale · N(0, 1)``, ``[N, A]``."""
        return self.scale * rng.standard_normal(self.shape, dtype=np.float32)

    def reset(self, index: int) -> None:
        """Do nothing: the noise has no memory."""


class OrnsteinUhlenbeckNoise:
    """Temporally correlated noise (Uhlenbeck & Ornstein 1930; Lillicrap et al. 2015, section 3).

        x ← x + θ(0 − x)·dt + σ·√dt·N(0, 1)

    The correlation time is about 1/(θ·dt) steps: ~6.7 at θ = 0.15 and dt = 1, the paper's; ~667 at
    dt = 0.01, which several packages use without saying so. The stationary standard deviation is
    σ/√(2θ − θ²dt) for every dt: at the paper's θ = 0.15, σ = 0.2 and dt = 1 it is 0.38.
    """

    def __init__(self, scale: float, shape: tuple[int, int], theta: float = 0.15, dt: float = 1.0):
        _check_scale(scale)
        if not (theta > 0 and dt > 0 and theta * dt <= 1):
            raise UsageError(
                f"OU noise with theta={theta}, dt={dt}: both must be > 0 and theta*dt <= 1, "
                "or the noise overshoots its mean at every step; lower dt"
            )
        self.scale, self.theta, self.dt, self.shape = scale, theta, dt, shape
        self._decay = np.float32(1 - theta * dt)
        self._diffusion = np.float32(scale * np.sqrt(dt))
        self._x = np.zeros(shape, np.float32)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Advance every environment's process by one step and return it, ``[N, A]``."""
        self._x = self._decay * self._x + self._diffusion * rng.standard_normal(self.shape, dtype=np.float32)
        return self._x.copy()

    def reset(self, index: int) -> None:
        """Return environment ``index``'s process to 0."""
        self._x[index] = 0.0


NOISES = ("gaussian", "ornstein_uhlenbeck")


def make_noise(kind: str, scale: float, theta: float, dt: float, shape: tuple[int, int]) -> Noise:
    """Return the noise named by ``kind`` for ``shape = (N environments, A dimensions)``."""
    if kind == "gaussian":
        return GaussianNoise(scale, shape)
    return OrnsteinUhlenbeckNoise(scale, shape, theta, dt)


def _check_scale(scale: float) -> None:
    if not (np.isfinite(scale) and scale >= 0):
        raise UsageError(f"noise scale {scale} must be a finite number >= 0, in half-ranges of the action box")
