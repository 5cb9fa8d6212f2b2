"""Schedules of the noise and of each network's learning rate, and γ from the episode's length."""

import contextlib
import warnings

import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.policies.exploration import BoxExploration
from ddpg.policies.noise import GaussianNoise
from ddpg.policies.schedules import factor_of

SMALL = DDPGConfig(**TINY, learning_starts=10, updates_per_call=1, buffer_size=100)
BOX = gym.spaces.Box(-1, 1, (1,), np.float32)


def actions(share):
    """Return exploring actions at steps 0 to 4, of an environment and then for given states."""
    rng = np.random.default_rng(0)
    exploration = BoxExploration(
        rng, 0, lambda step: 0.0, size=2, make_noise=lambda shape: GaussianNoise(0.01, shape), scale=0.01, share=share
    )
    states = np.zeros((1, 2), np.float32)
    taken = [exploration.act(lambda states: states, states, step)[0] for step in range(5)]
    return np.stack([*taken, *(exploration.around(states, step) for step in range(5))])


def test_noise_is_scaled_by_its_schedule():
    scale = np.array([1, 0.5, 0.25, 0, 2.0])
    scheduled = actions(lambda step: scale[step])
    np.testing.assert_allclose(scheduled, np.tile(scale, 2)[:, None, None] * actions(None), rtol=1e-6)


@pytest.fixture(scope="module")
def learned():
    """Return an agent after 40 steps, and the learning rates of actor and critic at each step."""
    config = SMALL.replace(
        gamma=None,
        actor_learning_rate_schedule="linear",
        critic_learning_rate_schedule=lambda left: left**2,
        noise_schedule="linear",
        noise_scale=0.1,
        noise_final=0.02,
        exploration_steps=80,
    )
    agent, rates = DDPG(gym.make("Pendulum-v1"), config, seed=0), {}

    def record(agent):
        rates[agent.num_timesteps] = agent.session.run([agent.actor.learning_rate, agent.critic.learning_rate])

    return agent.learn(40, record), rates


def test_each_network_follows_its_own_schedule(learned):
    agent, rates = learned
    np.testing.assert_allclose(rates[20], [0.5e-3, 0.25e-3], rtol=1e-5)
    np.testing.assert_allclose(rates[30], [0.25e-3, 0.0625e-3], rtol=1e-5)
    after = agent.session.run([agent.actor.learning_rate, agent.critic.learning_rate])
    np.testing.assert_allclose(after, [1e-3, 1e-3], rtol=1e-5)


def test_a_call_of_updates_longer_than_a_fifth_of_a_run_with_falling_rates_warns():
    """In it the rates are constant, and in the run's last call they are 0."""
    agent = DDPG(gym.make("Pendulum-v1"), SMALL, seed=0)
    for schedule, per_call, per_step, warned in (
        ("linear", 41, 1.0, True),
        ("linear", 40, 1.0, False),
        ("linear", 41, 2.0, False),
        ("linear", 33, 0.5, True),
        ("linear", 32, 0.5, False),  # the default
        ("constant", 41, 1.0, False),
    ):
        options = {"learning_rate_schedule": schedule, "updates_per_call": per_call, "updates_per_step": per_step}
        agent.config = SMALL.replace(**options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            agent.learn(200 - agent.num_timesteps, lambda agent: False)
        assert ["updates_per_call" in str(warning.message) for warning in caught] == [True] * warned, options


def test_noise_decays_from_its_initial_to_its_final_scale(learned):
    """At step 40 of 80, halfway from 0.1 to 0.02: 0.06 of the half-range, 2."""
    agent, _ = learned
    observations = np.zeros((20_000, 3), np.float32)
    difference = agent.predict(observations, deterministic=False)[0] - agent.predict(observations)[0]
    assert difference.std() == pytest.approx(2 * 0.06, rel=0.03)


def test_gamma_follows_from_the_episode_length(learned):
    """Pendulum's episodes have 200 steps: 1 − 5/200."""
    agent, _ = learned
    assert agent.config.gamma == pytest.approx(0.975)


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_gamma_of_a_vector_follows_from_its_environments(kind):
    with contextlib.closing(kind([lambda: gym.make("Pendulum-v1")] * 2)) as env:
        assert env.spec is None
        assert DDPG(env, SMALL.replace(gamma=None), seed=0).config.gamma == pytest.approx(0.975)


def test_a_vector_without_a_known_episode_length_is_refused():
    def get_attr(name):
        raise AttributeError("Can't pickle local object")

    env = SyncVectorEnv([lambda: gym.make("Pendulum-v1")])
    env.get_attr = get_attr
    with refuses(UsageError, "AttributeError gamma"):
        DDPG(env, SMALL.replace(gamma=None))


def test_gamma_without_an_episode_length_is_refused():
    with refuses(UsageError, "gamma"):
        DDPG((BOX, BOX), SMALL.replace(gamma=None))


@pytest.mark.parametrize(
    ("schedule", "words"),
    [(lambda left: None, "None"), (lambda left: -left, "-0.25"), (lambda left: left / 0, "ZeroDivisionError")],
)
def test_a_schedule_that_returns_no_rate_is_a_one_line_error(schedule, words):
    with refuses(UsageError, "schedule", "left=0.25", words):
        factor_of(schedule, 0.25)
