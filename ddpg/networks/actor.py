"""The actor: a deterministic policy μ(s) bounded to a Box, and the moving average of its weights."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from gymnasium import spaces as gym_spaces

from ddpg.errors import UsageError, brief, choose
from ddpg.gradients import bounding as boundings
from ddpg.gradients.policy import POLICY_GRADIENTS
from ddpg.gradients.td import GradientsAndVariables
from ddpg.interaction import spaces
from ddpg.interaction.validation import as_float32, validate_float, validate_numeric, validate_positive
from ddpg.networks.base import EMATarget, Network, NumericMethods, hooked, v1
from ddpg.networks.critic import CriticNetwork
from ddpg.networks.own_layers import shape_kept


@dataclasses.dataclass
class ActorUse:
    """How a policy path used the actor on one minibatch; see :meth:`ActorNetwork.record_use`.

    Attributes:
        states: the minibatch's observations.
        actions: μ(states) as the path last computed it in training mode, ``[B, A]``; ``None`` if it did not.
        bounded: whether the path called :meth:`ActorNetwork.bound_action_gradient`.
    """

    states: tf.Tensor
    actions: tf.Tensor | None = None
    bounded: bool = False


class ActorNetwork(Network):
    """Deterministic policy μ(s), ``[B, *observation shape] -> [B, A]`` in the units of ``action_space``.

    Args:
        observation_space: a Box.
        action_space: a Box of floats with finite bounds; A is its flattened size. Bounds can differ per
            dimension and can be asymmetric; actions are not rescaled.
        network: hidden layers, ``states -> features``; :func:`ddpg.mlp` or your own callable.
        bounding: ``"squashing"``, ``"inverting"``, ``"zeroing"``, or a :class:`ddpg.gradients.bounding.Bounding`.
        policy_gradient: ``"chain_rule"``, ``"direct"``, ``"surrogate"``, or a callable
            ``(actor, critic, states[, batch]) -> [(gradient, variable)]``.
        optimizer, learning_rate, tau, name: as for :class:`ddpg.CriticNetwork`.
        action_gradient_clip: largest L2 norm of each sample's ∇ₐQ, before the bounding; ``None``: no limit.
        pre_activation_penalty: c of the penalty c·mean(p²) that the loss has against saturation, with p the inputs
            of tanh. See :func:`ddpg.gradients.bounding.with_pre_activation_penalty`.
        max_gradient_norm, output_init, weight_projection, affine_projection: as for :class:`ddpg.CriticNetwork`.
        encoder: a critic whose convolutions the hidden layers read, in place of the states: ``[B, height, width,
            channels] -> features``. No gradient flows into them. The target actor reads those of the target critic.

    Raises:
        UsageError: if a space is not supported, a name is unknown or a number is out of range, or the critic has no
            convolutions.
    """

    def __init__(
        self,
        observation_space: gym_spaces.Box,
        action_space: gym_spaces.Box,
        *,
        network: Callable | None = None,
        bounding: str | boundings.Bounding = "squashing",
        policy_gradient: str | Callable = "chain_rule",
        optimizer: str | Callable = v1.train.AdamOptimizer,
        learning_rate: float = 1e-4,
        tau: float = 0.005,
        name: str = "actor",
        action_gradient_clip: float | None = None,
        pre_activation_penalty: float = 0.0,
        max_gradient_norm: float | None = None,
        output_init: str = "small",
        weight_projection: bool = False,
        affine_projection: bool = False,
        encoder: CriticNetwork | None = None,
    ):
        if not (encoder is None or isinstance(encoder, CriticNetwork)):
            raise UsageError(f"encoder={brief(encoder)} must be the critic whose convolutions the actor reads, or None")
        self.encoder = encoder
        self.action_space = spaces.check_action_space(action_space)
        self.action_size = spaces.flat_size(action_space)
        self.low = action_space.low.reshape(-1).astype(np.float32)
        self.high = action_space.high.reshape(-1).astype(np.float32)
        with np.errstate(over="ignore"):
            if not np.isfinite(self.high - self.low).all():
                raise UsageError(
                    f"action space {brief(action_space)} is wider than float32 numbers reach; "
                    "give bounds nearer to each other"
                )
        self.bounding = choose(
            "bounding",
            bounding,
            boundings.BOUNDINGS,
            "a Bounding(head, transform)",
            is_own=lambda value: isinstance(value, boundings.Bounding),
        )
        boundings.check_bounding(self.bounding)
        self._use: ActorUse | None = None
        self.policy_gradient = choose(
            "policy_gradient",
            policy_gradient,
            POLICY_GRADIENTS,
            "a callable (actor, critic, states[, batch]) -> [(gradient, variable)]",
        )
        self.action_gradient_clip = validate_positive(action_gradient_clip, "action_gradient_clip", or_none=True)
        validate_float(pre_activation_penalty, "pre_activation_penalty", at_least=0)
        if pre_activation_penalty and self.bounding.head is not boundings.tanh_head:
            raise UsageError(
                f"pre_activation_penalty={pre_activation_penalty} is for bounding='squashing': the linear head of "
                f"bounding={bounding!r} has no tanh to saturate; leave it at 0"
            )
        self.pre_activation_penalty = pre_activation_penalty
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

    # -- symbolic -------------------------------------------------------------------------------------

    @hooked
    def __call__(self, states: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return μ(s), ``[B, A]``; with ``training``, batch norm uses batch statistics and moves its averages."""
        actions = self._online([self._encoded(states)], training)
        if training and self._use is not None and states is self._use.states:
            self._use.actions = actions
        return actions

    @hooked
    def target(self, states: tf.Tensor) -> tf.Tensor:
        """Return μ′(s), ``[B, A]``: the same network through its EMA shadows."""
        average = None if self.encoder is None else self.encoder.target_average
        return self._of_target([self._encoded(states, average)])

    def averaged(self, states: tf.Tensor, average: EMATarget) -> tf.Tensor:
        """Return μ(s), ``[B, A]``, with each of :attr:`acting_variables` replaced by its average."""
        return self.with_averages(average, [self._encoded(states, average)])

    @property
    def acting_variables(self) -> list[tf.Variable]:
        """The actor's variables, and those of the critic's convolutions if it reads them."""
        return self.variables + (self.encoder.encoder_variables if self.encoder else [])

    @hooked
    def bound_action_gradient(self, action_gradients: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Clip and bound ∇ₐQ ``[B, A]``, computed at ``actions`` ``[B, A]``, by this actor's options."""
        if self._use is not None:
            self._use.bounded = True
        if self.action_gradient_clip is not None:
            action_gradients = boundings.norm_clipping(action_gradients, self.action_gradient_clip)
        transform = shape_kept("bounding: transform", self.bounding.transform)
        return transform(action_gradients, actions, self.low, self.high)

    @contextlib.contextmanager
    def record_use(self, states: tf.Tensor) -> Iterator[ActorUse]:
        """Record how a policy path that is built inside the context uses this actor on ``states``."""
        self._use = ActorUse(states)
        try:
            yield self._use
        finally:
            self._use = None

    @property
    def bounds_gradients(self) -> bool:
        """Whether :meth:`bound_action_gradient` can change a gradient."""
        return self.bounding.transform is not boundings.identity or self.action_gradient_clip is not None

    def compute_gradients(self, states: tf.Tensor, action_gradients: tf.Tensor) -> GradientsAndVariables:
        """Return ``[(−1/B Σ g·∇θμ(s), variable)]`` with g the bounded ``action_gradients``.

        These are ∇ₐQ at a = μ(s), ``[B, A]``: the direction that increases Q, as the critic returns it, not bounded yet
        and not divided by B.
        """
        return self.policy_gradients(self(states, training=True), action_gradients)

    def policy_gradients(self, actions: tf.Tensor, action_gradients: tf.Tensor) -> GradientsAndVariables:
        """Same as :meth:`compute_gradients`, from the tensor a = μ(s) ``[B, A]`` at which ∇ₐQ was computed."""
        gradient = tf.stop_gradient(self.bound_action_gradient(action_gradients, actions))
        batch_size = tf.cast(tf.shape(actions)[0], actions.dtype)
        return self.optimizer.compute_gradients(
            actions, var_list=self.trainable_variables, grad_loss=-gradient / batch_size
        )

    # -- numeric --------------------------------------------------------------------------------------

    def predict(self, states) -> np.ndarray:
        """Return μ(s), ``[B, A]``; states ``[B, *observation shape]`` or flat ``[B, n]``."""
        return self._run("predict", self.__call__, self._observations(states))

    def predict_target(self, states) -> np.ndarray:
        """Return μ′(s), ``[B, A]``."""
        return self._run("predict_target", self.target, self._observations(states))

    def get_gradients(self, states, action_gradients) -> list[np.ndarray]:
        """Return the gradients of :meth:`compute_gradients`, in the order of the trainable variables.

        As in a step, batch norms use the batch's statistics and move their averages.

        Raises:
            UsageError: if a shape is wrong, a number is not finite, or B is 0.
        """
        return self._get_gradients(*self._inputs(states, action_gradients))

    def train(self, states, action_gradients) -> float:
        """Apply ∇ₐQ ``[B, A]`` at a = μ(s) for one optimiser step.

        Returns:
            −1/B Σ g·μ(s) with bounded g: the loss whose gradient was applied, at the weights before the step.

        Raises:
            UsageError: as for :meth:`get_gradients`.
        """

        def step(states: tf.Tensor, action_gradients: tf.Tensor) -> tf.Tensor:
            actions = self(states, training=True)
            gradient = self.bound_action_gradient(action_gradients, actions)
            loss = -tf.reduce_mean(tf.reduce_sum(gradient * actions, axis=1))
            return self._step_after(loss, self.policy_gradients(actions, action_gradients))

        return float(self._run("train", step, *self._inputs(states, action_gradients)))

    # -- inside ---------------------------------------------------------------------------------------

    def _encoded(self, states: tf.Tensor, average: EMATarget | None = None) -> tf.Tensor:
        """Return the inputs of the hidden layers: the states, or the output of the critic's convolutions for them."""
        return states if self.encoder is None else tf.stop_gradient(self.encoder.encode(states, average=average))

    def _first_inputs(self) -> list[tf.Tensor]:
        return [self._encoded(states) for states in self.placeholders()]

    def _apply(self, inputs: tf.Tensor) -> tf.Tensor:
        pre_activation = self._output(self._network(inputs), self.action_size)
        if self.pre_activation_penalty:
            pre_activation = boundings.with_pre_activation_penalty(pre_activation, self.pre_activation_penalty)
        return shape_kept("bounding: head", self.bounding.head)(pre_activation, self.low, self.high)

    def _inputs(self, states, action_gradients) -> tuple[np.ndarray, np.ndarray]:
        states = self._observations(states)
        spaces.check_some(states, "states")
        gradients = validate_numeric(action_gradients, "action_gradients")
        if gradients.shape != (len(states), self.action_size):
            raise UsageError(
                f"action_gradients has shape {gradients.shape}; expected [B, A] = {[len(states), self.action_size]}"
            )
        return states, as_float32(gradients, "action_gradients")


class AveragedActor:
    """The network of an actor on the moving averages of its variables: the policy that evaluations and exports use.

        θ̄ ← θ̄ + (θ − θ̄)/h      after each of the actor's steps

    Single steps move weights back and forth; averaging over many steps cancels this (Polyak & Juditsky 1992). The
    averages start as copies; they are not trained, and learning never reads them. Moving statistics of batch norms are
    averaged too, so that the averaged layers normalise with matching statistics.

    Args:
        actor: the actor whose variables are averaged.
        horizon: h ≥ 1, in calls of :meth:`update`.
    """

    def __init__(self, actor: ActorNetwork, horizon: int):
        self._actor, self.graph, self.observation_space = actor, actor.graph, actor.observation_space
        self._average = EMATarget(actor.acting_variables, 1 / horizon, name="average")
        self._run = NumericMethods(actor.graph, f"{actor.name}_average")

    @property
    def acting_variables(self) -> list[tf.Variable]:
        """The averages, in the order of the actor's :attr:`~ActorNetwork.acting_variables`."""
        return list(self._average.variables)

    def __call__(self, states: tf.Tensor) -> tf.Tensor:
        """Return the averaged policy's actions, ``[B, A]``."""
        return self._actor.averaged(states, self._average)

    def update(self) -> tf.Operation:
        """Return the op that moves the averages by 1/h towards the actor."""
        return self._average.update()

    def predict(self, states) -> np.ndarray:
        """Return the averaged policy's actions, ``[B, A]``; states ``[B, *observation shape]`` or flat ``[B, n]``."""
        return self._run("predict", self.__call__, spaces.as_batch(self.observation_space, states, "states")[0])
