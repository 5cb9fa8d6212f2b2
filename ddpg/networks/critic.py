"""The critic: an action-value function Q(s, a) that exposes ∇ₐQ."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gymnasium import spaces as gym_spaces

from ddpg import spaces
from ddpg.errors import UsageError
from ddpg.networks.base import v1
from ddpg.networks.layers import mlp, output_layer
from ddpg.networks.value import ValueNetwork


class CriticNetwork(ValueNetwork):
    """Action-value function Q(s, a), ``[B, *observation shape], [B, A] -> [B, 1]``.

    Args:
        observation_space: a Box.
        action_space: a Box of floats with finite bounds; actions come in its units, flattened to A.
        network: hidden layers, ``(states, actions) -> features``; :func:`ddpg.mlp` or one's own.
        td_target: ``"stop_gradient"``, ``"placeholder"``, ``"output_delta"``, ``"residual_gradient"``, or a
            callable ``(q, target, variables) -> [(gradient, variable)]``.
        optimizer: a ``tf.compat.v1.train.Optimizer`` class, called with the learning rate.
        learning_rate: its step size.
        tau: step of the target network, in (0, 1].
        name: scope of its variables.
        clip_delta: for ``output_delta``, the largest magnitude of δ = y − q; ``None``: any.

    Raises:
        UsageError: a space, name or number that cannot work.
    """

    def __init__(
        self,
        observation_space: gym_spaces.Box,
        action_space: gym_spaces.Box,
        *,
        network: Callable | None = None,
        td_target: str | Callable = "stop_gradient",
        optimizer: Callable = v1.train.AdamOptimizer,
        learning_rate: float = 1e-3,
        tau: float = 0.005,
        name: str = "critic",
        clip_delta: float | None = None,
    ):
        self.action_space = spaces.check_action_space(action_space)
        self.action_size = spaces.flat_size(action_space)
        self._network = network or mlp()
        super().__init__(observation_space, td_target, clip_delta, optimizer, learning_rate, tau, name)

    # -- symbolic -------------------------------------------------------------------------------------

    def __call__(self, states: tf.Tensor, actions: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return Q(s, a), ``[B, 1]``. ``training`` matters to batch norm: batch statistics, and move them."""
        return self._online([states, actions], training)

    def target(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return Q′(s, a), ``[B, 1]``: the same network through its EMA shadows."""
        return self._of_target([states, actions])

    def action_gradient(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return ∇ₐQ(s, a), ``[B, A]``, per sample: the direction that increases Q.

        Q of one sample depends on that sample's action alone, so the gradient of the sum over the batch
        is every sample's own gradient.
        """
        return tf.gradients(self(states, actions), actions)[0]

    def prediction(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return q = Q(s, a), ``[B, 1]``, in training mode."""
        return self(states, actions, training=True)

    # -- numeric --------------------------------------------------------------------------------------

    def predict(self, states, actions) -> np.ndarray:
        """Return Q(s, a), ``[B, 1]``."""
        return self._run("predict", self.__call__, *self._inputs(states, actions))

    def predict_target(self, states, actions) -> np.ndarray:
        """Return Q′(s, a), ``[B, 1]``."""
        return self._run("predict_target", self.target, *self._inputs(states, actions))

    def action_gradients(self, states, actions) -> np.ndarray:
        """Return ∇ₐQ(s, a), ``[B, A]``: the direction that increases Q."""
        return self._run("action_gradients", self.action_gradient, *self._inputs(states, actions))

    def get_gradients(self, states, actions, targets) -> list[np.ndarray]:
        """Return the gradients of :meth:`compute_gradients`, in the order of the trainable variables."""
        return self._get_gradients(*self._inputs(states, actions, targets))

    def train(self, states, actions, targets) -> float:
        """Move Q(s, a) towards ``targets`` by one optimiser step.

        Returns:
            The mean squared error before the step.
        """
        return self._train(*self._inputs(states, actions, targets))

    # -- inside ---------------------------------------------------------------------------------------

    def _apply(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        return output_layer(self._network(states, actions), 1)

    def placeholders(self) -> list[tf.Tensor]:
        """Return fresh placeholders for states and actions."""
        return [
            v1.placeholder(tf.float32, [None, *self.observation_space.shape], name="states"),
            v1.placeholder(tf.float32, [None, self.action_size], name="actions"),
        ]

    def _inputs(self, states, actions, targets=None) -> tuple[np.ndarray, ...]:
        states = self._observations(states)
        actions = spaces.as_batch(self.action_space, actions, "actions")[0].reshape(-1, self.action_size)
        if len(states) != len(actions):
            raise UsageError(f"{len(states)} states but {len(actions)} actions; give one action per state")
        if targets is None:
            return states, actions
        return states, actions, spaces.as_column(targets, len(states), "targets")
