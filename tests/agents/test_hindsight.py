"""Hindsight: transitions relabelled with goals that were reached later."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting, Reaching
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import FlattenObservation
from refusals import lacking, refuses
from scipy import stats

from ddpg import DDPG, DQN, ActionMask, DDPGConfig, DQNConfig, ReplayBuffer, UsageError, evaluate
from ddpg.errors import EnvironmentFault
from ddpg.replay.hindsight import make_hindsight
from ddpg.runs.env_factory import make_env

SMALL = DDPGConfig(
    hidden=(8,), batch_size=8, learning_starts=20, updates_per_call=4, hindsight=4, jit=False, optimizer="sgd"
)
STEP, PLACE, ACHIEVED, DESIRED = 0, 1, 2, 3  # indices in the flat observation: the Dict's parts in order


def goals(length=6):
    return FlattenObservation(Reaching(length))


def walked(places, goal=9.0):
    """Return the memory of one episode that visited ``places``, and its relabeller."""
    path = np.array([[step, place, place, goal] for step, place in enumerate(places)], np.float32)
    count = len(places) - 1
    buffer = ReplayBuffer(50, (4,), 1)
    no, cut = np.zeros(count, bool), np.arange(count) == count - 1
    buffer.add(path[:-1], np.zeros((count, 1)), np.full(count, -1.0), path[1:], no, cut, [0] * count)
    return buffer, make_hindsight(goals(), buffer, 4)


def relabelled(buffer, relabel, rows):
    rng = np.random.default_rng(0)
    batch = relabel(buffer.gather(rows), rows, rng)
    return batch, batch.observations[..., DESIRED] != 9


def test_later_places_are_goals_with_equal_frequency(rng):
    """From place 0 through 10, 20, 30, 40: step 1 can be relabelled with 20, 30 or 40."""
    buffer, relabel = walked([0, 10, 20, 30, 40])
    rows = np.tile(np.arange(4), (100, 100))
    batch, changed = relabelled(buffer, relabel, rows)
    assert changed.mean() == pytest.approx(0.8, abs=0.02)
    for row in range(4):
        new = batch.observations[..., DESIRED][changed & (rows == row)]
        values, counts = np.unique(new, return_counts=True)
        assert values.tolist() == [10 * step for step in range(row + 1, 5)]
        assert len(counts) == 1 or stats.chisquare(counts).pvalue > 0.001
    np.testing.assert_array_equal(batch.next_observations[..., DESIRED], batch.observations[..., DESIRED])
    reached = batch.next_observations[..., ACHIEVED] == batch.next_observations[..., DESIRED]
    np.testing.assert_array_equal(batch.rewards[..., 0], np.where(reached, 0, -1))
    assert reached.any()
    for name in ("observations", "next_observations"):  # other fields and the memory itself are unchanged
        raw = buffer.arrays()[name]
        np.testing.assert_array_equal(getattr(batch, name)[..., :DESIRED], raw[rows][..., :DESIRED])
        assert (raw[:, DESIRED] == 9).all()


def test_goals_are_from_the_same_episode():
    """Two interleaved environments and several episodes of known length."""
    env = SyncVectorEnv([lambda: goals(3), lambda: goals(5)], autoreset_mode=AutoresetMode.SAME_STEP)
    agent = DDPG(env, SMALL.replace(learning_starts=1000), seed=0).learn(60)
    after = agent.replay.arrays()["next_observations"]
    relabel = make_hindsight(env, agent.replay, 4)
    rows = np.arange(60)
    for _ in range(20):
        later = relabel._later(rows, np.random.default_rng(_))
        assert ((later - rows) % 2 == 0).all()  # the environments' rows alternate
        assert (after[later, STEP] >= after[rows, STEP]).all()
        assert (after[later, STEP] - after[rows, STEP] == (later - rows) / 2).all()


class Turning(Reaching):
    """Steps of −1, 0 or 1, where the last one may not be repeated; the mask is in ``info`` or in the observation."""

    def __init__(self, in_observation):
        super().__init__()
        self.action_space, self.in_observation = gym.spaces.Discrete(3), in_observation
        if in_observation:
            mask = {"action_mask": gym.spaces.MultiBinary(3)}
            self.observation_space = gym.spaces.Dict(**mask, **self.observation_space.spaces)

    def reset(self, *, seed=None, options=None):
        return self._masked(None, *super().reset(seed=seed))

    def step(self, action):
        return self._masked(action, *super().step([action - 1.0]))

    def _masked(self, last, observation, *rest):
        mask = {"action_mask": np.arange(3) != last}
        (observation if self.in_observation else rest[-1]).update(mask)
        return observation, *rest


@pytest.mark.parametrize("in_observation", [False, True])
@pytest.mark.parametrize("as_vector", [False, True])
def test_relabelled_transitions_keep_their_action_masks(in_observation, as_vector):
    env = ActionMask(Turning(in_observation))
    if as_vector:
        env = SyncVectorEnv([lambda: ActionMask(Turning(in_observation))] * 2)
    config = DQNConfig(hidden=(8,), learning_starts=1000, jit=False, optimizer="sgd", hindsight=4)
    agent = DQN(env, config, seed=0).learn(40)
    rows = np.arange(40)[None]
    relabel = make_hindsight(env, agent.replay, 10**6)
    batch = relabel(agent.replay.gather(rows), rows, np.random.default_rng(0))
    achieved, desired = (0, 1) if in_observation else (ACHIEVED, DESIRED)  # a Dict without its mask is sorted by name
    kept = agent.replay.gather(rows)
    for new, old in ((batch.observations, kept.observations), (batch.next_observations, kept.next_observations)):
        assert (new[..., desired] != old[..., desired]).any()
        np.testing.assert_array_equal(np.delete(new, desired, -1), np.delete(old, desired, -1))
    reached = batch.next_observations[..., achieved] == batch.next_observations[..., desired]
    np.testing.assert_array_equal(batch.rewards[..., 0], np.where(reached, 0, -1))
    assert reached.any()


@pytest.mark.slow
def test_an_agent_learns_to_reach(tmp_path):
    """Six steps, a goal at most three away, and a reward only at the goal."""
    gym.register("Reaching-v0", Reaching)
    env = make_env("Reaching-v0")
    config = SMALL.replace(
        **{"hidden": (32,), "batch_size": 32, "learning_starts": 200, "gamma": 0.8, "tau": 0.05, "noise_scale": 0.5},
        optimizer="adam",
    )
    agent = DDPG(env, config, seed=0).learn(1000)
    assert evaluate(agent, make_env("Reaching-v0"), 20, seed=1).summary()["success_rate"] >= 0.9
    loaded = DDPG.load(agent.save(tmp_path / "c"))
    with refuses(UsageError, "hindsight environment"):
        loaded.update(1)
    resumed = DDPG.load(tmp_path / "c", env)
    assert resumed.update(4) == agent.update(4)


def test_an_environment_without_goals_is_refused():
    buffer = ReplayBuffer(5, (4,), 1)
    for env in (Counting(), AsyncVectorEnv([goals])):
        with refuses(UsageError, "hindsight=4"):
            make_hindsight(env, buffer, 4)
        env.close()
    with refuses(UsageError, "FlattenObservation"):
        make_hindsight(gym.wrappers.TimeAwareObservation(gym.wrappers.TimeLimit(goals(), 5)), buffer, 4)
    vectors = gym.wrappers.vector
    for env in (
        gym.wrappers.TransformReward(goals(), lambda reward: 0.1 * reward),
        gym.wrappers.NormalizeReward(goals()),
        gym.wrappers.TransformObservation(goals(), lambda values: 2 * values, goals().observation_space),
        SyncVectorEnv([lambda: gym.wrappers.TransformReward(goals(), lambda reward: 0.1 * reward)]),
        gym.wrappers.RepeatAction(goals(), 2),
        gym.wrappers.MaxAndSkipObservation(goals(), 2),
        vectors.NormalizeObservation(SyncVectorEnv([goals])),
        vectors.ClipReward(SyncVectorEnv([goals]), 0, 1),
    ):
        with refuses(
            UsageError, type(env if isinstance(env, gym.Wrapper | gym.vector.VectorWrapper) else env.envs[0]).__name__
        ):
            make_hindsight(env, buffer, 4)
    for env in (
        gym.wrappers.RecordEpisodeStatistics(gym.wrappers.DtypeObservation(goals(), np.float64)),
        vectors.FlattenObservation(SyncVectorEnv([lambda: Reaching(6)])),
    ):
        make_hindsight(env, buffer, 4)
    one_at_a_time = goals()
    one_at_a_time.unwrapped.compute_reward = lambda achieved, desired, info: 0.0
    rows = np.zeros((2, 8), int)
    walk, _ = walked([0, 1, 2])
    with refuses(UsageError, "shape ()"):
        make_hindsight(one_at_a_time, walk, 4)(walk.gather(rows), rows, np.random.default_rng(0))


@pytest.mark.parametrize("returned", [None, "NaN", "masked", "exits"])
def test_invalid_rewards_of_compute_reward_are_an_environment_error(returned):
    def compute_reward(achieved, desired, info):
        if returned == "exits":
            raise SystemExit(0)
        values = np.zeros(len(desired))
        return {"NaN": values * np.nan, "masked": np.ma.masked_array(values, mask=True)}.get(returned)

    env, rows, (walk, _) = goals(), np.zeros((2, 8), int), walked([0, 1, 2])
    env.unwrapped.compute_reward = compute_reward
    with refuses(EnvironmentFault, "compute_reward"):
        make_hindsight(env, walk, 4)(walk.gather(rows), rows, np.random.default_rng(0))


class Cells(gym.Env):
    """An environment with goals of any space; the reward is minus the distance to the goal."""

    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, space):
        box = gym.spaces.Box(0, 1, (1,))
        self.observation_space = gym.spaces.Dict(observation=box, achieved_goal=space, desired_goal=space)
        self._axes = tuple(range(-len(space.shape or ()), 0))

    def compute_reward(self, achieved, desired, info):
        return -np.abs(np.asarray(achieved, float) - desired).sum(axis=self._axes)


def flat_observation(space, achieved, desired):
    """Return the flat observation with two goals."""
    of_goal = [gym.spaces.flatten(space, goal).ravel() for goal in (achieved, desired)]
    return np.concatenate([[0], *of_goal]).astype(np.float32)


@pytest.mark.parametrize(
    ("space", "of"),
    [
        (gym.spaces.MultiDiscrete([9]), lambda cell: np.array([cell])),
        (gym.spaces.Discrete(9, start=2), lambda cell: cell + 2),
        (gym.spaces.Box(0, 9, (2, 2)), lambda cell: np.array([[cell, 3], [3, 3]], np.float32)),
        (gym.spaces.MultiBinary(9), lambda cell: (np.arange(9) < cell).astype(np.int8)),
    ],
    ids=["MultiDiscrete", "Discrete", "2-D", "MultiBinary"],
)
def test_rewards_of_goals_of_every_space(space, of):
    """From cell 0 through 2 to 5, with the goal 7: relabelled with 5, the first step is worth -3 and the second 0."""
    env = FlattenObservation(Cells(space))
    path = np.array([flat_observation(space, of(cell), of(7)) for cell in (0, 2, 5)])
    buffer = ReplayBuffer(9, path.shape[1:], 1)
    buffer.add(path[:-1], np.zeros((2, 1)), [-5.0, -2.0], path[1:], [False] * 2, [False, True], [0] * 2)
    rows = np.tile([0, 1], (1, 100))
    batch = make_hindsight(env, buffer, 4)(buffer.gather(rows), rows, np.random.default_rng(0))
    goals = {gym.spaces.flatten(space, of(cell)).astype(np.float32).tobytes(): cell for cell in (2, 5, 7)}
    size = (path.shape[1] - 1) // 2
    found = {
        (int(row), goals[np.ascontiguousarray(seen[-size:]).tobytes()], float(reward))
        for row, seen, reward in zip(rows[0], batch.observations[0], batch.rewards[0, :, 0], strict=True)
    }
    assert found == {(0, 2, 0.0), (0, 5, -3.0), (0, 7, -5.0), (1, 5, 0.0), (1, 7, -2.0)}


@pytest.mark.parametrize(
    "space", [gym.spaces.Box(0, 9, (2,), np.int64), gym.spaces.Box(0, 9, (2,), np.uint8), gym.spaces.MultiBinary(2)]
)
def test_goals_of_integers_are_integers_for_compute_reward(space):
    """They may be indices into a table, here of the length of the path between two cells."""
    env, lengths = FlattenObservation(Cells(space)), 2.0 * abs(np.arange(10) - np.arange(10)[:, None])
    env.unwrapped.compute_reward = lambda achieved, desired, info: -lengths[achieved, desired].sum(axis=1)
    path = np.array([flat_observation(space, [0, cell], [1, 1]) for cell in (0, 1, 1)])
    buffer = ReplayBuffer(9, path.shape[1:], 1)
    buffer.add(path[:-1], np.zeros((2, 1)), [-2.0, -2.0], path[1:], [False] * 2, [False, True], [0] * 2)
    rows = np.tile([0, 1], (1, 100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = make_hindsight(env, buffer, 4)(buffer.gather(rows), rows, np.random.default_rng(0))
    assert set(batch.rewards.ravel()) == {0.0, -2.0}


def test_a_wrong_reward_of_goals_of_integers_is_not_taken_for_rounding():
    """Moved a little, cell 1 would be cell 0, where the reward is the stored one."""
    space = gym.spaces.Box(0, 9, (1,), np.int64)
    env = FlattenObservation(Cells(space))
    env.unwrapped.compute_reward = lambda achieved, desired, info: -1.0 * achieved[:, 0]
    path = np.array([flat_observation(space, [1], [0])] * 3)
    buffer = ReplayBuffer(9, path.shape[1:], 1)
    buffer.add(path[:-1], np.zeros((2, 1)), [0.0, 0.0], path[1:], [False] * 2, [False, True], [0] * 2)
    with pytest.warns(UserWarning, match="2 of 2 differ"):
        make_hindsight(env, buffer, 4)(buffer.gather(np.array([[0, 1]])), np.array([[0, 1]]), np.random.default_rng(0))


def test_goals_that_are_not_arrays_are_refused():
    space = gym.spaces.Tuple([gym.spaces.Discrete(3), gym.spaces.Box(0, 1, (1,))])
    with refuses(UsageError, "hindsight=4 achieved_goal Tuple Box MultiBinary"):
        make_hindsight(FlattenObservation(Cells(space)), ReplayBuffer(5, (9,), 1), 4)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_rewards_that_differ_from_compute_rewards_are_warned_of_once(share):
    """A wrapper or some environments of a vector scale rewards: all rows, or half, have a tenth of compute_reward's."""
    buffer, relabel = walked(range(20), goal=30.0)
    others = buffer._rewards[: int(19 * share)]
    others *= 0.1
    rows = np.tile(np.arange(19), (2, 1))
    words = f"compute_reward -1 achieved_goal [1.0] desired_goal [30.0] -0.1 {2 * len(others)} 38"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            relabel(buffer.gather(rows), rows, np.random.default_rng(0))
    assert len(caught) == 1
    assert not lacking(str(caught[0].message), words)


def test_a_reward_is_not_changed_by_rounding_to_float32():
    """A distance within the threshold 0.3 in float64 is above it in float32."""
    space = gym.spaces.Box(0, 9, (1,))
    env = FlattenObservation(Cells(space))
    env.unwrapped.compute_reward = lambda achieved, desired, info: -1.0 * (abs(achieved - desired) > 0.3)[:, 0]
    path = np.array([flat_observation(space, [0.3], [0.0])] * 3)
    buffer, rows = ReplayBuffer(9, (3,), 1), np.zeros((1, 8), int)
    buffer.add(path[:-1], np.zeros((2, 1)), [0.0, 0.0], path[1:], [False] * 2, [False, True], [0] * 2)
    assert env.unwrapped.compute_reward(np.float64([[0.3]]), np.float64([[0.0]]), {}) == 0
    assert env.unwrapped.compute_reward(np.float32([[0.3]]).astype(float), np.float64([[0.0]]), {}) == -1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_hindsight(env, buffer, 4)(buffer.gather(rows), rows, np.random.default_rng(0))
