"""The behaviour policy: how what a network puts out becomes an action that also tries something else. NumPy only.

Actions are ``[N, A]`` float32 as the replay memory stores them: in [-1, 1], or a number counted from 0.
"""

import abc
import contextlib
from collections.abc import Callable

import numpy as np

from ddpg.acting.blas import one_thread
from ddpg.acting.noise import PARAMETER_NOISE, Noise, OwnNoise
from ddpg.acting.outputs import finite_outputs
from ddpg.errors import EnvironmentFault

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
        with one_thread() if len(observations) > 1 else contextlib.nullcontext():
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
        if self._restored and isinstance(self._noise, OwnNoise):  # ours remembers nothing
            self._noise.restore(self._restored)
            self._restored = {}
        for index in range(count):
            self.end_episode(index)

    def state(self) -> dict[str, np.ndarray]:
        """Return what noise of the user's own remembers beyond an episode."""
        return self._restored or (self._noise.state() if isinstance(self._noise, OwnNoise) else {})

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
        return np.minimum(np.maximum(actions, np.float32(-1)), np.float32(1)), outside(actions)


class ChoiceExploration(Exploration):
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
        return largest(outputs)

    def _random(self, count: int) -> np.ndarray:
        return self.rng.integers(0, self._choices, (count, 1)).astype(np.float32)


def largest(values: np.ndarray) -> np.ndarray:
    """Return the number of each row's largest value, the first of equal ones: ``[N, n]`` to ``[N, 1]`` float32."""
    return values.argmax(axis=1)[:, None].astype(np.float32)


def outside(actions: np.ndarray) -> np.ndarray:
    """Return which of the actions ``[N, A]`` leave [-1, 1] in some number, ``[N]``."""
    return (np.abs(actions) > 1).any(axis=1)
