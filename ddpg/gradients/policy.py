"""The policy gradient ∇θJ, formed in three equal ways: chain rule, direct, surrogate.

The theorem (Silver et al. 2014, eq. 9; Lillicrap et al. 2015, eq. 6), over a minibatch of B states:

    ∇θJ = 1/B Σ ∇θμ(s) · ∇ₐQ(s, a)|a=μ(s)

Each function returns ``[(gradient, variable)]`` for the actor's weights alone, signed for an optimiser
that descends (so −∇θJ), with the actor's bounding applied to ∇ₐQ. All three are the same gradient.
``actor`` is an ActorNetwork and ``critic`` a CriticNetwork, or anything with the methods used here.
"""

import inspect
from collections.abc import Callable
from typing import Any, Protocol

import tensorflow as tf

from ddpg.errors import UsageError, guarded
from ddpg.gradients.bounding import backward_through
from ddpg.gradients.td import GradientsAndVariables


class Actor(Protocol):
    """The methods of an actor that policy paths use; :class:`ddpg.ActorNetwork` has them."""

    optimizer: tf.compat.v1.train.Optimizer

    @property
    def trainable_variables(self) -> list[tf.Variable]:
        """The weights θ."""

    def __call__(self, states: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return μ(s), ``[B, A]``."""

    def bound_action_gradient(self, action_gradients: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return the bounded form of ∇ₐQ ``[B, A]``, which was computed at ``actions`` ``[B, A]``."""

    def policy_gradients(self, actions: tf.Tensor, action_gradients: tf.Tensor) -> GradientsAndVariables:
        """Return −∇θJ from a = μ(s) ``[B, A]`` and ∇ₐQ ``[B, A]``, which this method bounds."""


class Critic(Protocol):
    """The methods of a critic that policy paths use; :class:`ddpg.CriticNetwork` has them."""

    def __call__(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return Q(s, a), ``[B, 1]``."""

    def action_gradient(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return ∇ₐQ(s, a), ``[B, A]``."""


def chain_rule(actor: Actor, critic: Critic, states: tf.Tensor) -> GradientsAndVariables:
    """Compute ∇ₐQ, bound it, and backpropagate it through the actor (Lillicrap et al. 2015, eq. 6).

    ``gradients(μ, θ, grad_ys=−g/B)`` is −1/B Σ g·∇θμ with g = ∇ₐQ, so autodiff forms the product. Since g is a tensor
    in between, bounding it is a plain function call.
    """
    actions = actor(states, training=True)
    return actor.policy_gradients(actions, critic.action_gradient(states, actions))


def direct(actor: Actor, critic: Critic, states: tf.Tensor) -> GradientsAndVariables:
    """Differentiate −mean Q(s, μ(s)) with respect to θ (Lillicrap et al. 2015, section 3).

    Autodiff applies the chain rule: ∂(−1/B Σ Q)/∂θ = −1/B Σ ∇ₐQ·∇θμ. Q's own weights are not in the variable list,
    so they do not move. Bounding is applied in the backward pass of the action.
    """
    actions = backward_through(actor.bound_action_gradient, actor(states, training=True))
    loss = -tf.reduce_mean(critic(states, actions))
    return actor.optimizer.compute_gradients(loss, var_list=actor.trainable_variables)


def surrogate(actor: Actor, critic: Critic, states: tf.Tensor) -> GradientsAndVariables:
    """Regress μ(s) onto a slightly better action (the form of Acme and TF-Agents).

    L = 1/B Σ ½‖stop(a + g) − a‖² with a = μ(s): its derivative with respect to a is −(a + g − a) = −g at
    every sample, so ∂L/∂θ = −1/B Σ g·∇θμ. The squares are summed over action dimensions, not averaged: the
    average would scale the gradient by 1/A, which affects SGD, gradient clipping and weight decay.
    """
    actions = actor(states, training=True)
    gradient = actor.bound_action_gradient(critic.action_gradient(states, actions), actions)
    # stop(a + g) − a, regrouped: rounding a + g would lose the digits of a small g.
    difference = tf.stop_gradient(gradient) + (tf.stop_gradient(actions) - actions)
    loss = tf.reduce_mean(tf.reduce_sum(tf.square(difference), axis=1) / 2)
    return actor.optimizer.compute_gradients(loss, var_list=actor.trainable_variables)


POLICY_GRADIENTS: dict[str, Callable[[Actor, Critic, tf.Tensor], GradientsAndVariables]] = {
    "chain_rule": chain_rule,
    "direct": direct,
    "surrogate": surrogate,
}


def apply_path(path: Callable, actor: Actor, critic: Critic, batch: Any) -> GradientsAndVariables:
    """Return ``path(actor, critic, states)``; a path with a parameter ``batch`` gets the whole minibatch as well.

    With the minibatch, a :class:`ddpg.replay.minibatch.Batch`, a path can read the replayed actions, for example for a
    behaviour-cloning term. Its ``observations`` are the states.

    Raises:
        UsageError: if a user's own path raises an exception, or makes variables, which would be neither initialised
            nor saved.
    """
    wants_batch = "batch" in inspect.signature(path).parameters
    name = f"policy_gradient={getattr(path, '__name__', path)}"
    before = {variable.ref() for variable in tf.compat.v1.global_variables()}
    call = path if path in POLICY_GRADIENTS.values() else guarded(name, path)
    pairs = call(actor, critic, batch.observations, **({"batch": batch} if wants_batch else {}))
    made = [variable.name for variable in tf.compat.v1.global_variables() if variable.ref() not in before]
    if made:
        raise UsageError(
            f"{name} makes the variables {made}, which would be neither initialised nor saved; make them in an "
            "algorithm of your own (docs/how_to/algorithm.md)"
        )
    return pairs
