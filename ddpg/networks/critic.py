"""The critic: an action-value function Q(s, a) that exposes ∇ₐQ."""

import numpy as np
import tensorflow as tf
from gymnasium import spaces as gym_spaces

from ddpg.errors import UsageError
from ddpg.experience import spaces
from ddpg.networks.base import v1
from ddpg.networks.layers import output_layer
from ddpg.networks.value import ValueNetwork


class CriticNetwork(ValueNetwork):
    """Action-value function Q(s, a), ``[B, *observation shape], [B, A] -> [B, 1]``.

    Args:
        observation_space: a Box.
        action_space: a Box of floats with finite bounds; actions come in its units, flattened to A.
        network: hidden layers, ``(states, actions) -> features``; :func:`ddpg.mlp` or one's own.
        td_target: ``"stop_gradient"``, ``"placeholder"``, ``"output_delta"``, ``"residual_gradient"``, or a
            callable ``(q, target, variables) -> [(gradient, variable)]``.
        optimizer: a ``tf.compat.v1.train.Optimizer`` class, called with the learning rate; or ``"adam"``,
            ``"rmsprop"``, ``"sgd"``, ``"momentum"``.
        learning_rate: its step size.
        tau: step of the target network, in (0, 1].
        name: scope of its variables; ``None``: "critic".
        clip_delta: for ``output_delta``, the largest magnitude of δ = y − q; ``None``: any.
        loss: ``"mse"``, ``"huber"`` or a callable ``(q, target) -> L``; see :mod:`ddpg.gradients.td`.
        l2: decay of the layers' weights, added to their gradients (Lillicrap et al. 2015, section 7: 1e-2).
        max_gradient_norm: largest L2 norm of all gradients of a step together; ``None``: any.
        output_init: of the output layer; ``"small"``: U(±3e-3), ``"fan_in"``: U(±1/√f), f its inputs.

    Raises:
        UsageError: a space, name or number that cannot work.
    """

    action_space: gym_spaces.Box

    default_name = "critic"
    _check_action_space = staticmethod(spaces.check_action_space)

    @property
    def action_size(self) -> int:
        """A: numbers in an action."""
        return spaces.flat_size(self.action_space)

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

    def joint(
        self, states: tf.Tensor, actions: tf.Tensor, next_states: tf.Tensor, next_actions: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return Q(s, a) and Q(s′, a′), ``[B, 1]`` each, of one forward pass in training mode.

        Batch statistics are then those of both: replayed actions and the policy's (CrossQ: Bhatt et al. 2024,
        arXiv 1902.05605, section 3.2).
        """
        both = self(tf.concat([states, next_states], axis=0), tf.concat([actions, next_actions], axis=0), training=True)
        return tuple(tf.split(both, 2))

    def prediction(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return q = Q(s, a), ``[B, 1]``, in training mode."""
        return self(states, actions, training=True)

    # -- numeric --------------------------------------------------------------------------------------

    def predict(self, states, actions) -> np.ndarray:
        """Return Q(s, a), ``[B, 1]``."""
        return self._run("predict", self.__call__, *self._state_actions(states, actions))

    def predict_target(self, states, actions) -> np.ndarray:
        """Return Q′(s, a), ``[B, 1]``."""
        return self._run("predict_target", self.target, *self._state_actions(states, actions))

    def action_gradients(self, states, actions) -> np.ndarray:
        """Return ∇ₐQ(s, a), ``[B, A]``: the direction that increases Q."""
        return self._run("action_gradients", self.action_gradient, *self._state_actions(states, actions))

    # -- inside ---------------------------------------------------------------------------------------

    def _apply(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        return output_layer(self._network(states, actions), 1, self._output_init)

    def placeholders(self) -> list[tf.Tensor]:
        """Return fresh placeholders for states and actions."""
        return [*super().placeholders(), v1.placeholder(tf.float32, [None, self.action_size], name="actions")]

    def _state_actions(self, states, actions) -> tuple[np.ndarray, np.ndarray]:
        states = self._observations(states)
        actions = spaces.as_batch(self.action_space, actions, "actions")[0].reshape(-1, self.action_size)
        if len(states) != len(actions):
            raise UsageError(f"{len(states)} states but {len(actions)} actions; give one action per state")
        return states, actions

    def _inputs(self, states, actions, targets) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        states, actions = self._state_actions(states, actions)
        return states, actions, spaces.as_column(targets, len(states), "targets")
