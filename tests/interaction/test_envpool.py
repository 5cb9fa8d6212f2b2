"""EnvPool as a vector: seeds, spaces and episodes' ends; by a stand-in, and by EnvPool itself where it is installed."""

import os
import subprocess
import sys

import fake_envpool
import gymnasium as gym
import numpy as np
import pytest
from environments import transition_rows
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from refusals import refuses

from ddpg import DDPG, DDPGConfig, EnvPoolVector, UsageError
from ddpg.interaction.env_runner import make_env_runner


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", fake_envpool)
    monkeypatch.setattr(fake_envpool, "pools", [])
    return fake_envpool


def collect(env, steps, seed=0, shift=0.0):
    """Return the transitions of ``steps`` steps and the episodes; actions are a fixed sequence, within [-1, 1]."""
    interaction = make_env_runner(env, seed)
    found, episodes = [], []
    for step in range(steps):
        actions = np.sin(shift + step + np.arange(interaction.count))[:, None].astype(np.float32)
        step = interaction.step(actions)
        found += [
            (number, action, *row)
            for action, (number, *row) in zip(step.transitions.actions, transition_rows(step.transitions), strict=True)
        ]
        episodes += step.episodes
    return found, episodes


def assert_alike(some, others):
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        for part, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, same)


# -- by the stand-in ----------------------------------------------------------------------------------------


def test_it_is_a_vector_with_gymnasiums_spaces(fake):
    one = gym.make("Pendulum-v1")
    env = EnvPoolVector("Pendulum-v1", 3, like=one)
    assert isinstance(env, gym.vector.VectorEnv)
    assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    assert (env.num_envs, env.spec) == (3, one.spec)
    assert env.single_observation_space == one.observation_space
    assert env.single_action_space == one.action_space  # float32, of which EnvPool has float64
    assert (env.observation_space.shape, env.action_space.shape) == ((3, 3), (3, 1))
    assert EnvPoolVector("Pendulum-v1", 3).single_action_space.dtype == np.float64
    assert EnvPoolVector("Elsewhere-v0", 2).spec is None  # of which gymnasium knows nothing


def test_transitions_are_those_of_gymnasiums_vector(fake):
    """Two episodes and a bit in each of three, cut at 7 steps: with the same seeds, the same rows."""
    one = gym.make("Pendulum-v1", max_episode_steps=7)
    env = EnvPoolVector("Pendulum-v1", 3, like=one)
    rows, episodes = collect(env, 20)
    seeds = fake.pools[0].seeds

    class Seeded(SyncVectorEnv):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seeds)

    own = Seeded([lambda: gym.make("Pendulum-v1", max_episode_steps=7)] * 3)
    expected, expected_episodes = collect(own, 20)
    for one_row, other in zip(rows, expected, strict=True):
        for part, same in zip(one_row, other, strict=True):
            np.testing.assert_allclose(part, same, rtol=1e-6)
    assert [episode[1:] for episode in episodes] == [episode[1:] for episode in expected_episodes]
    assert len(rows) == 3 * (20 - 2)  # the two steps in which each restarted are no transitions


def test_a_seed_makes_a_pool_and_resets_without_go_on(fake):
    env = EnvPoolVector("Pendulum-v1", 2, num_threads=1)
    assert not fake.pools  # nothing is made before it is known by which seed
    first = env.reset(seed=3)[0]
    further = env.reset()[0]
    assert len(fake.pools) == 1
    np.testing.assert_array_equal(env.reset(seed=3)[0], first)
    np.testing.assert_array_equal(env.reset()[0], further)
    assert not np.array_equal(first, further)
    assert not np.array_equal(env.reset(seed=4)[0], first)
    assert not np.array_equal(first[0], first[1])
    assert [len(pool.seeds) for pool in fake.pools] == [2, 2, 2]
    assert fake.pools[0].spec.config == {"num_envs": 2, "num_threads": 1}
    env.reset(seed=2**70)  # EnvPool takes no more than 31 bits: the stand-in holds that


def test_neighbouring_seeds_share_no_environment(fake):
    """EnvPool itself gives environment i the seed plus i: seeds 0 and 1 would have all but one in common."""
    for seed in range(4):
        EnvPoolVector("Pendulum-v1", 16).reset(seed=seed)
    assert len({seed for pool in fake.pools for seed in pool.seeds}) == 4 * 16


def test_without_a_seed_episodes_differ_from_vector_to_vector(fake):
    one, other = (EnvPoolVector("Pendulum-v1", 2).reset()[0] for _ in range(2))
    assert not np.array_equal(one, other)


def test_a_seed_for_each(fake):
    env = EnvPoolVector("Pendulum-v1", 2)
    both = env.reset(seed=[5, 6])[0]
    np.testing.assert_array_equal(env.reset(seed=[6, 5])[0], both[::-1])
    with refuses(UsageError, "3 seeds 2"):
        env.reset(seed=[1, 2, 3])


def test_limits_are_those_of_gymnasiums_environment(fake):
    EnvPoolVector("Pendulum-v1", 2, like=gym.make("Pendulum-v1", max_episode_steps=9)).reset()
    assert fake.pools[0].spec.config["max_episode_steps"] == 9


def test_stepping_what_is_not_there_or_not_so(fake):
    env = EnvPoolVector("Pendulum-v1", 2)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros((2, 1)))
    env.reset(seed=0)
    env.step([[0.5], [0.25]])
    np.testing.assert_array_equal(fake.pools[0].sent, [[[0.5], [0.25]]])
    with refuses(UsageError, "actions (2,) (2, 1)"):
        env.step(np.zeros(2))
    with refuses(UsageError, "takes none"):
        env.reset(options={"reset_mask": np.ones(2, bool)})
    env.close()
    assert env.closed
    with pytest.raises(gym.error.ResetNeeded):
        env.step(np.zeros((2, 1)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: EnvPoolVector("Pendulum-v3", 2),
            "EnvPool 1.2.5 Pendulum-v3 'Pendulum-v1'",
        ),
        (lambda: EnvPoolVector("Pendulum-v1", 2, speed=3), "2 speed"),
        (lambda: EnvPoolVector("Pendulum-v1", 0), "0"),
        (lambda: EnvPoolVector("Pendulum-v1", 2, seed=3), "seed 3 EnvPoolVector reset(seed"),
        (lambda: EnvPoolVector("Pendulum-v1", 2, batch_size=1), "batch_size 1 EnvPoolVector"),
        (
            lambda: EnvPoolVector("Elsewhere-v0", 2, like=gym.make("MountainCarContinuous-v0")),
            "observations Elsewhere-v0 EnvPool",
        ),
        (
            lambda: EnvPoolVector("FrozenLake-v1", 2, like=gym.make("CartPole-v1")),
            "observations FrozenLake-v1 Discrete(16 EnvPool",
        ),
    ],
)
def test_what_cannot_be_made(fake, make, message):
    with refuses(UsageError, message) as raised:
        make()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("bounds", [(-1.0, 2.0), (-2.0, 1.0)])
def test_each_bound_of_actions_is_held(fake, bounds):
    """Actions within other bounds mean something else in the environment that evaluates."""
    like = gym.make("Pendulum-v1")
    like.action_space = gym.spaces.Box(*bounds, (1,), np.float32)
    with refuses(UsageError, "actions Pendulum-v1 Box(-2.0 2.0"):
        EnvPoolVector("Pendulum-v1", 2, like=like)


def test_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with refuses(UsageError, "envpool 3.11"):
        EnvPoolVector("Pendulum-v1", 2)


def test_not_whole(monkeypatch):
    """Its wheel alone, without the packages of assets, ends in a file that is not there."""

    class Halved:
        def find_spec(self, name, path=None, target=None):
            if name == "envpool":
                raise FileNotFoundError("no roms")

    monkeypatch.delitem(sys.modules, "envpool", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Halved(), *sys.meta_path])
    with refuses(UsageError, "FileNotFoundError"):
        EnvPoolVector("Pendulum-v1", 2)


def test_a_pool_as_it_is_made_is_refused(fake):
    class Raw(gym.vector.VectorEnv):
        metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
        async_reset = send = recv = None

    Raw.single_observation_space = Raw.single_action_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    Raw.num_envs = 2
    with refuses(UsageError, "seeds pass ddpg.EnvPoolVector(ID"):
        make_env_runner(Raw(), 0)


def test_an_agent_learns_in_it(fake):
    env = EnvPoolVector("Pendulum-v1", 2, like=gym.make("Pendulum-v1", max_episode_steps=10))
    config = DDPGConfig(hidden=(4,), batch_size=4, learning_starts=8, updates_per_call=4, jit=False)
    agent = DDPG(env, config, seed=0).learn(60)
    stored = agent.replay.arrays()
    assert len(agent.replay) == agent.num_timesteps >= 60
    assert_pendulum(stored["observations"], stored["actions"][:, 0] * 2, stored["rewards"][:, 0], stored)


def assert_pendulum(observations, torques, rewards, stored):
    """Hold transitions to Pendulum's equations: cos and sin of θ, θ′; a torque within ±2 for 0.05 s."""
    cos, sin, speed = np.asarray(observations, np.float64).T
    angle = np.arctan2(sin, cos)
    np.testing.assert_allclose(rewards, -(angle**2 + 0.1 * speed**2 + 0.001 * torques**2), atol=1e-4)
    speed = np.clip(speed + (15 * np.sin(angle) + 3 * torques) * 0.05, -8, 8)
    angle = angle + speed * 0.05
    np.testing.assert_allclose(
        stored["next_observations"], np.stack([np.cos(angle), np.sin(angle), speed], 1), atol=1e-4
    )


# -- by EnvPool itself --------------------------------------------------------------------------------------


@pytest.fixture
def envpool():
    return pytest.importorskip("envpool")


def test_pendulum_is_gymnasiums_and_nothing_is_stored_across_a_reset(envpool):
    """410 steps: two whole episodes of 200 and the 201st and 402nd step, in which all restart."""
    env = EnvPoolVector("Pendulum-v1", 4, like=gym.make("Pendulum-v1"))
    rows, episodes = collect(env, 410)
    assert len(rows) == 4 * (410 - 2)
    numbers, actions, observations, rewards, after, terminated, truncated = map(np.array, zip(*rows, strict=True))
    assert_pendulum(observations, actions[:, 0], rewards, {"next_observations": after})
    for number in range(4):
        mine = numbers == number
        assert np.flatnonzero(truncated[mine]).tolist() == [199, 399]
        # Within an episode one transition begins where the one before ended, at its end elsewhere.
        joined = (observations[mine][1:] == after[mine][:-1]).all(axis=1)
        assert np.flatnonzero(~joined).tolist() == [199, 399]
    assert not terminated.any()
    assert [episode.length for episode in episodes] == [200] * 8
    assert observations.dtype == np.float32


def test_the_same_seed_gives_the_same_whatever_the_threads(envpool):
    some, _ = collect(EnvPoolVector("Pendulum-v1", 16, num_threads=1), 220, seed=7)
    others, _ = collect(EnvPoolVector("Pendulum-v1", 16, num_threads=4), 220, seed=7)
    assert_alike(some, others)
    differing, _ = collect(EnvPoolVector("Pendulum-v1", 16), 1, seed=8)
    assert not {tuple(row[2]) for row in differing} & {tuple(row[2]) for row in some[:16]}


def test_threads_end_with_the_vector_and_with_every_seed(envpool):
    def threads():
        return len(os.listdir("/proc/self/task"))

    if not sys.platform.startswith("linux"):
        pytest.skip("threads are counted in /proc")
    before = threads()
    env = EnvPoolVector("Pendulum-v1", 4, num_threads=3)
    counts = []
    for seed in range(4):
        env.reset(seed=seed)
        counts.append(threads())
    env.close()
    assert min(counts) == max(counts) >= before + 3
    assert threads() == before


def test_half_cheetah_is_gymnasiums(envpool):
    """float64 observations; a step of gymnasium's from the same position, speed and action ends in the same place."""
    pytest.importorskip("mujoco")
    one = gym.make("HalfCheetah-v5")
    env = EnvPoolVector("HalfCheetah-v5", 2, like=one)
    assert env.single_action_space == one.action_space
    one.reset(seed=0)
    rng = np.random.default_rng(0)
    observations, _ = env.reset(seed=0)
    assert observations.dtype == np.float64
    for _ in range(20):
        actions = rng.uniform(-1, 1, (2, 6))
        after, rewards, *_ = env.step(actions)
        for index in range(2):
            one.unwrapped.set_state(np.append(0, observations[index, :8]), observations[index, 8:])
            expected, reward, *_ = one.step(actions[index])
            np.testing.assert_allclose(after[index], expected, atol=1e-6)
            np.testing.assert_allclose(rewards[index], reward, rtol=1e-6, atol=1e-6)  # a float32
        observations = after


def test_what_ends_where_it_is_cut_is_told_as_cut(envpool):
    """docs/environments.md says so; gymnasium's own tells both."""

    def end(**options):
        env = EnvPoolVector("CartPole-v1", 2, **options)
        env.reset(seed=3)
        for step in range(1, 100):
            _, _, terminated, truncated, _ = env.step(np.ones(2, int))
            if terminated[0] or truncated[0]:
                return step, bool(terminated[0]), bool(truncated[0])

    fallen, *told = end()
    assert told == [True, False]
    assert end(max_episode_steps=fallen) == (fallen, False, True)


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_what_envpool_makes_is_told_apart(envpool):
    raw = envpool.make("Pendulum-v1", env_type="gymnasium", num_envs=2)
    with refuses(UsageError, "over"):
        DDPG(raw, DDPGConfig(hidden=(4,))).learn(10)


def test_envpool_is_imported_when_a_vector_is_made():
    code = "import ddpg, sys; ddpg.EnvPoolVector; assert not {'envpool', 'tensorflow'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
