"""Critics: an action-value function Q(s, a) that exposes ∇ₐQ, and one learned as a distribution by cross-entropy."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from gymnasium import spaces as gym_spaces

from ddpg.errors import UsageError, brief
from ddpg.interaction import spaces
from ddpg.interaction.validation import as_float32, validate_float, validate_int, validate_numeric
from ddpg.networks.base import EMATarget, hooked, v1
from ddpg.networks.layers import ConvolutionalLayers
from ddpg.networks.value import Prediction, ValueNetwork

_ROUNDING = 1e-3  # of the sum of a distribution of float32


class CriticNetwork(ValueNetwork):
    """Action-value function Q(s, a), ``[B, *observation shape], [B, A] -> [B, 1]``.

    Args:
        observation_space: a Box.
        action_space: a Box of floats with finite bounds; actions are in its units, flattened to A.
        network: hidden layers, ``(states, actions) -> features``; :func:`ddpg.mlp` or your own.
        td_target: ``"stop_gradient"``, ``"placeholder"``, ``"output_delta"``, ``"residual_gradient"``, or a
            callable ``(q, target, variables) -> [(gradient, variable)]``.
        optimizer: a ``tf.compat.v1.train.Optimizer`` class, called with the learning rate; or ``"adam"``,
            ``"rmsprop"``, ``"sgd"``, ``"momentum"``.
        learning_rate: the optimiser's learning rate.
        tau: step of the target network, in (0, 1].
        name: scope of its variables; ``None``: "critic".
        clip_delta: for ``output_delta``, the largest magnitude of δ = y − q; ``None``: no clipping.
        loss: ``"mse"``, ``"huber"`` or a callable ``(q, target) -> L``; see :mod:`ddpg.gradients.td`.
        l2: decay of the layers' weights, added to their gradients (Lillicrap et al. 2015, section 7: 1e-2).
        max_gradient_norm: largest L2 norm of all gradients of a step together; ``None``: no limit.
        output_init: of the output layer; ``"small"``: U(±3e-3), ``"fan_in"``: U(±1/√f) with f inputs.
        weight_projection: scale the weights into each hidden unit to length 1 after every step.
        affine_projection: scale gains and offsets of each norm together to length √d, d its features, after every
            step; the hidden layers must have norms.

    Raises:
        UsageError: if a space is not supported, a name is unknown or a number is out of range.
    """

    action_space: gym_spaces.Box

    default_name = "critic"
    _check_action_space = staticmethod(spaces.check_action_space)

    @property
    def action_size(self) -> int:
        """A: the number of components of an action."""
        return spaces.flat_size(self.action_space)

    # -- symbolic -------------------------------------------------------------------------------------

    def __call__(self, states: tf.Tensor, actions: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return Q(s, a), ``[B, 1]``; with ``training``, batch norm uses batch statistics and moves its averages."""
        return self.prediction(states, actions, training=training).q

    def target(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return Q′(s, a), ``[B, 1]``: the same network through its EMA shadows."""
        return self.target_prediction(states, actions).q

    @hooked
    def prediction(self, states: tf.Tensor, actions: tf.Tensor, training: bool = True) -> Prediction:
        """Return Q(s, a), ``[B, 1]``, and the output from which the loss is computed."""
        return self._predict(self._online([states, actions], training))

    @hooked
    def target_prediction(self, states: tf.Tensor, actions: tf.Tensor) -> Prediction:
        """Return Q′(s, a), ``[B, 1]``, and the target network's output."""
        return self._predict(self._of_target([states, actions]))

    @hooked
    def action_gradient(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return ∇ₐQ(s, a), ``[B, A]``, per sample: the direction that increases Q.

        Q of one sample depends only on that sample's action, so the gradient of the sum over the batch holds
        every sample's own gradient.

        Raises:
            UsageError: if the network ignores its actions, or uses them only in operations without a gradient.
        """
        gradient = tf.gradients(self(states, actions), actions)[0]
        if gradient is None:
            raise UsageError(
                f"Q of the {self.name} has no gradient with respect to the actions, which the actor could follow: the "
                "network ignores them, rounds them or stops their gradient; use them in it, as "
                "tf.concat([states, actions], axis=1) does"
            )
        return gradient

    @hooked
    def joint(
        self,
        states: tf.Tensor,
        actions: tf.Tensor,
        next_states: tf.Tensor,
        next_actions: tf.Tensor,
        averages: bool = False,
    ) -> tuple[Prediction, Prediction]:
        """Return the predictions for (s, a) and for (s′, a′), made in one forward pass in training mode.

        Batch statistics then cover both the replayed and the policy's actions (CrossQ: Bhatt et al. 2024, arXiv
        1902.05605, section 3.2). With ``averages`` the target network makes the pass, with its own batch statistics.
        """
        inputs = [tf.concat([states, next_states], axis=0), tf.concat([actions, next_actions], axis=0)]
        output = self._of_target(inputs, training=True) if averages else self._online(inputs, training=True)
        first, second = tf.split(output, 2)
        return self._predict(first), self._predict(second)

    @hooked
    def encode(self, states: tf.Tensor, average: EMATarget | None = None) -> tf.Tensor:
        """Return the output of the convolutions in inference mode, ``[B, height, width, channels]``.

        ``average`` holds averages that replace the variables; ``None``: the variables themselves.

        Raises:
            UsageError: if the hidden layers were not made by :func:`ddpg.conv`.
        """
        if average is None:
            return self._online([states], False, self._encoder)
        return self.with_averages(average, [states], part=self._encoder)

    @functools.cached_property
    def encoder_variables(self) -> list[tf.Variable]:
        """The variables of :meth:`encode`, in creation order."""
        found: list[tf.Variable] = []
        with self.graph.as_default(), v1.name_scope(f"{self.name}_encoder/"):

            def noted(getter: Callable, *args: Any, **kwargs: Any) -> tf.Variable:
                found.append(self._known_only(getter, *args, **kwargs))
                return found[-1]

            creating = self._created.again(lambda first: first)
            self._applying(noted, creating, self.placeholders()[:1], False, self._encoder)
        return [variable for variable in self.variables if any(variable is one for one in found)]

    def td_target(self, bootstrap: Callable[[tf.Tensor], tf.Tensor], successor: Prediction) -> tf.Tensor:
        """Return y, the target of the output: ``bootstrap`` maps the next value to r + γ(1 − terminated)·next value."""
        return bootstrap(successor.q)

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

    @property
    def _encoder(self) -> Callable[[tf.Tensor], tf.Tensor]:
        layers = inspect.unwrap(self._network)
        if not isinstance(layers, ConvolutionalLayers):
            raise UsageError(
                f"the layers of the {self.name} have no encoder that an actor could share; let ddpg.conv make them"
            )
        return layers.encoder

    def _apply(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        return self._output(self._network(states, actions), 1)

    def _predict(self, output: tf.Tensor) -> Prediction:
        """Return the prediction for the network's output: here the output is Q."""
        return Prediction(output, output)

    def placeholders(self) -> list[tf.Tensor]:
        """Return fresh placeholders for states and actions."""
        return [*super().placeholders(), v1.placeholder(tf.float32, [None, self.action_size], name="actions")]

    def _state_actions(self, states, actions) -> tuple[np.ndarray, np.ndarray]:
        states = self._observations(states)
        actions = validate_numeric(actions, "actions")
        single = actions.shape[1:] not in (self.action_space.shape, (self.action_size,))
        if single or len(actions) == len(states):  # do not convert a possibly large batch of the wrong length
            actions = spaces.as_batch(self.action_space, actions, "actions")[0].reshape(-1, self.action_size)
        if len(states) != len(actions):
            raise UsageError(f"{len(states)} states but {len(actions)} actions; give one action per state")
        return states, actions

    def _inputs(self, states, actions, targets) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        states, actions = self._state_actions(states, actions)
        spaces.check_some(states, "states")
        return states, actions, spaces.as_column(targets, len(states), "targets")


class CategoricalCritic(CriticNetwork):
    """Q(s, a) = Σᵢ pᵢ(s, a)·zᵢ: p is the softmax of the outputs, z are n values from ``v_min`` to ``v_max``.

    The target y becomes a two-hot distribution: on the two values nearest to y, with mean y (Farebrother et al.
    2024, arXiv 2403.03950, section 3.1). The loss is its cross-entropy with p:

        L = −1/B Σ Σᵢ tᵢ(y)·log pᵢ(s, a)

    With ``spread`` > 0 the distribution is a Gaussian instead, which also gives weight to more distant values.
    HL-Gauss (section 3.1) integrates the Gaussian over bins; here it is evaluated at the values:

        tᵢ(y) ∝ exp(−(zᵢ − clip(y, v_min, v_max))² / 2(spread·Δ)²),    Δ = z₁ − z₀

    The loss has a bounded gradient however large y is. Everything that uses Q, such as ∇ₐQ or the minimum over
    several critics, uses the mean.

    Args:
        observation_space, action_space, options: as for :class:`CriticNetwork`.
        atoms: n, 2 to 65,536.
        v_min: smallest value of Q that can be represented.
        v_max: largest value of Q.
        spread: standard deviation of the target's Gaussian, in units of Δ; 0: two-hot.

    Raises:
        UsageError: if there are fewer than 2 atoms, v_min is not below v_max, the spread is negative or infinite, or
            a ``loss`` is given.
    """

    def __init__(
        self,
        *spaces: Any,
        atoms: int = 101,
        v_min: float = -10.0,
        v_max: float = 10.0,
        spread: float = 0.0,
        **options: Any,
    ):
        if "loss" in options:
            raise UsageError(f"loss={brief(options['loss'])}: this critic has its own, the cross-entropy; leave it out")
        atoms = validate_int(atoms, "atoms", at_least=2, at_most=2**16)
        v_min, v_max = validate_float(v_min, "v_min"), validate_float(v_max, "v_max")
        if not v_min < v_max:
            raise UsageError(f"v_min={v_min} must be below v_max={v_max}")
        self._spread = validate_float(spread, "spread", at_least=0)
        self.values = np.linspace(v_min, v_max, atoms, dtype=np.float32)
        super().__init__(*spaces, loss=self._cross_entropy, **options)

    def distributions(self, targets: tf.Tensor) -> tf.Tensor:
        """Return the distributions ``[B, n]`` of ``targets`` ``[B, 1]``, which are clipped to [v_min, v_max]."""
        width = self.values[1] - self.values[0]
        clipped = tf.clip_by_value(targets, self.values[0], self.values[-1])
        if self._spread:
            return tf.nn.softmax(-0.5 * tf.square((clipped - self.values) / (self._spread * width)))
        return tf.maximum(0.0, 1.0 - tf.abs(clipped - self.values) / width)

    def _apply(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        return self._output(self._network(states, actions), len(self.values))

    def _predict(self, output: tf.Tensor) -> Prediction:
        return Prediction(tf.reduce_sum(tf.nn.softmax(output) * self.values, axis=1, keepdims=True), output)

    def _cross_entropy(self, logits: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Return L for the network's logits ``[B, n]`` and y ``[B, 1]``."""
        losses = tf.nn.softmax_cross_entropy_with_logits(labels=self.distributions(targets), logits=logits)
        return tf.reduce_mean(losses)


class DistributionalCritic(CategoricalCritic):
    """The distribution of the return itself (C51: Bellemare et al. 2017, arXiv 1707.06887): p is over the values z.

    The target is a distribution too: every value zⱼ of p′(s′, a′) moves to r + γ(1 − terminated)·zⱼ, and its
    probability is split between the two values nearest to that point (Algorithm 1):

        mᵢ = Σⱼ p′ⱼ(s′, a′)·max(0, 1 − abs(clip(r + γ(1 − terminated)·zⱼ, v_min, v_max) − zᵢ) / Δ)

    The loss is the cross-entropy of m and p. So :meth:`train` and :meth:`get_gradients` take distributions as targets,
    ``[B, n]``: each row's numbers are at least 0, and their sum is 1.
    """

    def td_target(self, bootstrap: Callable[[tf.Tensor], tf.Tensor], successor: Prediction) -> tf.Tensor:
        """Return m, ``[B, n]``."""
        return self.project(bootstrap(tf.constant(self.values[None])), tf.nn.softmax(successor.output))

    def project(self, arrivals: tf.Tensor, probabilities: tf.Tensor) -> tf.Tensor:
        """Return the distribution over the values, ``[B, n]``, of ``probabilities`` ``[B, n]`` at ``arrivals``."""
        count = len(self.values)
        batch_size = arrivals.shape[0] or tf.shape(arrivals)[0]

        def for_each_value(numbers: tf.Tensor) -> tf.Tensor:  # [B, n] -> [B·n, n]: row b·n + i is row b of numbers
            return tf.reshape(tf.concat([numbers] * count, axis=1), [-1, count])

        values = tf.tile(tf.constant(self.values[:, None]), [batch_size, 1])  # row b·n + i is zᵢ
        clipped = tf.clip_by_value(for_each_value(arrivals), self.values[0], self.values[-1])
        shares = tf.maximum(0.0, 1.0 - tf.abs(clipped - values) / (self.values[1] - self.values[0]))
        return tf.reshape(tf.reduce_sum(for_each_value(probabilities) * shares, axis=1), [-1, count])

    def distributions(self, targets: tf.Tensor) -> tf.Tensor:
        """Return ``targets``, which are distributions."""
        return targets

    def _inputs(self, states, actions, targets) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        states, actions = self._state_actions(states, actions)
        spaces.check_some(states, "states")
        distributions = validate_numeric(targets, "targets")
        if distributions.shape != (len(states), len(self.values)):
            raise UsageError(
                f"targets have shape {distributions.shape}; expected a distribution over {len(self.values)} values for "
                f"each of {len(states)} states"
            )
        distributions = as_float32(distributions, "targets")
        sums = distributions.sum(axis=1, dtype=np.float64)
        bad = (distributions < 0).any(axis=1) | (np.abs(sums - 1) > _ROUNDING)
        if bad.any():
            row = int(np.argmax(bad))
            raise UsageError(
                f"targets holds {brief(distributions[row].tolist())} at index {row}, whose sum is {sums[row]:g}; "
                "expected a distribution: numbers >= 0 whose sum is 1"
            )
        return states, actions, distributions
