"""What critic and Q-network share: a TD path to the gradient of their weights."""

import abc

import numpy as np
import tensorflow as tf

from ddpg.gradients import td
from ddpg.networks.base import Network


class ValueNetwork(Network):
    """A network that learns action values from TD targets.

    Subclasses implement :meth:`prediction`, besides what :class:`Network` asks for.
    """

    def __init__(self, observation_space, td_target, clip_delta, optimizer, learning_rate, tau, name):
        td.TDPath(td_target, clip_delta=clip_delta)  # a bad name ends here, before anything is built
        super().__init__(observation_space, optimizer, learning_rate, tau, name)
        self.td_path = td.TDPath(td_target, self.optimizer.compute_gradients, clip_delta)

    @abc.abstractmethod
    def prediction(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return q = Q(s, a), ``[B, 1]``, in training mode."""

    def compute_gradients(self, states: tf.Tensor, actions: tf.Tensor, targets: tf.Tensor) -> list:
        """Return ``[(∂L/∂φ, variable)]`` of L = 1/B Σ (Q(s, a) − y)², the target kept out by ``td_target``.

        Args:
            states: ``[B, *observation shape]``.
            actions: ``[B, A]``; of a Q-network ``[B, 1]``, 0 to n − 1.
            targets: y, ``[B, 1]``.
        """
        return self.td_gradients(self.prediction(states, actions), targets)

    def td_gradients(self, q: tf.Tensor, targets: tf.Tensor) -> list:
        """Same as :meth:`compute_gradients`, from the prediction q = Q(s, a) ``[B, 1]``."""
        return self.td_path(q, targets, self.trainable_variables)

    def _get_gradients(self, *inputs: np.ndarray) -> list[np.ndarray]:
        def gradients(*inputs: tf.Tensor) -> list[tf.Tensor]:
            return [gradient for gradient, _ in self.compute_gradients(*inputs)]

        return self._run("get_gradients", gradients, *inputs)

    def _train(self, *inputs: np.ndarray) -> float:
        def step(states: tf.Tensor, actions: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
            q = self.prediction(states, actions)
            return self._step_after(td.mean_square(q, targets), self.td_gradients(q, targets))

        return float(self._run("train", step, *inputs))
