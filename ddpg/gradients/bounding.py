"""Keep actions inside the action space: an output head for the actor and a transform of ∇ₐQ.

One sign convention everywhere: ``action_gradient`` is ∇ₐQ, the direction that **increases** Q. The
transforms work per sample, before any reduction over the batch, with per-dimension bounds in the
units of ``action``.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ddpg.errors import UsageError, brief
from ddpg.gradients.backward import with_backward


class Bounding(NamedTuple):
    """A way of keeping actions inside ``[low, high]``.

    Attributes:
        head: ``(pre_activation [B, A], low [A], high [A]) -> action [B, A]``.
        transform: ``(action_gradient [B, A], action [B, A], low [A], high [A]) -> [B, A]``.
    """

    head: Callable[..., tf.Tensor]
    transform: Callable[..., tf.Tensor]


def tanh_head(pre_activation: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Squash to the box: middle + half-range · tanh(pre-activation).

    Float numbers round tanh to ±1 far from 0, and then the sum may be rounded to a number just outside the box; there
    the action is the bound, and its gradient stays that of the formula. No such op is added for bounds that are exact,
    such as ±1.
    """
    middle, half_range = (high + low) / 2, (high - low) / 2
    action = middle + half_range * tf.tanh(pre_activation)
    least, most = map(tf.get_static_value, (middle - half_range, middle + half_range))
    if least is not None and most is not None and np.all(least >= low) and np.all(most <= high):
        return action
    return action + tf.stop_gradient(tf.clip_by_value(action, low, high) - action)


def linear_head(pre_activation: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Scale without squashing: middle + half-range · pre-activation.

    A pre-activation near zero gives an action near the middle in every dimension. An inverting policy
    has to start there, because its correction grows with the distance from the box.
    """
    return (high + low) / 2 + (high - low) / 2 * pre_activation


def identity(action_gradient: tf.Tensor, action: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Return ∇ₐQ as it is: a tanh head bounds the action by itself."""
    return action_gradient


def inverting(
    action_gradient: tf.Tensor, action: tf.Tensor, low: tf.Tensor, high: tf.Tensor, max_factor: float | None = None
) -> tf.Tensor:
    """Invert gradients (Hausknecht & Stone 2016, arXiv 1511.04143).

        g ← g · (high − a)/(high − low)   if g > 0   (Q wants a larger action)
        g ← g · (a − low)/(high − low)    otherwise  (Q wants a smaller one)

    Towards a bound the factor shrinks to 0; past it the factor is negative, so the gradient turns
    around and pulls the action back. On the other side the factor exceeds 1: far outside, a gradient
    that already points inwards is amplified in proportion to the distance. That is the paper's rule
    and is kept by default, because it is a restoring force; ``max_factor`` caps the magnitude.

    The rule needs an action that is linear in the network's output (a tanh head would damp twice) and
    the action at which ∇ₐQ was taken, a = μ(s), not the replayed one.

    Args:
        action_gradient: ∇ₐQ, ``[B, A]``, the direction that increases Q.
        action: a = μ(s), ``[B, A]``, in the units of the bounds.
        low: lower bounds, ``[A]``, finite.
        high: upper bounds, ``[A]``, finite and above ``low``.
        max_factor: largest magnitude of the factor; ``None`` is the paper's rule.

    Returns:
        The inverted gradient, ``[B, A]``.
    """
    width = high - low
    factor = tf.where(action_gradient > 0, (high - action) / width, (action - low) / width)
    if max_factor is not None:
        factor = tf.clip_by_value(factor, -max_factor, max_factor)
    return action_gradient * factor


def zeroing(action_gradient: tf.Tensor, action: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Zero gradients (Hausknecht & Stone 2016): g where low < a < high, else 0."""
    inside = tf.logical_and(action > low, action < high)
    return tf.where(inside, action_gradient, tf.zeros_like(action_gradient))


def norm_clipping(action_gradient: tf.Tensor, max_norm: float) -> tf.Tensor:
    """Scale each sample's ∇ₐQ ``[B, A]`` down to an L2 norm of at most ``max_norm``.

    Clipping works per sample and at the scale of ∇ₐQ itself, because it does not commute with the 1/B of
    the batch mean. It does not commute with inverting either: clipping first bounds only the gradient that
    is inverted; clipping afterwards also bounds the pull from far outside.

    A norm of 1.8e19 or more, whose square is not a finite float32, gives 0: the sample does not move the actor.
    """
    return tf.clip_by_norm(action_gradient, max_norm, axes=[1])


SQUASHING = Bounding(tanh_head, identity)
INVERTING = Bounding(linear_head, inverting)
ZEROING = Bounding(linear_head, zeroing)


def check_bounding(bounding: Bounding) -> None:
    """Refuse what is not callable, and to invert gradients on a tanh head, which damps them twice.

    Raises:
        UsageError: if a part is not callable, or the transform is :func:`inverting` and the head :func:`tanh_head`.
    """
    for name, part in zip(bounding._fields, bounding, strict=True):
        if not callable(part):
            raise UsageError(f"bounding: {name}={brief(part)} must be a callable on tensors; see ddpg.Bounding")
    transform = bounding.transform
    while isinstance(transform, functools.partial):
        transform = transform.func
    if transform is inverting and bounding.head is tanh_head:
        raise UsageError(
            f"bounding={bounding} inverts gradients on a tanh head, which damps them twice, so that actions stop "
            "short of the bounds; use a linear head: Bounding(linear_head, inverting), or bounding='inverting'"
        )


BOUNDINGS = {"squashing": SQUASHING, "inverting": INVERTING, "zeroing": ZEROING}


def backward_through(transform: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], action: tf.Tensor) -> tf.Tensor:
    """Return ``action`` ``[B, A]`` unchanged; the backward pass applies ``transform`` to ∇ₐQ.

    Use it with the loss −mean Q(s, a) over the batch. Its incoming gradient is −∇ₐQ/B, but the transform,
    ``(action_gradient [B, A], action [B, A]) -> [B, A]``, is defined on ∇ₐQ, so the sign and the 1/B are removed before
    it and restored after it. Inverting and zeroing commute with the 1/B; norm clipping does not.
    """

    def backward(upstream: tf.Tensor) -> tf.Tensor:
        batch_size = tf.cast(tf.shape(action)[0], action.dtype)
        return -transform(-upstream * batch_size, action) / batch_size

    return with_backward(action, backward)


def with_pre_activation_penalty(pre_activation: tf.Tensor, coefficient: float) -> tf.Tensor:
    """Return p = ``pre_activation`` ``[B, A]`` unchanged; the backward pass adds the gradient of c·mean(p²).

    The larger |p|, the less of ∇ₐQ passes through tanh, so an action at its bound stays there. The penalty pulls it
    back (the actor's loss of MR.Q, Fujimoto et al. 2025, arXiv 2501.16142, has c = 1e-5). Because its gradient,
    2c·p/(BA), is added in the backward pass, it works with every policy path and needs no second forward pass.
    c is ``coefficient``.
    """

    def backward(upstream: tf.Tensor) -> tf.Tensor:
        return upstream + 2 * coefficient * pre_activation / tf.cast(tf.size(pre_activation), upstream.dtype)

    return with_backward(pre_activation, backward)
