"""How the bootstrapped target is kept out of the critic's gradient.

With prediction q = Q(s, a) and target y = r + γ(1 − terminated)·Q′(s′, μ′(s′)), both ``[B, 1]``, the
loss is L = 1/B Σ (q − y)² (Lillicrap et al. 2015, Algorithm 1; tflearn's ``mean_square``). Its
semi-gradient is

    ∂L/∂φ = 2/B Σ (q − y)·∂q/∂φ

where y is treated as a number although it depends on weights. The paths differ in *how* y becomes a
number. Each is ``(q, target, variables) -> [(gradient, variable)]``.
"""

from collections.abc import Callable
from functools import partial

import tensorflow as tf

from ddpg._tflearn import tflearn
from ddpg.errors import UsageError, choose


def gradients(loss: tf.Tensor, var_list: list) -> list:
    """``tf.gradients`` in the form of ``Optimizer.compute_gradients``: ``[(gradient, variable)]``."""
    return list(zip(tf.gradients(loss, var_list), var_list, strict=True))


def mean_square(q: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """L = 1/B Σ (q − y)², tflearn's ``mean_square``, refusing ranks that would broadcast."""
    if q.shape.rank is None or q.shape.rank != target.shape.rank:
        raise UsageError(
            f"q has shape {q.shape} and target {target.shape}: [B] against [B, 1] broadcasts to [B, B]; "
            "give both as [B, 1]"
        )
    return tflearn.mean_square(q, target)


def stop_gradient(q: tf.Tensor, target: tf.Tensor, variables: list, compute_gradients=gradients) -> list:
    """Stop the target inside the graph: one run computes target, loss and gradient.

    ``tf.stop_gradient`` is the identity forwards and None backwards, whatever y was computed from.

    Args:
        q: predictions, ``[B, 1]``.
        target: y, ``[B, 1]``, any tensor.
        variables: the critic's trainable variables.
        compute_gradients: ``(loss, var_list) -> [(gradient, variable)]``; an optimiser's, for one
            that scales or gates its gradients.
    """
    return compute_gradients(mean_square(q, tf.stop_gradient(target)), var_list=variables)


def placeholder(q: tf.Tensor, target: tf.Tensor, variables: list, compute_gradients=gradients) -> list:
    """Feed the target: it is computed in a session run of its own, so there is no path to stop.

    The same gradient as :func:`stop_gradient`, at the price of one more session call and a trip of y
    through NumPy; and K updates cannot be fused, since each needs a feed in its middle.

    Args:
        q: predictions, ``[B, 1]``.
        target: a placeholder, ``[B, 1]``.
        variables: the critic's trainable variables.
        compute_gradients: as for :func:`stop_gradient`.

    Raises:
        UsageError: ``target`` is not a placeholder, so a gradient could flow through it.
    """
    if not isinstance(target, tf.Tensor) or target.op.type not in ("Placeholder", "PlaceholderWithDefault"):
        kind = getattr(getattr(target, "op", None), "type", type(target).__name__)
        raise UsageError(
            f"td_target='placeholder' needs its target fed through a placeholder, got the output of {kind!r}; "
            "compute the target in its own session run and feed it, or choose td_target='stop_gradient'"
        )
    return compute_gradients(mean_square(q, target), var_list=variables)


TD_TARGETS = {"stop_gradient": stop_gradient, "placeholder": placeholder}


def resolve(td_target: str | Callable, compute_gradients=gradients) -> Callable:
    """Return the path ``(q, target, variables) -> [(gradient, variable)]`` for a name or a callable.

    Raises:
        UsageError: an unknown name, or neither a name nor a callable.
    """
    path = choose("td_target", td_target, TD_TARGETS, "a callable (q, target, variables) -> [(grad, var)]")
    return path if path is td_target else partial(path, compute_gradients=compute_gradients)
