"""TD3+BC (Fujimoto & Gu 2021, arXiv 2106.06860, eq. 3 to 5): the actor maximises Q and imitates the replayed actions.

    L(θ) = −λ/B Σ Q(s, μ(s)) + w/(BA) Σ ‖μ(s) − a‖²,    λ = α / (1/B Σ |Q(s, a)|)

w is 1. With ``bc_final`` it is the weight in the minibatch, which falls with the agent's own steps (Beeson & Montana
2022, arXiv 2211.11802). With ``bc_only`` λ is 0: pure behaviour cloning, in which the actor ignores the critics; they
still learn its Q.

The policy path gets a critic whose value has both terms, so every path and bounding handles both alike. No gradient
flows through λ. The rest is the update that the other options select.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ddpg.algorithms.base import Spaces
from ddpg.algorithms.crossq import CrossQUpdate
from ddpg.algorithms.td3 import TD3Update
from ddpg.gradients import sign_check
from ddpg.gradients.policy import Critic, apply_path
from ddpg.replay.minibatch import Batch


class TD3BCUpdate(TD3Update):
    """Builds the update that the other options select, and adds behaviour cloning to its policy path."""

    @staticmethod
    def is_enabled(config: Any) -> bool:
        """Whether the actor's loss has a behaviour-cloning term."""
        return getattr(config, "bc_alpha", 0.0) != 0 or getattr(config, "bc_only", False)

    @classmethod
    def build(cls, config: Any, spaces: Spaces) -> TD3Update:
        """See :meth:`ddpg.algorithms.base.Update.build`."""
        selects_joint_pass = cls is TD3BCUpdate and CrossQUpdate.is_enabled(config)
        update = CrossQUpdate.build(config, spaces) if selects_joint_pass else super().build(config, spaces)
        if not cls.is_enabled(config):  # a class derived from this one, with bc_alpha=0
            return update
        path = update.actor.policy_gradient
        cloned: Any = functools.partial(cloning, path, config.bc_alpha)
        cloned.__name__, cloned.sign_is_checked = getattr(path, "__name__", repr(path)), sign_check.is_checked(path)
        update.actor.policy_gradient = cloned
        return update


class CloningCritic:
    """J(s, a′) = λQ(s, a′) − w/A ‖a′ − a‖², for the states and replayed actions a of one minibatch.

    With α = 0 only the distance remains, and the critic is not evaluated.
    """

    def __init__(self, critic: Critic, batch: Batch, alpha: float):
        self._critic, self._replayed, self._scale = critic, batch.actions, None
        self._weight = batch.cloning
        if alpha:
            size = tf.reduce_mean(tf.abs(critic(batch.observations, batch.actions)))
            self._scale = tf.stop_gradient(alpha / tf.maximum(size, 1e-6))

    def __call__(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return J(s, a′), ``[B, 1]``."""
        distance = self._weighed(tf.reduce_mean(tf.square(actions - self._replayed), axis=1, keepdims=True))
        return -distance if self._scale is None else self._scale * self._critic(states, actions) - distance

    def action_gradient(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        """Return ∇J with respect to a′, ``[B, A]``: λ∇ₐQ(s, a′) − 2w/A (a′ − a)."""
        towards_replayed = self._weighed(-2 / int(actions.shape[1]) * (actions - self._replayed))
        if self._scale is None:
            return towards_replayed
        return self._scale * self._critic.action_gradient(states, actions) + towards_replayed

    def _weighed(self, term: tf.Tensor) -> tf.Tensor:
        return term if self._weight is None else self._weight * term


def cloning(path: Callable, alpha: float, actor: Any, critic: Critic, states: tf.Tensor, batch: Batch) -> list:
    """Maximise J of :class:`CloningCritic` by ``path``; with ``path`` and ``alpha`` bound, this is a policy path."""
    return apply_path(path, actor, CloningCritic(critic, batch, alpha), batch)
