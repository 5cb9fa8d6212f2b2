"""Initial output layers: uniform within ±3e-3, or within ±1/√f like PyTorch's linear layers."""

import gymnasium as gym
import numpy as np
import pytest
from refusals import refuses

from ddpg import ActorNetwork, CriticNetwork, DDPGConfig, DQNConfig, QNetwork, UsageError, mlp
from ddpg.algorithms.registry import update_of
from ddpg.networks.critic import CategoricalCritic, DistributionalCritic

BOX = gym.spaces.Box(-9.0, 9.0, (3,), np.float32)
UNIT = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
F = 400  # inputs of the output layer: 1/√f = 0.05
NETWORKS = (
    (ActorNetwork, UNIT),
    (CriticNetwork, UNIT),
    (CategoricalCritic, UNIT),
    (DistributionalCritic, UNIT),
    (QNetwork, gym.spaces.Discrete(5)),
)


@pytest.mark.parametrize(("kind", "space"), NETWORKS)
@pytest.mark.parametrize(("options", "bound"), [({}, 0.003), ({"output_init": "fan_in"}, 0.05)])
def test_weights_and_biases_fill_their_range(kind, space, options, bound, session, initialize):
    """Of hundreds of weights some are close to either bound. Hidden layers are unchanged."""
    network = kind(BOX, space, network=mlp((F,)), optimizer="sgd", **options)
    initialize()
    hidden, _, weights, biases = network.get_network_params()
    assert 0.9 * bound < weights.max() <= bound
    assert 0.9 * bound < -weights.min() <= bound
    assert np.abs(biases).max() <= bound
    assert np.abs(hidden).max() > 0.2  # ±1/√3 of their inputs, or wider


@pytest.mark.parametrize("config", [kind(output_init="fan_in", optimizer="sgd") for kind in (DDPGConfig, DQNConfig)])
def test_agents_build_them(config, session, initialize):
    space = UNIT if isinstance(config, DDPGConfig) else gym.spaces.Discrete(2)
    update = update_of(config).build(config, (BOX, space))
    initialize()
    for network in (update.policy, update.value):
        assert 0.05 < np.abs(network.get_network_params()[-2]).max() <= 256**-0.5


def test_bad_names(graph):
    with refuses(UsageError, "output_init zero fan_in"):
        ActorNetwork(BOX, UNIT, output_init="zero")
    with refuses(UsageError, "output_init zero"):
        DDPGConfig(output_init="zero")
