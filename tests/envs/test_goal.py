"""The robot-soccer goal domain: by hand, without noise, and through its environment."""

import math

import gymnasium as gym
import numpy as np
import pytest
from refusals import refuses

from ddpg_envs.goal_world import Ball, Body, GoalWorld, Keeper, Striker

ENV_ID = "ddpg_envs/Goal-v0"
KICK_TO, LEFT, RIGHT = range(3)


def still():
    """Return the middle of [0, 1), which means no noise."""
    return 0.5


class Still:
    """A stand-in for a generator, without noise."""

    def random(self, size):
        return np.full(size, 0.5)


def action(choice, *parameters):
    return choice, tuple(np.array(parameters if n == choice else (0.0,) * (2 - (n > 0)), np.float32) for n in range(3))


@pytest.fixture
def env():
    env = gym.make(ENV_ID).unwrapped
    env.np_random = Still()
    env.reset()
    return env


def place(env, striker, keeper, ball):
    """Place both players, at rest and facing along x, and the ball."""
    env.reset(options={"state": [*striker, 0, 0, 0, *keeper, 0, 0, 0, *ball, 0, 0]})


# -- bodies --------------------------------------------------------------------------------------------------


def test_start_without_noise():
    world = GoalWorld(still)
    assert (world.striker.x, world.striker.y, world.striker.orientation) == (0.0, 0.0, 0.0)
    assert (world.ball.x, world.ball.y) == pytest.approx((1.6, 0.0))
    assert (world.keeper.x, world.keeper.y, world.keeper.orientation) == pytest.approx((14.5, 0.0, math.pi))


def test_keeper_starts_between_ball_and_goal():
    world = GoalWorld(iter([1.0]).__next__)  # y = 15, facing (20, 0): direction (0.8, −0.6)
    assert (world.ball.x, world.ball.y) == pytest.approx((1.28, 14.04))
    assert (world.keeper.x, world.keeper.y) == pytest.approx((14.5, 14.04 * 5.5 / 18.72))


def test_the_ball_starts_within_reach(rng):
    for number in rng.random(200):
        world = GoalWorld(lambda number=number: number)
        assert world.striker.can_kick(world.ball)
        assert world.striker.distance(world.ball) == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("orientation", "target", "speed"),
    [
        (0.0, 10.0, 0.06 * 10),  # would roll 10 m: 0.6 / (1 − 0.94)
        (0.0, 40.0, 2.7 * 0.75),  # the maximum, with a quarter lost to the ball's distance
        (math.pi, 40.0, 2.7 * 0.5),  # with the back to the ball another quarter is lost
    ],
)
def test_kick(orientation, target, speed):
    striker, ball = Striker((0.0, 0.0), still), Ball((1.6, 0.0), still)
    striker.orientation = orientation
    striker.kick_to(ball, (target, 0.0))
    assert (ball.vx, ball.vy) == pytest.approx((speed, 0.0))
    ball.move()
    assert (ball.x, ball.vx) == pytest.approx((1.6 + speed, 0.94 * speed))


def test_kick_takes_the_balls_velocity_into_account():
    striker, ball = Striker((0.0, 0.0), still), Ball((1.0, 0.0), still)
    ball.vx, ball.vy = 0.3, -0.4
    striker.kick_to(ball, (3.0, 4.0))
    assert (ball.vx, ball.vy) == pytest.approx((0.18, 0.24))


def test_noise():
    # 0.75 of [0, 1) is half of the bound: 5 % of the direction, and 5 % of both components of the speed.
    body = Body((0.0, 0.0), lambda: 0.75)
    body.vx, body.vy = 0.3, 0.4
    body.accelerate(0.06, 1.0)
    assert body.vx == pytest.approx(0.3 + 0.06 * math.cos(1.05) + 0.05 * 0.5)
    assert body.vy == pytest.approx(0.4 + 0.06 * math.sin(1.05) + 0.05 * 0.5)


def test_speed_limit():
    body = Body((0.0, 0.0), still)
    body.vx, body.vy = 0.98, -0.98
    body.accelerate(0.06, -math.pi / 4)
    assert (body.vx, body.vy) == (1.0, -1.0)


def test_striker_turns_then_runs():
    striker, ball = Striker((0.0, 0.0), still), Ball((5.0, 0.0), still)
    striker.orientation, striker.vy = 1.0, 0.2
    striker.approach(ball)
    assert striker.orientation == pytest.approx(1 - 1 / (1 + 5 * 0.2))  # turns more slowly while moving
    striker.approach(ball)
    striker.orientation, striker.vy = 0.3, 0.0  # within π/8 counts as facing
    striker.approach(ball)
    assert (striker.vx, striker.vy) == pytest.approx((0.06 * math.cos(0.3), 0.06 * math.sin(0.3)))


def test_keeper_sprints_across_the_path_of_a_shot():
    keeper, ball = Keeper((15.0, 0.0), still), Ball((10.0, 0.0), still)
    ball.vx, ball.vy = 1.2, 0.3  # would roll to x = 30, crossing the line at y = 2.5
    keeper.guard(ball)
    # The foot of the perpendicular: 5 / (1 + 0.25²) along x; the keeper runs perpendicular to the ball's path.
    towards = np.array([10 + 5 / 1.0625 - 15, 0.25 * 5 / 1.0625])
    assert towards @ [1.2, 0.3] == pytest.approx(0)
    assert (keeper.vx, keeper.vy) == pytest.approx(tuple(0.12 * towards / np.linalg.norm(towards)))


@pytest.mark.parametrize("velocity", [(0.5, 0.0), (1.2, 1.2), (0.0, 0.6), (1.2, 0.0)])
def test_keeper_walks_to_where_the_ball_stops(velocity):
    # Too slow to reach the goal; wide of it; along the line; and, a rule of the published program, straight ahead.
    keeper, ball = Keeper((15.0, 0.0), still), Ball((5.0, 0.0), still)
    ball.vx, ball.vy = velocity
    keeper.guard(ball)
    towards = np.array([5 + velocity[0] / 0.06 - 15, velocity[1] / 0.06])
    assert (keeper.vx, keeper.vy) == pytest.approx(tuple(0.048 * towards / np.linalg.norm(towards)))


def test_collision():
    one, other = Body((0.0, 0.0), still), Body((1.0, 0.0), still)
    one.vx, other.vy = 0.5, -0.2
    one.collide(other)
    assert (one.x, other.x) == pytest.approx((-0.4, 1.4))  # 1.8 apart: they touch
    assert (one.vx, other.vy) == (-0.5, 0.2)
    one.vx, other.x = 0.5, 1.41
    one.collide(other)
    assert one.vx == 0.5  # no overlap, so nothing happens


@pytest.mark.parametrize(
    ("position", "distance"),
    [((17.0, 3.0), 3.0), ((17.0, 11.01), 5.0), ((17.0, -11.01), 5.0), ((21.0, 9.01), 2.0), ((21.0, -9.01), 2.0)],
)
def test_goal_distance(position, distance):
    assert Ball(position, still).goal_distance() == pytest.approx(distance)


@pytest.mark.parametrize(
    ("position", "goal", "field"),
    [
        ((20.1, 7.0), True, False),
        ((22.4, -7.0), True, False),
        ((22.5, 0.0), False, False),
        ((20.1, 7.1), False, False),
        ((19.9, 0.0), False, True),
        ((0.1, -14.9), False, True),
        ((-0.1, 0.0), False, False),
        ((5.0, 15.1), False, False),
    ],
)
def test_goal_and_field(position, goal, field):
    ball = Ball(position, still)
    assert (ball.in_goal(), ball.in_field()) == (goal, field)


# -- episodes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shot", [LEFT, RIGHT])
def test_a_shot_that_scores(env, shot):
    place(env, striker=(15.0, 5.0), keeper=(14.5, -9.0), ball=(16.0, 5.0))
    observation, reward, terminated, truncated, info = env.step(action(shot, 5.0))
    assert (reward, terminated, truncated, info["outcome"]) == (50.0, True, False, "goal")
    # Kicked twice, at 0.06 · 5.4 = 0.324, to 16.648; from there 0.324 · 0.94 (1 − 0.94^m) / 0.06 reaches 20 at m = 18.
    assert info["substeps"] == 20
    x = 16.648 + 0.324 * 0.94 * (1 - 0.94**18) / 0.06
    np.testing.assert_allclose(observation[10:], [2 * x / 20 - 1, 5 / 15, 0.324 * 0.94**19 / 3, 0.0], rtol=1e-5)


def test_the_ball_leaves_the_field(env):
    place(env, striker=(10.0, 13.5), keeper=(14.5, 0.0), ball=(10.0, 15.0))
    _, reward, terminated, _, info = env.step(action(KICK_TO, 10.0, 15.0))
    assert (terminated, info["outcome"], info["substeps"]) == (True, "out", 1)
    assert reward == pytest.approx(-math.hypot(10, 15.09 - 7.01), rel=1e-6)


def test_the_keeper_saves(env):
    place(env, striker=(0.0, 0.0), keeper=(4.0, 0.0), ball=(1.6, 0.0))
    _, reward, terminated, _, info = env.step(action(KICK_TO, 10.0, 0.0))
    assert (terminated, info["outcome"], info["substeps"]) == (True, "saved", 1)
    assert reward == pytest.approx(-(20 - 2.2))


def test_players_collide(env):
    # The ball is out after one substep; the keeper has approached it by 0.048 before both are pushed apart.
    env.reset(options={"state": [2.0, 0, 0, 0, 0, 2.0, 1.0, 0, 0, 0, 2.0, 14.5, 0, 1.0]})
    env.step(action(KICK_TO, 0.0, 0.0))
    overlap = 1.8 - 1.048
    assert env.state[[1, 6]] == pytest.approx([-overlap / 2, 1.048 + overlap / 2])


def test_keeper_and_ball_collide(env):
    place(env, striker=(2.0, 0.0), keeper=(10.0, 1.0), ball=(10.0, 0.0))
    _, reward, _, _, info = env.step(action(KICK_TO, 0.0, 0.0))
    overlap = 1.3 - (1 - 0.048)
    assert env.state[[6, 11]] == pytest.approx([1 - 0.048 + overlap / 2, -overlap / 2])
    assert (reward, info["outcome"]) == (-10.0, "saved")


def test_kick_to_goes_to_x_and_y(env):
    place(env, striker=(2.0, -10.0), keeper=(19.0, 8.0), ball=(2.5, -10.0))
    observation, reward, terminated, _, info = env.step(action(KICK_TO, 5.0, -6.0))
    assert (reward, terminated, "outcome" in info) == (0.0, False, False)
    state = env.state
    # About the target, and within reach again.
    assert np.hypot(*(state[10:12] - [5.5, -6.0])) < 1.0
    assert np.hypot(*(state[:2] - state[10:12])) <= 1.6
    assert np.hypot(*state[12:]) <= 0.1
    np.testing.assert_allclose((observation[10] + 1) * 10, state[10], rtol=1e-5)
    assert observation[11] * 15 == pytest.approx(state[11], rel=1e-5)


def test_orientations_are_within_half_a_turn(env):
    # From 3 to −2.6 the shorter rotation goes on to 3.68; the ball, then at rest, is within reach 1.4 m further.
    ball = 10 + 3 * math.cos(-2.6), 3 * math.sin(-2.6)
    env.reset(options={"state": [10, 0, 0, 0, 3.0, 19, 14, 0, 0, 0, *ball, 0, 0]})
    observation, *_ = env.step(action(KICK_TO, 0.0, 0.0))
    assert env.state[4] == pytest.approx(-2.6)
    assert observation[4] == pytest.approx(-2.6 / math.pi)


def test_observations_stay_in_the_space(env):
    # The keeper, as far off the field as the space allows, follows a ball that leaves it.
    env.reset(options={"state": [15, 0, 0, 0, 0, 5, 22.5, 0, 0, 0, 5, 14, 0, 0.9]})
    observation, _, terminated, *_ = env.step(action(KICK_TO, 0.0, 0.0))
    assert terminated
    assert env.state[6] > 22.5
    assert observation[6] == 1.5


def test_the_hundredth_action_ends_the_episode():
    env = gym.make(ENV_ID)
    env.reset(seed=3)
    here = env.unwrapped.state[:2]
    for _ in range(99):
        *_, terminated, truncated, info = env.step(action(KICK_TO, *here))  # stops the ball at its place
        assert (terminated, truncated) == (False, False)
    before = env.unwrapped.state
    _, reward, terminated, truncated, info = env.step(action(LEFT, 0.0))
    assert (terminated, truncated, info["outcome"], info["substeps"]) == (True, False, "time", 0)
    np.testing.assert_array_equal(env.unwrapped.state, before)
    assert reward == pytest.approx(-math.hypot(20 - before[10], max(abs(before[11]) - 7.01, 0)))


def test_random_policy_scores_as_measured():
    """−6.22 ± 0.11 over 20 000 episodes, 1.7 % goals; here 600 episodes, within five standard errors."""
    env = gym.make(ENV_ID)
    env.action_space.seed(0)
    env.reset(seed=0)
    returns = []
    for _ in range(600):
        env.reset()
        terminated = False
        while not terminated:
            _, reward, terminated, _, _ = env.step(env.action_space.sample())
        returns.append(reward)
    assert np.mean(returns) == pytest.approx(-6.22, abs=5 * np.std(returns) / 600**0.5)
    assert 0 < np.mean(np.array(returns) == 50) < 0.05


@pytest.mark.parametrize("state", [[0.0] * 13, [np.inf] * 14, [40.0] + [0.0] * 13])
def test_an_invalid_state_is_refused(env, state):
    with refuses(ValueError, "state"):
        env.reset(options={"state": state})


def test_render_shows_players_ball_and_goal():
    env = gym.make(ENV_ID, render_mode="rgb_array")
    env.reset(options={"state": [5.0, -5, 0, 0, 0, 15, 0, 0, 0, 0, 10, 10, 0, 0]})
    frame = env.render()
    assert frame.shape == (560, 408, 3)

    def colour(x, y):
        return tuple(frame[round((18 - y) * 16), round((x + 1.5) * 16)].tolist())

    assert colour(4.6, -5) == (40, 90, 200)  # next to the line that shows the heading
    assert colour(14.6, 0) == (200, 60, 60)
    assert colour(10, 10) == (255, 255, 255)
    assert colour(21, 4) == colour(21, -4) == (180, 195, 185)
    assert colour(3, 3) == (60, 135, 70)


def test_an_action_is_drawn_as_it_happens():
    env = gym.make("ddpg_envs/Goal-v0", render_mode="rgb_array_list")
    env.reset(seed=3)
    assert len(env.render()) == 1
    info = env.step((0, ([10.0, 3.0], [0.0], [0.0])))[4]
    pictures = env.render()
    assert len(pictures) == info["substeps"] > 10
    # The ball is drawn along its path from frame to frame.
    inside = [(picture[48:528, 24:344] == (255, 255, 255)).all(axis=-1).sum() for picture in pictures]
    assert inside[0] < inside[-1]  # the path gets longer
    assert env.render() == []
    assert (pictures[-1] == _drawn_once(3, (0, ([10.0, 3.0], [0.0], [0.0])))).all()


def _drawn_once(seed, action):
    env = gym.make("ddpg_envs/Goal-v0", render_mode="rgb_array")
    env.reset(seed=seed)
    env.step(action)
    return env.render()
