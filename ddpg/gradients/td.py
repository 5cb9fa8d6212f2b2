"""TD paths: four ways to treat the bootstrapped target when the critic's gradient is formed.

With prediction q = Q(s, a) and target y = r + γ(1 − terminated)·Q′(s′, μ′(s′)), both ``[B, 1]``, the
loss is L = 1/B Σ (q − y)² (Lillicrap et al. 2015, Algorithm 1; tflearn's ``mean_square``). Its
semi-gradient is

    ∂L/∂φ = 2/B Σ (q − y)·∂q/∂φ

where y is treated as a number although it depends on weights. The first three paths differ in *how* y
becomes a number and give the same gradient; ``residual_gradient`` does not treat it as one. Each is
``(q, target, variables) -> [(gradient, variable)]``, for Q-networks too, with q the taken action's value.

Every path has the scale of L. DQN 3.0's own ``dw`` is the plain sum Σ δ·∂q/∂φ with δ = y − q, added to the
weights; that is −B/2 times the gradient here.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from ddpg._tflearn import tflearn
from ddpg.errors import UsageError, brief, choose, guarded

GradientsAndVariables = list[tuple[tf.Tensor, tf.Variable]]

# (loss, var_list=variables[, grad_loss=...]) -> [(gradient, variable)]: `gradients` below, or an optimiser's.
ComputeGradients = Callable[..., GradientsAndVariables]


def gradients(
    loss: tf.Tensor, var_list: list[tf.Variable], grad_loss: tf.Tensor | None = None
) -> GradientsAndVariables:
    """``tf.gradients`` in the form of ``Optimizer.compute_gradients``: ``[(gradient, variable)]``."""
    return list(zip(tf.gradients(loss, var_list, grad_ys=grad_loss), var_list, strict=True))


def mean_square(q: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """L = 1/B Σ (q − y)², tflearn's ``mean_square``, refusing shapes that would broadcast."""
    _check_shapes(q, target)
    return tflearn.mean_square(q, target)


def huber(q: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
    """L = 1/B Σ δ² where |δ| ≤ 1, 2|δ| − 1 beyond, δ = y − q: twice Huber's loss (1964) with threshold 1.

    The factor 2 makes its gradient equal to ``mean_square``'s within the threshold, and to ``output_delta``'s with
    ``clip_delta=1`` everywhere. It is the loss to use with sampling by max(|δ|, 1)^α (Fujimoto, Meger & Precup 2020,
    arXiv 2007.06049, LAP).
    """
    _check_shapes(q, target)
    size = tf.abs(target - q)
    within = tf.minimum(size, 1.0)
    return tf.reduce_mean(within * (2 * size - within))


LOSSES: dict[str, Callable[[tf.Tensor, tf.Tensor], tf.Tensor]] = {"mse": mean_square, "huber": huber}


def _check_shapes(q: tf.Tensor, target: tf.Tensor) -> None:
    shape = tf.TensorShape(target.shape if tf.is_tensor(target) else np.shape(target))
    if q.shape.rank is None or q.shape.rank != shape.rank or not q.shape.is_compatible_with(shape):
        raise UsageError(
            f"q has shape {q.shape} and target {shape}, which broadcasts ([B] against [B, 1] to [B, B]) or fails; give "
            "both as [B, 1], q of the taken action alone"
        )


def _check_clip_delta(clip_delta: float) -> None:
    if not clip_delta > 0:
        raise UsageError(f"clip_delta={clip_delta} must be > 0, or none for no clipping")


def returning_scalar(what: str, loss: Callable) -> Callable:
    """Return the user's own ``loss``, named ``what`` in messages, with a check of its result.

    TensorFlow would differentiate the sum of a vector.

    Raises:
        UsageError: when the returned function is called, if ``q`` is ``[B, 1]`` and ``target`` is not, or ``loss``
            raises an exception or does not return a scalar of q's dtype.
    """

    def checked(q: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        if q.shape.as_list()[1:] == [1]:  # logits of a categorical critic have targets of another shape
            _check_shapes(q, target)
        value = guarded(what, loss)(q, target)
        if not (isinstance(value, tf.Tensor) and value.shape.rank == 0 and value.dtype == q.dtype):
            found = f"{value.dtype.name} of shape {value.shape}" if isinstance(value, tf.Tensor) else brief(value)
            raise UsageError(
                f"{what} returned {found}; expected one number for the minibatch, {q.dtype.name} of shape (): take "
                "the mean over the samples, tf.reduce_mean(...)"
            )
        return value

    return checked


def stop_gradient(
    q: tf.Tensor,
    target: tf.Tensor,
    variables: list[tf.Variable],
    compute_gradients: ComputeGradients = gradients,
    loss: Callable = mean_square,
) -> GradientsAndVariables:
    """Stop the target inside the graph: one run computes target, loss and gradient.

    ``tf.stop_gradient`` is the identity forwards and None backwards, whatever y was computed from.

    Args:
        q: predictions, ``[B, 1]``.
        target: y, ``[B, 1]``, any tensor.
        variables: the critic's trainable variables.
        compute_gradients: ``(loss, var_list) -> [(gradient, variable)]``; an optimiser's, if it scales or
            gates its gradients.
        loss: ``(q, target) -> L``, one of :data:`LOSSES`.
    """
    return compute_gradients(loss(q, tf.stop_gradient(target)), var_list=variables)


def placeholder(
    q: tf.Tensor,
    target: tf.Tensor,
    variables: list[tf.Variable],
    compute_gradients: ComputeGradients = gradients,
    loss: Callable = mean_square,
) -> GradientsAndVariables:
    """Feed the target: it is computed in a separate session run, so there is no gradient to stop.

    The gradient is that of :func:`stop_gradient`, whose other arguments are the same, at the price of one more session
    call and a copy of y through NumPy. K updates cannot be fused, because each needs a feed halfway through.

    Raises:
        UsageError: if ``target`` is not a placeholder, so that a gradient could flow through it.
    """
    if not isinstance(target, tf.Tensor) or target.op.type not in ("Placeholder", "PlaceholderWithDefault"):
        kind = getattr(getattr(target, "op", None), "type", type(target).__name__)
        raise UsageError(
            f"td_target='placeholder' needs its target fed through a placeholder, got the output of {kind!r}; "
            "compute the target in its own session run and feed it, or choose td_target='stop_gradient'"
        )
    return compute_gradients(loss(q, target), var_list=variables)


def output_delta(
    q: tf.Tensor,
    target: tf.Tensor,
    variables: list[tf.Variable],
    compute_gradients: ComputeGradients = gradients,
    clip_delta: float | None = None,
) -> GradientsAndVariables:
    """Start the backward pass at the network's output with a given delta, as DQN 3.0 does; there is no loss.

    δ = y − q is a number, so no path into y exists: ``gradients(q, φ, grad_ys=−2·δ/B)``. Where q is the
    taken action's output of a Q-network, the other outputs get no delta. Because δ is a tensor here it can be
    clipped: δ clamped to ±c gives the gradient of twice the Huber loss with threshold c (quadratic within c,
    linear beyond). The TD error is clamped, not the reward.

    Args:
        q, target, variables, compute_gradients: as for :func:`stop_gradient`.
        clip_delta: largest magnitude c of δ, > 0; ``None``: no clipping.

    Raises:
        UsageError: if ``clip_delta`` is not positive, or q and y have different shapes.
    """
    _check_shapes(q, target)
    delta = tf.stop_gradient(target - q)
    if clip_delta is not None:
        _check_clip_delta(clip_delta)
        delta = tf.clip_by_value(delta, -clip_delta, clip_delta)
    batch_size = tf.cast(tf.shape(q)[0], q.dtype)
    return compute_gradients(q, var_list=variables, grad_loss=-2.0 * delta / batch_size)


def residual_gradient(
    q: tf.Tensor,
    target: tf.Tensor,
    variables: list[tf.Variable],
    compute_gradients: ComputeGradients = gradients,
    loss: Callable = mean_square,
) -> GradientsAndVariables:
    """Let the gradient through the target: ∂L/∂φ = 2/B Σ (q − y)(∂q/∂φ − ∂y/∂φ) (Baird 1995, eq. 13).

    With a target network, y does not depend on φ and the gradient would be ``stop_gradient``'s. So the update computes
    y with the *online* networks, and this path descends the mean squared Bellman residual itself. It is meant for
    study: it converges where the others can diverge, but slowly, and under random transitions to a biased solution
    (the double-sampling problem).

    Args:
        target: y computed from the same variables, ``[B, 1]``.
        q, variables, compute_gradients, loss: as for :func:`stop_gradient`.

    Raises:
        UsageError: if y does not depend on the variables (it is fed, or computed by a target network).
    """
    if all(gradient is None for gradient in tf.gradients(target, variables)):
        raise UsageError(
            "td_target='residual_gradient' needs a target computed from the variables it differentiates for, and this "
            "one does not depend on them (the numeric train and get_gradients feed it as a number): compute y in the "
            "graph from the online networks and call compute_gradients(states, actions, y), or choose "
            "td_target='stop_gradient'"
        )
    return compute_gradients(loss(q, target), var_list=variables)


residual_gradient.bootstraps_online = True  # type: ignore[attr-defined]  # mypy knows no functions with attributes

TD_TARGETS: dict[str, Callable[..., GradientsAndVariables]] = {
    "stop_gradient": stop_gradient,
    "placeholder": placeholder,
    "output_delta": output_delta,
    "residual_gradient": residual_gradient,
}


def _short(result: Any) -> str:
    """Return what a path returned in place of pairs, shortened; of a collection its type and the number of items."""
    if isinstance(result, (dict, list, tuple, set)):
        return f"a {type(result).__name__} of {len(result)}"
    return brief(result)


def check_gradients(pairs: Any, variables: Sequence, path: str) -> None:
    """Check that ``pairs`` is ``[(gradient, variable)]`` with one gradient for each of ``variables``, in any order.

    Each gradient must have the type and the shape of its variable: an optimiser would broadcast it or fail.

    Raises:
        UsageError: if it is not; the message says what ``path`` returned and what is expected.
    """
    expected = f"expected [(gradient, variable)] with a gradient for each of {[v.name for v in variables]}"
    if not isinstance(pairs, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in pairs):
        raise UsageError(f"{path} returned {_short(pairs)}; {expected}")
    empty = [getattr(variable, "name", variable) for gradient, variable in pairs if gradient is None]
    if empty:
        raise UsageError(f"{path} returned no gradient (None) for {empty}: its loss does not reach them; {expected}")
    given = [getattr(variable, "name", repr(variable)) for _, variable in pairs]
    if sorted(given) != sorted(variable.name for variable in variables):
        raise UsageError(f"{path} returned gradients for {given}; {expected}")
    for gradient, variable in pairs:
        kind, dtype = getattr(gradient, "dtype", None), variable.dtype.base_dtype
        if kind != dtype or not variable.shape.is_compatible_with(gradient.shape):
            what = brief(gradient) if kind is None else f"{tf.as_dtype(kind).name} of shape {gradient.shape}"
            raise UsageError(
                f"{path} returned {what} for {variable.name}; expected {dtype.name} of shape {variable.shape}"
            )


def dense(gradient: Any) -> Any:
    """Return a gradient of which ``tf.gather`` gave only the rows that it read as a tensor, and any other as it is."""
    return tf.convert_to_tensor(gradient) if isinstance(gradient, tf.IndexedSlices) else gradient


class TDPath:
    """A TD path, given by name or as a callable, bound to its options and an optimiser's ``compute_gradients``.

    Args:
        td_target: a name, or a callable ``(q, target, variables) -> [(gradient, variable)]``. A callable
            with a true attribute ``bootstraps_online`` gets y from the online networks.
        compute_gradients: an optimiser's, for the supplied paths.
        clip_delta: for ``output_delta``.
        loss: a key of :data:`LOSSES`, or a callable ``(q, target) -> L``.

    Attributes:
        loss: the loss ``(q, target) -> L`` that is reported, and that the supplied paths descend; a user's own one is
            checked (:func:`returning_scalar`).
        path: the path, as a callable.

    Raises:
        UsageError: if ``td_target`` is neither a known name nor a callable, or the path does not use the given
            ``clip_delta`` or ``loss``.
    """

    def __init__(
        self,
        td_target: str | Callable,
        compute_gradients: ComputeGradients = gradients,
        clip_delta: float | None = None,
        loss: str | Callable = "mse",
    ):
        own = "a callable (q, target, variables) -> [(grad, var)]"
        path = self.path = choose("td_target", td_target, TD_TARGETS, own)
        self.bootstraps_online: bool = getattr(path, "bootstraps_online", False)
        self.feeds_target = path is placeholder
        options: dict[str, Any] = {} if path is td_target else {"compute_gradients": compute_gradients}
        if clip_delta is not None:
            if path is not output_delta:
                raise UsageError(
                    f"clip_delta={clip_delta} needs td_target='output_delta', got {td_target!r}: "
                    "the other paths have no delta to clip"
                )
            _check_clip_delta(clip_delta)
            options["clip_delta"] = clip_delta
        self.loss = choose("critic_loss", loss, LOSSES, "a callable (q, target) -> loss")
        if self.loss not in LOSSES.values():
            self.loss = returning_scalar(f"critic_loss={_name(loss)}", self.loss)
        if self.loss is not mean_square:
            if path is td_target or path is output_delta:
                hint = "your path has its own; leave it at 'mse'"
                if path is output_delta:
                    hint = "its output delta is that of the mean square; take td_target='stop_gradient'"
                if path is output_delta and self.loss is huber:
                    hint = "with clip_delta=1 it gives the Huber loss's gradient; leave critic_loss at 'mse'"
                raise UsageError(f"critic_loss={_name(loss)} is not for td_target={_name(td_target)}: {hint}")
            options["loss"] = self.loss
        self._is_own = path not in TD_TARGETS.values()
        self._guarded = guarded(f"td_target={_name(path)}", path) if self._is_own else partial(path, **options)

    def __call__(self, q: tf.Tensor, target: tf.Tensor, variables: list[tf.Variable]) -> GradientsAndVariables:
        """Return ``[(gradient, variable)]``.

        Raises:
            UsageError: if the user's own path raises an exception, or does not return one gradient for each variable.
        """
        pairs = self._guarded(q, target, variables)
        if self._is_own:
            check_gradients(pairs, variables, f"td_target={_name(self.path)}")
        return pairs


def _name(choice: str | Callable) -> str:
    return getattr(choice, "__name__", None) or brief(choice)
