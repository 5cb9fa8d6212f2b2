"""An agent's repr, getting and setting its parameters, and closing it."""

import gymnasium as gym
import numpy as np
import pytest
from agents_by_driver import filled
from refusals import refuses

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError

OBSERVATIONS = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
SPACES = (OBSERVATIONS, gym.spaces.Box(-1.0, 1.0, (1,), np.float32))
CONFIG = DDPGConfig(hidden=(4, 3), batch_size=4, buffer_size=20, updates_per_call=1, policy_delay=2, jit=False)


def agent_of(seed):
    return filled(DDPG(SPACES, CONFIG, seed))


@pytest.fixture(scope="module")
def agents():
    """Two agents with different seeds; the first has made three updates."""
    one, other = agent_of(0), agent_of(1)
    one.update(3)
    return one, other


def test_repr_is_one_descriptive_line(agents):
    text = repr(agents[0])
    assert text == "DDPG(as TD3, Box(2,) -> Box(1,), hidden layers of 4-3, 8 steps, 3 updates)"
    agent = DDPG(SPACES, CONFIG.replace(critic_hidden=(5,), n_critics=1, policy_delay=1), seed=0)
    assert "Box(1,), hidden layers of 4-3 and 5, 0 steps" in repr(agent)
    agent = DQN((OBSERVATIONS, gym.spaces.Discrete(3)), DQNConfig(hidden=(4,)), seed=0)
    assert repr(agent) == "DQN(Box(2,) -> Discrete(3), hidden layers of 4, 0 steps, 0 updates)"


def test_set_parameters_restores_everything_that_updates_depend_on(agents):
    one, other = agents
    parameters = one.get_parameters()
    assert any((parameters[name] != value).any() for name, value in other.get_parameters().items())
    other.set_parameters(parameters)
    np.testing.assert_equal(other.get_parameters(), parameters)
    states = np.random.default_rng(1).uniform(-1, 1, (5, 2))
    np.testing.assert_array_equal(one.predict(states)[0], other.predict(states)[0])
    # Optimizer slots, targets and the count for the actor's delay included: the next update is the same.
    other.generators["replay"].bit_generator.state = one.generators["replay"].bit_generator.state
    assert one.update() == other.update()
    np.testing.assert_equal(other.get_parameters(), one.get_parameters())


def test_returned_parameters_are_copies(agents):
    one, _ = agents
    held = one.get_parameters()
    before = {name: value.copy() for name, value in held.items()}
    one.update(2)
    assert all((held[name] == value).all() for name, value in before.items())
    assert any((value != before[name]).any() for name, value in one.get_parameters().items())


def test_exact_match_false_sets_some_parameters(agents):
    _, other = agents
    before = other.get_parameters()
    name = next(name for name, value in before.items() if value.ndim == 2)
    other.set_parameters({name: before[name].astype(np.float64) + 1}, exact_match=False)
    after = other.get_parameters()
    assert {key for key, value in after.items() if (value != before[key]).any()} == {name}
    np.testing.assert_allclose(after[name], before[name] + 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda name, value: {name: value[:-1]}, "shape (1, 4) (2, 4)"),
        (lambda name, value: {name: value.astype(int)}, "dtype int64 float32"),
        (lambda name, value: {name: value * np.nan}, "finite"),
        (lambda name, value: {name + "x": value}, "'{name}x' '{name}'"),
    ],
)
def test_misfit_parameters_are_named_and_none_is_set(agents, change, message):
    _, other = agents
    before = other.get_parameters()
    name = next(name for name, value in before.items() if value.shape == (2, 4))
    with refuses(UsageError, message.replace("{name}", name)):
        other.set_parameters(
            {**before, **{key: value + 1 for key, value in before.items()}, **change(name, before[name])}
        )
    np.testing.assert_equal(other.get_parameters(), before)


def test_a_missing_parameter_is_named(agents):
    _, other = agents
    parameters = other.get_parameters()
    gone = sorted(parameters)[0]
    del parameters[gone]
    with refuses(UsageError, f"lacks ['{gone}'] exact_match=False"):
        other.set_parameters(parameters)


def test_a_closed_agent_is_named_closed_and_may_be_closed_again(tmp_path):
    with agent_of(0) as agent:
        pass
    agent.close()
    assert agent.closed
    assert repr(agent).endswith("0 updates, closed)")
    s, a = np.zeros(2), np.zeros(1)
    uses = [
        lambda: agent.predict(s),
        lambda: agent.update(),
        lambda: agent.learn(1),
        lambda: agent.save(tmp_path / "c"),
        lambda: agent.export(tmp_path / "e"),
        lambda: agent.observe(s, a, 0.0, s, False, False),
        lambda: agent.remember([s], [a], [0.0], [s], [False], [False]),
        lambda: agent.get_parameters(),
        lambda: agent.set_parameters({}),
        lambda: agent.__enter__(),
    ]
    for use in uses:
        with refuses(UsageError, "agent closed"):
            use()
    with refuses(RuntimeError, "closed"):
        agent.session.run(agent.global_variables)
