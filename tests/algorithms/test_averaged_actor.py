"""The averaged actor: its values by hand under every driver, where it acts, and that it does not change learning."""

import functools

import agents_by_driver
import numpy as np
import pytest
import tensorflow as tf
from agent_options import WITHOUT_SLOTS_AND_TARGETS
from agents_by_driver import BOX, DRIVERS
from conftest import assert_close

import ddpg
from ddpg.policies.network_policy import SessionPolicy
from ddpg.workers.remote_loop import current_weights

STATES = np.array([[0.3, -0.7], [-0.2, 0.9], [0.5, 0.5]], np.float32)
VARIANTS = {
    "ddpg": WITHOUT_SLOTS_AND_TARGETS,
    "td3": {"n_critics": 2, "policy_delay": 2, "target_policy_noise": 0.2},
    "crossq": {"target": "none", "norm": "renorm", "hidden": (6,)},
    "online": {"target": "online", "norm": "batch"},
}


agent_with = functools.partial(agents_by_driver.agent_with, output_init="fan_in")


def actor_variables(agent):
    return agent.session.run(agent.actor.variables)


def averages_of(agent):
    return agent.session.run(agent.symbolic_update.averaged_actor.acting_variables)


def test_one_step_by_hand(graph, session):
    """h = 4: a quarter of the way from 1 to 3 is 1.5, and from there a quarter of the way to 3.5 is 2."""
    from ddpg.networks.actor import ActorNetwork, AveragedActor

    actor = ActorNetwork(BOX, BOX, network=lambda states: states)
    average = AveragedActor(actor, 4)
    update = average.update()
    session.run(tf.compat.v1.global_variables_initializer())
    for weight, expected in ((1.0, None), (3.0, 1.5), (3.5, 2.0)):
        actor.set_network_params([np.full((2, 2), weight), np.full(2, -weight)])
        if expected is None:
            session.run([v.initializer for v in average.acting_variables])  # which copies the actor's weights
            continue
        session.run(update)
        kernel, bias = session.run(average.acting_variables)
        np.testing.assert_allclose(kernel, np.full((2, 2), expected))
        np.testing.assert_allclose(bias, np.full(2, -expected))
    expected = np.tanh(STATES @ np.full((2, 2), 2.0) - 2.0)
    np.testing.assert_allclose(average.predict(STATES), expected, rtol=1e-5)


# All drivers of a delayed actor; moving statistics with one driver that runs the graph, too.
FOLLOWED = [
    ("ddpg", "native"),
    *(
        pytest.param(*pair, marks=pytest.mark.slow)
        for pair in (
            *(("td3", driver) for driver in DRIVERS),
            *(("online", "native"), ("crossq", "native"), ("crossq", "uncompiled")),
        )
    ),
]


@functools.cache
def averaged(variant, driver):
    """Make six updates with an average over five of the actor's steps.

    Returns:
        The actor's variables and their averages, before the first update and after each; all parameters after the last;
        the names of the averages among them.
    """
    agent = agent_with(actor_average=5, **VARIANTS[variant] | DRIVERS[driver])
    seen = [(actor_variables(agent), averages_of(agent))]
    for _ in range(6):
        agent.update(1)
        seen.append((actor_variables(agent), averages_of(agent)))
    return seen, agent.get_parameters(), {v.name for v in agent.symbolic_update.averaged_actor.acting_variables}


@pytest.mark.parametrize(("variant", "driver"), FOLLOWED)
def test_it_follows_the_actor(variant, driver):
    """Each of the actor's steps moves it a fifth of the way; updates without one leave it. Moving statistics, too."""
    seen, *_ = averaged(variant, driver)
    delay, (expected, _) = VARIANTS[variant].get("policy_delay", 1), seen[0]
    for made, (actors, found) in enumerate(seen):
        if made and made % delay == 0:
            expected = [old + (new - old) / 5 for old, new in zip(expected, actors, strict=True)]
        assert_close(found, expected, rtol=1e-5 * bool(made), atol=1e-7 * bool(made))
    assert any((one != other).any() for one, other in zip(expected, seen[-1][0], strict=True))


@pytest.mark.parametrize(
    ("variant", "driver"), [pair for pair in FOLLOWED if {"uncompiled", "native"} & {*getattr(pair, "values", pair)}]
)
def test_learning_is_bit_identical_without_it(variant, driver):
    _, parameters, of_average = averaged(variant, driver)
    off = agent_with(**VARIANTS[variant] | DRIVERS[driver])
    off.update(6)
    without = off.get_parameters()
    np.testing.assert_equal({name: parameters[name] for name in without}, without)
    assert parameters.keys() - without.keys() == of_average


# Averages include moving statistics. Without slots and targets, half as much is built.
FAST = {"actor_learning_rate": 0.1, **WITHOUT_SLOTS_AND_TARGETS}
NORMALISED = {"actor_average": 20, "norm": "batch", "critic_norm": None, "normalize_observations": True, **FAST}


@pytest.fixture(scope="module")
def agent():
    """An agent after ten updates, without noise."""
    agent = agent_with(**NORMALISED, noise_scale=0.0, learning_starts=0)
    agent.update(10)
    return agent


def test_the_average_predicts_and_the_actor_explores(agent):
    seen = agent.memory.observations(STATES)
    with agent.session.as_default():
        of_average = agent.symbolic_update.averaged_actor.predict(seen)
        of_actor = agent.actor.predict(seen)
    assert np.abs(of_average - of_actor).max() > 1e-3
    np.testing.assert_allclose(agent.predict(STATES)[0], of_average, atol=1e-5)
    np.testing.assert_allclose(agent.predict(STATES, deterministic=False)[0], of_actor, atol=1e-5)
    np.testing.assert_allclose(agent.act(STATES)[0], of_actor, atol=1e-5)


def test_a_network_without_a_numpy_program():
    def network(states):
        return tf.cumsum(states, axis=1)

    agent = agent_with(actor_average=20, actor_network=network, **FAST)
    assert isinstance(agent.policy, SessionPolicy)
    agent.update(10)
    with agent.session.as_default():
        of_average, of_actor = agent.symbolic_update.averaged_actor.predict(STATES), agent.actor.predict(STATES)
    assert np.abs(of_average - of_actor).max() > 1e-4
    np.testing.assert_allclose(agent.predict(STATES)[0], of_average, atol=1e-6)


def test_set_parameters_includes_the_average(agent):
    other = agent_with(seed=5, **NORMALISED)
    other.set_parameters(agent.get_parameters())
    np.testing.assert_array_equal(other.predict(STATES)[0], agent.predict(STATES)[0])
    np.testing.assert_array_equal(other.exploring_policy(STATES), agent.exploring_policy(STATES))


@pytest.mark.parametrize("format", ["numpy", pytest.param("savedmodel", marks=pytest.mark.slow)])
def test_the_average_is_exported(format, agent, tmp_path):
    agent.export(tmp_path / "policy", format)
    if format == "numpy":
        found = ddpg.load_policy(tmp_path / "policy").predict(STATES)[0]
    else:
        found = tf.saved_model.load(str(tmp_path / "policy")).policy(STATES)["actions"].numpy()
    np.testing.assert_allclose(found, agent.predict(STATES)[0], atol=1e-5)
    assert np.abs(found - agent.exploring_policy(STATES)).max() > 1e-3


def test_workers_explore_with_the_actors_weights(agent):
    sent = [array.ravel().tolist() for array in current_weights(agent)]
    kernels = [array.ravel().tolist() for array in actor_variables(agent) if array.ndim == 2]
    assert len(kernels) == 3
    assert all(kernel in sent for kernel in kernels)
