"""A copy of an update in a graph and session of its own, to measure steps and units without touching what learns.

The networks are built a second time from the same options. Before each measurement the copy's variables are set to the
learner's, so whatever a measured step changes is overwritten by the next.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg.algorithms.base import Update
from ddpg.learners.graph import as_float, placeholders
from ddpg.learners.synced_session import SyncedSession, assign_variables
from ddpg.networks.base import Network
from ddpg.networks.observer import observing
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class MeasuredStep:
    """One optimiser step of a network.

    Attributes:
        before, after: its trainable variables before and after the step.
        gradients: of the loss that was descended, before they are clipped; empty if they are not known.
    """

    before: list[np.ndarray]
    after: list[np.ndarray]
    gradients: list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class MeasuredUnits:
    """What a network's units give for B observations, in inference mode.

    Attributes:
        activations: of each hidden layer, ``[B, ..., n]``; the features alone if the hidden layers are the user's own.
        features: the input of the output layer, ``[B, f]``.
    """

    activations: list[np.ndarray]
    features: np.ndarray


class UpdateCopy:
    """A copy of an agent's update.

    Args:
        build: builds the networks and their update in the default graph.
        seed: of the graph: noise that an update draws is then the learner's.
        batch_size: B of the minibatch that :meth:`step` is measured on.

    Attributes:
        names: of the networks that have an optimiser; further ones of a name end in their number, ``critic_2``.
    """

    def __init__(self, build: Callable[[], Update], seed: int | None, batch_size: int):
        self._graph = tf.Graph()
        with self._graph.as_default():
            v1.set_random_seed(seed)
            self._update = build()
            self._variables = self._update.state_variables
            self._session = SyncedSession()
            self._networks = named_networks(self._update)
            self.names = tuple(self._networks)
            self._build_units()
            self._build_values()
            self._build_step(batch_size)
            self._session.run(v1.global_variables_initializer())

    def load(self, values: Mapping[str, np.ndarray], rates: Mapping[str, float]) -> None:
        """Set all variables by name, and the learning rate of each network."""
        networks = [self._networks[name].learning_rate for name in rates]
        variables = [*[self._variables[name] for name in values], *networks]
        assign_variables(self._session.run, variables, [*values.values(), *map(np.float32, rates.values())])

    def units(self, observations: np.ndarray, actions: np.ndarray) -> dict[str, MeasuredUnits]:
        """Return what each network's units give, by its name.

        Args:
            observations: ``[B, *observation shape]``, normalised if the agent normalises them.
            actions: ``[B, A]`` as stored.
        """
        found = self._session.run(self._units, {self._states: observations, self._actions: actions})
        return {
            name: MeasuredUnits(activations or [features], features) for name, (activations, features) in found.items()
        }

    def values(self, observations: np.ndarray) -> np.ndarray:
        """Return Q(s, μ(s)) of the first critic, or of a Q-network max Q(s, ·), ``[B]``."""
        return self._session.run(self._values, {self._states: observations})

    def step(self, batch: Batch) -> dict[str, MeasuredStep]:
        """Make one update on a minibatch ``[B, ...]`` in which every network takes a step; return these by name."""
        weights = {name: network.trainable_variables for name, network in self._networks.items()}
        before = self._session.run(weights)
        feeds = dict(zip(self._batch, batch, strict=True))
        if self._y is not None:
            feeds[self._y] = self._session.run(self._target, feeds)
        gradients = self._session.run([self._gradients, self._steps], feeds)[0]
        after = self._session.run(weights)
        return {name: MeasuredStep(before[name], after[name], gradients.get(name, [])) for name in weights}

    def close(self) -> None:
        """Close the session."""
        self._session.close()

    # -- inside ---------------------------------------------------------------------------------------

    def _build_units(self) -> None:
        space = self._update.value.observation_space
        self._states = v1.placeholder(tf.float32, [None, *space.shape], name="states")
        self._actions = v1.placeholder(tf.float32, [None, self._update.action_size], name="actions")
        self._units = {}
        for name, network in self._networks.items():
            with observing() as observed:
                network(*[self._states, self._actions][: len(network.placeholders())])
            self._units[name] = observed.activations, observed.features[-1]

    def _build_values(self) -> None:
        policy: Any = self._update.policy
        value: Any = self._update.value
        if policy is value:
            self._values = tf.reduce_max(value(self._states), axis=1)
        else:
            actions = tf.clip_by_value(policy(self._states), policy.low, policy.high)
            self._values = value(self._states, actions)[:, 0]

    def _build_step(self, batch_size: int) -> None:
        """Build one update in which every network takes a step, also those that ``policy_delay`` lets wait."""
        update = self._update
        self._batch = placeholders(update, (batch_size,))
        batch, counter = as_float(self._batch), update.count
        self._y = None
        with counter.assume_step(-1) if counter else contextlib.nullcontext(), observing() as observed:
            if update.value.td_path.feeds_target:
                self._target = update.target(batch)
                self._y = v1.placeholder(tf.float32, self._target.shape, name="y")
                self._steps: Any = [step(batch, self._y) for step in update.steps]
            else:
                self._steps = update.update_op(batch)
        scopes = {network.scope: name for name, network in self._networks.items()}
        self._gradients = {scopes[scope]: found for scope, found in observed.gradients.items() if scope in scopes}


def named_networks(update: Update) -> dict[str, Network]:
    """Return the networks that have an optimiser by name; further ones of a name end in their number."""
    found: dict[str, Network] = {}
    for network, *_ in update.learning_rates:
        count = 1 + sum(other.name == network.name for other in found.values())
        found[network.name if count == 1 else f"{network.name}_{count}"] = network
    return found
