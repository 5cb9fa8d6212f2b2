"""A canvas for rendering environments, with coordinates in the environment's own units."""

import functools

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Point = tuple[float, float]
Colour = tuple[int, int, int]

_FINER = 2


@functools.cache
def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


class Canvas:
    """An image of a rectangle of the environment: x to the right, y upwards.

    Args:
        low: lower left corner, in world units.
        high: upper right corner, in world units.
        scale: pixels per world unit.
        background: colour to start from.
    """

    def __init__(self, low: Point, high: Point, scale: float, background: Colour):
        # Drawn at double size and halved: slanted lines are smooth, and moving objects do not jump by whole pixels.
        self._left, self._top, self._scale = low[0], high[1], _FINER * scale
        size = _FINER * round((high[0] - low[0]) * scale), _FINER * round((high[1] - low[1]) * scale)
        self._image = Image.new("RGB", size, background)
        self._draw = ImageDraw.Draw(self._image)

    def pixel(self, point: Point) -> Point:
        """Return where a point of the world is on the larger image: (column, row), fractions kept."""
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
        """Write at a point; the size is in pixels, the anchor Pillow's: two letters, "mm" for the middle."""
        self._draw.text(self.pixel(point), text, colour, _font(size * _FINER), anchor)

    def array(self) -> np.ndarray:
        """Return the picture, uint8 ``[H, W, 3]``."""
        return np.array(self._image.reduce(_FINER))
