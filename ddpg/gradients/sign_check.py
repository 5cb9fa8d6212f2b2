"""Check the sign of a user's own path: a policy path must climb Q, a TD path must move Q towards its target.

A path with the wrong sign raises no error: it trains the worst policy it can find, or a critic that diverges.
"""

import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ddpg.errors import users_level
from ddpg.gradients.policy import POLICY_GRADIENTS, Actor, Critic, apply_path, chain_rule
from ddpg.gradients.td import TD_TARGETS, GradientsAndVariables, stop_gradient


def is_checked(path: Callable) -> bool:
    """Return whether the sign of ``path`` is checked: it is the user's own, and ``sign_is_checked`` is not False."""
    supplied = (*POLICY_GRADIENTS.values(), *TD_TARGETS.values())
    return path not in supplied and getattr(path, "sign_is_checked", True)


def climb_cosine(path: Callable, actor: Actor, critic: Critic, batch: Any) -> tf.Tensor:
    """Return the cosine between the gradients of a policy path and of the chain rule, both for Q alone.

    The path is built with Q and with −Q. Half the difference of the two gradients is the part that comes from Q: terms
    without Q, such as behaviour cloning, cancel. The same is done with the chain rule. A path that climbs Q has a
    positive cosine, exactly 1 if it is the chain rule times a positive number. NaN means that the path ignores Q.

    Arguments are as for :func:`ddpg.gradients.policy.apply_path`.
    """
    own, reference = (_part_of_q(function, actor, critic, batch) for function in (path, chain_rule))
    return _cosine(own, reference)


def descent_cosine(path: Callable, q: tf.Tensor, variables: list[tf.Variable]) -> tf.Tensor:
    """Return the cosine between the gradients of a TD path and of the mean square, both for the TD error alone.

    The path is built with the targets q + 1 and q − 1. Half the difference of the two gradients is the part that comes
    from the TD error: terms without it, such as a penalty on Q, cancel. A path that moves Q towards its target has a
    positive cosine, exactly 1 for the mean square times a positive number. q is ``[B, 1]``.
    """

    def part_of_error(path: Callable) -> dict[str, tf.Tensor]:
        first, second = (_by_name(path(q, tf.stop_gradient(q) + sign, variables)) for sign in (1.0, -1.0))
        return {name: (first[name] - second[name]) / 2 for name in first}

    return _cosine(part_of_error(path), part_of_error(stop_gradient))


def warn_of_wrong_sign(name: str, cosine: float) -> None:
    """Warn if ``cosine`` says that the gradient of a path points away from the one that an optimiser descends."""
    if cosine < 0:
        warnings.warn(
            f"path {name!r} points away from the gradient that an optimiser descends (cosine {cosine:.3f}): its "
            "sign is wrong, and training would make Q smaller or the loss larger; return -∇J of a policy and ∂L/∂φ of "
            "a critic, or set the path's attribute sign_is_checked = False if that is intended",
            stacklevel=users_level(),
        )


def _cosine(own: dict[str, tf.Tensor], reference: dict[str, tf.Tensor]) -> tf.Tensor:
    products = [tf.reduce_sum(own[name] * reference[name]) for name in reference]
    lengths = [tf.linalg.global_norm(list(gradients.values())) for gradients in (own, reference)]
    return tf.add_n(products) / (lengths[0] * lengths[1])


class _Negated:
    """A critic with −Q in place of Q; everything else is the critic's own."""

    def __init__(self, critic: Critic):
        self._critic = critic

    def __call__(self, *arguments: Any, **options: Any) -> tf.Tensor:
        return -self._critic(*arguments, **options)

    def action_gradient(self, states: tf.Tensor, actions: tf.Tensor) -> tf.Tensor:
        return -self._critic.action_gradient(states, actions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._critic, name)


def _part_of_q(path: Callable, actor: Actor, critic: Critic, batch: Any) -> dict[str, tf.Tensor]:
    """Return half the difference of a path's gradients with Q and with −Q, by the variable's name."""
    first, second = (_by_name(apply_path(path, actor, value, batch)) for value in (critic, _Negated(critic)))
    return {name: (first[name] - second[name]) / 2 for name in first}


def _by_name(pairs: GradientsAndVariables) -> dict[str, tf.Tensor]:
    return {variable.name: tf.convert_to_tensor(gradient) for gradient, variable in pairs}
