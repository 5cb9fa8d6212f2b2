"""Draw the platform domain for rendering: the course, the player with its path, and the enemies."""

from collections.abc import Sequence

import numpy as np

from .drawing import Canvas, Point
from .platform_world import BODY_HEIGHT, BODY_WIDTH, GROUND, PLATFORMS, TOTAL_WIDTH, Moment

SKY, STONE, DEPTHS, GRAVEL = (235, 242, 250), (110, 100, 90), (215, 90, 70), (160, 150, 140)
BLUE, RED, GREEN, INK = (40, 90, 200), (200, 60, 60), (40, 140, 70), (50, 50, 60)
TITLE = "Platform: get to the end, over the gaps and past the enemies"


def draw(moment: Moment, path: Sequence[Point], caption: str) -> np.ndarray:
    """Return an image of the course at one moment, uint8 ``[208, 880, 3]``, with the player's path during an action.

    The caption names the action and its outcome.
    """
    canvas = Canvas((-20.0, 0.0), (1080.0, 260.0), 0.8, SKY)
    canvas.rectangle((-20.0, 0.0), (1080.0, 8.0), DEPTHS)
    for left, width in PLATFORMS:
        canvas.rectangle((left, 0.0), (left + width, GROUND), STONE)
    for distance in range(0, 1001, 200):
        canvas.text((distance, 22.0), str(distance), GRAVEL if _is_over_stone(distance) else STONE, 11, "lm")
    canvas.line([(TOTAL_WIDTH, GROUND), (TOTAL_WIDTH, GROUND + 75)], GREEN)
    canvas.text((TOTAL_WIDTH, GROUND + 85), "end", GREEN)
    if len(path) > 1:
        canvas.line([(x + BODY_WIDTH / 2, y + BODY_HEIGHT / 2) for x, y in path], BLUE, 1)
    x, y, *enemies = moment
    for name, left, bottom, colour in [*(("enemy", at, GROUND, RED) for at in enemies), ("player", x, y, BLUE)]:
        canvas.rectangle((left, bottom), (left + BODY_WIDTH, bottom + BODY_HEIGHT), colour)
        canvas.text((left + BODY_WIDTH / 2, bottom + BODY_HEIGHT + 10), name, colour, size=12)
    canvas.text((-12.0, 254.0), TITLE, INK, anchor="la")
    canvas.text((-12.0, 230.0), caption, BLUE, anchor="la")
    canvas.text((1072.0, 254.0), f"{100 * x / TOTAL_WIDTH:.0f} % of the way", INK, anchor="ra")
    return canvas.array()


def _is_over_stone(distance: float) -> bool:
    return any(left <= distance <= left + width for left, width in PLATFORMS)
