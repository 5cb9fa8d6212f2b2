"""``float64_function`` computes networks from given weights in float64 NumPy."""

import numpy as np
import pytest
import tensorflow as tf
from refusals import refuses

from ddpg import ActorNetwork, CriticNetwork, UsageError, mlp
from ddpg.config.algorithm_options import SAMPLE_NORMS
from ddpg.laboratory.finite_differences import float64_function


def weights_of(session, variables):
    return [array.astype(np.float64) for array in session.run(variables)]


@pytest.mark.parametrize(
    "options",
    [
        *({}, {"action_layer": 1}, {"activation": "selu"}, {"activation": "softplus"}),
        *({"norm": norm} for norm in SAMPLE_NORMS),
    ],
    ids=str,
)
def test_the_critic_agrees_with_the_graph(options, observation_space, action_space, session, initialize, rng):
    critic = CriticNetwork(observation_space, action_space, network=mlp((16, 8), **options))
    initialize()
    critic.set_network_params([5 * value for value in critic.get_network_params()])
    states, actions = rng.normal(size=(10, 3)), rng.uniform(0.5, 1, size=(10, 2))
    q = float64_function(critic)(weights_of(session, critic.variables), states, actions)
    assert q.dtype == np.float64
    assert np.abs(q - critic.predict(states, actions)).max() < 1e-5 * np.abs(q).max()


def test_weights_are_the_functions_argument(observation_space, action_space, session, initialize, rng):
    critic = CriticNetwork(observation_space, action_space, network=mlp((8,)))
    initialize()
    function, inputs = float64_function(critic), (rng.normal(size=(4, 3)), np.ones((4, 2)))
    weights = weights_of(session, critic.variables)
    first = function(weights, *inputs)
    weights[-1] += 1e-12  # below the resolution of float32
    np.testing.assert_allclose(function(weights, *inputs) - first, 1e-12, rtol=1e-2)


def test_averaged_weights_give_the_target_network(observation_space, action_space, session, initialize, rng):
    actor = ActorNetwork(observation_space, action_space, network=mlp((8,)))
    initialize()
    states = rng.normal(size=(4, 3))
    actor.set_network_params([value + 0.5 for value in actor.get_network_params()])
    actions = float64_function(actor)(weights_of(session, actor.target_variables), states)
    np.testing.assert_allclose(actions, actor.predict_target(states), atol=1e-6)
    assert np.abs(actions - actor.predict(states)).max() > 0.01


@pytest.mark.parametrize(
    "options", [{"norm": "batch"}, {"norm": "renorm"}, {"activation": tf.sin}], ids=["batch", "renorm", "sin"]
)
def test_unsupported_networks_are_refused(options, observation_space, action_space, graph):
    critic = CriticNetwork(observation_space, action_space, network=mlp((8,), **options))
    with refuses(UsageError, "critic without NumPy"):
        float64_function(critic)
