"""A sum tree: drawing in proportion to numbers that change, for many draws at once. NumPy only."""

import numpy as np


class SumTree:
    """Numbers ≥ 0 with every partial sum of a binary tree over them (Schaul et al. 2016, appendix B.2.1).

    The tree is one array: node 1 is the root, the children of node i are 2i and 2i + 1, and the numbers are the last
    level. A sum is always that of its two children as they are, never corrected by a difference, so that it depends on
    the numbers alone and not on how they came about. Setting or drawing n of them walks the levels once.

    Args:
        count: how many numbers; all 0 at first.
    """

    def __init__(self, count: int):
        self._width = 1 << (count - 1).bit_length()
        self._sums = np.zeros(2 * self._width)

    @property
    def total(self) -> float:
        """The sum of all."""
        return float(self._sums[1])

    def __getitem__(self, indexes: np.ndarray | slice) -> np.ndarray:
        return self._sums[self._width :][indexes]

    def set(self, indexes: np.ndarray, values: np.ndarray | float) -> None:
        """Set the numbers at ``indexes`` ``[n]`` to ``values``; of equal indexes the last one counts."""
        sums, width = self._sums, self._width
        nodes = indexes + width
        sums[nodes] = values
        while width > 1:
            width >>= 1
            if len(nodes) < width:
                nodes = nodes >> 1
                sums[nodes] = sums[2 * nodes] + sums[2 * nodes + 1]
            else:  # from here up a whole level is less work, and the one above it too
                children = sums[2 * width : 4 * width]
                np.add(children[::2], children[1::2], out=sums[width : 2 * width])

    def find(self, places: np.ndarray) -> np.ndarray:
        """Return the indexes i with  Σ_{j<i} x_j ≤ place < Σ_{j≤i} x_j,  to rounding.

        Args:
            places: in [0, :attr:`total`), any shape.
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
