"""Shift the images of minibatches at random, so that values do not depend on exact positions. NumPy only.

DrQ (Yarats, Kostrikov & Fergus 2021, arXiv 2004.13649, section 3) pads each image on all sides by repeating its border,
and crops it at a random place. DrQ-v2 (Yarats et al. 2021, arXiv 2107.09645, section 3.1) also interpolates the crop;
here, as in DrQ, shifts are whole pixels, and bytes stay bytes.
"""

import gymnasium as gym
import numpy as np

from ddpg.errors import UsageError, brief
from ddpg.interaction.spaces import image_axes
from ddpg.replay.minibatch import Batch


class RandomShift:
    """Shifts each image of a minibatch by up to ``pixels`` up or down, and to the left or right.

    Frames that are stacked in an observation are shifted together, s and s′ each by its own random numbers.

    Args:
        pixels: the largest shift in each direction, at least 1.
        space: of observations: images, or stacks of them, as :func:`ddpg.conv` reads them.

    Raises:
        UsageError: if observations are no images, or a side of theirs is not longer than ``pixels``.
    """

    def __init__(self, pixels: int, space: gym.spaces.Box):
        axes = image_axes(space.shape)
        if axes is None:
            raise UsageError(
                f"random_shift={pixels} moves images [height, width] or [height, width, channels], or stacked frames "
                f"of them, and {brief(space)} is no space of these; leave it at 0"
            )
        height, width = (space.shape[axis] for axis in axes)
        if min(height, width) <= pixels:
            raise UsageError(
                f"random_shift={pixels} would move images of {height} x {width}, as {brief(space)} is read, out of "
                "sight; give fewer pixels than either side has, or 0"
            )
        self._pixels, self._shape, self._size = pixels, space.shape, (height, width)
        self._margins = [(0, 0), *((pixels, pixels) if axis in axes else (0, 0) for axis in range(len(space.shape)))]
        self._behind = (slice(None),) * (len(space.shape) - 1 - axes[1])  # the axes after the width

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Draw where to crop the padded s and s′ of ``count`` transitions: the first row and column, ``[count, 2, 2]``.

        Each is 0 to 2·pixels; ``pixels`` leaves the image where it is.
        """
        return rng.integers(0, 2 * self._pixels + 1, size=(count, 2, 2))

    def __call__(self, batch: Batch, corners: np.ndarray) -> Batch:
        """Shift the images of a batch in place, and return it; ``corners`` ``[n, 2, 2]`` are in its rows' order."""
        self._crop(batch.observations, corners[:, 0])
        self._crop(batch.next_observations, corners[:, 1])
        return batch

    def _crop(self, images: np.ndarray, corners: np.ndarray) -> None:
        images = images.reshape(-1, *self._shape)
        padded = np.pad(images, self._margins, mode="edge")
        height, width = self._size
        for image, whole, (top, left) in zip(images, padded, corners.tolist(), strict=True):
            crop = ..., slice(top, top + height), slice(left, left + width), *self._behind
            image[...] = whole[crop]
