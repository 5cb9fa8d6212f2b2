"""Prioritised replay: the probability of each transition, its importance weight, and the sum tree. NumPy only.

| kind | priority p of a TD error δ | weight in the loss | source |
|---|---|---|---|
| ``proportional`` | (|δ| + ε)^α, α = 0.6 | (N·P)^−β / its minibatch maximum | Schaul et al. 2016, 3.3 and 3.4 |
| ``lap`` | max(|δ|, 1)^α, α = 0.4 | 1, with the Huber loss | Fujimoto, Meger & Precup 2020, arXiv 2007.06049 |

A transition is drawn with probability P = p / Σp, independently of the others in its minibatch (Schaul et al. draw one
from each of B equal segments of Σp). New transitions get the largest priority so far, initially 1.
"""

from collections.abc import Mapping

import numpy as np

from ddpg.errors import UsageError, choose
from ddpg.interaction.validation import validate_float, validate_int


class SumTree:
    """A binary tree of partial sums over ``count`` numbers ≥ 0, at first 0 (Schaul et al. 2016, appendix B.2.1).

    The tree is one array: node 1 is the root, the children of node i are 2i and 2i + 1, and the numbers are the last
    level. A sum is always recomputed from its two children, never corrected by a difference, so it depends only on the
    current numbers and not on their history. Setting or drawing n numbers walks the levels once.
    """

    def __init__(self, count: int):
        self._width = 1 << (count - 1).bit_length()
        self._sums = np.zeros(2 * self._width)

    @property
    def total(self) -> float:
        """The sum of all numbers."""
        return float(self._sums[1])

    def __getitem__(self, indexes: np.ndarray | slice) -> np.ndarray:
        return self._sums[self._width :][indexes]

    def set(self, indexes: np.ndarray, values: np.ndarray | float) -> None:
        """Set the numbers at ``indexes`` ``[n]`` to ``values``; if an index occurs twice, its last value counts."""
        sums, width = self._sums, self._width
        nodes = indexes + width
        sums[nodes] = values
        while width > 1:
            width >>= 1
            if len(nodes) < width:
                nodes = nodes >> 1
                sums[nodes] = sums[2 * nodes] + sums[2 * nodes + 1]
            else:  # from here up, recomputing a whole level is less work
                children = sums[2 * width : 4 * width]
                np.add(children[::2], children[1::2], out=sums[width : 2 * width])

    def find(self, places: np.ndarray) -> np.ndarray:
        """Return the indexes i with  Σ_{j<i} x_j ≤ place < Σ_{j≤i} x_j,  up to rounding.

        ``places``, of any shape, are in [0, :attr:`total`).
        """
        sums, places = self._sums, np.array(places)
        nodes = np.ones(places.shape, np.int64)
        for _ in range(self._width.bit_length() - 1):
            nodes <<= 1
            left = sums.take(nodes)
            right = places >= left
            places -= left * right
            nodes += right
        return nodes - self._width


KINDS = ("proportional", "lap")
EXPONENTS = {"proportional": 0.6, "lap": 0.4}
SMALLEST = 1e-6  # ε, so that every transition can still be drawn
BOUNDS = 1e-300, 1e290  # limits of priorities for any α, so that none is 0 and their sum is finite


class Priorities:
    """The priorities of a ring of transitions.

    Args:
        kind: ``"proportional"`` or ``"lap"``.
        exponent: α ≥ 0; 0 draws uniformly. ``None``: the default of ``kind``.
        capacity: number of rows of the ring.

    Attributes:
        largest: the largest priority so far.

    Raises:
        UsageError: if the kind is unknown, the exponent is not a finite number >= 0, or the capacity is not a whole
            number, at least 1.
    """

    def __init__(self, kind: str, exponent: float | None, capacity: int):
        default = choose("kind", kind, EXPONENTS, "another", is_own=lambda value: False)
        self.kind, self.capacity, self.largest = kind, validate_int(capacity, "capacity", at_least=1), 1.0
        self._exponent = default if exponent is None else validate_float(exponent, "exponent", at_least=0)
        self._tree = SumTree(self.capacity)

    def add(self, rows: np.ndarray) -> None:
        """Give new transitions, at ``rows`` ``[n]``, the largest priority so far."""
        self._tree.set(rows, self.largest)

    def update(self, rows: np.ndarray, errors: np.ndarray) -> None:
        """Set the priorities of ``rows`` from their TD errors, of the same shape; the last one of equal rows counts.

        Raises:
            UsageError: if an error is NaN or infinite. Then no priority changes.
        """
        magnitudes = np.abs(errors.reshape(-1).astype(np.float64))
        if not magnitudes.max(initial=0) < np.inf:
            raise UsageError(
                "errors holds NaN or infinity; expected finite TD errors: no probability follows from others"
            )
        base = magnitudes + SMALLEST if self.kind == "proportional" else np.maximum(magnitudes, 1)
        with np.errstate(over="ignore"):
            priorities = np.clip(base**self._exponent, *BOUNDS)
        self.largest = max(self.largest, float(priorities.max()))
        self._tree.set(rows.reshape(-1), priorities)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], size: int) -> np.ndarray:
        """Draw rows below ``size`` with probabilities proportional to their priorities."""
        # Rounding can lead one step beyond the last nonzero number.
        return np.minimum(self._tree.find(rng.random(shape) * self._tree.total), size - 1)

    def weights(self, rows: np.ndarray, correction: float) -> np.ndarray | None:
        """Return the importance-sampling weights of rows ``[..., B]`` as ``[..., B, 1]``; ``None``: all are 1.

        w = (N·P)^−β, divided by the largest w of its minibatch, so that weights only ever shrink a step. This equals
        (p₀/p)^β with the smallest priority p₀ of the minibatch: N and Σp cancel, and no power of a small p overflows.
        β, ``correction``: 0 keeps the bias of non-uniform sampling, 1 removes it.
        """
        if self.kind == "lap":
            return None
        drawn = self._tree[rows]
        return ((drawn.min(axis=-1, keepdims=True) / drawn) ** correction).astype(np.float32)[..., None]

    def state(self, size: int) -> dict[str, np.ndarray]:
        """Return the priorities of the first ``size`` rows, a view that changes with them, and the largest so far."""
        return {"priorities": self._tree[:size], "largest_priority": np.asarray(self.largest)}

    def restore(self, arrays: Mapping[str, np.ndarray], size: int, unroll: int) -> None:
        """Restore what :meth:`state` returned, rolled by ``unroll`` rows; without priorities, all rows count as new.

        Raises:
            UsageError: if there is not one priority > 0 for each of the ``size`` rows, or ``largest_priority`` is less
                than one of them.
        """
        priorities = arrays.get("priorities", np.full(size, self.largest))
        largest = float(arrays.get("largest_priority", self.largest))
        if priorities.shape != (size,) or priorities.dtype != np.float64 or not (priorities > 0).all():
            raise UsageError(f"the priorities of {size} replay rows must be as many numbers > 0 of float64")
        if not priorities.max(initial=0) <= largest:
            raise UsageError(f"the largest priority is {largest}, expected at least {priorities.max()}, that of a row")
        self.largest = largest
        self._tree.set(np.arange(size), np.roll(priorities, -unroll))
