"""Exploration noise in units of the actions' half-range (so in [-1, 1] action space). NumPy only."""

import contextlib
import copy
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ddpg.errors import UsageError, brief, format_error, guarded, own_code
from ddpg.interaction.validation import LARGEST, is_real, validate_int


@runtime_checkable
class Noise(Protocol):
    """A source of exploration noise for N environments; the interface of custom noise.

    For state that outlasts an episode, such as a decaying scale, it can also have ``state() -> dict[str, array]`` and
    ``restore(arrays)``, with numbers of float32, float64, uint8, int32 or int64. Checkpoints hold this state, and a
    loaded agent restores it before its first episode. The state of an episode is not saved, and ``reset`` must clear
    it.

    Custom noise ignores ``noise_scale``, ``noise_theta`` and ``noise_dt``. Only ``predict(deterministic=False)``, which
    belongs to no episode, still draws normal noise with ``noise_scale``.
    """

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return the next noise, ``[N, A]`` float32, in half-ranges."""

    def reset(self, index: int) -> None:
        """Clear the noise of environment ``index``, where an episode begins."""


class _BuiltInNoise:
    """The arguments of all built-in noise.

    Args:
        scale: standard deviation, in half-ranges of the action box.
        shape: N environments, A numbers of an action.
    """

    def __init__(self, scale: float, shape: tuple[int, int]):
        if not (is_real(scale) and 0 <= scale <= LARGEST):
            raise UsageError(
                f"noise scale {brief(scale)} must be a finite number >= 0, in half-ranges of the action box"
            )
        if not isinstance(shape, (tuple, list)) or len(shape) != 2:
            raise UsageError(f"shape={brief(shape)} must be (environments, numbers of an action)")
        environments, numbers = (validate_int(count, "shape", at_least=1, at_most=2**20) for count in shape)
        self.scale: float | np.float32 = np.float32(scale)
        self.shape = environments, numbers

    def _environment(self, index: int) -> int:
        """Return the index of an environment, checked."""
        return validate_int(index, "index", at_least=0, at_most=self.shape[0] - 1)


class GaussianNoise(_BuiltInNoise):
    """Independent N(0, scale²) noise at every step (TD3, Spinning Up)."""

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return ``scale · N(0, 1)``, ``[N, A]``."""
        return self.scale * rng.standard_normal(self.shape, dtype=np.float32)

    def reset(self, index: int) -> None:
        """Do nothing: the noise has no memory."""


class OrnsteinUhlenbeckNoise(_BuiltInNoise):
    """Temporally correlated noise (Uhlenbeck & Ornstein 1930; Lillicrap et al. 2015, section 3).

        x ← x + θ(0 − x)·dt + σ·√dt·N(0, 1)

    The correlation time is about 1/(θ·dt) steps: ~6.7 with the paper's θ = 0.15 and dt = 1 (the paper gives no dt);
    ~667 with dt = 0.01, an undocumented default of several packages. The stationary standard deviation is
    σ/√(2θ − θ²dt) for every dt: with the paper's θ = 0.15, σ = 0.2 and dt = 1 it is 0.38.
    """

    def __init__(self, scale: float, shape: tuple[int, int], theta: float = 0.15, dt: float = 1.0):
        super().__init__(scale, shape)
        if not (is_real(theta) and is_real(dt) and 0 < theta <= LARGEST and 0 < dt <= LARGEST and theta * dt <= 1):
            raise UsageError(
                f"OU noise with theta={brief(theta)}, dt={brief(dt)}: both must be > 0 and theta*dt <= 1, "
                "or the noise overshoots its mean at every step; lower dt"
            )
        self.scale, self.theta, self.dt = scale, theta, dt
        self._decay = np.float32(1 - theta * dt)
        self._diffusion = np.float32(scale * np.sqrt(dt))
        self._x = np.zeros(self.shape, np.float32)

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Advance every environment's process by one step and return it, ``[N, A]``."""
        self._x = self._decay * self._x + self._diffusion * rng.standard_normal(self.shape, dtype=np.float32)
        return self._x.copy()

    def reset(self, index: int) -> None:
        """Set the process of environment ``index`` to 0."""
        self._x[self._environment(index)] = 0.0


LONGEST = 16  # maximum number of steps for which RepeatedNoise keeps a value


class RepeatedNoise(_BuiltInNoise):
    """N(0, scale²) noise that each environment keeps for a random number of steps n: P(n) ∝ n⁻², 1 ≤ n ≤ ``LONGEST``.

    n has a truncated zeta distribution with exponent 2: mostly short, sometimes long enough to reach new states
    (temporally extended ε-greedy: Dabney et al. 2021, arXiv 2006.01782; with Gaussian noise: FlashSAC, arXiv
    2604.04539). At any single step the noise has the distribution of :class:`GaussianNoise`.
    """

    def __init__(self, scale: float, shape: tuple[int, int]):
        super().__init__(scale, shape)
        self._noise = np.zeros(self.shape, np.float32)
        self._left = np.zeros(self.shape[0], np.int64)  # remaining steps of each environment's current value
        weights = np.arange(1, LONGEST + 1) ** -2.0
        self._until = np.cumsum(weights / weights.sum())

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return the noise, ``[N, A]``, with a new value in environments whose current one has expired."""
        (over,) = np.nonzero(self._left == 0)
        if len(over):
            self._noise[over] = self.scale * rng.standard_normal((len(over), self.shape[1]), dtype=np.float32)
            longer = np.searchsorted(self._until, rng.random(len(over)), side="right")
            self._left[over] = np.minimum(longer + 1, LONGEST)  # rounding may leave the last cumulative sum below 1
        self._left -= 1
        return self._noise.copy()

    def reset(self, index: int) -> None:
        """Draw a new value for environment ``index`` at the next step."""
        self._left[self._environment(index)] = 0


PERIOD = 1000  # length of a PinkNoise sequence in steps; a longer episode gets another sequence


class PinkNoise(_BuiltInNoise):
    """Noise whose power falls as 1/frequency, between white noise (constant power) and Brownian noise (1/frequency²).

    Follows Eberhard et al. 2023 ("Pink noise is all you need", ICLR), who generate it as Timmer & König 1995 do: the
    inverse Fourier transform of independent normal coefficients with standard deviation f^(-1/2) at the frequencies
    f = k / :data:`PERIOD`. The constant part has the power of the lowest frequency. At any single step the noise has
    the distribution of :class:`GaussianNoise`.
    """

    def __init__(self, scale: float, shape: tuple[int, int]):
        super().__init__(scale, shape)
        self._amplitudes = np.maximum(np.fft.rfftfreq(PERIOD), 1 / PERIOD) ** -0.5
        # The first and the last coefficient are real: each is one normal number with twice the variance.
        variances = self._amplitudes**2 * np.array([2, *[4] * (len(self._amplitudes) - 2), 2])
        self._amplitudes *= PERIOD / np.sqrt(variances.sum())
        self._noise = np.zeros((*self.shape, PERIOD), np.float32)
        self._steps = np.full(self.shape[0], PERIOD)  # position in each environment's sequence; PERIOD: used up

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return the noise, ``[N, A]``; where an episode begins or the sequence is used up, a new one is drawn."""
        for index in np.flatnonzero(self._steps == PERIOD):
            self._noise[index] = self.scale * self._sequences(rng)
            self._steps[index] = 0
        noise = self._noise[np.arange(len(self._steps)), :, self._steps]
        self._steps += 1
        return noise

    def _sequences(self, rng: np.random.Generator) -> np.ndarray:
        """Return a sequence of variance 1 for each action component, ``[A, PERIOD]``."""
        parts = rng.standard_normal((2, self.shape[1], len(self._amplitudes)))
        parts[0][:, [0, -1]] *= np.sqrt(2)
        parts[1][:, [0, -1]] = 0
        return np.fft.irfft(self._amplitudes * (parts[0] + 1j * parts[1]), PERIOD)

    def reset(self, index: int) -> None:
        """Begin a new sequence in environment ``index`` at the next step."""
        self._steps[self._environment(index)] = PERIOD


STATE_TYPES = "float32", "float64", "uint8", "int32", "int64"  # that a checkpoint can hold
PARAMETER_NOISE = "parameter_noise"  # key of the parameter noise's state; custom noise must not use it


class CustomNoise:
    """Wraps a user's noise object and checks its results.

    Args:
        noise: see :class:`Noise`.
        shape: N environments, A action components.
    """

    def __init__(self, noise: Any, shape: tuple[int, int]):
        for name in ("sample", "reset"):
            if not callable(getattr(noise, name, None)):
                raise UsageError(
                    f"noise={brief(noise)} has no method {name}; give an object with sample(rng) -> [N, A] and "
                    "reset(index), or a function of the shape (N, A) that returns one"
                )
        has = {name: callable(getattr(noise, name, None)) for name in ("state", "restore")}
        if len({*has.values()}) == 2:
            raise UsageError(
                f"noise={brief(noise)} has only one of state() -> dict of arrays and restore(arrays), so its "
                "checkpoint could not be read; give it both, or none"
            )
        self._noise, self._shape = noise, shape
        self.state()  # refuses a state that cannot be saved before anything is learned

    def sample(self, rng: np.random.Generator) -> np.ndarray:
        """Return the object's next noise, ``[N, A]``.

        Raises:
            UsageError: if the shape is wrong or a number is not finite.
        """
        with self._calling("sample"):
            given = self._noise.sample(rng)
        try:
            noise = np.asarray(given, np.float32)
        except Exception as error:  # the user's object can raise anything
            raise self._refusal(f"sample(rng) gave no numbers ({format_error(error)})") from error
        if noise.shape != self._shape or not np.isfinite(noise).all():
            what = f"shape {noise.shape}" if noise.shape != self._shape else "numbers that are not finite"
            raise self._refusal(
                f"sample(rng) gave {what}, expected finite numbers of shape {self._shape} (environments, numbers of an "
                "action), in half-ranges of the action box"
            )
        return noise

    def reset(self, index: int) -> None:
        """Tell the object that an episode begins in environment ``index``."""
        with self._calling("reset"):
            self._noise.reset(index)

    def _refusal(self, problem: str) -> UsageError:
        return UsageError(f"noise={brief(self._noise)}: {problem}")

    def _calling(self, method: str) -> contextlib.AbstractContextManager[None]:
        return own_code(lambda: f"noise={brief(self._noise)}: {method}", getattr(self._noise, method))

    def state(self) -> dict[str, np.ndarray]:
        """Return the object's state; empty if it has no method ``state``.

        Raises:
            UsageError: if it is no dict of finite numbers by name, or uses the name of parameter noise.
        """
        given = {}
        if callable(getattr(self._noise, "state", None)):
            with self._calling("state"):
                given = self._noise.state()
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise self._refusal(f"state() gave {brief(given)}; expected a dict of arrays by name")
        try:
            arrays = {name: np.asarray(value) for name, value in given.items()}
        except Exception as error:  # the user's object can raise anything
            what = f"state() gave {brief(given)}, which is not all arrays"
            raise self._refusal(f"{what} ({format_error(error)})") from error
        for name, array in arrays.items():
            if array.dtype.name not in STATE_TYPES or not np.isfinite(array).all():
                what = f"state() has {name}={brief(given[name])}"
                raise self._refusal(f"{what}; expected finite numbers or arrays of {', '.join(STATE_TYPES)}")
        if PARAMETER_NOISE in arrays:
            raise self._refusal(f"its state has the reserved key {brief(PARAMETER_NOISE)}; rename that key")
        return arrays

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Restore the object's state.

        Raises:
            UsageError: if the object has no method ``restore``.
        """
        if not callable(getattr(self._noise, "restore", None)):
            raise UsageError(
                f"noise={brief(self._noise)} has no method restore(arrays), and the checkpoint holds its state "
                f"({', '.join(sorted(arrays))}); give the noise that it was saved with"
            )
        with self._calling("restore"):
            self._noise.restore(arrays)


NOISES = {
    "gaussian": GaussianNoise,
    "ornstein_uhlenbeck": OrnsteinUhlenbeckNoise,
    "repeated": RepeatedNoise,
    "pink": PinkNoise,
}


def make_noise(kind: str | Noise | Callable, scale: float, theta: float, dt: float, shape: tuple[int, int]) -> Noise:
    """Make noise from the value of the option ``noise``.

    Args:
        kind: a name in :data:`NOISES`; an object with ``sample`` and ``reset``, which is copied for each agent; or a
            function ``shape -> object`` that returns such an object.
        scale: the scale of built-in noise, in half-ranges.
        theta, dt: parameters of Ornstein-Uhlenbeck noise.
        shape: N environments, A action components.

    Raises:
        UsageError: if ``kind`` is none of these, or a number is out of range.
    """
    if isinstance(kind, str) and kind in NOISES:
        return NOISES[kind](scale, shape, *((theta, dt) if kind == "ornstein_uhlenbeck" else ()))
    if callable(kind) and (isinstance(kind, type) or not hasattr(kind, "sample")):
        name = getattr(kind, "__name__", None) or brief(kind)
        return CustomNoise(guarded(f"noise={name} on the shape {shape}", kind)(shape), shape)
    return CustomNoise(guarded(f"copying noise={brief(kind)} for an agent", copy.deepcopy)(kind), shape)
