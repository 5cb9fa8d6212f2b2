"""Draw the goal domain for rendering: the field, both players with their reach, and the ball with its path."""

import math
from collections.abc import Sequence

import numpy as np

from .drawing import Canvas, Point
from .goal_world import (
    CATCHABLE,
    FIELD_LENGTH,
    FIELD_WIDTH,
    GOAL_AREA_LENGTH,
    GOAL_AREA_WIDTH,
    GOAL_DEPTH,
    GOAL_WIDTH,
    KICKABLE,
    Ball,
    Body,
    Moment,
)

GRASS, LINE, NET = (60, 135, 70), (235, 240, 235), (180, 195, 185)
BLUE, RED, WHITE, INK = (40, 90, 200), (200, 60, 60), (255, 255, 255), (20, 25, 20)
TITLE = "Goal: put the ball past the keeper"


def draw(moment: Moment, path: Sequence[Point], caption: str) -> np.ndarray:
    """Return an image of the field at one moment, uint8 ``[560, 408, 3]``, with the ball's path during an action.

    The ring around a player is its reach: the striker can kick a ball inside it, the keeper has saved one inside it.
    The caption names the action and its outcome.
    """
    half, goal = FIELD_WIDTH / 2, GOAL_WIDTH / 2
    canvas = Canvas((-1.5, -half - 2), (FIELD_LENGTH + GOAL_DEPTH + 1.56, half + 3), 16, GRASS)
    canvas.rectangle((0, -half), (FIELD_LENGTH, half), outline=LINE)
    area = GOAL_AREA_WIDTH / 2
    canvas.rectangle((FIELD_LENGTH - GOAL_AREA_LENGTH, -area), (FIELD_LENGTH, area), outline=LINE)
    canvas.rectangle((FIELD_LENGTH, -goal), (FIELD_LENGTH + GOAL_DEPTH, goal), NET, LINE)
    canvas.text((FIELD_LENGTH + GOAL_DEPTH / 2, 0), "goal", INK)
    if len(path) > 1:
        canvas.line(list(path), WHITE, 1)
    striker, keeper, ball = moment
    for name, (x, y, orientation), colour, reach in (
        ("striker", striker, BLUE, KICKABLE),
        ("keeper", keeper, RED, CATCHABLE),
    ):
        canvas.circle((x, y), reach, outline=colour)
        canvas.circle((x, y), Body.radius, colour)
        canvas.line([(x, y), (x + math.cos(orientation), y + math.sin(orientation))], WHITE)
        canvas.text((x, y - reach - 0.6), name, WHITE, size=12)
    canvas.circle(ball, Ball.radius, WHITE, INK)
    canvas.text((-1.2, half + 2.8), TITLE, WHITE, anchor="la")
    canvas.text((-1.2, half + 1.6), caption, WHITE, anchor="la")
    for x in (0, 10, 20):
        canvas.text((x, -half - 0.9), f"{x} m", LINE, 12)
    return canvas.array()
