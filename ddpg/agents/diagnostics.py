"""Diagnose a learning agent: dormant units, ranks, norms and step sizes of its networks, and Q against real returns.

Everything is computed in a copy (:mod:`ddpg.learners.update_copy`), on transitions that generators of its own draw from
the replay memory, seeded by the agent's seed and step. So learning is the same with and without it, and what is
measured does not depend on interruptions. The formulas are functions of NumPy arrays.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.learners.update_copy import UpdateCopy, named_networks
from ddpg.policies.schedules import schedule_of
from ddpg.replay.minibatch import Batch

SAMPLES = 256  # observations that units, and Q against returns, are measured on
RECENT = 1_000  # of these last rows with a full return, SAMPLES are drawn
_STREAM = 0x444941  # its own part of the seed

# Of each network, as columns ``actor_dormant_share``.
OF_NETWORKS = (
    *("dormant_share", "dead_share", "feature_rank", "weight_norm", "gradient_norm", "effective_learning_rate"),
)
OF_VALUES = ("q_value", "discounted_return", "q_bias")
DORMANT = 0.025  # τ of Sokar et al. 2023
RANK_LEFT_OUT = 0.01  # δ of Kumar et al. 2021
LONGEST_RETURN = 1_000  # steps
NEGLIGIBLE = 0.01  # weight of what follows a return that is long enough


def dormant_share(activations: Sequence[np.ndarray], tau: float = DORMANT) -> float:
    """Return the share of units that are τ-dormant (Sokar et al. 2023, arXiv 2302.12902, definitions 3.1 and 3.2).

    The score of unit i in a layer of H units is its mean absolute activation, divided by the layer's mean of these:

        sᵢ = E|hᵢ(x)| / (1/H Σₖ E|hₖ(x)|),    dormant: sᵢ ≤ τ

    A channel of a convolution is one unit: the mean is over its places, too. In a layer without any activation all are
    dormant.

    Args:
        activations: of each hidden layer, ``[B, ..., n]``, after the activation function.
        tau: τ; 0: units that are never active.

    Returns:
        Dormant units / all units of these layers, in [0, 1].
    """
    dormant = units = 0
    for layer in activations:
        means = np.abs(layer.astype(np.float64)).mean(axis=tuple(range(layer.ndim - 1)))
        dormant += int((means <= tau * means.mean()).sum())
        units += len(means)
    return dormant / units


def feature_rank(features: np.ndarray, left_out: float = RANK_LEFT_OUT) -> int:
    """Return the effective rank of features ``[B, f]``, srank of Kumar et al. 2021 (arXiv 2010.14498, section 3).

        min {k: Σ_{i≤k} σᵢ / Σᵢ σᵢ ≥ 1 − δ},    σ₁ ≥ σ₂ ≥ ... the singular values

    Args:
        features: inputs of the output layer.
        left_out: δ.

    Returns:
        k; 0 if all features are 0.
    """
    singular = np.linalg.svd(features.astype(np.float64), compute_uv=False)
    if not singular.any():
        return 0
    share = np.cumsum(singular) / singular.sum()
    return int(np.argmax(share >= 1 - left_out)) + 1


def total_norm(arrays: Sequence[np.ndarray]) -> float:
    """Return the L2 norm of all numbers in ``arrays`` together."""
    return math.sqrt(sum(float(np.square(array.astype(np.float64)).sum()) for array in arrays))


def effective_learning_rate(before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> float:
    """Return ‖θ₊ − θ‖ / ‖θ‖: how much of its own length the weights move in one optimiser step.

    Where layers are normalised, the length of weights changes nothing but this ratio: growing weights learn ever more
    slowly (Lyle et al. 2024, arXiv 2407.01800). 0 if all weights are 0.

    Args:
        before, after: the weights, layer by layer.
    """
    moved = [new.astype(np.float64) - old for old, new in zip(before, after, strict=True)]
    return total_norm(moved) / (total_norm(before) or math.inf)


def return_steps(gamma: float) -> int:
    """Return after how many steps γ^n ≤ 1 %, so that rewards beyond hardly matter; at most 1,000."""
    if gamma <= NEGLIGIBLE:
        return 1
    if gamma >= NEGLIGIBLE ** (1 / LONGEST_RETURN):
        return LONGEST_RETURN
    return math.ceil(math.log(NEGLIGIBLE) / math.log(gamma))


def diagnostic_columns(agent: OffPolicyAgent) -> list[str]:
    """Return the names of what :meth:`Diagnostics.measure` returns for this agent, in its order."""
    names = named_networks(agent.symbolic_update)
    return [*OF_VALUES, *(f"{name}_{measure}" for name in names for measure in OF_NETWORKS)]


class Diagnostics:
    """Measures an agent's networks; the copy is built by the first measurement.

    Args:
        agent: the agent.
    """

    def __init__(self, agent: OffPolicyAgent):
        self._agent = agent
        self._copy: UpdateCopy | None = None

    def measure(self, goal: int) -> dict[str, float]:
        """Return the measures by the names of :func:`diagnostic_columns`; none while the replay memory is empty.

        Args:
            goal: the step at which learning ends, which schedules of learning rates run to.

        Returns:
            Of each network ``dormant_share`` (τ = 0.025) and ``dead_share`` (τ = 0), ``feature_rank``,
            ``weight_norm``, and of one update ``gradient_norm`` and ``effective_learning_rate``
            (:mod:`ddpg.agents.diagnostics`). Of the critic, once there are transitions that are old enough,
            ``q_value``: mean Q(s, μ(s)), ``discounted_return``: the mean of what was obtained from the same s on, both
            in env units, and ``q_bias``: the difference divided by the absolute mean return.
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
        units = copy.units(self._normalised(seen).observations, seen.actions)
        measured = self._values(copy, rng)
        minibatches, _ = agent.memory.sampler.sample(rng, 1, config.batch_size, agent.priority_correction)
        minibatch = minibatches.map(lambda field: field[0])
        minibatch = minibatch.replace(rewards=minibatch.rewards / np.float32(agent.reward_scale))
        for name, step in copy.step(self._normalised(minibatch)).items():
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
        """Return Q of recent observations, and the discounted return that was obtained from them on."""
        agent, replay = self._agent, self._agent.replay
        steps = return_steps(agent.config.discount)
        too_new = steps * getattr(agent.env, "num_envs", 1)
        rows = replay.newest(min(len(replay), too_new + RECENT))[:-too_new]
        if not len(rows):
            return {}
        found = replay.gather(rng.choice(rows, SAMPLES), steps, agent.config.discount)
        normalised, scale = self._normalised(found), agent.reward_scale
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
        return {name: schedule_of(schedule)(left) * rate for name, (_, rate, schedule) in specs}

    def _normalised(self, batch: Batch) -> Batch:
        normaliser = self._agent.memory.observations
        if normaliser is None:
            return batch
        return batch.replace(
            observations=normaliser(batch.observations), next_observations=normaliser(batch.next_observations)
        )
