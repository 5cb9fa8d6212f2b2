"""Parameter-space noise: the policy that acts has disturbed weights (Plappert et al. 2018, arXiv 1706.01905).

What it does in a state stays the same throughout an episode, which additive noise does not give.
"""

from typing import Any

import numpy as np

from ddpg.acting.exploration import BoxExploration, Policy
from ddpg.acting.noise import PARAMETER_NOISE
from ddpg.errors import UsageError

GROWTH = 1.01  # α: σ follows by one per cent
INTERVAL = 50  # steps over which a distance is measured, after which σ follows


class PerturbedExploration(BoxExploration):
    """Acting by θ̃ = θ + N(0, σ²I), each environment by its own, drawn where an episode begins, to its end.

        σ ← α·σ where d ≤ δ, else σ/α;    d² = mean (μ(s) − μ̃(s))²    (the paper's adaptive noise scaling)

    d is measured in the states of each 50 steps, and α is 1.01. Additive noise comes on top of it.

    Args:
        rng, random_steps, epsilon: see :class:`ddpg.acting.exploration.Exploration`.
        distance: δ, in half-ranges of the action box; σ begins there.
        options: of :class:`ddpg.acting.exploration.BoxExploration`.
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
        """Choose actions; see :meth:`ddpg.acting.exploration.Exploration.act`."""
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
