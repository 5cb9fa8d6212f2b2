"""The observation of Half Field Offense: thirty egocentric features in [-1, 1].

They follow HFO's low-level feature set (Hausknecht, "RoboCup 2D Half Field Offense: Technical Manual"). The direction
of a point relative to the body is the pair (sin, cos) of an angle, positive on the right. A distance is given as a
proximity, 1 at the point and −1 from ``MAX_DISTANCE`` on. A boolean is −1 or 1.
"""

import math

from .half_field_physics import (
    BALL_SPEED,
    HALF_GOAL,
    HALF_LENGTH,
    HALF_WIDTH,
    MARGIN,
    PLAYER_SPEED,
    TACKLE_CYCLES,
    World,
)

MAX_DISTANCE = math.hypot(HALF_LENGTH, HALF_WIDTH)  # from the goal's middle to the far corners of the half (m)
NEAR = 3.0  # m
UNTOUCHED_LIMIT = 100  # steps

FEATURES = (
    "kickable",
    "kick_bonus_open",
    "frozen",
    "untouched",
    "velocity_forward",
    "velocity_right",
    "heading_sin",
    "heading_cos",
    "ball_sin",
    "ball_cos",
    "ball_proximity",
    "ball_near_proximity",
    "ball_velocity_forward",
    "ball_velocity_right",
    "goal_sin",
    "goal_cos",
    "goal_proximity",
    "left_post_sin",
    "left_post_cos",
    "left_post_proximity",
    "right_post_sin",
    "right_post_cos",
    "right_post_proximity",
    "ball_to_goal_sin",
    "ball_to_goal_cos",
    "ball_to_goal_proximity",
    "halfway_line_proximity",
    "goal_line_proximity",
    "left_line_proximity",
    "right_line_proximity",
)


def features(world: World, kick_bonus_open: bool, untouched: int) -> list[float]:
    """Return the values of ``FEATURES``.

    Args:
        world: player and ball.
        kick_bonus_open: whether the reward for first reaching the ball is still to be paid.
        untouched: steps since the ball was last kickable.
    """
    x, y, ball_x, ball_y = world.player_x, world.player_y, world.ball_x, world.ball_y
    cos, sin = math.cos(world.heading), math.sin(world.heading)
    vx, vy, ball_vx, ball_vy = world.player_vx, world.player_vy, world.ball_vx, world.ball_vy
    return [
        1.0 if world.kickable() else -1.0,
        1.0 if kick_bonus_open else -1.0,
        2.0 * world.frozen / (TACKLE_CYCLES - 1) - 1.0,
        2.0 * untouched / UNTOUCHED_LIMIT - 1.0,
        (vx * cos + vy * sin) / PLAYER_SPEED,
        (vy * cos - vx * sin) / PLAYER_SPEED,
        sin,
        cos,
        *_landmark(ball_x - x, ball_y - y, sin, cos),
        _proximity(world.ball_distance(), NEAR),
        (ball_vx * cos + ball_vy * sin) / BALL_SPEED,
        (ball_vy * cos - ball_vx * sin) / BALL_SPEED,
        *_landmark(HALF_LENGTH - x, -y, sin, cos),
        *_landmark(HALF_LENGTH - x, -HALF_GOAL - y, sin, cos),
        *_landmark(HALF_LENGTH - x, HALF_GOAL - y, sin, cos),
        *_landmark(HALF_LENGTH - ball_x, -ball_y, sin, cos),
        _proximity(x, HALF_LENGTH + MARGIN),
        _proximity(HALF_LENGTH - x, HALF_LENGTH + MARGIN),
        _proximity(HALF_WIDTH + y, 2.0 * HALF_WIDTH + MARGIN),
        _proximity(HALF_WIDTH - y, 2.0 * HALF_WIDTH + MARGIN),
    ]


def _landmark(dx: float, dy: float, sin: float, cos: float) -> tuple[float, float, float]:
    """Return (sin, cos, proximity) of a point ``(dx, dy)`` away, for a body that points along ``(cos, sin)``."""
    distance = math.hypot(dx, dy)
    if distance == 0.0:
        return 0.0, 1.0, 1.0
    return (dy * cos - dx * sin) / distance, (dx * cos + dy * sin) / distance, _proximity(distance, MAX_DISTANCE)


def _proximity(distance: float, largest: float) -> float:
    """Map [0, ``largest``] to [1, −1], and clip values outside."""
    return 1.0 - 2.0 * min(max(distance / largest, 0.0), 1.0)
