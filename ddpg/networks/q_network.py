"""The Q-network: action values of every discrete action at once."""

from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces as gym_spaces

from ddpg.errors import UsageError
from ddpg.interaction import spaces
from ddpg.interaction.action_mask import FORBIDDEN, check_masked_space
from ddpg.interaction.validation import validate_bool, validate_numeric
from ddpg.networks.value import Prediction, ValueNetwork


class QNetwork(ValueNetwork):
    """Action values Q(s, ·), ``[B, *observation shape] -> [B, n]``, on the same TD paths as the critic.

    Args:
        observation_space: a Box.
        action_space: ``Discrete(n)``; the network counts actions from 0, whatever the space's ``start``.
        network: hidden layers, ``states -> features``; :func:`ddpg.mlp`, :func:`ddpg.conv` or your own.
        name: scope of its variables; ``None``: "q".
        masked: the last n numbers of an observation are its action mask (:mod:`ddpg.interaction.action_mask`);
            :meth:`__call__` and :meth:`target` return −10⁹ as the value of a forbidden action.
        td_target, optimizer, learning_rate, tau, clip_delta, loss: as for :class:`ddpg.CriticNetwork`.
        l2, max_gradient_norm, output_init, weight_projection, affine_projection: as for :class:`ddpg.CriticNetwork`.

    Raises:
        UsageError: if a space is not supported, a name is unknown or a number is out of range.
    """

    action_space: gym_spaces.Discrete

    default_name = "q"
    _check_action_space = staticmethod(spaces.check_discrete_space)

    def __init__(
        self, observation_space: gym_spaces.Box, action_space: gym_spaces.Space, *, masked: bool = False, **options: Any
    ):
        self._masked = validate_bool(masked, "masked")
        if self._masked:
            check_masked_space(observation_space, spaces.check_discrete_space(action_space))
        super().__init__(observation_space, action_space, **options)

    @property
    def actions(self) -> int:
        """n: the number of actions."""
        return int(self.action_space.n)

    # -- symbolic -------------------------------------------------------------------------------------

    def __call__(self, states: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return Q(s, ·), ``[B, n]``; with ``training``, batch norm uses batch statistics and moves its averages."""
        return self._allowed(self._online([states], training), states)

    def target(self, states: tf.Tensor) -> tf.Tensor:
        """Return Q′(s, ·), ``[B, n]``: the same network through its EMA shadows."""
        return self._allowed(self._of_target([states]), states)

    @property
    def mask_size(self) -> int:
        """The number of an observation's last numbers that are its action mask: n, or 0 without masks."""
        return self.actions if self._masked else 0

    def taken(self, values: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return Q(s, a) ``[B, 1]`` from values ``[B, n]`` and actions ``[B, 1]`` (0 to n − 1, any number type).

        In the backward pass, the taken action's output gets the whole delta, and every other output gets zero.
        """
        every = np.arange(self.actions, dtype=np.float32)
        chosen = tf.cast(tf.equal(tf.cast(actions, tf.float32), every), values.dtype)
        return tf.reduce_sum(values * chosen, axis=1, keepdims=True)

    def prediction(self, states: tf.Tensor, actions: tf.Tensor, training: bool = True) -> Prediction:
        """Return Q(s, a), ``[B, 1]``, from which the loss is computed."""
        q = self.taken(self._online([states], training), actions)
        return Prediction(q, output=q)

    # -- numeric --------------------------------------------------------------------------------------

    def predict(self, states) -> np.ndarray:
        """Return Q(s, ·), ``[B, n]``."""
        return self._run("predict", self.__call__, self._observations(states))

    def predict_target(self, states) -> np.ndarray:
        """Return Q′(s, ·), ``[B, n]``."""
        return self._run("predict_target", self.target, self._observations(states))

    # -- inside ---------------------------------------------------------------------------------------

    def _allowed(self, values: tf.Tensor, states: tf.Tensor) -> tf.Tensor:
        """Return the values ``[B, n]``, with :data:`FORBIDDEN` for the actions that the states' masks forbid."""
        if not self._masked:
            return values
        # A product instead of a slice: every compiler and export supports it, and for 0 and 1 it is exact.
        last = np.eye(int(states.shape[1]), dtype=np.float32)[:, -self.actions :]
        return tf.minimum(values, (1 - 2 * tf.matmul(states, last)) * FORBIDDEN)

    def _apply(self, states: tf.Tensor) -> tf.Tensor:
        return self._output(self._network(states), self.actions)

    def _inputs(self, states, actions, targets) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        states = self._observations(states)
        spaces.check_some(states, "states")
        given = validate_numeric(actions, "actions").reshape(-1, 1)
        expected = f"expected {len(states)} whole numbers from 0 to {self.actions - 1}"
        if len(given) != len(states):
            raise UsageError(f"actions has shape {np.shape(actions)}; {expected}")
        bad = ~((given == np.floor(given)) & (given >= 0) & (given < self.actions))
        if bad.any():
            row = int(np.argmax(bad))
            raise UsageError(f"actions holds {given[row, 0]} at index {row}; {expected}")
        return states, given.astype(np.int32), spaces.as_column(targets, len(states), "targets")
