"""Behaviour policies: how a network's output becomes an exploring action. NumPy only.

Actions are ``[N, A]`` float32 as the replay memory stores them: in [-1, 1], or a number counted from 0.

OpenBLAS divides a product of eight rows among all cores, and its threads then wait for the next one without leaving
their cores: for a tenth of a second, in which the updates' own threads would need them.

What it does in a state stays the same throughout an episode, which additive noise does not give.
"""

import abc
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import threadpoolctl

from ddpg.errors import EnvironmentFault, UsageError
from ddpg.policies.finite_actions import finite_outputs
from ddpg.policies.noise import PARAMETER_NOISE, CustomNoise, Noise


class BLASLibrary(Protocol):
    """A BLAS of this process: :class:`threadpoolctl.LibController`."""

    num_threads: int | None

    def set_num_threads(self, num_threads: int) -> None:
        """Let calls from now on take so many threads."""


class SingleThreadBlocks:
    """Blocks in which libraries take one thread, in any number of threads at the same time.

    Args:
        libraries: of which those that take one thread anyway are left alone.
    """

    def __init__(self, libraries: Sequence[BLASLibrary]):
        self._libraries = libraries
        self._before: list[tuple[BLASLibrary, int]] = []
        self._lock, self._inside = threading.Lock(), 0

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Take one thread within the block; behind the last such block the libraries take what they took before."""
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before = [(each, count) for each in self._libraries if (count := each.num_threads or 1) > 1]
                for library, _ in self._before:
                    library.set_num_threads(1)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    for library, count in self._before:
                        library.set_num_threads(count)


@functools.cache
def _loaded_libraries() -> SingleThreadBlocks:
    return SingleThreadBlocks(threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers)


def single_threaded_blas() -> contextlib.AbstractContextManager[None]:
    """Let NumPy's BLAS take one thread within the block."""
    return _loaded_libraries().block()


Policy = Callable[[np.ndarray], np.ndarray]


class Exploration(abc.ABC):
    """Uniformly random actions at first; then the policy's, disturbed, with a share ε of random ones.

    Args:
        rng: draws everything.
        random_steps: environment steps of uniformly random actions.
        epsilon: the share ε at an environment step.
    """

    def __init__(self, rng: np.random.Generator, random_steps: int, epsilon: Callable[[int], float]):
        self.rng, self.random_steps, self.epsilon = rng, random_steps, epsilon

    def start(self, count: int) -> None:
        """Begin in N = ``count`` environments."""

    def end_episode(self, index: int) -> None:
        """An episode ended in environment ``index``."""

    def state(self) -> dict[str, np.ndarray]:
        """Return what outlives episodes besides the random generator, as arrays by name."""
        return {}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take back what :meth:`state` returned, before the next :meth:`start`."""

    def act(self, policy: Policy, observations: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Choose the actions of N environments at environment step ``step``.

        Returns:
            Actions ``[N, A]``, and whether each left its box and was clipped to it, ``[N]``.

        Raises:
            EnvironmentFault: an observation so large that the policy's output overflows.
            FloatingPointError: the policy puts out nothing finite: training has diverged.
        """
        if step < self.random_steps:
            return self._random(len(observations)), np.zeros(len(observations), bool)
        with single_threaded_blas() if len(observations) > 1 else contextlib.nullcontext():
            outputs = finite_outputs(policy, observations, EnvironmentFault, FloatingPointError)
        return self._inside(self._mixed(self._disturbed(outputs, step), step))

    def around(self, outputs: np.ndarray, step: int) -> np.ndarray:
        """Return exploring actions ``[N, A]`` around the policy's ``outputs`` in any states; they may leave the box.

        Noise on the policy's weights is not among them: it belongs to an episode.
        """
        return self._mixed(self._freshly_disturbed(outputs, step), step)

    @abc.abstractmethod
    def greedy(self, outputs: np.ndarray) -> np.ndarray:
        """Return the actions ``[N, A]`` that the policy's ``outputs`` mean, without exploration."""

    # -- what differs ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def _random(self, count: int) -> np.ndarray:
        """Draw uniformly random actions."""

    def _disturbed(self, outputs: np.ndarray, step: int) -> np.ndarray:
        """Return the next actions of the environments under way."""
        return self.greedy(outputs)

    def _freshly_disturbed(self, outputs: np.ndarray, step: int) -> np.ndarray:
        """Return actions that do not belong to the episodes under way."""
        return self.greedy(outputs)

    def _inside(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return actions, np.zeros(len(actions), bool)

    def _mixed(self, actions: np.ndarray, step: int) -> np.ndarray:
        epsilon = self.epsilon(step)
        if epsilon == 0:
            return actions
        explores = self.rng.random((len(actions), 1)) < epsilon
        return np.where(explores, self._random(len(actions)), actions).astype(np.float32, copy=False)


class BoxExploration(Exploration):
    """Around a deterministic policy in [-1, 1]: additive noise.

    Args:
        rng, random_steps, epsilon: see :class:`Exploration`.
        size: A.
        make_noise: from ``(N, A)`` to the noise of N environments.
        scale: standard deviation of the noise that :meth:`around` draws afresh, in half-ranges.
        share: of all noise at an environment step; ``None``: 1 at every step.
        count: N at first.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        random_steps: int,
        epsilon: Callable[[int], float],
        *,
        size: int,
        make_noise: Callable[[tuple[int, int]], Noise],
        scale: float,
        share: Callable[[int], float] | None = None,
        count: int = 1,
    ):
        super().__init__(rng, random_steps, epsilon)
        self._size, self._make_noise, self._scale, self._share = size, make_noise, np.float32(scale), share
        self._noise, self._count = make_noise((count, size)), count
        self._restored: dict[str, np.ndarray] = {}

    def start(self, count: int) -> None:
        """Begin in N = ``count`` environments, and let the noise of each start afresh."""
        if count != self._count:
            self._noise, self._count = self._make_noise((count, self._size)), count
        if self._restored and isinstance(self._noise, CustomNoise):  # ours remembers nothing
            self._noise.restore(self._restored)
            self._restored = {}
        for index in range(count):
            self.end_episode(index)

    def state(self) -> dict[str, np.ndarray]:
        """Return what noise of the user's own remembers beyond an episode."""
        return self._restored or (self._noise.state() if isinstance(self._noise, CustomNoise) else {})

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Keep that for the noise of the next :meth:`start`; it is not told of what noise on weights has left."""
        self._restored = {name: array for name, array in arrays.items() if name != PARAMETER_NOISE}

    def end_episode(self, index: int) -> None:
        """Let the noise of environment ``index`` start afresh."""
        self._noise.reset(index)

    def greedy(self, outputs: np.ndarray) -> np.ndarray:
        """Return μ(s) as it is: it may be outside the box where the output is linear."""
        return outputs

    def _random(self, count: int) -> np.ndarray:
        # Scores of parameterised actions too: the largest of equally distributed ones is any of them alike.
        return self.rng.uniform(-1.0, 1.0, (count, self._size)).astype(np.float32)

    def _disturbed(self, outputs: np.ndarray, step: int) -> np.ndarray:
        return outputs + self._scheduled(self._noise.sample(self.rng), step)

    def _freshly_disturbed(self, outputs: np.ndarray, step: int) -> np.ndarray:
        return outputs + self._scheduled(self._scale * self.rng.standard_normal(outputs.shape, np.float32), step)

    def _scheduled(self, noise: np.ndarray, step: int) -> np.ndarray:
        return noise if self._share is None else np.float32(self._share(step)) * noise

    def _inside(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.minimum(np.maximum(actions, np.float32(-1)), np.float32(1)), outside_bounds(actions)


class DiscreteExploration(Exploration):
    """ε-greedy over n action values.

    Args:
        rng, random_steps, epsilon: see :class:`Exploration`.
        choices: n.
    """

    def __init__(self, rng: np.random.Generator, random_steps: int, epsilon: Callable[[int], float], *, choices: int):
        super().__init__(rng, random_steps, epsilon)
        self._choices = choices

    def greedy(self, outputs: np.ndarray) -> np.ndarray:
        """Return the action of the largest value, ``[N, 1]``."""
        return argmax_actions(outputs)

    def _random(self, count: int) -> np.ndarray:
        return self.rng.integers(0, self._choices, (count, 1)).astype(np.float32)


def argmax_actions(values: np.ndarray) -> np.ndarray:
    """Return the number of each row's largest value, the first of equal ones: ``[N, n]`` to ``[N, 1]`` float32."""
    return values.argmax(axis=1)[:, None].astype(np.float32)


def outside_bounds(actions: np.ndarray) -> np.ndarray:
    """Return which of the actions ``[N, A]`` leave [-1, 1] in some number, ``[N]``."""
    return (np.abs(actions) > 1).any(axis=1)


GROWTH = 1.01  # α: σ follows by one per cent
INTERVAL = 50  # steps over which a distance is measured, after which σ follows


class PerturbedExploration(BoxExploration):
    """Acting by θ̃ = θ + N(0, σ²I), each environment by its own, drawn where an episode begins, to its end.

        σ ← α·σ where d ≤ δ, else σ/α;    d² = mean (μ(s) − μ̃(s))²    (the paper's adaptive noise scaling)

    d is measured in the states of each 50 steps, and α is 1.01. Additive noise comes on top of it.

    Args:
        rng, random_steps, epsilon: see :class:`ddpg.policies.exploration.Exploration`.
        distance: δ, in half-ranges of the action box; σ begins there.
        options: of :class:`ddpg.policies.exploration.BoxExploration`.
    """

    def __init__(self, *given: Any, distance: float, **options: Any):
        super().__init__(*given, **options)
        self._distance, self.sigma = distance, distance
        self._squares, self._steps = 0.0, 0
        self._policies: list[Policy | None] = [None] * self._count

    def start(self, count: int) -> None:
        """Begin in N = ``count`` environments."""
        self._policies = [None] * count
        super().start(count)

    def end_episode(self, index: int) -> None:
        """Let the next episode of environment ``index`` have weights of its own."""
        super().end_episode(index)
        self._policies[index] = None

    def state(self) -> dict[str, np.ndarray]:
        """Return σ, and the distance measured so far."""
        return {**super().state(), PARAMETER_NOISE: np.array([self.sigma, self._squares, self._steps])}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Take back what :meth:`state` returned; what an agent without this noise saved has nothing of it.

        Raises:
            UsageError: numbers that no state has.
        """
        if PARAMETER_NOISE in arrays:
            values = arrays[PARAMETER_NOISE]
            if values.shape != (3,) or not (values[0] > 0 and values[1] >= 0 and values[2] in range(INTERVAL)):
                raise UsageError(
                    f"the state of parameter_noise is {values.tolist()}, expected sigma > 0, a sum of squares >= 0 and "
                    f"steps below {INTERVAL}; take another checkpoint"
                )
            self.sigma, self._squares, self._steps = float(values[0]), float(values[1]), int(values[2])
        super().restore(arrays)

    def act(self, policy: Policy, observations: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Choose actions; see :meth:`ddpg.policies.exploration.Exploration.act`."""
        return super().act(lambda observations: self._perturbed(policy, observations), observations, step)

    def _perturbed(self, policy: Any, observations: np.ndarray) -> np.ndarray:
        actions = np.empty_like(outputs := policy(observations))
        for index in range(len(observations)):
            disturbed = self._policies[index] or policy.perturbed(self.rng, self.sigma)
            self._policies[index] = disturbed
            actions[index] = disturbed(observations[index : index + 1])[0]
        self._squares += float(np.mean(np.square(actions - outputs)))
        self._steps += 1
        if self._steps == INTERVAL:
            near = self._squares / INTERVAL <= self._distance**2
            self.sigma = self.sigma * GROWTH if near else self.sigma / GROWTH
            self._squares, self._steps = 0.0, 0
        return actions
