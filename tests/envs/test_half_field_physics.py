"""The motion model of Half Field Offense, by hand, with rcssserver's constants, cycle by cycle."""

import math

import pytest

from ddpg_envs.half_field_physics import World


def test_two_dashes_from_rest():
    world = World()
    world.dash(100, 0)  # 100 × 0.006 = 0.6 m/cycle
    world.advance()
    assert (world.player_x, world.player_vx) == pytest.approx((0.6, 0.24))
    world.dash(100, 0)  # 0.24 + 0.6 = 0.84
    world.advance()
    assert (world.player_x, world.player_vx) == pytest.approx((1.44, 0.336))
    assert (world.player_y, world.player_vy, world.heading) == (0, 0, 0)


@pytest.mark.parametrize(
    ("direction", "moved"),
    [
        (45, (0.42 * math.sqrt(0.5), 0.42 * math.sqrt(0.5))),  # halfway from 1 to 0.4: 0.7
        (85, (0.26 * math.cos(math.radians(85)), 0.26 * math.sin(math.radians(85)))),
        (90, (0, 0.24)),
        (-90, (0, -0.24)),
        (135, (-0.3 * math.sqrt(0.5), 0.3 * math.sqrt(0.5))),  # halfway from 0.4 to 0.6: 0.5
        (180, (-0.36, 0)),
        (-180, (-0.36, 0)),
    ],
)
def test_dash_is_weaker_sideways_and_backwards(direction, moved):
    world = World(player_x=5, ball_x=30)
    world.dash(100, direction)
    world.advance()
    assert (world.player_x - 5, world.player_y) == pytest.approx(moved, abs=1e-12)


def test_dash_is_relative_to_the_body_and_capped():
    world = World(player_x=5, heading=math.pi / 2, ball_x=30)
    world.player_vy = 0.7
    world.dash(100, 0)  # 0.7 + 0.6 = 1.3, more than 1.05
    world.advance()
    assert (world.player_x, world.player_y) == pytest.approx((5, 1.05))
    assert world.player_vy == pytest.approx(0.42)


def test_turn_is_less_when_moving():
    world = World(heading=math.radians(170))
    world.turn(90)
    assert math.degrees(world.heading) == pytest.approx(-100)
    world.player_vx, world.player_vy = 0.24, 0.32  # speed 0.4: 1 + 5 × 0.4 = 3
    world.turn(-90)
    assert math.degrees(world.heading) == pytest.approx(-130)


def test_player_stays_near_the_pitch():
    world = World(player_x=57, player_y=-38.8, ball_x=30)
    world.player_vx, world.player_vy = 0.9, -0.3
    world.advance()
    assert (world.player_x, world.player_y) == (57.5, -39)
    assert (world.player_vx, world.player_vy) == (0, 0)


def test_ball_decays():
    world = World()
    world.ball_vx = 1.0
    for _ in range(3):
        world.advance()
    assert world.ball_x - 10 == pytest.approx(1 + 0.94 + 0.8836)
    assert world.ball_vx == pytest.approx(0.830584)


@pytest.mark.parametrize(
    ("heading", "power", "effect"),
    [
        (0, 100, 2.3625),  # 2.7 × (1 − 0.25 × 0.35/0.7)
        (0, 40, 0.945),
        (90, 100, 2.025),  # the ball on the left: a further 0.25 × 0.5 less
        (180, 100, 1.6875),  # behind: a further 0.25 less
    ],
)
def test_kick_depends_on_where_the_ball_is(heading, power, effect):
    world = World(player_x=20, heading=math.radians(heading), ball_x=20.735)  # 0.35 m between their edges
    world.kick(power, 90 - heading)  # to the right of the pitch, whatever the heading
    world.advance()
    assert (world.ball_x, world.ball_y) == pytest.approx((20.735, effect))
    assert world.ball_vy == pytest.approx(0.94 * effect)
    assert (world.player_x, world.player_vx) == (20, 0)


def test_kick_adds_to_the_balls_velocity_up_to_its_limit():
    world = World(player_x=20, ball_x=20.735)
    world.ball_vx = 1.0
    world.kick(100, 0)
    assert world.ball_vx == 3.0


@pytest.mark.parametrize(("distance", "kickable"), [(1.0849, True), (1.0851, False)])
def test_kickable_up_to_the_margin(distance, kickable):
    world = World(player_x=0, ball_x=0, ball_y=distance)
    world.kick(100, 0)
    assert world.kickable() == kickable == (world.ball_vx > 0)


@pytest.mark.parametrize(
    ("ball", "direction", "effect"),
    [
        ((1.0, 0), 0, 2.7),  # fails with probability (1/2)⁶
        ((1.0, 0), -90, 1.35),
        ((1.0, 1.0), 0, 2.3625),  # 45° sideways: 1 − 0.5 × 0.25; fails with (1/2)⁶ + 0.8⁶ = 0.28
        ((1.7, 0), 0, 2.7),  # 0.38
        ((1.9, 0), 0, 0),  # 0.73
        ((0.5, 1.2), 0, 0),  # 0.78
        ((-0.5, 0), 0, 0),  # behind
    ],
)
def test_tackle(ball, direction, effect):
    world = World(player_x=20, ball_x=20 + ball[0], ball_y=ball[1])
    world.tackle(direction)
    assert math.hypot(world.ball_vx, world.ball_vy) == pytest.approx(effect)
    if effect:
        assert math.degrees(math.atan2(world.ball_vy, world.ball_vx)) == pytest.approx(direction)
    assert world.frozen == 9


def test_overlapping_bodies_bounce():
    world = World(player_x=0, ball_x=0.98)
    world.dash(100, 0)
    world.advance()  # player to 0.6, 0.38 from the ball: both to 0.1925 from 0.79
    assert (world.player_x, world.ball_x) == pytest.approx((0.5975, 0.9825))
    assert (world.player_vx, world.ball_vx) == pytest.approx((-0.024, 0))
    world.player_vx, world.player_vy, world.ball_vy = 0.0, 0.1, 0.1
    world.advance()  # just separated: no longer in contact
    assert (world.player_vy, world.ball_vy) == pytest.approx((0.04, 0.094))


def test_bodies_at_one_place_are_separated_along_the_heading():
    world = World(player_x=7, player_y=3, heading=math.pi / 2, ball_x=7, ball_y=3)
    assert (world.player_x, world.player_y) == pytest.approx((7, 2.8075))
    assert (world.ball_x, world.ball_y) == pytest.approx((7, 3.1925))


@pytest.mark.parametrize(
    ("velocity", "goal", "out"),
    [
        ((2.0, 1.0), True, True),  # from (51.5, 6.5) over the line at y = 7
        ((2.0, 1.1), False, True),  # 7.05: outside the post
        ((2.0, -13.4), True, True),  # −0.2
        ((2.0, -28.0), False, True),  # −7.5
        ((1.0, 0.0), False, False),  # on the line
    ],
)
def test_goal_is_scored_between_the_posts(velocity, goal, out):
    world = World(ball_x=51.5, ball_y=6.5)
    world.ball_vx, world.ball_vy = velocity
    world.advance()
    assert (world.scored(51.5, 6.5), world.ball_out()) == (goal, out)
