"""Parameter noise perturbs the actor's weights once per episode, by a σ that follows the change of the actions."""

import functools

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_options import TINY
from environments import Counting
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.checkpoints import checkpoint
from ddpg.policies.exploration import GROWTH, INTERVAL, PerturbedExploration
from ddpg.policies.noise import PARAMETER_NOISE

CONFIG = DDPGConfig(
    **TINY, learning_starts=0, updates_per_call=10_000, noise_scale=0.0, parameter_noise=0.3, target="online"
)


class Shifted:
    """A policy with a constant action; its n-th perturbation by σ has the action n · σ."""

    def __init__(self, output=0.0):
        self.output, self.drawn = output, 0

    def __call__(self, observations):
        return np.full((len(observations), 2), self.output, np.float32)

    def in_numpy(self):
        return self

    def perturbed(self, rng, sigma):
        self.drawn += 1
        return Shifted(sigma * self.drawn)


class Silent:
    def sample(self, rng):
        return 0.0

    def reset(self, index):
        pass


def exploration(distance, count=1):
    return PerturbedExploration(
        np.random.default_rng(0),
        0,
        lambda step: 0.0,
        distance=distance,
        size=2,
        make_noise=lambda shape: Silent(),
        scale=0.0,
        count=count,
    )


def test_each_episode_of_each_environment_has_one_perturbation():
    behaviour, policy, states = exploration(0.25, 3), Shifted(), np.zeros((3, 1))
    act = lambda: behaviour.act(policy, states, 1)[0]  # noqa: E731
    behaviour.start(3)
    np.testing.assert_allclose(act(), 0.25 * np.array([[1, 1], [2, 2], [3, 3]]))
    np.testing.assert_allclose(act(), 0.25 * np.array([[1, 1], [2, 2], [3, 3]]))
    behaviour.end_episode(1)
    np.testing.assert_allclose(act(), 0.25 * np.array([[1, 1], [4, 4], [3, 3]]))
    behaviour.start(3)
    np.testing.assert_allclose(act()[0], [1, 1])  # 5 times 0.25, clipped


@pytest.mark.parametrize(("first", "factors"), [(1.0, [GROWTH, 1 / GROWTH]), (0.99, [GROWTH, GROWTH])])
def test_sigma_follows_the_distance(first, factors):
    """The perturbation is σ at the episode's start: its distance is ``first`` · δ, then ``first`` · GROWTH · δ."""
    behaviour, policy = exploration(0.5), Shifted()
    behaviour.sigma = 0.5 * first
    expected = 0.5 * first
    for factor in factors:
        behaviour.end_episode(0)
        policy.drawn = 0
        for _ in range(INTERVAL):
            assert behaviour.sigma == pytest.approx(expected)
            behaviour.act(policy, np.zeros((1, 1)), 1)
        expected *= factor
    assert behaviour.sigma == pytest.approx(expected)


def test_sigma_perturbs_weights_but_not_norm_parameters():
    agent = DDPG(Counting(5), CONFIG.replace(hidden=(300,), norm="layer"), seed=0)
    names = [variable.name.rpartition("/")[2] for variable in agent.policy.variables]
    before = agent.policy.program.parameters()
    after = agent.policy.perturbed(np.random.default_rng(1), 0.1).program.parameters()
    moved = {}
    for name, one, other in zip(names, before, after, strict=True):
        moved.setdefault(name in ("gamma:0", "beta:0"), []).append((other - one).ravel())
    assert len(moved[True]) == 2
    assert not np.concatenate(moved[True]).any()
    deltas = np.concatenate(moved[False])
    assert len(deltas) > 1000
    assert deltas.std() == pytest.approx(0.1, rel=0.1)
    assert abs(deltas.mean()) < 0.01
    np.testing.assert_equal(before, agent.policy.program.parameters())


def test_the_perturbed_policy_acts_and_a_seed_repeats_it():
    agent = DDPG(Counting(4), CONFIG, seed=0).learn(12)
    stored = agent.replay.arrays()
    moved = stored["actions"] - (agent.predict(stored["observations"])[0] - 1) / 3  # the box is [-2, 4]
    assert (np.abs(moved) > 1e-6).all()
    again = DDPG(Counting(4), CONFIG, seed=0).learn(12).replay.arrays()["actions"]
    np.testing.assert_array_equal(stored["actions"], again)


def test_the_perturbed_policy_acts_on_normalised_observations():
    agent = DDPG(Counting(4), CONFIG.replace(normalize_observations=True), seed=0).learn(8)
    assert np.isfinite(agent.replay.arrays()["actions"]).all()


def test_each_environment_of_a_vector_is_perturbed_separately():
    vector = SyncVectorEnv([functools.partial(Counting, 5)] * 3, autoreset_mode=AutoresetMode.SAME_STEP)
    actions = DDPG(vector, CONFIG, seed=0).learn(3).replay.arrays()["actions"][:, 0]
    assert len(set(actions)) == 3


def test_sigma_is_saved(tmp_path):
    agent = DDPG(Counting(7), CONFIG, seed=0).learn(7 * 16)
    assert agent.behaviour.sigma != 0.3
    loaded = DDPG.load(agent.save(tmp_path / "saved"), Counting(7))
    assert loaded.behaviour.sigma == agent.behaviour.sigma
    for one in (agent, loaded):
        one.env.episode = -1  # part of its observations
        one.learn(70)
    np.testing.assert_equal(loaded.replay.arrays(), agent.replay.arrays())
    without = DDPG.load(tmp_path / "saved", Counting(7), config=CONFIG.replace(parameter_noise=0.0))
    assert without.learn(7).num_timesteps == 7 * 17


def test_a_state_is_restored():
    behaviour = exploration(0.5)
    state = {PARAMETER_NOISE: np.array([0.25, 0.75, 6.0])}
    behaviour.restore(state)
    assert (behaviour.sigma, behaviour.state()[PARAMETER_NOISE].tolist()) == (0.25, [0.25, 0.75, 6.0])


def test_an_invalid_state_is_refused(tmp_path):
    path = DDPG(Counting(7), CONFIG, seed=0).save(tmp_path / "saved")
    manifest, groups = checkpoint.read(path)
    manifest = {key: manifest[key] for key in manifest.keys() - {"format", "arrays", "sha256", "manifest_sha256"}}
    for state in ([0.0, 0, 0], [0.1, -1, 0], [0.1, 0, INTERVAL], [0.1, 0]):
        groups["noise"]["parameter_noise"] = np.array(state, float)
        checkpoint.write(path, manifest, groups)
        with refuses(UsageError, "parameter_noise"):
            DDPG.load(path)


def test_a_network_without_a_numpy_program_is_refused():
    with refuses(UsageError, "parameter_noise 0.3"):
        DDPG(Counting(5), CONFIG.replace(activation=tf.sin))


def test_parameter_noise_disturbs_convolutions_too():
    spaces = gym.spaces.Box(0, 255, (6, 5), np.uint8), gym.spaces.Box(-1, 1, (2,))
    with DDPG(spaces, CONFIG.replace(network="conv", buffer_size=50), seed=0) as agent:
        images = np.random.default_rng(0).integers(0, 256, (1, 6, 5)).astype(np.float32)
        before, disturbed = agent.policy.in_numpy(), agent.policy.in_numpy().perturbed(np.random.default_rng(1), 0.1)
        weights = zip(before.program.parameters(), disturbed.program.parameters(), strict=True)
        assert [(one != other).all() for one, other in weights] == [True] * 8  # of two convolutions and two layers
        assert np.abs(agent.policy(images) - disturbed(images)).max() > 1e-3
        assert np.abs(agent.policy(images) - before(images)).max() < 1e-6
