"""The networks and data that all measurements share: an actor under every bounding, a critic, and one minibatch."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import tensorflow as tf

from ddpg.agents.ddpg import DDPG
from ddpg.algorithms.ddpg import actor_layers, critic_layers
from ddpg.config.algorithm_options import DDPGConfig
from ddpg.gradients.bounding import BOUNDINGS
from ddpg.gradients.td import returning_scalar
from ddpg.laboratory import flow
from ddpg.laboratory.finite_differences import (
    FiniteDifferences,
    ReferenceGradient,
    float64_function,
    sample_coordinates,
)
from ddpg.networks.actor import ActorNetwork
from ddpg.networks.base import Network
from ddpg.networks.critic import CriticNetwork

v1 = tf.compat.v1

UPDATES = 10

# Options of the agent whose networks the paths are compared on. It only has to train them a little, by any update.
FIXED_OPTIONS: dict[str, Any] = flow.FIXED_OPTIONS | {
    "td_target": "placeholder",  # avoids compilation, which would take longer than the few updates
    "policy_gradient": "chain_rule",
    "clip_delta": None,
    "action_gradient_clip": None,
    "critic": "scalar",
    "critic_loss": "mse",
}


class Fixture:
    """Networks and one minibatch.

    The weights are a new agent's after a few updates. Before and after the updates, output layers are scaled so that Q
    and the actions' pre-activations have mean 0 and standard deviation 1 on the minibatch. Gradients are then not tiny,
    and with a linear head a third of the actions lie outside the box. Target networks are synchronised before the
    updates, so they differ from the online networks.

    Args:
        env: the environment from which the minibatch is collected, with random actions.
        config: networks, discount γ, batch size.
        seed: of all random numbers; ``None``: random.

    Raises:
        UsageError: if a network has an op without a NumPy counterpart.

    Attributes:
        recorder: records the networks' tensors, and where a path starts its backward pass.
        actors: by bounding, all with the same weights.
        critic: the critic.
        batch, fed_y: placeholders for the minibatch, ``[B, ...]``, and for y, ``[B, 1]``.
        values, feeds: the minibatch, as arrays and by placeholder.
    """

    def __init__(self, env: gym.Env, config: DDPGConfig, seed: int | None):
        config = config.replace(**FIXED_OPTIONS)
        self._agent = DDPG(env, config, seed)  # kept alive for its session
        float64_function(self._agent.actor)  # raises before the work if an op has no NumPy counterpart
        self._agent.learn(flow.RANDOM_STEPS)
        self.seed, self.session, self.gamma = self._agent.seed, self._agent.session, self._agent.config.discount
        self._rng = np.random.default_rng(self.seed)
        self.values = self._agent.replay.sample(self._rng, 1, config.batch_size).map(lambda field: field[0])
        self.recorder = flow.FlowRecorder()
        with self._agent.graph.as_default(), self.session.as_default():
            self._build(config)
            self._copy_weights()
            weights = {name: self.session.run(variables) for name, variables in self.groups("squashing").items()}
            networks = self.actors["squashing"], self.critic
            self._differences = FiniteDifferences(*networks, weights, self.values, self.gamma)

    def groups(self, bounding: str) -> dict[str, list[tf.Variable]]:
        """Return the variables of the four networks, with the actor under ``bounding``."""
        return flow.weight_groups(self.actors[bounding], [self.critic])

    def outside(self) -> dict[str, float]:
        """Return the share of actions μ(s) outside their box, by bounding."""
        with self.session.as_default():
            return {
                name: float((np.abs(actor.predict(self.values.observations)) > 1).mean())
                for name, actor in self.actors.items()
            }

    def expected_td(self, online: bool, loss: Callable | None = None) -> ReferenceGradient:
        """Return the critic's gradient by central differences; see :meth:`FiniteDifferences.td`."""
        with self.session.graph.as_default():
            of_numbers = None if loss is None else self._in_float64(loss)
            return self._differences.td(sample_coordinates(self.critic, self._rng), online, of_numbers)

    def _in_float64(self, loss: Callable) -> Callable[[np.ndarray, np.ndarray], float]:
        q, target = (v1.placeholder(tf.float64, [None, 1]) for _ in range(2))
        value = returning_scalar("the attribute loss of a TD path, called with q and y in float64,", loss)(q, target)
        return lambda numbers, targets: float(self.session.run(value, {q: numbers, target: targets}))

    def expected_policy(self, bounding: str) -> ReferenceGradient:
        """Return the actor's gradient by central differences; see :meth:`FiniteDifferences.policy`."""
        actor = self.actors[bounding]
        with self.session.graph.as_default():
            return self._differences.policy(actor, bounding, sample_coordinates(actor, self._rng))

    def _build(self, config: DDPGConfig) -> None:
        spaces = self._agent.observation_space, self._agent.actor.action_space
        self.critic = CriticNetwork(*spaces, network=critic_layers(config, spaces[0]))
        layers = actor_layers(config, spaces[0])
        self.actors = {name: ActorNetwork(*spaces, network=layers, bounding=name) for name in BOUNDINGS}
        for network in (self.critic, *self.actors.values()):
            self.recorder.listen(network)
        self.batch = self.values.map(lambda field: v1.placeholder(tf.float32, field.shape))
        self.feeds = dict(zip(self.batch, self.values, strict=True))
        self.fed_y = v1.placeholder(tf.float32, [config.batch_size, 1], name="y")

    def _copy_weights(self) -> None:
        """Prepare the agent's weights, and copy them to these networks."""
        agent, session = self._agent, self.session
        pairs = [(self.critic, agent.critic), *((actor, agent.actor) for actor in self.actors.values())]
        session.run(v1.variables_initializer([v for mine, _ in pairs for v in _all_variables(mine)]))
        self._standardise_agent()
        for network in (agent.actor, agent.critic):
            network.sync_target_network()
        agent.update(UPDATES)
        self._standardise_agent()
        session.run(
            [
                mine.assign(theirs.read_value())
                for network, source in pairs
                for mine, theirs in zip(_all_variables(network), _all_variables(source), strict=True)
            ]
        )

    def _standardise_agent(self) -> None:
        agent, values = self._agent, self.values
        linear = self.actors["inverting"]  # its actions are pre-activations, in [-1, 1]
        linear.set_network_params(agent.actor.get_network_params())
        _standardise(agent.actor, linear.predict(values.observations))
        _standardise(agent.critic, agent.critic.predict(values.observations, values.actions))


def _all_variables(network: Network) -> list[tf.Variable]:
    return [*network.variables, *network.target_variables]


def _standardise(network: Network, outputs: np.ndarray) -> None:
    """Scale the output layer so that ``outputs [B, n]`` get mean 0 and standard deviation 1 in every column."""
    *hidden, weights, bias = network.get_network_params()
    deviation = outputs.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1)
    network.set_network_params([*hidden, weights / deviation, (bias - outputs.mean(axis=0)) / deviation])
