"""What an algorithm's update is made of, and how its parts follow one another.

A new algorithm is one file beside this one: an :class:`Update`, or a subclass of another algorithm's that changes a
term. :mod:`ddpg.updates.registry` gives it a name and its options.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import tensorflow as tf

from ddpg.errors import UsageError
from ddpg.experience.replay import Batch
from ddpg.networks.base import Network
from ddpg.networks.value import ValueNetwork
from ddpg.updates.counting import UpdateCount


class StepSize(NamedTuple):
    """What an optimiser's steps are like: whose, how large, and how that changes in the course of learning."""

    network: Network
    rate: float
    schedule: str | Callable


Metrics = dict[str, tf.Tensor]
Step = Callable[[Batch, tf.Tensor], Metrics]
Spaces = tuple[gym.spaces.Box, Any]


class Update(abc.ABC):
    """One symbolic update of some networks, whole and in its phases: what a driver needs to know.

    Attributes:
        metrics: names of what an update measures; the first is the loss that tells whether training diverged.
        config: the options.
    """

    metrics: ClassVar[tuple[str, ...]]
    config: Any

    @classmethod
    @abc.abstractmethod
    def build(cls, config: Any, spaces: Spaces, networks: Mapping[str, Callable | None]) -> "Update":
        """Build the networks in the default graph and return their update.

        Args:
            config: the options, of the class that :mod:`ddpg.updates.registry` names beside this one.
            spaces: of observations, and of actions as they are learned: ``Box(-1, 1, (A,))`` or ``Discrete``.
            networks: hidden layers of one's own by the constructor's names; ``None``: those of ``config``.
        """

    @property
    @abc.abstractmethod
    def policy(self) -> Network:
        """The network that acts."""

    @property
    @abc.abstractmethod
    def value(self) -> ValueNetwork:
        """The network with the TD path."""

    @property
    @abc.abstractmethod
    def learning_rates(self) -> list[StepSize]:
        """Every network with an optimiser, its configured step size and the schedule of that."""

    @property
    @abc.abstractmethod
    def action_size(self) -> int:
        """A: numbers in a stored action."""

    @property
    @abc.abstractmethod
    def steps(self) -> list[Step]:
        """The optimiser steps ``(batch, y) -> metrics`` in their order; fetching the metrics takes the step."""

    @abc.abstractmethod
    def target(self, batch: Batch) -> tf.Tensor:
        """Return the TD target y, ``[B, 1]``."""

    @abc.abstractmethod
    def move(self) -> tf.Operation:
        """Return the op that moves the target networks."""

    @property
    def target_reads_online(self) -> bool:
        """Whether y reads what the steps change, the online networks, so that the first step must wait for it."""
        return False

    @property
    def count(self) -> UpdateCount | None:
        """What counts the updates, where any of them differs from the others."""
        return None

    def noise(self, shape: Sequence[int] | tf.Tensor, made: tf.Tensor) -> tf.Tensor | None:
        """Return the standard normal numbers that the update after ``made`` others draws; None: none.

        Args:
            shape: of one update's.
            made: int64 ``[]``, or ``[K]`` for the numbers ``[K, *shape]`` of K updates.
        """
        return None

    def whole(self, batch: Batch) -> Metrics:
        """Return the metrics of one whole update, and ``td_errors`` where priorities want them; fetching runs it.

        The control dependencies are the algorithm: each part reads what the part before it wrote.
        """
        y = self.target(batch)
        # A step's training pass moves statistics of batch norms, by which y's inference pass normalises.
        before = [y] if self.target_reads_online else []
        metrics: Metrics = {}
        for step in self.steps:
            with tf.control_dependencies([*before, *metrics.values()]):
                metrics |= step(batch, y)
        with tf.control_dependencies(list(metrics.values())):
            moved = self.move()
        with tf.control_dependencies([moved]):
            return {name: tf.identity(value) for name, value in metrics.items()}


def bootstrapped(batch: Batch, gamma: float, next_q: tf.Tensor) -> tf.Tensor:
    """Return y = r + γ(1 − terminated)·``next_q``, ``[B, 1]``.

    Of n-step returns: y = Σ_{k<m} γ^k·r_k + γ^m(1 − terminated)·``next_q``, where the m ≤ n steps end sooner with the
    episode. The batch brings the sum as its rewards, s_m as its next observations, and γ^m as its discounts.
    """
    return batch.rewards + (gamma if batch.discounts is None else batch.discounts) * (1.0 - batch.terminated) * next_q


def after_step(network: Network, gradients: list, metrics: Metrics) -> Metrics:
    """Apply ``gradients``; return ``metrics``, taken before the step, in a form that waits for it.

    Raises:
        UsageError: not one gradient for each of the network's variables.
    """
    check_gradients(gradients, network.trainable_variables, f"the gradient path of the {network.name}")
    with tf.control_dependencies(list(metrics.values())):
        step = network.apply_gradients(gradients)
    with tf.control_dependencies([step]):
        return {name: tf.identity(value) for name, value in metrics.items()}


def check_gradients(pairs: Any, variables: Sequence, path: str) -> None:
    """Refuse what is not ``[(gradient, variable)]`` with one gradient for each of ``variables``, in any order.

    Raises:
        UsageError: it is not; names what a ``path`` of one's own returned and what is expected.
    """
    expected = f"expected [(gradient, variable)] with a gradient for each of {[v.name for v in variables]}"
    if not isinstance(pairs, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):
        raise UsageError(f"{path} returned {pairs!r}; {expected}")
    empty = [getattr(variable, "name", variable) for gradient, variable in pairs if gradient is None]
    if empty:
        raise UsageError(f"{path} returned no gradient (None) for {empty}: its loss does not reach them; {expected}")
    given = [getattr(variable, "name", repr(variable)) for _, variable in pairs]
    if sorted(given) != sorted(variable.name for variable in variables):
        raise UsageError(f"{path} returned gradients for {given}; {expected}")
