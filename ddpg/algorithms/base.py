"""What every algorithm's update consists of, and the order of its parts.

A new algorithm is one file beside this one: an :class:`Update`, or a subclass of another algorithm's that changes a
term. :mod:`ddpg.algorithms.registry` gives it a name and its options.
"""

import abc
import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
import tensorflow as tf

from ddpg.errors import UsageError
from ddpg.gradients.backward import huber_weights, weight_gradient
from ddpg.networks.base import Network
from ddpg.networks.value import Prediction, ValueNetwork
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1


class UpdateCounter:
    """A variable that counts updates: fused updates can count by themselves, and checkpoints know where they were.

    An update reads it, and advances it when everything else is done. Or, built while the number is :meth:`held`, it
    does what the update of that number does, asks nothing, and leaves counting to whoever runs it.

    Args:
        name: the variable's.
    """

    def __init__(self, name: str):
        self.variable = v1.get_variable(name, initializer=np.int64(0), trainable=False, use_resource=True)
        self._held: int | None = None
        self._intervals: set[int] = set()

    @contextlib.contextmanager
    def assume_step(self, made: int) -> Iterator[None]:
        """Build what the update after ``made`` others does."""
        self._held = made
        try:
            yield
        finally:
            self._held = None

    def is_due(self, made: int) -> tuple[bool, ...]:
        """Tell for every interval asked for so far, in order, whether the update after ``made`` others ends one."""
        return tuple((made + 1) % interval == 0 for interval in sorted(self._intervals))

    @property
    def firsts(self) -> list[int]:
        """The first update of each kind, by what is :meth:`due`: how many were made before it, the fewest first.

        What ends some intervals is a multiple of each, so of their least common multiple, which ends the same ones: it
        is the first of its kind. However long the intervals are, there are no more of those than sets of them.
        """
        numbers = {1}
        for interval in self._intervals:
            numbers |= {math.lcm(number, interval) for number in numbers}
        return [number - 1 for number in sorted(numbers)]

    def made(self) -> tf.Tensor:
        """Return the number of updates before the one under way, int64."""
        return self.variable.read_value()

    def every(self, interval: int, then: Callable, otherwise: Callable) -> tf.Tensor:
        """Return ``then()`` in every ``interval``-th update and ``otherwise()`` in the others: tensors of one kind.

        Only one of the two runs.
        """
        self._intervals.add(interval)
        if self._held is not None:
            return (then if (self._held + 1) % interval == 0 else otherwise)()
        return tf.cond(tf.equal((self.made() + 1) % interval, 0), then, otherwise)

    def advance(self, interval: int, step: Callable[[], tf.Operation]) -> tf.Operation | tf.Tensor:
        """Run ``step`` in every ``interval``-th update; then count the update."""
        moved = self.every(interval, lambda: _done(step()), lambda: _done(tf.no_op()))
        if self._held is not None:
            return moved
        with tf.control_dependencies([moved]):
            return self.variable.assign_add(1, read_value=False)


def _done(op: tf.Operation) -> tf.Tensor:
    with tf.control_dependencies([op]):
        return tf.constant(True)


class OptimizerSpec(NamedTuple):
    """What an optimiser's steps are like: whose, how large, and how that changes in the course of learning."""

    network: Network
    rate: float
    schedule: str | Callable


Metrics = dict[str, tf.Tensor]
OptimizerStep = Callable[[Batch, tf.Tensor], Metrics]
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
            config: the options, of the class that :mod:`ddpg.algorithms.registry` names beside this one.
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
    def learning_rates(self) -> list[OptimizerSpec]:
        """Every network with an optimiser, its configured step size and the schedule of that."""

    @property
    @abc.abstractmethod
    def action_size(self) -> int:
        """A: numbers in a stored action."""

    @property
    @abc.abstractmethod
    def steps(self) -> list[OptimizerStep]:
        """The optimiser steps ``(batch, y) -> metrics`` in their order; fetching the metrics takes the step."""

    @abc.abstractmethod
    def target(self, batch: Batch) -> tf.Tensor:
        """Return the TD target y, ``[B, 1]``."""

    @abc.abstractmethod
    def update_targets(self) -> tf.Operation:
        """Return the op that moves the target networks."""

    @property
    def target_reads_online(self) -> bool:
        """Whether y reads what the steps change, the online networks, so that the first step must wait for it."""
        return False

    @property
    def count(self) -> UpdateCounter | None:
        """What counts the updates, where any of them differs from the others."""
        return None

    @property
    def path_to_check(self) -> Callable | None:
        """The policy path of the user's own whose sign is checked before the first update; ``None``: there is none."""
        return None

    def noise(self, shape: Sequence[int] | tf.Tensor, made: tf.Tensor) -> tf.Tensor | None:
        """Return the standard normal numbers that the update after ``made`` others draws; None: none.

        Args:
            shape: of one update's.
            made: int64 ``[]``, or ``[K]`` for the numbers ``[K, *shape]`` of K updates.
        """
        return None

    def update_op(self, batch: Batch) -> Metrics:
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
            moved = self.update_targets()
        with tf.control_dependencies([moved]):
            return {name: tf.identity(value) for name, value in metrics.items()}


def bootstrap(batch: Batch, gamma: float, next_q: tf.Tensor) -> tf.Tensor:
    """Return y = r + γ(1 − terminated)·``next_q``, ``[B, 1]``.

    Of n-step returns: y = Σ_{k<m} γ^k·r_k + γ^m(1 − terminated)·``next_q``, where the m ≤ n steps end sooner with the
    episode. The batch brings the sum as its rewards, s_m as its next observations, and γ^m as its discounts.
    """
    return batch.rewards + (gamma if batch.discounts is None else batch.discounts) * (1.0 - batch.terminated) * next_q


def apply_and_report(network: Network, gradients: list, metrics: Metrics) -> Metrics:
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


TD_ERRORS = "td_errors"  # among a step's metrics: |y − q| of each sample, [B, 1]


def td_errors(q: tf.Tensor, y: tf.Tensor, prioritised: str | None) -> dict[str, tf.Tensor]:
    """Return what a step with priorities measures besides: |y − q| as :data:`TD_ERRORS`."""
    return {} if prioritised is None else {TD_ERRORS: tf.abs(y - q)}


def weight_samples(
    network: ValueNetwork, batch: Batch, prediction: Prediction, y: tf.Tensor, prioritised: str | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the output and y for the network's TD path, whose gradient then weighs samples by ``prioritised``.

    ``proportional``: by the batch's importance-sampling weights (Schaul et al. 2016, section 3.4). ``lap``: by those
    that make the loss Huber's, which draws as unevenly as it weighs (Fujimoto et al. 2020). Where y is differentiated
    too, it is weighed alike.
    """
    if prioritised is None:
        return prediction.output, y
    weights = huber_weights(prediction.q, y) if prioritised == "lap" else batch.weights
    through = network.td_path.bootstraps_online
    return weight_gradient(prediction.output, weights), weight_gradient(y, weights) if through else y
