"""The base class of an algorithm's gradient update, which runs TD target, optimiser steps and target networks in order.

A new algorithm is one file in this package: a subclass of :class:`Update`, or of another algorithm's update with one
term changed. :mod:`ddpg.algorithms.registry` gives it a name, its options and its agent.
"""

import abc
import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
import tensorflow as tf

from ddpg.errors import UsageError, brief, own_code
from ddpg.gradients.backward import huber_weights, weight_gradient
from ddpg.gradients.td import check_gradients
from ddpg.networks.base import Network, optimizer_of
from ddpg.networks.value import Prediction, ValueNetwork
from ddpg.policies.network_policy import ActingNetwork
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1


class UpdateCounter:
    """Counts updates in a variable, so that fused updates know their number and checkpoints save it.

    An update reads the variable and increments it at its end. Inside :meth:`assume_step` the graph is built for one
    known update number instead: it has no conditionals, and the caller counts the updates.
    """

    def __init__(self, name: str):
        self.variable = v1.get_variable(name, initializer=np.int64(0), trainable=False, use_resource=True)
        self._assumed: int | None = None
        self._intervals: set[int] = set()

    @contextlib.contextmanager
    def assume_step(self, made: int) -> Iterator[None]:
        """Build, inside the context, the graph of the update that follows ``made`` others."""
        self._assumed = made
        try:
            yield
        finally:
            self._assumed = None

    def is_due(self, made: int) -> tuple[bool, ...]:
        """Return for every interval used so far, ascending, whether the update after ``made`` others completes it."""
        return tuple((made + 1) % interval == 0 for interval in sorted(self._intervals))

    @property
    def firsts(self) -> list[int]:
        """For each distinct value of :meth:`is_due`, the number of updates before the first with that value, ascending.

        The number of an update that completes several intervals is a multiple of each, so the first one is their least
        common multiple. There are therefore at most as many values as subsets of the intervals.
        """
        numbers = {1}
        for interval in self._intervals:
            numbers |= {math.lcm(number, interval) for number in numbers}
        return [number - 1 for number in sorted(numbers)]

    def made(self) -> tf.Tensor:
        """Return the number of updates before the current one, int64."""
        return self.variable.read_value()

    def every(self, interval: int, then: Callable, otherwise: Callable) -> tf.Tensor:
        """Return ``then()`` in every ``interval``-th update and ``otherwise()`` in the others.

        Both return tensors of the same dtype and shape. Only one of the two runs.
        """
        self._intervals.add(interval)
        if self._assumed is not None:
            return (then if (self._assumed + 1) % interval == 0 else otherwise)()
        return tf.cond(tf.equal((self.made() + 1) % interval, 0), then, otherwise)

    def advance(self, interval: int, step: Callable[[], tf.Operation]) -> tf.Operation | tf.Tensor:
        """Run ``step`` in every ``interval``-th update; then count the update."""
        moved = self.every(interval, lambda: _done(step()), lambda: _done(tf.no_op()))
        if self._assumed is not None:
            return moved
        with tf.control_dependencies([moved]):
            return self.variable.assign_add(1, read_value=False)


def _done(op: tf.Operation) -> tf.Tensor:
    with tf.control_dependencies([op]):
        return tf.constant(True)


def network_options(config: Any, network: str) -> dict[str, Any]:
    """Return the arguments that every network takes from an agent's options.

    ``network`` names the option that holds the user's own layers of this network, such as ``"actor_network"``.
    """
    return {
        "optimizer": optimizer_of(config),
        "tau": config.tau,
        "max_gradient_norm": config.max_gradient_norm,
        "output_init": config.output_init,
        "weight_projection": config.weight_projection,
        "affine_projection": network in config.affine_projected,
    }


class OptimizerSpec(NamedTuple):
    """A network with an optimiser, its configured learning rate, and the schedule of that rate."""

    network: Network
    rate: float
    schedule: str | Callable


Metrics = dict[str, tf.Tensor]
OptimizerStep = Callable[[Batch, tf.Tensor], Metrics]
Spaces = tuple[gym.spaces.Box, Any]


class Update(abc.ABC):
    """One symbolic update of some networks, as one op and as separate steps, for the learners to run.

    Attributes:
        metrics: names of the metrics; the first is the loss, which shows whether training diverged.
        config: the options.
    """

    metrics: ClassVar[tuple[str, ...]]
    config: Any

    @classmethod
    def own_code(cls) -> contextlib.AbstractContextManager[None]:
        """Return a context that turns exceptions into one line if the class is the user's own (:func:`own_code`)."""
        if cls.__module__.partition(".")[0] == __name__.partition(".")[0]:
            return contextlib.nullcontext()
        return own_code(f"the update {cls.__name__}", cls)

    @classmethod
    @abc.abstractmethod
    def build(cls, config: Any, spaces: Spaces) -> "Update":
        """Build the networks in the default graph and return their update.

        Args:
            config: the options, of the class that :mod:`ddpg.algorithms.registry` pairs with this update.
            spaces: of observations, and of actions as they are learned: ``Box(-1, 1, (A,))`` or ``Discrete``.
        """

    @property
    @abc.abstractmethod
    def policy(self) -> Network:
        """The network that acts while learning, and is trained."""

    @property
    def greedy_policy(self) -> ActingNetwork:
        """The network that predicts, and so is evaluated and exported: :attr:`policy`, or an average of it."""
        return self.policy

    @property
    @abc.abstractmethod
    def value(self) -> ValueNetwork:
        """The network with the TD path."""

    @property
    @abc.abstractmethod
    def learning_rates(self) -> list[OptimizerSpec]:
        """Every network with an optimiser, its learning rate and the rate's schedule."""

    @property
    def state_variables(self) -> dict[str, tf.Variable]:
        """By name, the variables of the default graph that updates change.

        Learning rates are options, not state: a loaded agent takes them from its configuration.
        """
        rates = {network.learning_rate.name for network, *_ in self.learning_rates}
        return {v.name: v for v in v1.global_variables() if v.name not in rates}

    @property
    @abc.abstractmethod
    def action_size(self) -> int:
        """A: numbers in a stored action."""

    @property
    @abc.abstractmethod
    def steps(self) -> list[OptimizerStep]:
        """The optimiser steps ``(batch, y) -> metrics`` in order; fetching the metrics runs the step."""

    @abc.abstractmethod
    def target(self, batch: Batch) -> tf.Tensor:
        """Return the TD target y, ``[B, 1]``."""

    @abc.abstractmethod
    def update_targets(self) -> tf.Operation:
        """Return the op that moves the target networks."""

    @property
    def target_reads_online(self) -> bool:
        """Whether y is computed by the online networks, so that it must be ready before the first step changes them."""
        return False

    @property
    def count(self) -> UpdateCounter | None:
        """The counter of updates; ``None`` if all updates are alike."""
        return None

    @property
    def policy_path(self) -> Callable | None:
        """The policy path; ``None`` if the update has none."""
        return None

    def noise(self, shape: Sequence[int] | tf.Tensor, made: tf.Tensor) -> tf.Tensor | None:
        """Return the standard normal numbers that the update after ``made`` others draws; ``None`` if it draws none.

        ``shape`` is that of one update's numbers. For K numbers ``made``, int64 ``[K]``, the result is ``[K, *shape]``.
        """
        return None

    def update_op(self, batch: Batch) -> Metrics:
        """Return the metrics of one whole update, with ``td_errors`` if replay is prioritised; fetching them runs it.

        Control dependencies keep the parts in order: each part reads the variables that the part before it wrote.
        """
        return self.later_steps(batch, *self.first_step(batch))

    def first_step(self, batch: Batch) -> tuple[tf.Tensor, Metrics]:
        """Return y and the metrics of the first optimiser step of an update."""
        y = self.target(batch)
        if not isinstance(y, tf.Tensor):
            raise UsageError(f"{type(self).__name__}.target returned {brief(y)}; expected y, a tensor [B, 1]")
        # y comes first: the step's training pass updates batch-norm statistics that y's inference pass reads.
        with tf.control_dependencies([y] if self.target_reads_online else []):
            return y, self._metrics_of(self.steps[0], batch, y)

    def later_steps(self, batch: Batch, y: tf.Tensor, metrics: Metrics) -> Metrics:
        """Complete the update that :meth:`first_step` began; return as :meth:`update_op` does."""
        for step in self.steps[1:]:
            with tf.control_dependencies(list(metrics.values())):
                metrics = metrics | self._metrics_of(step, batch, y)
        check_metrics(self, metrics)
        with tf.control_dependencies(list(metrics.values())):
            moved = self.update_targets()
        with tf.control_dependencies([moved]):
            return {name: tf.identity(value) for name, value in metrics.items()}

    def _metrics_of(self, step: OptimizerStep, batch: Batch, y: tf.Tensor) -> Metrics:
        metrics = step(batch, y)
        if not isinstance(metrics, dict):
            kind = type(self).__name__
            raise UsageError(f"a step of {kind} returned {brief(metrics)}; expected its metrics, tensors by name")
        return metrics


def bootstrap(batch: Batch, gamma: float, next_q: tf.Tensor) -> tf.Tensor:
    """Return y = r + γ(1 − terminated)·``next_q``, ``[B, 1]``.

    With n-step returns: y = Σ_{k<m} γ^k·r_k + γ^m(1 − terminated)·``next_q``, where m < n if the episode ends sooner.
    The batch's rewards hold the sum, its next observations s_m, and its discounts γ^m.
    """
    return batch.rewards + (gamma if batch.discounts is None else batch.discounts) * (1.0 - batch.terminated) * next_q


def check_metrics(update: Update, reported: Iterable[str]) -> None:
    """Check that the steps of an update report the metrics that its class names, and TD errors if replay needs them.

    Raises:
        UsageError: if one is missing or not named.
    """
    given, kind = {*reported}, type(update).__name__
    if update.config.prioritised is not None and TD_ERRORS not in given:
        raise UsageError(
            f"prioritised={update.config.prioritised!r} takes its priorities from the TD errors, which the steps of "
            f"{kind} do not return; add ddpg.algorithms.base.td_errors(q, y, self.config.prioritised) to the metrics "
            "of the critic's step, and pass the critic's td_gradients what ddpg.algorithms.base.weight_samples returns"
        )
    given.discard(TD_ERRORS)
    if missing := sorted({*update.metrics} - given):
        raise UsageError(f"{kind}.metrics names {missing}, which its steps do not return; they return {sorted(given)}")
    if further := sorted(given - {*update.metrics}):
        raise UsageError(
            f"the steps of {kind} return {further}, which {kind}.metrics does not name; it is {update.metrics}"
        )


def apply_and_report(network: Network, gradients: list, metrics: Metrics) -> Metrics:
    """Apply ``gradients``; return ``metrics``, which are computed before the step and ready only after it.

    Raises:
        UsageError: if there is not one gradient for each of the network's variables.
    """
    check_gradients(gradients, network.trainable_variables, f"the gradient path of the {network.name}")
    with tf.control_dependencies(list(metrics.values())):
        step = network.apply_gradients(gradients)
    with tf.control_dependencies([step]):
        return {name: tf.identity(value) for name, value in metrics.items()}


TD_ERRORS = "td_errors"  # among a step's metrics: |y − q| of each sample, [B, 1]


def td_errors(q: tf.Tensor, y: tf.Tensor, prioritised: str | None) -> dict[str, tf.Tensor]:
    """Return |y − q| under the key :data:`TD_ERRORS` if the replay is prioritised, else an empty dict."""
    return {} if prioritised is None else {TD_ERRORS: tf.abs(y - q)}


def weight_samples(
    network: ValueNetwork, batch: Batch, prediction: Prediction, y: tf.Tensor, prioritised: str | None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the output and y for the network's TD path, with their gradients weighted per sample by ``prioritised``.

    ``proportional``: by the batch's importance-sampling weights (Schaul et al. 2016, section 3.4). ``lap``: by weights
    that turn the mean squared error into the Huber loss (Fujimoto et al. 2020). If the path differentiates y too, y
    gets the same weights.
    """
    if prioritised is None:
        return prediction.output, y
    weights = huber_weights(prediction.q, y) if prioritised == "lap" else batch.weights
    through = network.td_path.bootstraps_online
    return weight_gradient(prediction.output, weights), weight_gradient(y, weights) if through else y
