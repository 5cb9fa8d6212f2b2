"""The platform domain: against recorded episodes of the published package, and by hand."""

import json
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from refusals import refuses

from ddpg_envs.platform_world import GROUND, HOP, LEAP, RUN, PlatformWorld

ENV_ID = "ddpg_envs/Platform-v0"
REFERENCE = json.loads((Path(__file__).parent / "data" / "platform_reference.json").read_text())
HIGH = (30.0, 720.0, 430.0)


def action(choice, parameter):
    return choice, tuple(np.array([parameter if index == choice else 0.0]) for index in range(3))


class Constant:
    """A stand-in for a generator with equal normal numbers."""

    def __init__(self, deviations):
        self.deviations = deviations

    def standard_normal(self, size):
        return np.full(size, self.deviations)


# -- the published package, hybrid-platform 0.1.0 (benchmarks/platform_reference.py) ----------------------


def test_the_recorded_episodes_cover_the_course():
    ends = {(len(episode["steps"]) > 5, episode["steps"][-1][2][0] == 1) for episode in REFERENCE["episodes"]}
    assert ends == {(False, False), (False, True), (True, False), (True, True)}  # long or short, finished or not


@pytest.mark.parametrize("episode", REFERENCE["episodes"], ids=lambda episode: f"seed{episode['seed']}")
def test_same_episode_as_the_published_package(episode):
    env = gym.make(ENV_ID).unwrapped
    options = {"state": episode["start"]} if episode["start"] else None
    if episode["noise"] is not None:
        env.np_random = Constant(episode["noise"])
    observation, _ = env.reset(seed=episode["seed"] if episode["noise"] is None else None, options=options)
    np.testing.assert_allclose(observation, episode["first"], atol=1e-6)
    for choice, parameter, expected, reward, end, substeps in episode["steps"]:
        observation, actual_reward, terminated, truncated, info = env.step(action(choice, parameter))
        np.testing.assert_allclose(observation, expected, atol=1e-6)
        assert actual_reward == pytest.approx(reward, abs=1e-9)
        assert (terminated, truncated, info["substeps"]) == (end, False, substeps)


def test_random_policy_as_the_published_package():
    """The same seeds give the same 2000 episodes, so that even the mean is equal."""
    expected = REFERENCE["random_policy"]
    env, rng = gym.make(ENV_ID).unwrapped, np.random.default_rng(expected["seed"])
    env.reset(seed=expected["seed"])
    returns, lengths = [], []
    for _ in range(expected["episodes"]):
        env.reset()
        rewards, terminated = [], False
        while not terminated:
            choice = int(rng.integers(3))
            _, reward, terminated, _, _ = env.step(action(choice, rng.uniform(0, HIGH[choice])))
            rewards.append(reward)
        returns.append(sum(rewards))
        lengths.append(len(rewards))
    assert np.mean(returns) == pytest.approx(expected["mean_return"], abs=1e-9)
    assert np.mean(lengths) == expected["mean_length"]


# -- by hand, without noise --------------------------------------------------------------------------------


@pytest.fixture
def world():
    return PlatformWorld(lambda: 0.0)


def test_one_run(world):
    # Each substep adds 2 to the speed, moves, then keeps 99 %: the k-th moves at 200 (1 − 0.99^k).
    assert world.act(RUN, 2.0) == 20
    speeds = [200 * (1 - 0.99**k) for k in range(1, 21)]
    assert world.x == pytest.approx(0.05 * sum(speeds))
    assert world.vx == pytest.approx(0.99 * speeds[-1])
    assert (world.y, world.vy, world.outcome) == (GROUND, 0.0, None)
    # The enemy starts at the edge: it turns to the edge, turns back, and walks 19 substeps of 1.5.
    assert world.enemies[0].x == pytest.approx(230 - 19 * 1.5)
    assert world.enemies[1].x == 475 + 275 - 20  # stands still until the player arrives there


def test_speed_is_bounded_on_the_ground(world):
    world.x, world.enemies[0].x = 0.0, 200.0
    world.act(RUN, 30.0)
    # 30, then 29.7 + 30, then 70 from the third substep on.
    assert world.x == pytest.approx(0.05 * (30 + 59.7 + 18 * 70))


@pytest.mark.parametrize(("jump", "rise", "substeps"), [(HOP, 35.0, 144), (LEAP, 25.0, 104)])
def test_one_jump(world, jump, rise, substeps):
    # A speed of 20 carries 20 · (2·rise/9.8 + 1) without friction; with it, each substep keeps 99 % of the speed.
    # After k substeps the height is 0.05 (rise·k − 0.49 k(k − 1)/2), first below 0 at k = 144 (104).
    heights = [rise * k - 0.245 * k * (k - 1) for k in (substeps - 1, substeps)]
    assert heights[0] > 0 > heights[1]
    world.enemies[0].x, world.enemies[0].speed = 130.0, 30.0  # out of the way
    assert world.act(jump, 20 * (2 * rise / 9.8 + 1)) == substeps
    assert world.x == pytest.approx(0.05 * 20 * (1 - 0.99**substeps) / 0.01)
    assert (world.y, world.vx, world.vy, world.outcome) == (GROUND, 0.0, 0.0, None)
    peak = max(y for _, y in world.path)
    assert peak == pytest.approx(GROUND + 0.05 * max(rise * k - 0.245 * k * (k - 1) for k in range(substeps)))


def test_a_jump_adds_at_most_30_to_the_speed(world):
    world.act(HOP, 720.0)
    assert world.path[1] == (pytest.approx(0.05 * 30), pytest.approx(GROUND + 0.05 * 35))


def test_noise_only_slows_down():
    world = PlatformWorld(lambda: -1.0)
    world.act(HOP, 20 * (70 / 9.8 + 1))
    # Take-off loses |−1| of both speeds, and 0.025 of the horizontal one as in any substep.
    assert world.path[1] == (pytest.approx(0.05 * (20 - 1 - 0.025)), pytest.approx(GROUND + 0.05 * 34))


def test_running_into_the_gap(world):
    world.x, world.enemies[0].x = 240.0, 20.0
    assert world.act(RUN, 30.0) == 5
    # 241.5, 244.485, 247.985, 251.485: past the edge, still at ground height; then it falls.
    assert [x for x, _ in world.path[1:5]] == pytest.approx([241.5, 244.485, 247.985, 251.485])
    assert world.path[-1] == (pytest.approx(251.485 + 0.05 * 69.3), pytest.approx(GROUND - 0.05 * 0.49))
    assert world.outcome == "fell"


@pytest.mark.parametrize(("x", "outcome"), [(455.01, "fell"), (455.2, None)])
def test_landing_at_an_edge(world, x, outcome):
    # 0.0645 too deep after one substep; pushed out sideways if it is less far inside horizontally.
    world.x, world.y, world.vy = x, GROUND + 0.01, -1.0
    world.act(HOP, 0.0)
    assert world.outcome == outcome
    assert world.path[-1] == pytest.approx((455.0, GROUND - 0.0645) if outcome else (455.2, GROUND))


def test_touching_an_enemy(world):
    world.x, world.enemies[0].x = 100.0, 121.4
    assert world.act(RUN, 0.0) == 1  # it gets to 119.9
    assert world.outcome == "enemy"


def test_passing_over_an_enemy(world):
    # It falls 0.0245 k(k + 1)/2 in k substeps: first below the enemy's top, at 70, at k = 49. By then it is at 111.5.
    world.x, world.y, world.enemies[0].x = 100.0, 100.0, 185.0
    assert world.act(HOP, 0.0) == 49
    assert world.outcome == "enemy"
    assert world.path[-1] == pytest.approx((100.0, 100 - 0.0245 * 49 * 25))


def test_running_in_the_air_means_falling_for_a_second(world):
    world.x, world.y, world.vx, world.enemies[0].x = 100.0, 100.0, 10.0, 110.0  # far above the enemy
    assert world.act(RUN, 30.0) == 20
    assert world.outcome is None
    assert (world.x, world.y) == pytest.approx((100 + 0.05 * 10 * (1 - 0.99**20) / 0.01, 100 - 0.0245 * 20 * 21 / 2))


def test_reaching_the_end():
    env = gym.make(ENV_ID)
    env.reset(seed=0, options={"state": [1034.0, 40, 50, 0, 20, 30, 700, -30]})
    observation, reward, terminated, truncated, info = env.step(action(RUN, 10.0))
    assert (terminated, truncated, info["outcome"]) == (True, False, "finished")
    assert reward == pytest.approx(1 / 1035)
    assert observation[0] == 1.0


def test_truncated_after_200_actions():
    env = gym.make(ENV_ID)
    env.reset(seed=0, options={"state": [1000.0, 40, 0, 0, 20, 30, 700, -30]})  # alone on the last platform
    ends = [env.step(action(RUN, 0.0))[2:4] for _ in range(200)]
    assert ends == [(False, False)] * 199 + [(False, True)]


@pytest.mark.parametrize("state", [[0.0] * 7, [np.nan] * 8, [2000.0, 40, 0, 0, 20, 30, 700, -30]])
def test_an_invalid_state_is_refused(state):
    env = gym.make(ENV_ID).unwrapped
    with refuses(ValueError, "state"):
        env.reset(options={"state": state})


def test_render_shows_player_enemies_platforms_and_gaps():
    env = gym.make(ENV_ID, render_mode="rgb_array")
    env.reset(options={"state": [100.0, 40, 0, 0, 200, -30, 600, -30]})
    frame = env.render()
    assert frame.shape == (208, 880, 3)

    def columns(colour, row):
        return set(np.flatnonzero((frame[row] == colour).all(axis=-1)))

    # 0.8 pixels a unit from x = −20 and y = 260; bodies stand between rows 152 and 176, platforms below.
    assert columns((40, 90, 200), 164) == set(range(96, 112))
    assert columns((200, 60, 60), 164) == set(range(176, 192)) | set(range(496, 512))
    stone = columns((110, 100, 90), 180)
    assert {20, 215, 400, 610, 810, 840} <= stone
    assert not stone & {10, 220, 390, 620, 800, 850}


def test_an_action_is_drawn_as_it_happens():
    """One frame for every four substeps and one for the end; in each the player has moved."""
    env = gym.make(ENV_ID, render_mode="rgb_array_list")
    env.reset(seed=0)
    (start,) = env.render()
    info = env.step((0, ([10.0], [0.0], [0.0])))[4]  # run: 20 substeps
    pictures = env.render()
    assert info["substeps"] == 20
    assert len(pictures) == 5

    def player(picture):
        return np.flatnonzero((picture[156] == (40, 90, 200)).all(axis=-1)).mean()

    places = [player(picture) for picture in (start, *pictures)]
    assert (np.diff(places) > 1).all()
    assert places[-1] == pytest.approx(16 + 8 + 0.8 * env.unwrapped.state[0], abs=1)
    assert env.render() == []
    assert env.metadata["render_fps"] == 20
    env.step((0, ([0.0], [0.0], [0.0])))
    env.reset(seed=0)
    assert len(env.render()) == 1
    assert gym.make(ENV_ID, render_mode="rgb_array").metadata["render_fps"] == 2
