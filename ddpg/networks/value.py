"""The base class of critics and Q-networks, which learn action values from TD targets by a TD path."""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import gymnasium as gym
import numpy as np
import tensorflow as tf

from ddpg.gradients import td
from ddpg.interaction.validation import validate_float, validate_positive
from ddpg.networks.base import Network, hooked, v1


class Prediction(NamedTuple):
    """A network's prediction for B states and actions.

    Attributes:
        q: Q(s, a), ``[B, 1]``.
        output: the tensor from which the loss is computed: q itself, or logits ``[B, n]`` of a distribution of mean q.
    """

    q: tf.Tensor
    output: tf.Tensor


class ValueNetwork(Network):
    """A network that learns action values from TD targets; :class:`ddpg.CriticNetwork` explains the arguments.

    Besides the abstract methods, subclasses define :attr:`default_name`.
    """

    default_name: ClassVar[str]

    def __init__(
        self,
        observation_space: gym.spaces.Box,
        action_space: gym.Space,
        *,
        network: Callable | None = None,
        td_target: str | Callable = "stop_gradient",
        optimizer: str | Callable = v1.train.AdamOptimizer,
        learning_rate: float = 1e-3,
        tau: float = 0.005,
        name: str | None = None,
        clip_delta: float | None = None,
        loss: str | Callable = "mse",
        l2: float = 0.0,
        max_gradient_norm: float | None = None,
        output_init: str = "small",
        weight_projection: bool = False,
        affine_projection: bool = False,
    ):
        self.action_space = self._check_action_space(action_space)
        validate_positive(clip_delta, "clip_delta", or_none=True)
        self.td_path = td.TDPath(td_target, self._start_backward, clip_delta, loss)
        name = self.default_name if name is None else name
        validate_float(l2, "l2", at_least=0)
        super().__init__(
            observation_space,
            network,
            optimizer,
            learning_rate,
            tau,
            name,
            max_gradient_norm,
            output_init,
            weight_projection,
            affine_projection,
        )
        self.l2 = l2

    # -- symbolic -------------------------------------------------------------------------------------

    @abc.abstractmethod
    def prediction(self, states: tf.Tensor, actions: tf.Tensor, training: bool = True) -> Prediction:
        """Return Q(s, a) and the output from which the loss is computed."""

    def compute_gradients(self, states: tf.Tensor, actions: tf.Tensor, targets: tf.Tensor) -> td.GradientsAndVariables:
        """Return ``[(∂L/∂φ, variable)]`` of the loss L, by default 1/B Σ (Q(s, a) − y)², and of the decay ``l2``.

        ``td_target`` decides whether a gradient flows into the target y, ``[B, 1]``. Actions are ``[B, A]``, for a
        Q-network ``[B, 1]``, 0 to n − 1.
        """
        return self.td_gradients(self.prediction(states, actions).output, targets)

    @hooked
    def td_gradients(self, output: tf.Tensor, targets: tf.Tensor) -> td.GradientsAndVariables:
        """Same as :meth:`compute_gradients`, from a :class:`Prediction`'s output: q = Q(s, a) ``[B, 1]``, or logits."""
        pairs = self.td_path(output, targets, self.trainable_variables)
        return [self._decayed(*pair) for pair in pairs] if self.l2 and pairs else pairs

    def _start_backward(self, *args: Any, **options: Any) -> td.GradientsAndVariables:
        # Looked up at the call, because the laboratory replaces it to record the call.
        return self.optimizer.compute_gradients(*args, **options)

    # -- numeric --------------------------------------------------------------------------------------

    def get_gradients(self, states, actions, targets) -> list[np.ndarray]:
        """Return the gradients of :meth:`compute_gradients`, in the order of the trainable variables.

        A Q-network's actions may also be ``[B]``.

        Raises:
            UsageError: if a shape is wrong, a number is not finite, or B is 0.
        """
        return self._get_gradients(*self._inputs(states, actions, targets))

    def train(self, states, actions, targets) -> float:
        """Move Q(s, a) towards ``targets`` ``[B, 1]`` by one optimiser step.

        Returns:
            The loss before the step, without ``l2``: the mean squared error, unless ``loss`` is another one.

        Raises:
            UsageError: as for :meth:`get_gradients`.
        """

        def step(states: tf.Tensor, actions: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
            output = self.prediction(states, actions).output
            return self._step_after(self.td_path.loss(output, targets), self.td_gradients(output, targets))

        return float(self._run("train", step, *self._inputs(states, actions, targets)))

    # -- for subclasses -------------------------------------------------------------------------------

    def _decayed(self, gradient: tf.Tensor | None, variable: tf.Variable) -> tuple[tf.Tensor | None, tf.Variable]:
        """Add ``l2`` times the weights: the gradient of ``l2``/2·‖W‖². Biases, and gains of norms, do not decay."""
        decays = gradient is not None and variable.shape.rank > 1
        return (gradient + self.l2 * variable if decays else gradient), variable

    @staticmethod
    @abc.abstractmethod
    def _check_action_space(space: gym.Space) -> gym.Space:
        """Return ``space``; raise UsageError if its actions are not of the network's kind."""

    @abc.abstractmethod
    def _inputs(self, states, actions, targets) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Check a minibatch and return it as arrays ``[B, *observation shape]``, ``[B, A]`` and ``[B, 1]``."""
