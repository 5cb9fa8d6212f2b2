"""Learning rates are options: the configuration decides, not what was saved or scheduled before."""

import functools

import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig
from ddpg.policies.schedules import SCHEDULES

SMALL = DDPGConfig(**TINY, learning_starts=10, updates_per_call=5, buffer_size=100)


def rates(agent):
    networks = [network for network, *_ in agent.symbolic_update.learning_rates]
    return agent.session.run([network.learning_rate for network in networks])


def weights(agent):
    with agent.session.as_default():
        return agent.actor.get_network_params() + agent.critic.get_network_params()


def moved(agent, updates=5):
    before = weights(agent)
    agent.update(updates)
    return max(np.abs(a - b).max() for a, b in zip(before, weights(agent), strict=True))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """An agent that followed a linear schedule to its end, and its checkpoint."""
    config = SMALL.replace(learning_rate_schedule="linear", actor_learning_rate=0.02, critic_learning_rate=0.03)
    agent = DDPG(gym.make("Pendulum-v1"), config, seed=0).learn(40)
    return agent, agent.save(tmp_path_factory.mktemp("linear") / "c")


def test_a_changed_configuration_changes_the_rates_of_a_loaded_agent(finished):
    _, path = finished
    np.testing.assert_allclose(rates(DDPG.load(path, config=SMALL)), [1e-3, 1e-3], rtol=1e-6)
    np.testing.assert_allclose(rates(DDPG.load(path)), [0.02, 0.03], rtol=1e-6)


def test_a_finished_schedule_does_not_stop_later_learning_at_a_constant_rate(finished):
    _, path = finished
    loaded = DDPG.load(path, gym.make("Pendulum-v1"), config=SMALL)
    before = weights(loaded)
    loaded.learn(40)
    change = max(np.abs(a - b).max() for a, b in zip(before, weights(loaded), strict=True))
    assert change > 0.01


def test_updates_after_a_scheduled_learn_are_at_the_configured_rates(finished):
    agent, _ = finished
    np.testing.assert_allclose(rates(agent), [0.02, 0.03], rtol=1e-6)
    assert moved(agent) > 0.01


@pytest.mark.parametrize("kind", [DDPG, pytest.param(DQN, marks=pytest.mark.slow)])
def test_a_second_call_continues_the_schedule_at_the_agents_step(kind):
    """The schedule spans from the agent's first step to the end of the call."""
    env = gym.make("Pendulum-v1" if kind is DDPG else "CartPole-v1")
    config = SMALL if kind is DDPG else DQNConfig(hidden=(4,), batch_size=4, learning_starts=10, jit=False)
    agent = kind(env, config.replace(learning_rate_schedule="linear", updates_per_call=1), seed=0)
    seen = {}

    def record(agent):
        seen[agent.num_timesteps] = rates(agent)

    agent.learn(50, record)
    agent.learn(50, record)
    expected = {20: 0.6, 40: 0.2, 75: 0.25, 90: 0.1}
    for step, share in expected.items():
        np.testing.assert_allclose(seen[step], 1e-3 * share, rtol=1e-5)


@functools.cache
def learned(**options):
    config = SMALL.replace(actor_learning_rate=0.01, critic_learning_rate=0.01, **options)
    return np.concatenate([*map(np.ravel, weights(DDPG(gym.make("Pendulum-v1"), config, seed=0).learn(50)))])


@pytest.mark.slow  # compilers receive rates, not schedules: test_native sets a rate between updates
@pytest.mark.parametrize(
    ("name", "compiler"),
    [(name, compiler) for name in SCHEDULES if name != "constant" for compiler in ("native", "xla")],
)
def test_every_compiler_follows_every_schedule(name, compiler):
    """Scheduled SGD gives the weights of uncompiled updates, and not those of constant rates."""
    followed = learned(learning_rate_schedule=name, jit=True, compiler=compiler)
    np.testing.assert_allclose(followed, learned(learning_rate_schedule=name), rtol=1e-4, atol=1e-6)
    assert np.abs(followed - learned()).max() > 1e-3
