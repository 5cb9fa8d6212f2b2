"""The Q-network: action values of every discrete action at once."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf
from gymnasium import spaces as gym_spaces

from ddpg import spaces
from ddpg.errors import UsageError
from ddpg.networks.base import v1
from ddpg.networks.layers import mlp, output_layer
from ddpg.networks.value import ValueNetwork


class QNetwork(ValueNetwork):
    """Action values Q(s, ·), ``[B, *observation shape] -> [B, n]``, on the same TD paths as the critic.

    Args:
        observation_space: a Box.
        action_space: ``Discrete(n)``; actions are counted from 0 here, whatever its ``start``.
        network: hidden layers, ``states -> features``; :func:`ddpg.mlp`, :func:`ddpg.conv` or one's own.
        td_target: as for :class:`ddpg.CriticNetwork`.
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
        action_space: gym_spaces.Discrete,
        *,
        network: Callable | None = None,
        td_target: str | Callable = "stop_gradient",
        optimizer: Callable = v1.train.AdamOptimizer,
        learning_rate: float = 1e-3,
        tau: float = 0.005,
        name: str = "q",
        clip_delta: float | None = None,
    ):
        self.action_space = spaces.check_discrete_space(action_space)
        self.actions = int(action_space.n)
        self._network = network or mlp()
        super().__init__(observation_space, td_target, clip_delta, optimizer, learning_rate, tau, name)

    # -- symbolic -------------------------------------------------------------------------------------

    def __call__(self, states: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return Q(s, ·), ``[B, n]``. ``training`` matters to batch norm: batch statistics, and move them."""
        return self._online([states], training)

    def target(self, states: tf.Tensor) -> tf.Tensor:
        """Return Q′(s, ·), ``[B, n]``: the same network through its EMA shadows."""
        return self._of_target([states])

    def taken(self, values: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return Q(s, a) ``[B, 1]`` of values ``[B, n]`` and actions ``[B, 1]`` (0 to n − 1, any number type).

        Backward, the taken action's output carries the whole delta and every other output zero.
        """
        chosen = tf.one_hot(tf.cast(actions[:, 0], tf.int32), self.actions, dtype=values.dtype)
        return tf.reduce_sum(values * chosen, axis=1, keepdims=True)

    def prediction(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return q = Q(s, a), ``[B, 1]``, in training mode."""
        return self.taken(self(states, training=True), actions)

    # -- numeric --------------------------------------------------------------------------------------

    def predict(self, states) -> np.ndarray:
        """Return Q(s, ·), ``[B, n]``."""
        return self._run("predict", self.__call__, self._observations(states))

    def predict_target(self, states) -> np.ndarray:
        """Return Q′(s, ·), ``[B, n]``."""
        return self._run("predict_target", self.target, self._observations(states))

    def get_gradients(self, states, actions, targets) -> list[np.ndarray]:
        """Return the gradients of :meth:`compute_gradients`; actions ``[B]`` or ``[B, 1]``, targets ``[B, 1]``."""
        return self._get_gradients(*self._inputs(states, actions, targets))

    def train(self, states, actions, targets) -> float:
        """Move Q(s, a) towards ``targets`` by one optimiser step.

        Returns:
            The mean squared error before the step.
        """
        return self._train(*self._inputs(states, actions, targets))

    # -- inside ---------------------------------------------------------------------------------------

    def _apply(self, states: tf.Tensor) -> tf.Tensor:
        return output_layer(self._network(states), self.actions)

    def placeholders(self) -> list[tf.Tensor]:
        """Return a fresh placeholder for the states."""
        return [v1.placeholder(tf.float32, [None, *self.observation_space.shape], name="states")]

    def _inputs(self, states, actions, targets) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        states = self._observations(states)
        actions = np.asarray(actions, np.int32).reshape(-1, 1)
        if len(actions) != len(states) or actions.min() < 0 or actions.max() >= self.actions:
            raise UsageError(
                f"actions has shape {np.shape(actions)} and values {actions.min()} to {actions.max()}; expected "
                f"{len(states)} integers from 0 to {self.actions - 1}"
            )
        return states, actions, spaces.as_column(targets, len(states), "targets")
