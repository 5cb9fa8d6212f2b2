"""Draw the offensive half of the pitch for rendering, with the goal on the right and the attacker's left upwards."""

import math

import numpy as np

from .drawing import Canvas, Point
from .half_field_physics import HALF_GOAL, HALF_LENGTH, HALF_WIDTH, KICKABLE, MARGIN, World

GRASS, LINE, NET, INK = (62, 130, 76), (235, 242, 235), (170, 200, 175), (30, 30, 40)
PLAYER, NOSE, FROZEN, BALL = (40, 90, 200), (250, 215, 70), (120, 120, 130), (255, 255, 255)
SCALE = 8  # pixels per metre
BANNER = 5.0  # m above the pitch, for text
BALL_RADIUS = 0.6  # m, seven times the ball's real size, so that it is visible
NOSE_LENGTH = 2.5  # m
_PENALTY_AREA, _GOAL_AREA, _GOAL_DEPTH, _CIRCLE, _SPOT = (16.5, 20.16), (5.5, 9.16), 2.44, 9.15, 11.0


TITLE = "Half Field Offense: run to the ball and score"


def draw(world: World, caption: str) -> np.ndarray:
    """Return an image of the half with player and ball, uint8 ``[664, 500, 3]``; ``caption`` is the last action.

    The player's disc is its reach: a ball whose centre lies inside it can be kicked. The yellow line shows the
    direction of the body. The disc is grey while the player is down after a tackle.
    """
    canvas = Canvas((-MARGIN, -HALF_WIDTH - MARGIN), (HALF_LENGTH + MARGIN, HALF_WIDTH + MARGIN + BANNER), SCALE, GRASS)
    _draw_pitch(canvas)
    place = _upwards(world.player_x, world.player_y)
    nose = (place[0] + NOSE_LENGTH * math.cos(world.heading), place[1] - NOSE_LENGTH * math.sin(world.heading))
    canvas.circle(place, KICKABLE, FROZEN if world.frozen else PLAYER, LINE)
    canvas.line([place, nose], NOSE, 3)
    canvas.circle(_upwards(world.ball_x, world.ball_y), BALL_RADIUS, BALL, INK)
    canvas.text(_upwards(world.ball_x, world.ball_y - 1.8), "ball", LINE, 12)
    canvas.text((place[0], place[1] - 2.4), "down after a tackle" if world.frozen else "attacker", LINE, 12)
    canvas.text((-MARGIN + 1, HALF_WIDTH + MARGIN + BANNER - 0.8), TITLE, LINE, anchor="la")
    canvas.text((-MARGIN + 1, HALF_WIDTH + MARGIN + BANNER - 3.4), caption, LINE, anchor="la")
    return canvas.array()


def _draw_pitch(canvas: Canvas) -> None:
    canvas.rectangle((0.0, -HALF_WIDTH), (HALF_LENGTH, HALF_WIDTH), outline=LINE)
    for length, half_width in (_PENALTY_AREA, _GOAL_AREA):
        canvas.rectangle((HALF_LENGTH - length, -half_width), (HALF_LENGTH, half_width), outline=LINE)
    canvas.rectangle((HALF_LENGTH, -HALF_GOAL), (HALF_LENGTH + _GOAL_DEPTH, HALF_GOAL), NET, LINE)
    quarters = [math.radians(degrees) for degrees in range(-90, 91, 5)]
    canvas.line([(_CIRCLE * math.cos(angle), _CIRCLE * math.sin(angle)) for angle in quarters], LINE)
    canvas.circle((HALF_LENGTH - _SPOT, 0.0), 0.3, LINE)
    canvas.text((HALF_LENGTH + 0.6, HALF_GOAL + 1.3), "goal", LINE, 12, "lm")
    canvas.text((0.5, -HALF_WIDTH - 1.5), "halfway line", LINE, 12, "lm")
    canvas.text((HALF_LENGTH, -HALF_WIDTH - 1.5), "goal line, 52.5 m away", LINE, 12, "rm")


def _upwards(x: float, y: float) -> Point:
    """Return a point for the canvas, whose y grows upwards; the server's grows to the right of an attacker (down)."""
    return x, -y
