"""Diagnose a learning agent: dormant units, ranks, norms and step sizes of its networks, and Q against real returns.

Everything is computed in a copy of the update (:class:`UpdateCopy`). A separate random generator, seeded by the agent's
seed and step, draws the transitions from the replay memory. So diagnostics do not change learning, and a resumed run
measures the same numbers as an uninterrupted one. The formulas are functions of NumPy arrays.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.algorithms.base import Update
from ddpg.learners.graph import as_float, placeholders
from ddpg.learners.synced_session import SyncedSession, assign_variables
from ddpg.networks.base import Network
from ddpg.networks.observer import observing
from ddpg.policies.schedules import factor_of
from ddpg.replay.buffer import return_steps
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1

SAMPLES = 256  # observations on which units are measured, and on which Q is compared with returns
RECENT = 1_000  # the newest rows with a full return, from which SAMPLES are drawn
_STREAM = 0x444941  # part of the seed, so that no other generator draws the same numbers

# Measures of each network; a column is named like ``actor_dormant_share``.
OF_NETWORKS = (
    *("dormant_share", "dead_share", "feature_rank", "weight_norm", "gradient_norm", "effective_learning_rate"),
)
OF_VALUES = ("q_value", "discounted_return", "q_bias")
DORMANT = 0.025  # τ of Sokar et al. 2023
RANK_LEFT_OUT = 0.01  # δ of Kumar et al. 2021


@dataclasses.dataclass(frozen=True)
class MeasuredStep:
    """One optimiser step of a network: its trainable variables before and after.

    Attributes:
        gradients: of the loss, before clipping; empty if they are not known.
    """

    before: list[np.ndarray]
    after: list[np.ndarray]
    gradients: list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class MeasuredUnits:
    """The activations of a network's units for B observations, in inference mode.

    Attributes:
        activations: of each hidden layer, ``[B, ..., n]``; the features alone if the hidden layers are the user's own.
        features: the input of the output layer, ``[B, f]``.
    """

    activations: list[np.ndarray]
    features: np.ndarray


class UpdateCopy:
    """A copy of an agent's update in a separate graph and session, so that measuring leaves the agent unchanged.

    Args:
        build: builds the networks and their update in the default graph.
        seed: the graph's seed; with the agent's own, an update draws the same noise as the learner's.
        batch_size: B of the minibatch that :meth:`step` is measured on.
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
        """Return the activations of each network's units, by the network's name.

        Observations are ``[B, *observation shape]``, normalised if the agent normalises them; actions ``[B, A]`` as
        stored.
        """
        found = self._session.run(self._units, {self._states: observations, self._actions: actions})
        return {
            name: MeasuredUnits(activations or [features], features) for name, (activations, features) in found.items()
        }

    def values(self, observations: np.ndarray) -> np.ndarray:
        """Return Q(s, μ(s)) of the first critic, or of a Q-network max Q(s, ·), ``[B]``."""
        return self._session.run(self._values, {self._states: observations})

    def step(self, batch: Batch) -> dict[str, MeasuredStep]:
        """Make one update on a minibatch ``[B, ...]`` in which every network takes a step; return the steps by name."""
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
        """Build one update in which every network takes a step, also those that ``policy_delay`` would skip."""
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
    """Return the networks that have an optimiser, by name; further networks of the same name are numbered."""
    found: dict[str, Network] = {}
    for network, *_ in update.learning_rates:
        count = 1 + sum(other.name == network.name for other in found.values())
        found[network.name if count == 1 else f"{network.name}_{count}"] = network
    return found


def dormant_share(activations: Sequence[np.ndarray], tau: float = DORMANT) -> float:
    """Return the share of units that are τ-dormant (Sokar et al. 2023, arXiv 2302.12902, definitions 3.1 and 3.2).

    The score of unit i in a layer of H units is its mean absolute activation, divided by the layer's mean of these:

        sᵢ = E|hᵢ(x)| / (1/H Σₖ E|hₖ(x)|),    dormant: sᵢ ≤ τ

    A channel of a convolution is one unit, whose mean is over its positions too. In a layer whose activations are all
    0, every unit is dormant.

    Args:
        activations: of each hidden layer, ``[B, ..., n]``, after the activation function.
        tau: τ; with 0 only units that are never active count.
    """
    dormant = units = 0
    for layer in activations:
        means = np.abs(layer.astype(np.float64)).mean(axis=tuple(range(layer.ndim - 1)))
        dormant += int((means <= tau * means.mean()).sum())
        units += len(means)
    return dormant / units


def feature_rank(features: np.ndarray, left_out: float = RANK_LEFT_OUT) -> float:
    """Return the effective rank of features ``[B, f]``, srank of Kumar et al. 2021 (arXiv 2010.14498, section 3).

        min {k: Σ_{i≤k} σᵢ / Σᵢ σᵢ ≥ 1 − δ},    σ₁ ≥ σ₂ ≥ ... the singular values

    δ is ``left_out``. The rank is 0 if all features are 0, NaN if one is not finite.
    """
    if not np.isfinite(features).all():
        return math.nan
    singular = np.linalg.svd(features.astype(np.float64), compute_uv=False)
    if not singular.any():
        return 0
    share = np.cumsum(singular) / singular.sum()
    return int(np.argmax(share >= 1 - left_out)) + 1


def total_norm(arrays: Sequence[np.ndarray]) -> float:
    """Return the L2 norm of all numbers in ``arrays`` together."""
    return math.sqrt(sum(float(np.square(array.astype(np.float64)).sum()) for array in arrays))


def effective_learning_rate(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> float:
    """Return ‖θ₊ − θ‖ / ‖θ‖: the relative change of the weights, layer by layer, in one optimiser step; 0 if all are 0.

    If layers are normalised, the norm of their weights affects nothing but this ratio, so growing weights learn ever
    more slowly (Lyle et al. 2024, arXiv 2407.01800).
    """
    moved = [new.astype(np.float64) - old for old, new in zip(before, after, strict=True)]
    return total_norm(moved) / (total_norm(before) or math.inf)


def diagnostic_columns(agent: OffPolicyAgent) -> list[str]:
    """Return the keys of :meth:`Diagnostics.measure` for this agent, in order."""
    names = named_networks(agent.symbolic_update)
    return [*OF_VALUES, *(f"{name}_{measure}" for name in names for measure in OF_NETWORKS)]


class Diagnostics:
    """Measures an agent's networks; the first measurement builds the copy of the update."""

    def __init__(self, agent: OffPolicyAgent):
        self._agent = agent
        self._copy: UpdateCopy | None = None

    def measure(self, goal: int) -> dict[str, float]:
        """Return the measures by the names of :func:`diagnostic_columns`; none while the replay memory is empty.

        Args:
            goal: the step at which learning ends; schedules of learning rates run until then.

        Returns:
            For each network ``dormant_share`` (τ = 0.025), ``dead_share`` (τ = 0), ``feature_rank`` and
            ``weight_norm``, and for one update ``gradient_norm`` and ``effective_learning_rate``
            (:mod:`ddpg.agents.diagnostics`). For the critic, once there are transitions that are old enough:
            ``q_value``, the mean Q(s, μ(s)); ``discounted_return``, the mean return obtained from the same s, both in
            env units; and ``q_bias``, their difference divided by the absolute mean return.
        """
        agent = self._agent
        if not len(agent.replay):
            return {}
        return agent.session.lock(self._measured, goal)

    def close(self) -> None:
        """Close the copy's session."""
        if self._copy is not None:
            self._copy.close()

    def _measured(self, goal: int) -> dict[str, float]:
        agent, config = self._agent, self._agent.config
        if self._copy is None:
            self._copy = UpdateCopy(agent.build_update, agent.graph.seed, config.batch_size)
        copy = self._copy
        rng = np.random.default_rng([_STREAM, agent.seed, agent.num_timesteps])
        copy.load(agent.get_parameters(), self._rates(goal))
        seen = agent.replay.gather(agent.replay.draw(rng, 1, SAMPLES)[0])
        units = copy.units(seen.with_observations(agent.memory.observations).observations, seen.actions)
        measured = self._values(copy, rng)
        minibatches, _ = agent.memory.sampler.sample(rng, 1, config.batch_size, agent.priority_correction)
        minibatch = minibatches.map(lambda field: field[0])
        minibatch = minibatch.replace(rewards=minibatch.rewards / np.float32(agent.reward_scale))
        for name, step in copy.step(minibatch.with_observations(agent.memory.observations)).items():
            numbers = {
                "dormant_share": dormant_share(units[name].activations),
                "dead_share": dormant_share(units[name].activations, 0.0),
                "feature_rank": feature_rank(units[name].features),
                "weight_norm": total_norm(step.before),
                "gradient_norm": total_norm(step.gradients) if step.gradients else np.nan,
                "effective_learning_rate": effective_learning_rate(step.before, step.after),
            }
            measured |= {f"{name}_{measure}": float(number) for measure, number in numbers.items()}
        return measured

    def _values(self, copy: UpdateCopy, rng: np.random.Generator) -> dict[str, float]:
        """Return the mean Q of recent observations, the mean discounted return obtained from them, and Q's bias."""
        agent, replay = self._agent, self._agent.replay
        steps = return_steps(agent.config.discount)
        too_new = agent.loop.rows_of(agent, steps)
        rows = replay.newest(min(len(replay), too_new + RECENT))[:-too_new]
        if not len(rows):
            return {}
        found = replay.gather(rng.choice(rows, SAMPLES), steps, agent.config.discount)
        normalised, scale = found.with_observations(agent.memory.observations), agent.reward_scale
        q = scale * copy.values(normalised.observations).astype(np.float64)
        beyond = scale * copy.values(normalised.next_observations).astype(np.float64)
        discounts = agent.config.discount if found.discounts is None else found.discounts[:, 0]
        returns = found.rewards[:, 0] + discounts * (1 - found.terminated[:, 0]) * beyond
        size = abs(float(returns.mean()))
        bias = float(q.mean() - returns.mean()) / size if size else np.nan
        return {"q_value": float(q.mean()), "discounted_return": float(returns.mean()), "q_bias": bias}

    def _rates(self, goal: int) -> dict[str, float]:
        agent = self._agent
        left = max(0.0, 1 - agent.num_timesteps / goal)
        specs: Any = zip(named_networks(agent.symbolic_update), agent.symbolic_update.learning_rates, strict=True)
        return {name: factor_of(schedule, left) * rate for name, (_, rate, schedule) in specs}
