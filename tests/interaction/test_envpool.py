"""EnvPool as a vector environment: seeds, spaces and episode ends, with a fake, and with EnvPool where installed."""

import os
import subprocess
import sys

import fake_envpool
import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY
from conftest import assert_close
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
    """Return transitions and episodes of ``steps`` steps with a fixed sequence of actions in [-1, 1]."""
    runner = make_env_runner(env, seed)
    found, episodes = [], []
    for step in range(steps):
        actions = np.sin(shift + step + np.arange(runner.count))[:, None].astype(np.float32)
        step = runner.step(actions)
        found += [
            (number, action, *row)
            for action, (number, *row) in zip(step.transitions.actions, transition_rows(step.transitions), strict=True)
        ]
        episodes += step.episodes
    return found, episodes


# -- with the fake -----------------------------------------------------------------------------------------


def test_it_is_a_vector_environment_with_gymnasiums_spaces(fake):
    one = gym.make("Pendulum-v1")
    env = EnvPoolVector("Pendulum-v1", 3, like=one)
    assert isinstance(env, gym.vector.VectorEnv)
    assert env.metadata["autoreset_mode"] == AutoresetMode.NEXT_STEP
    assert (env.num_envs, env.spec) == (3, one.spec)
    assert env.single_observation_space == one.observation_space
    assert env.single_action_space == one.action_space  # float32; EnvPool's own is float64
    assert (env.observation_space.shape, env.action_space.shape) == ((3, 3), (3, 1))
    assert EnvPoolVector("Pendulum-v1", 3).single_action_space.dtype == np.float64
    assert EnvPoolVector("Elsewhere-v0", 2).spec is None  # not registered with gymnasium


def test_transitions_equal_those_of_gymnasiums_vector(fake):
    """With the same seeds, rows are equal over more than two episodes of 7 steps in each of three environments."""
    one = gym.make("Pendulum-v1", max_episode_steps=7)
    env = EnvPoolVector("Pendulum-v1", 3, like=one)
    rows, episodes = collect(env, 20)
    seeds = fake.pools[0].seeds

    class Seeded(SyncVectorEnv):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seeds)

    own = Seeded([lambda: gym.make("Pendulum-v1", max_episode_steps=7)] * 3)
    expected, expected_episodes = collect(own, 20)
    assert_close(rows, expected, rtol=1e-6)
    assert [episode[1:] for episode in episodes] == [episode[1:] for episode in expected_episodes]
    assert len(rows) == 3 * (20 - 2)  # the two steps in which each environment resets give no transitions


def test_a_seeded_reset_makes_a_pool_and_an_unseeded_one_continues_it(fake):
    env = EnvPoolVector("Pendulum-v1", 2, num_threads=1)
    assert not fake.pools  # it is made once the seed is known
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
    env.reset(seed=2**70)  # EnvPool accepts at most 31 bits, which the fake checks


def test_neighbouring_seeds_share_no_environment(fake):
    """EnvPool itself seeds environment i with seed + i, so that seeds 0 and 1 would share all but one environment."""
    for seed in range(4):
        EnvPoolVector("Pendulum-v1", 16).reset(seed=seed)
    assert len({seed for pool in fake.pools for seed in pool.seeds}) == 4 * 16


def test_vectors_without_a_seed_differ(fake):
    one, other = (EnvPoolVector("Pendulum-v1", 2).reset()[0] for _ in range(2))
    assert not np.array_equal(one, other)


def test_a_list_of_seeds_seeds_each_environment(fake):
    env = EnvPoolVector("Pendulum-v1", 2)
    both = env.reset(seed=[5, 6])[0]
    np.testing.assert_array_equal(env.reset(seed=[6, 5])[0], both[::-1])
    with refuses(UsageError, "3 seeds 2"):
        env.reset(seed=[1, 2, 3])


def test_the_time_limit_is_that_of_gymnasiums_environment(fake):
    EnvPoolVector("Pendulum-v1", 2, like=gym.make("Pendulum-v1", max_episode_steps=9)).reset()
    assert fake.pools[0].spec.config["max_episode_steps"] == 9


def test_invalid_steps_and_resets_are_refused(fake):
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
        (lambda: EnvPoolVector("Pendulum-v3", 2), "EnvPool 1.2.5 Pendulum-v3 'Pendulum-v1'"),
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
def test_arguments_that_envpool_cannot_use_are_refused(fake, make, message):
    with refuses(UsageError, message) as raised:
        make()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("bounds", [(-1.0, 2.0), (-2.0, 1.0)])
def test_different_action_bounds_are_refused(fake, bounds):
    """The environment that evaluates would scale actions differently."""
    like = gym.make("Pendulum-v1")
    like.action_space = gym.spaces.Box(*bounds, (1,), np.float32)
    with refuses(UsageError, "actions Pendulum-v1 Box(-2.0 2.0"):
        EnvPoolVector("Pendulum-v1", 2, like=like)


def test_a_missing_envpool_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with refuses(UsageError, "envpool 3.11"):
        EnvPoolVector("Pendulum-v1", 2)


def test_an_incomplete_installation_is_refused(monkeypatch):
    """Importing EnvPool's wheel without its asset packages raises FileNotFoundError."""

    class Incomplete:
        def find_spec(self, name, path=None, target=None):
            if name == "envpool":
                raise FileNotFoundError("no roms")

    monkeypatch.delitem(sys.modules, "envpool", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Incomplete(), *sys.meta_path])
    with refuses(UsageError, "FileNotFoundError"):
        EnvPoolVector("Pendulum-v1", 2)


def test_the_env_runner_refuses_a_raw_envpool_vector(fake):
    class Raw(gym.vector.VectorEnv):
        metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
        async_reset = send = recv = None

    Raw.single_observation_space = Raw.single_action_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    Raw.num_envs = 2
    with refuses(UsageError, "seeds pass ddpg.EnvPoolVector(ID"):
        make_env_runner(Raw(), 0)


def test_an_agent_learns_with_an_envpool_vector(fake):
    env = EnvPoolVector("Pendulum-v1", 2, like=gym.make("Pendulum-v1", max_episode_steps=10))
    config = DDPGConfig(**TINY, learning_starts=8, updates_per_call=4)
    agent = DDPG(env, config, seed=0).learn(60)
    stored = agent.replay.arrays()
    assert len(agent.replay) == agent.num_timesteps >= 60
    assert_pendulum(stored["observations"], stored["actions"][:, 0] * 2, stored["rewards"][:, 0], stored)


def assert_pendulum(observations, torques, rewards, stored):
    """Check transitions against Pendulum's equations: observations (cos θ, sin θ, θ′), torques within ±2 for 0.05 s."""
    cos, sin, speed = np.asarray(observations, np.float64).T
    angle = np.arctan2(sin, cos)
    np.testing.assert_allclose(rewards, -(angle**2 + 0.1 * speed**2 + 0.001 * torques**2), atol=1e-4)
    speed = np.clip(speed + (15 * np.sin(angle) + 3 * torques) * 0.05, -8, 8)
    angle = angle + speed * 0.05
    np.testing.assert_allclose(
        stored["next_observations"], np.stack([np.cos(angle), np.sin(angle), speed], 1), atol=1e-4
    )


# -- with EnvPool itself ------------------------------------------------------------------------------------


@pytest.fixture
def envpool():
    return pytest.importorskip("envpool")


def test_pendulum_equals_gymnasiums_and_no_transition_crosses_a_reset(envpool):
    """410 steps hold two complete episodes of 200; all environments reset in steps 201 and 402."""
    env = EnvPoolVector("Pendulum-v1", 4, like=gym.make("Pendulum-v1"))
    rows, episodes = collect(env, 410)
    assert len(rows) == 4 * (410 - 2)
    numbers, actions, observations, rewards, after, terminated, truncated = map(np.array, zip(*rows, strict=True))
    assert_pendulum(observations, actions[:, 0], rewards, {"next_observations": after})
    for number in range(4):
        mine = numbers == number
        assert np.flatnonzero(truncated[mine]).tolist() == [199, 399]
        # Within an episode each transition begins where the previous one ended; the next episode begins elsewhere.
        joined = (observations[mine][1:] == after[mine][:-1]).all(axis=1)
        assert np.flatnonzero(~joined).tolist() == [199, 399]
    assert not terminated.any()
    assert [episode.length for episode in episodes] == [200] * 8


def test_the_number_of_threads_does_not_change_results(envpool):
    some, _ = collect(EnvPoolVector("Pendulum-v1", 16, num_threads=1), 220, seed=7)
    others, _ = collect(EnvPoolVector("Pendulum-v1", 16, num_threads=4), 220, seed=7)
    np.testing.assert_equal(some, others)
    differing, _ = collect(EnvPoolVector("Pendulum-v1", 16), 1, seed=8)
    assert not {tuple(row[2]) for row in differing} & {tuple(row[2]) for row in some[:16]}


def test_closing_and_reseeding_end_a_pools_threads(envpool):
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
    """A step from the same position and velocity ends where gymnasium's does; observations are float64."""
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


def test_an_episode_that_terminates_at_its_time_limit_is_only_truncated(envpool):
    """As docs/environments.md explains; gymnasium's own environment reports both."""

    def end(**options):
        env = EnvPoolVector("CartPole-v1", 2, **options)
        env.reset(seed=3)
        for step in range(1, 100):
            _, _, terminated, truncated, _ = env.step(np.ones(2, int))
            if terminated[0] or truncated[0]:
                return step, bool(terminated[0]), bool(truncated[0])

    length, *flags = end()
    assert flags == [True, False]
    assert end(max_episode_steps=length) == (length, False, True)


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_an_agent_refuses_a_raw_envpool_vector(envpool):
    raw = envpool.make("Pendulum-v1", env_type="gymnasium", num_envs=2)
    with refuses(UsageError, "EnvPoolVector"):
        DDPG(raw, DDPGConfig(hidden=(4,))).learn(10)


def test_envpool_is_imported_only_when_a_vector_is_made():
    code = "import ddpg, sys; ddpg.EnvPoolVector; assert not {'envpool', 'tensorflow'} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
