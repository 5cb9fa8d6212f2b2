"""Behaviour policies: turn a network's output into an exploratory action. NumPy only.

Actions are ``[N, A]`` float32 as the replay buffer stores them: in [-1, 1], or the index of a discrete action.
"""

import abc
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import threadpoolctl

from ddpg.errors import EnvironmentFault, UsageError
from ddpg.interaction.action_mask import FORBIDDEN, masks_of
from ddpg.interaction.actions import finite_outputs
from ddpg.policies.noise import PARAMETER_NOISE, CustomNoise, Noise


class SingleThreadBlocks:
    """Limits BLAS libraries to one thread within :meth:`block`, which several threads can enter at the same time.

    OpenBLAS splits even a product of eight rows over all cores. Its threads then spin for a tenth of a second while
    they wait for the next product, on cores that the updates need.

    Args:
        libraries: threadpoolctl's controllers; libraries that already use one thread are not touched.
    """

    def __init__(self, libraries: Sequence[threadpoolctl.LibController]):
        self._libraries = libraries
        self._before: list[tuple[threadpoolctl.LibController, int]] = []
        self._lock, self._inside = threading.Lock(), 0

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        """Use one thread within the block; the end of the last open block restores the former numbers of threads."""
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
    """Limit NumPy's BLAS to one thread within the block."""
    return _loaded_libraries().block()


Policy = Callable[[np.ndarray], np.ndarray]
_LOW, _HIGH = np.float32(-1), np.float32(1)


class Exploration(abc.ABC):
    """Uniformly random actions at first; then the policy's actions with noise, or with probability ε a random action.

    Args:
        rng: the random generator of all draws.
        random_steps: number of initial environment steps with uniformly random actions.
        epsilon: returns ε for an environment step.
    """

    def __init__(self, rng: np.random.Generator, random_steps: int, epsilon: Callable[[int], float]):
        self.rng, self.random_steps, self.epsilon = rng, random_steps, epsilon

    def start(self, count: int) -> None:
        """Start episodes in N = ``count`` environments."""

    def end_episode(self, index: int) -> None:
        """Reset the exploration state of the episode in environment ``index``."""

    def state(self) -> dict[str, np.ndarray]:
        """Return the state that outlasts an episode, as arrays by name; the random generator's is saved elsewhere."""
        return {}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Restore what :meth:`state` returned, before the next :meth:`start`."""

    def takes_outputs(self, step: int) -> bool:
        """Return whether :meth:`act` can use precomputed policy outputs at an environment step."""
        return step >= self.random_steps

    def act(
        self, policy: Policy, observations: np.ndarray, step: int, outputs: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Choose the actions of N environments at environment step ``step``.

        Args:
            policy: maps observations ``[N, ...]`` to outputs ``[N, n]``.
            observations: the current observations.
            step: the environment step, from which ε and noise schedules follow.
            outputs: the policy's outputs for ``observations``, all finite, if the caller has computed them already
                (:meth:`takes_outputs`).

        Returns:
            Actions ``[N, A]``, and whether each was clipped to the action box, ``[N]``.

        Raises:
            EnvironmentFault: if an observation is so large that the policy's output overflows.
            FloatingPointError: if the policy's outputs are not finite: training has diverged.
        """
        if step < self.random_steps:
            return self._random(observations), np.zeros(len(observations), bool)
        if outputs is None:
            with single_threaded_blas() if len(observations) > 1 else contextlib.nullcontext():
                outputs = finite_outputs(policy, observations, EnvironmentFault, FloatingPointError)
        return self._clip(self._epsilon_mixed(self._with_noise(outputs, step), outputs, step))

    def around(self, outputs: np.ndarray, step: int) -> np.ndarray:
        """Return exploratory actions ``[N, A]`` around the policy's ``outputs``, for states outside any episode.

        They are not clipped to the box. They have no parameter noise, because that belongs to an episode.
        """
        return self._epsilon_mixed(self._with_fresh_noise(outputs, step), outputs, step)

    @abc.abstractmethod
    def greedy(self, outputs: np.ndarray) -> np.ndarray:
        """Return the actions ``[N, A]`` for the policy's ``outputs``, without exploration."""

    # -- overridden by subclasses ---------------------------------------------------------------------

    @abc.abstractmethod
    def _random(self, rows: np.ndarray, are_outputs: bool = False) -> np.ndarray:
        """Draw uniformly random actions ``[N, A]``.

        Action masks, if there are any, are in ``rows``: the observations, or the policy's outputs.
        """

    def _with_noise(self, outputs: np.ndarray, step: int) -> np.ndarray:
        """Return the next actions of the current episodes, which advances the episodes' noise."""
        return self.greedy(outputs)

    def _with_fresh_noise(self, outputs: np.ndarray, step: int) -> np.ndarray:
        """Return actions with independent noise, which leaves the noise of the current episodes unchanged."""
        return self.greedy(outputs)

    def _clip(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return actions, np.zeros(len(actions), bool)

    def _epsilon_mixed(self, actions: np.ndarray, outputs: np.ndarray, step: int) -> np.ndarray:
        epsilon = self.epsilon(step)
        if epsilon == 0:
            return actions
        explores = self.rng.random((len(actions), 1)) < epsilon
        return np.where(explores, self._random(outputs, are_outputs=True), actions).astype(np.float32, copy=False)


class BoxExploration(Exploration):
    """Additive noise around a deterministic policy with actions in [-1, 1].

    Args:
        rng, random_steps, epsilon: see :class:`Exploration`.
        size: A.
        make_noise: makes the noise of N environments from ``(N, A)``.
        scale: standard deviation of the independent noise that :meth:`around` draws, in half-ranges.
        share: returns the factor of all noise at an environment step; ``None``: 1 at every step.
        count: the initial N.
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
        """Start episodes in N = ``count`` environments, each with fresh noise."""
        if count != self._count:
            self._noise, self._count = self._make_noise((count, self._size)), count
        if self._restored and isinstance(self._noise, CustomNoise):  # built-in noise has no state beyond an episode
            self._noise.restore(self._restored)
            self._restored = {}
        for index in range(count):
            self.end_episode(index)

    def state(self) -> dict[str, np.ndarray]:
        """Return the state of custom noise."""
        return self._restored or (self._noise.state() if isinstance(self._noise, CustomNoise) else {})

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Keep the state of custom noise until the next :meth:`start`; drop that of parameter noise."""
        self._restored = {name: array for name, array in arrays.items() if name != PARAMETER_NOISE}

    def end_episode(self, index: int) -> None:
        """Reset the noise of environment ``index``."""
        self._noise.reset(index)

    def greedy(self, outputs: np.ndarray) -> np.ndarray:
        """Return μ(s) unchanged; with a linear output layer it may be outside the box."""
        return outputs

    def _random(self, rows: np.ndarray, are_outputs: bool = False) -> np.ndarray:
        # Also correct for the scores of parameterised actions: each score is the largest with equal probability.
        return self.rng.uniform(-1.0, 1.0, (len(rows), self._size)).astype(np.float32)

    def _with_noise(self, outputs: np.ndarray, step: int) -> np.ndarray:
        return outputs + self._scheduled(self._noise.sample(self.rng), step)

    def _with_fresh_noise(self, outputs: np.ndarray, step: int) -> np.ndarray:
        return outputs + self._scheduled(self._scale * self.rng.standard_normal(outputs.shape, np.float32), step)

    def _scheduled(self, noise: np.ndarray, step: int) -> np.ndarray:
        return noise if self._share is None else np.float32(self._share(step)) * noise

    def _clip(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inside = np.minimum(np.maximum(actions, _LOW), _HIGH)
        if inside.tobytes() == actions.tobytes():  # found in a tenth of the time of the comparison below
            return inside, np.zeros(len(actions), bool)
        return inside, (inside != actions).any(axis=1)


class DiscreteExploration(Exploration):
    """ε-greedy over n action values.

    Args:
        rng, random_steps, epsilon: see :class:`Exploration`.
        choices: n.
        masked: whether the last n numbers of an observation are an action mask. The policy's outputs are then
            :data:`ddpg.interaction.action_mask.FORBIDDEN` for forbidden actions, and random actions are drawn among the
            allowed ones.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        random_steps: int,
        epsilon: Callable[[int], float],
        *,
        choices: int,
        masked: bool = False,
    ):
        super().__init__(rng, random_steps, epsilon)
        self._choices, self._masked = choices, masked

    def greedy(self, outputs: np.ndarray) -> np.ndarray:
        """Return the action with the largest value, ``[N, 1]``."""
        return argmax_actions(outputs)

    def _random(self, rows: np.ndarray, are_outputs: bool = False) -> np.ndarray:
        if self._masked:
            return self._random_among(rows > FORBIDDEN if are_outputs else masks_of(rows, self._choices))
        if len(rows) == 1:  # NumPy draws a number without a shape in a third of the time, and the same one
            return np.array([[self.rng.integers(0, self._choices)]], np.float32)
        return self.rng.integers(0, self._choices, (len(rows), 1)).astype(np.float32)

    def _random_among(self, allowed: np.ndarray) -> np.ndarray:
        """Draw one of the allowed actions of each row, ``[N, n]`` bool to ``[N, 1]``; 0 if no action is allowed.

        No action is allowed in a terminal state; a vector ignores the action there, because its next step resets.
        """
        nth = self.rng.integers(0, np.maximum(allowed.sum(axis=1), 1)) + 1
        return (allowed.cumsum(axis=1) == nth[:, None]).argmax(axis=1)[:, None].astype(np.float32)


def argmax_actions(values: np.ndarray) -> np.ndarray:
    """Return the index of each row's largest value (the first of equal ones): ``[N, n]`` to ``[N, 1]`` float32."""
    return values.argmax(axis=1)[:, None].astype(np.float32)


def outside_bounds(actions: np.ndarray) -> np.ndarray:
    """Return which of the actions ``[N, A]`` are outside [-1, 1] in some component, ``[N]``."""
    return (np.abs(actions) > 1).any(axis=1)


GROWTH = 1.01  # α, the factor by which σ is adapted
INTERVAL = 50  # number of steps over which the distance is averaged before each adaptation of σ


class PerturbedExploration(BoxExploration):
    """Parameter noise: act with weights θ̃ = θ + N(0, σ²I), drawn per environment and episode.

    The same state gives the same action throughout an episode, unlike with additive noise.

        σ ← α·σ if d ≤ δ, else σ/α;    d² = mean (μ(s) − μ̃(s))²    (adaptive noise scaling of Plappert et al. 2018)

    d is measured over the states of 50 consecutive steps, and α is 1.01. Additive noise is applied on top.

    Args:
        given, options: the arguments of :class:`BoxExploration`.
        distance: δ, in half-ranges of the action box; also the initial σ.
    """

    def __init__(self, *given: Any, distance: float, **options: Any):
        super().__init__(*given, **options)
        self._distance, self.sigma = distance, distance
        self._squares, self._steps = 0.0, 0
        self._policies: list[Policy | None] = [None] * self._count

    def start(self, count: int) -> None:
        """Start episodes in N = ``count`` environments."""
        self._policies = [None] * count
        super().start(count)

    def end_episode(self, index: int) -> None:
        """Draw new weights for the next episode of environment ``index``."""
        super().end_episode(index)
        self._policies[index] = None

    def state(self) -> dict[str, np.ndarray]:
        """Return σ, and the sum of squared distances measured since its last adaptation."""
        return {**super().state(), PARAMETER_NOISE: np.array([self.sigma, self._squares, self._steps])}

    def restore(self, arrays: dict[str, np.ndarray]) -> None:
        """Restore what :meth:`state` returned; the state of an agent without parameter noise is accepted, too.

        Raises:
            UsageError: if the numbers are not a valid state.
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

    def takes_outputs(self, step: int) -> bool:
        """Return False: each environment has its own weights, so outputs of the policy are of no use."""
        return False

    def act(
        self, policy: Policy, observations: np.ndarray, step: int, outputs: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Choose actions; see :meth:`ddpg.policies.exploration.Exploration.act`."""
        return super().act(lambda observations: self._perturbed(policy, observations), observations, step)

    def _perturbed(self, policy: Any, observations: np.ndarray) -> np.ndarray:
        actions = np.empty_like(outputs := policy(observations))
        for index in range(len(observations)):
            disturbed = self._policies[index] or policy.in_numpy().perturbed(self.rng, self.sigma)
            self._policies[index] = disturbed
            actions[index] = disturbed(observations[index : index + 1])[0]
        self._squares += float(np.mean(np.square(actions - outputs)))
        self._steps += 1
        if self._steps == INTERVAL:
            near = self._squares / INTERVAL <= self._distance**2
            self.sigma = self.sigma * GROWTH if near else self.sigma / GROWTH
            self._squares, self._steps = 0.0, 0
        return actions
