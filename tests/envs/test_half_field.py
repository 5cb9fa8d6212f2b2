"""Half Field Offense: reward, end and features by hand, a hand-written striker, and general properties."""

import math
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from ddpg import UsageError
from ddpg_envs import half_field_picture as picture
from ddpg_envs.half_field_features import FEATURES

ENV_ID = "ddpg_envs/HalfFieldOffense-v0"
DASH, TURN, TACKLE, KICK = range(4)
UNIT = 31.27399  # m: √(52.5² + 34²) / 2


def action(kind, *parameters):
    """Return an action; the parameters of other kinds are zero."""
    boxes = [np.zeros(size, np.float32) for size in (2, 1, 1, 2)]
    boxes[kind][:] = parameters
    return kind, tuple(boxes)


def started(ball, player, velocities=(0, 0, 0, 0), **kwargs):
    """Return an environment, reset with ball (x, y) and player (x, y, heading in degrees) at these places."""
    x, y, heading = player
    state = [x, y, *velocities[:2], math.radians(heading), *ball, *velocities[2:], 0, 0, 1]
    env = gym.make(ENV_ID, **kwargs)
    env.reset(seed=0, options={"state": state})
    return env


def named(observation):
    return dict(zip(FEATURES, np.asarray(observation, np.float64).tolist(), strict=True))


def angle(seen, of):
    """Return the direction of a point in degrees, relative to the body."""
    return math.degrees(math.atan2(seen[f"{of}_sin"], seen[f"{of}_cos"]))


# -- reward and end of an episode ----------------------------------------------------------------------------------


def test_rewards_of_three_steps():
    env = started(ball=(20, 0), player=(18, 0, 0))
    rewards = [env.step(what)[1] for what in (action(DASH, 100, 0), action(DASH, 100, 0), action(KICK, 100, 0))]
    # Player 18 → 18.6 → 19.44 → 19.776, kickable from the second step on. The kick, over a gap of 0.56 − 0.385 m,
    # has 2.7 × (1 − 0.25 × 0.25) = 2.53125: ball 22.53125, 2.75525 from the player.
    expected = [0.6 / UNIT, 0.84 / UNIT + 1, (0.56 - 2.75525 + 3 * 2.53125) / UNIT]
    assert rewards == pytest.approx(expected, abs=1e-6)


def test_kick_bonus_is_paid_once():
    env = started(ball=(20, 0), player=(19.2, 0, 0))
    rewards = [env.step(action(TURN, 0))[1] for _ in range(2)]
    env.step(action(KICK, 30, 0))
    for _ in range(4):
        observation, reward, *_ = env.step(action(DASH, 100, 0))
        rewards.append(reward)
    assert named(observation)["kickable"] == 1
    assert rewards[:2] == [1, 0]
    assert max(rewards[2:]) < 0.1


def test_goal():
    env = started(ball=(51.5, 0), player=(50.8, 0, 0))
    _, reward, terminated, truncated, info = env.step(action(KICK, 100, 0))
    # 2.7 × (1 − 0.25 × 0.45) = 2.39625: ball 53.89625, 1.39625 behind the line.
    assert reward == pytest.approx((0.7 - 3.09625 + 3 * (1 - 1.39625)) / UNIT + 5, abs=1e-6)
    assert (terminated, truncated) == (True, False)
    assert info == {"is_success": True, "action_clipped": False, "outcome": "goal"}


@pytest.mark.parametrize(
    ("ball", "player", "direction"),
    [
        ((20, 33.5), (20, 33, 0), 90),
        ((20, -33.5), (20, -33, 0), -90),
        ((0.5, 3), (1, 3, 0), 180),
        ((52, 9), (51, 9, 0), 0),
    ],
)
def test_ball_out_ends_the_episode(ball, player, direction):
    env = started(ball, player)
    _, reward, terminated, truncated, info = env.step(action(KICK, 100, direction))
    assert (terminated, truncated, info["is_success"], info["outcome"]) == (True, False, False, "out")
    assert reward < 1


def test_ends_after_100_steps_out_of_reach():
    env = started(ball=(20, 0), player=(21, 0, 180))
    ends = [env.step(action(KICK, 0, 0))[2:4]]  # within reach
    env.step(action(KICK, 50, 0))
    ends += [env.step(action(TURN, 0))[2:4] for _ in range(98)]
    assert ends == [(False, False)] * 99
    *_, terminated, truncated, info = env.step(action(TURN, 0))
    assert (terminated, truncated, info["outcome"]) == (True, False, "untouched")


def test_truncated_after_500_steps_with_the_ball():
    env = started(ball=(20, 0), player=(21, 0, 180))
    ends = [env.step(action(TURN, 0))[2:4] for _ in range(500)]
    assert ends == [(False, False)] * 499 + [(False, True)]


def test_tackle_costs_ten_steps():
    env = started(ball=(30, 0), player=(20, 0, 0))
    frozen = [named(env.step(action(TACKLE, 0))[0])["frozen"]]
    for _ in range(9):
        frozen.append(named(env.step(action(DASH, 100, 0))[0])["frozen"])
        assert env.unwrapped.state[0] == 20
    assert frozen == pytest.approx([1 - 2 * step / 9 for step in range(10)], abs=1e-6)
    env.step(action(DASH, 100, 0))
    assert env.unwrapped.state[0] == pytest.approx(20.6)


@pytest.mark.parametrize(
    ("index", "value"),
    [(0, 58), (1, -40), (2, 0.5), (4, np.nan), (5, -1), (6, 35), (7, -3), (9, 10), (9, -1), (10, 100), (10, -1)],
)
def test_impossible_states_are_refused(index, value):
    env = gym.make(ENV_ID)
    env.reset(seed=0)
    before = env.unwrapped.state
    state = np.where(np.arange(12) == index, value, before)
    for bad in (state, before[:-1]):
        with refuses(UsageError, "state"):
            env.reset(seed=0, options={"state": bad})
    np.testing.assert_array_equal(env.unwrapped.state, before)


def test_initial_states_are_the_servers():
    env = gym.make(ENV_ID).unwrapped
    places = []
    for seed in range(400):
        env.reset(seed=seed)
        places.append(env.state)
    player_x, player_y, player_vx, player_vy, heading, ball_x, ball_y, *rest = np.array(places).T
    distance = np.hypot(ball_x - player_x, ball_y - player_y)
    assert not np.any([player_vx, player_vy, *rest[:-1]])
    for values, low, high in [(ball_x, 5.23, 15.75), (ball_y, -27.2, 27.2), (heading, -math.pi, math.pi)]:
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high >= values.max() > high - 0.05 * (high - low)
    assert player_x.min() == 0
    assert 35 < player_x.max() <= 47.25
    assert np.abs(player_y).max() <= 34
    assert distance.min() >= 0.385
    assert np.median(distance) == pytest.approx(20, abs=3)
    inside = (player_x > 0) & (np.abs(player_y) < 34) & (distance > 0.4)
    squares = np.floor(np.array([player_x - ball_x, player_y - ball_y])[:, inside] / 10.5)
    diagonal = {(-1, -1), (-1, 1), (1, 1), (1, -1), (-2, -2), (-2, 2), (2, 2), (2, -2)}
    assert set(map(tuple, squares.T.astype(int).tolist())) == {*diagonal, (0, 2), (0, -2)}


# -- observation ---------------------------------------------------------------------------------------------------


def test_features_of_one_state():
    env = started(ball=(10, 2), player=(10, 0, 90), velocities=(-0.21, 0.105, 0.0, -1.41))
    seen = named(env.unwrapped._observation())
    post = math.hypot(42.5, 7.01)
    expected = {
        "kickable": -1,
        "kick_bonus_open": 1,
        "frozen": -1,
        "untouched": -1,
        "velocity_forward": 0.25,
        "velocity_right": 0.5,
        "heading_sin": 1,
        "heading_cos": 0,
        "ball_sin": 0,
        "ball_cos": 1,
        "ball_proximity": 1 - 2 / UNIT,
        "ball_near_proximity": -1 / 3,
        "ball_velocity_forward": -0.5,
        "ball_velocity_right": 0,
        "goal_sin": -1,
        "goal_cos": 0,
        "goal_proximity": 1 - 42.5 / UNIT,
        "left_post_sin": -42.5 / post,
        "left_post_cos": -7.01 / post,
        "left_post_proximity": 1 - post / UNIT,
        "right_post_sin": -42.5 / post,
        "right_post_cos": 7.01 / post,
        "right_post_proximity": 1 - post / UNIT,
        "ball_to_goal_sin": -42.5 / math.hypot(42.5, 2),
        "ball_to_goal_cos": -2 / math.hypot(42.5, 2),
        "ball_to_goal_proximity": 1 - math.hypot(42.5, 2) / UNIT,
        "halfway_line_proximity": 1 - 2 * 10 / 57.5,
        "goal_line_proximity": 1 - 2 * 42.5 / 57.5,
        "left_line_proximity": 1 - 2 * 34 / 73,
        "right_line_proximity": 1 - 2 * 34 / 73,
    }
    assert seen == pytest.approx(expected, abs=1e-6)


def test_features_on_the_goal_line():
    env = started(ball=(52.5, 0), player=(52.5, 0.5, 0))
    seen = named(env.unwrapped._observation())
    assert [seen[f"ball_to_goal_{what}"] for what in ("sin", "cos", "proximity")] == [0, 1, 1]
    assert [seen[f"goal_{what}"] for what in ("sin", "cos")] == [-1, 0]


@pytest.mark.parametrize(("distance", "kickable"), [(1.0849, 1), (1.0851, -1)])
def test_kickable_is_observed_up_to_the_margin(distance, kickable):
    observation, *_ = started((20, distance), (20, 0, 0)).step(action(TURN, 0))
    assert named(observation)["kickable"] == kickable


def reconstructed(seen):
    """Reconstruct the state from an observation: nothing is hidden."""
    x = 52.5 - (1 - seen["goal_line_proximity"]) / 2 * 57.5
    y = ((1 - seen["left_line_proximity"]) - (1 - seen["right_line_proximity"])) / 4 * 73
    forward = np.array([seen["heading_cos"], seen["heading_sin"]])
    right = np.array([-forward[1], forward[0]])
    velocity = 0.42 * (seen["velocity_forward"] * forward + seen["velocity_right"] * right)
    ball_velocity = 2.82 * (seen["ball_velocity_forward"] * forward + seen["ball_velocity_right"] * right)
    aside, ahead, far = (seen[f"ball_to_goal_{what}"] for what in ("sin", "cos", "proximity"))
    ball = np.array([52.5, 0]) - (1 - far) * UNIT * (ahead * forward + aside * right)
    counts = round((seen["frozen"] + 1) / 2 * 9), round((seen["untouched"] + 1) / 2 * 100)
    heading = math.atan2(forward[1], forward[0])
    return [x, y, *velocity, heading, *ball, *ball_velocity, *counts, seen["kick_bonus_open"] > 0]


def test_observation_is_markov():
    """An observation determines the next one, the reward and the end, whatever came before."""
    env, copy = gym.make(ENV_ID), gym.make(ENV_ID).unwrapped
    env.action_space.seed(1)
    seen, _ = env.reset(seed=1)
    for step in range(1500):
        copy.reset(options={"state": reconstructed(named(seen))})
        what = env.action_space.sample() if step % 3 == 0 else strike(seen)
        seen, reward, terminated, truncated, info = env.step(what)
        copied, copied_reward, copied_end, _, copied_info = copy.step(what)
        np.testing.assert_allclose(copied, seen, atol=2e-4)
        assert copied_reward == pytest.approx(reward, abs=1e-4)
        assert (copied_end, copied_info) == (terminated, info)
        if terminated or truncated:
            seen, _ = env.reset()


def test_the_reward_is_the_change_of_observed_distances():
    """The paper's distances are 1 − proximity, as in its authors' program."""
    env = gym.make(ENV_ID)
    env.action_space.seed(2)
    observation, _ = env.reset(seed=2)
    for step in range(1500):
        before = named(observation)
        observation, reward, terminated, truncated, info = env.step(
            env.action_space.sample() if step % 3 == 0 else strike(observation)
        )
        after = named(observation)
        change = {name: after[name] - before[name] for name in FEATURES}
        assert reward == pytest.approx(
            change["ball_proximity"]
            - change["kick_bonus_open"] / 2
            + 3 * change["ball_to_goal_proximity"]
            + 5 * info["is_success"],
            abs=1e-5,
        )
        if terminated or truncated:
            observation, _ = env.reset()


# -- policies ------------------------------------------------------------------------------------------------------


def strike(observation):
    """Turn to the ball, dash to it, and kick it at the goal, using only observations."""
    seen = named(observation)
    if seen["kickable"] > 0:
        return action(KICK, 100, angle(seen, "ball_to_goal"))
    to_ball = angle(seen, "ball")
    if abs(to_ball) < 10:
        return action(DASH, 100, to_ball)
    speed = 0.42 * math.hypot(seen["velocity_forward"], seen["velocity_right"])
    return action(TURN, np.clip(to_ball * (1 + 5 * speed), -180, 180))


def play(policy, episodes):
    """Return the returns, lengths and successes of episodes."""
    env = gym.make(ENV_ID)
    results = []
    for episode in range(episodes):
        observation, _ = env.reset(seed=episode)
        done, total, length = False, 0.0, 0
        while not done:
            observation, reward, terminated, truncated, info = env.step(policy(observation))
            done, total, length = terminated or truncated, total + reward, length + 1
        results.append((total, length, info["is_success"]))
    return np.array(results).T


def test_a_hand_written_striker_scores():
    returns, lengths, successes = play(strike, 100)
    assert successes.mean() >= 0.95
    assert 50 < lengths.mean() < 90
    assert 9 < returns.mean() < 12


def test_a_random_policy_does_not_score():
    space = gym.make(ENV_ID).action_space
    space.seed(0)
    returns, lengths, successes = play(lambda _: space.sample(), 20)
    assert successes.sum() == 0
    assert returns.mean() < 1
    assert lengths.mean() == pytest.approx(100, abs=10)


# -- documentation ---------------------------------------------------------------------------------------------------


def test_documentation_lists_the_features_in_order():
    text = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
    section = text.split("\n## Half-field offense\n")[1].split("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("|")]
    assert tuple(row[2].strip(" `") for row in rows if row[1].strip().isdigit()) == FEATURES


# -- properties of any environment -----------------------------------------------------------------------------------


def test_render_shows_player_heading_and_ball():
    env = started(ball=(30, -20), player=(20, 10, 90), render_mode="rgb_array")
    frame = env.render()
    assert (frame.shape, frame.dtype) == ((664, 500, 3), np.uint8)

    def middle(colour, rows=slice(None)):
        row, column = np.argwhere((frame[rows] == colour).all(axis=-1)).mean(axis=0)
        return column / 8 - 5, (row + (rows.start or 0)) / 8 - 44

    assert middle(picture.BALL, slice(160, 220)) == pytest.approx((30, -20), abs=0.2)
    assert middle(picture.PLAYER) == pytest.approx((20, 10), abs=0.4)
    assert middle(picture.NOSE) == pytest.approx((20, 11.25), abs=0.3)  # towards growing y, which is down
    assert started((30, -20), (20, 10, 90)).render() is None
    env.step(action(TACKLE, 0))
    assert (env.render() == picture.FROZEN).all(axis=-1).any()


def numbers(low, high):
    return st.one_of(st.sampled_from([low, 0.0, high]), st.floats(low, high, width=32))


ACTIONS = st.tuples(st.integers(0, 3), numbers(0, 100), *[numbers(-180, 180)] * 3, numbers(0, 100), numbers(-180, 180))


@given(st.floats(-4, 4), st.lists(ACTIONS, min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_observations_are_in_the_space_and_episodes_are_reproducible(heading, actions):
    trajectories = []
    for _ in range(2):
        env = gym.make(ENV_ID)
        state = [12, 0, 0, 0, heading, 12.8, 0.5, 0, 0, 0, 0, 1]
        trajectory = [env.reset(seed=0, options={"state": state})[0]]
        for kind, *values in actions:
            dash, turn, tackle, kick = np.split(np.array(values, np.float32), [2, 3, 4])
            what = kind, (dash, turn, tackle, kick)
            assert env.action_space.contains(what)
            observation, reward, terminated, truncated, info = env.step(what)
            assert env.observation_space.contains(observation)
            assert math.isfinite(reward)
            assert not info["action_clipped"]
            trajectory.append([*observation, reward, terminated])
            if terminated or truncated:
                break
        trajectories.append(np.concatenate(trajectory))
    np.testing.assert_array_equal(*trajectories)
