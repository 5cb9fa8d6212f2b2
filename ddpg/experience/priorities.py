"""Prioritised replay: how likely a transition is to be drawn, and what that does to its weight. NumPy only.

| kind | priority p of a TD error δ | weight in the loss | source |
|---|---|---|---|
| ``proportional`` | (|δ| + ε)^α, α = 0.6 | (N·P)^−β, over the minibatch's largest | Schaul et al. 2016, 3.3 and 3.4 |
| ``lap`` | max(|δ|, 1)^α, α = 0.4 | 1, with the Huber loss | Fujimoto, Meger & Precup 2020, arXiv 2007.06049 |

A transition is drawn with P = p / Σp, independently of the others in its minibatch (Schaul et al. take one from each
of B equal segments of Σp). New ones get the largest priority so far, at first 1.
"""

from collections.abc import Mapping

import numpy as np

from ddpg.errors import UsageError
from ddpg.experience.sum_tree import SumTree

KINDS = ("proportional", "lap")
EXPONENTS = {"proportional": 0.6, "lap": 0.4}
SMALLEST = 1e-6  # ε: no transition is lost for good


class Priorities:
    """The priorities of a ring of transitions.

    Args:
        kind: ``"proportional"`` or ``"lap"``.
        exponent: α ≥ 0; 0 draws uniformly. ``None``: the kind's own.
        capacity: rows of the ring.

    Attributes:
        largest: the largest priority so far.
    """

    def __init__(self, kind: str, exponent: float | None, capacity: int):
        self.kind, self.capacity, self.largest = kind, capacity, 1.0
        self._exponent = EXPONENTS[kind] if exponent is None else exponent
        self._tree = SumTree(capacity)

    def add(self, rows: np.ndarray) -> None:
        """Give new transitions, at ``rows`` ``[n]``, the largest priority so far."""
        self._tree.set(rows, self.largest)

    def update(self, rows: np.ndarray, errors: np.ndarray) -> None:
        """Set the priorities of ``rows`` by their TD errors, of the same shape; of equal rows the last one counts."""
        magnitudes = np.abs(errors.reshape(-1).astype(np.float64))
        base = magnitudes + SMALLEST if self.kind == "proportional" else np.maximum(magnitudes, 1)
        priorities = base**self._exponent
        self.largest = max(self.largest, float(priorities.max()))
        self._tree.set(rows.reshape(-1), priorities)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], size: int) -> np.ndarray:
        """Draw rows below ``size``, which have a priority each, in proportion to it."""
        # Rounding can lead one step beyond the last number that is not 0.
        return np.minimum(self._tree.find(rng.random(shape) * self._tree.total), size - 1)

    def weights(self, rows: np.ndarray, size: int, correction: float) -> np.ndarray | None:
        """Return the importance-sampling weights of minibatches ``[..., B]`` as ``[..., B, 1]``; ``None``: all are 1.

        w = (N·P)^−β over the largest of its minibatch, so that a step is only ever made smaller.

        Args:
            rows: as they were drawn.
            size: N, how many there are to draw from.
            correction: β: 0 leaves the bias of drawing unevenly, 1 removes it.
        """
        if self.kind == "lap":
            return None
        weights = (size * self._tree[rows] / self._tree.total) ** -correction
        return (weights / weights.max(axis=-1, keepdims=True)).astype(np.float32)[..., None]

    def state(self, size: int) -> dict[str, np.ndarray]:
        """Return the priorities of the first ``size`` rows, and the largest so far."""
        return {"priorities": self._tree[:size].copy(), "largest_priority": np.asarray(self.largest)}

    def restore(self, arrays: Mapping[str, np.ndarray], size: int, unroll: int) -> None:
        """Take back what :meth:`state` returned, rolled by ``unroll`` rows; without it, all rows count as new.

        Raises:
            UsageError: not a number > 0 for each of the ``size`` rows, or a largest one that is smaller.
        """
        priorities = arrays.get("priorities", np.full(size, self.largest))
        largest = float(arrays.get("largest_priority", self.largest))
        if priorities.shape != (size,) or priorities.dtype != np.float64 or not (priorities > 0).all():
            raise UsageError(f"the priorities of {size} replay rows must be as many numbers > 0 of float64")
        if not priorities.max(initial=0) <= largest:
            raise UsageError(f"the largest priority is {largest}, expected at least {priorities.max()}, that of a row")
        self.largest = largest
        self._tree.set(np.arange(size), np.roll(priorities, -unroll))
