"""How environments render themselves: the check of a render mode, and a canvas with coordinates in their units."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from ddpg.errors import UsageError, brief

Point = tuple[float, float]
Colour = tuple[int, int, int]

_FINER = 2


def checked_mode(render_mode: Any, metadata: Mapping[str, Any]) -> str | None:
    """Return ``render_mode`` if it is ``None`` or among the metadata's ``render_modes``, else raise UsageError."""
    modes = metadata["render_modes"]
    if render_mode is not None and not (isinstance(render_mode, str) and render_mode in modes):
        raise UsageError(f"render_mode={brief(render_mode)} must be one of {modes}, or None")
    return render_mode


@functools.cache
def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


class Canvas:
    """An image of a rectangular part of the environment, with x to the right and y upwards.

    Args:
        low, high: lower left and upper right corner, in world units.
        scale: pixels per world unit.
        background: the initial colour of all pixels.
    """

    def __init__(self, low: Point, high: Point, scale: float, background: Colour):
        # Drawn at double size and then halved, so that slanted lines are smooth and motion is finer than a pixel.
        self._left, self._top, self._scale = low[0], high[1], _FINER * scale
        size = _FINER * round((high[0] - low[0]) * scale), _FINER * round((high[1] - low[1]) * scale)
        self._image = Image.new("RGB", size, background)
        self._draw = ImageDraw.Draw(self._image)

    def pixel(self, point: Point) -> Point:
        """Return the position (column, row) of a point on the double-size image, with fractions of a pixel."""
        return (point[0] - self._left) * self._scale, (self._top - point[1]) * self._scale

    def rectangle(self, low: Point, high: Point, fill: Colour | None = None, outline: Colour | None = None):
        """Draw a rectangle between its lower left and upper right corners."""
        (left, bottom), (right, top) = self.pixel(low), self.pixel(high)
        self._draw.rectangle((left, top, right - 1, bottom - 1), fill, outline, 2 * _FINER)

    def circle(self, centre: Point, radius: float, fill: Colour | None = None, outline: Colour | None = None):
        """Draw a circle; its radius is in world units."""
        self._draw.circle(self.pixel(centre), radius * self._scale, fill, outline, 2 * _FINER)

    def line(self, points: list[Point], colour: Colour, width: int = 2):
        """Draw a line through points; its width is in pixels."""
        self._draw.line([self.pixel(point) for point in points], colour, width * _FINER, joint="curve")

    def text(self, point: Point, text: str, colour: Colour, size: int = 14, anchor: str = "mm"):
        """Write text at a point; the size is in pixels, and the anchor is one of Pillow's, such as "mm" (middle)."""
        self._draw.text(self.pixel(point), text, colour, _font(size * _FINER), anchor)

    def array(self) -> np.ndarray:
        """Return the image, uint8 ``[H, W, 3]``."""
        return np.array(self._image.reduce(_FINER))
