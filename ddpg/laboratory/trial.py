"""Measure one path: its gradient, its time, its backward pass.

All paths are built before the first is measured: a session re-reads its graph after every change, however small.
"""

import inspect
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ddpg._tflearn import _replaced
from ddpg.algorithms import ddpg as update
from ddpg.errors import UsageError
from ddpg.gradients.policy import apply_path
from ddpg.gradients.td import TD_TARGETS, ComputeGradients, GradientsAndVariables, TDPath
from ddpg.laboratory import gradient_checks
from ddpg.laboratory.finite_differences import ReferenceGradient
from ddpg.laboratory.fixture import Fixture
from ddpg.laboratory.flow import edge_norms, trace_flow
from ddpg.laboratory.gradient_checks import RoundedGradient
from ddpg.networks.base import Network
from ddpg.replay.minibatch import Batch

WARM_UP_CALLS = 2
TIMED_CALLS = 10


def milliseconds(session: tf.compat.v1.Session, fetches, feeds: dict) -> float:
    """Return the median duration of a session call. Ops that are not fetched are optimised away."""
    call = session.make_callable(fetches, feed_list=list(feeds))
    durations = []
    for _ in range(WARM_UP_CALLS + TIMED_CALLS):
        start = time.perf_counter()
        call(*feeds.values())
        durations.append(time.perf_counter() - start)
    return 1e3 * float(np.median(durations[WARM_UP_CALLS:]))


def compiled(compute: Callable[..., GradientsAndVariables], inputs: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Return the gradients of ``compute(*inputs) -> [(gradient, variable)]``, compiled by XLA."""

    def gradients(*inputs: tf.Tensor) -> list[tf.Tensor]:
        return [gradient for gradient, _ in compute(*inputs)]

    return tf.function(gradients, jit_compile=True, autograph=False)(*inputs)


FIELD_NAMES = {"observations": "s", "actions": "a", "rewards": "r", "next_observations": "next_s"}


class PathTrial(NamedTuple):
    """A path, ready to be built and measured.

    Attributes:
        name: the path's name.
        network: the network whose gradient it computes.
        compute: ``inputs -> [(gradient, variable)]``; records its tensors in the fixture's recorder.
        inputs: placeholders.
        feeds: their values.
        bounding: the actor's bounding.
        fed_y: a placeholder to which the value of the node ``y`` is fed; ``None``: y stays in the graph.
    """

    name: str
    network: Network
    compute: Callable[..., GradientsAndVariables]
    inputs: Sequence[tf.Tensor]
    feeds: dict[tf.Tensor, np.ndarray]
    bounding: str
    fed_y: tf.Tensor | None = None


Measure = Callable[[], dict[str, Any]]


def build_td(fixture: Fixture, name: str, path: Callable, expected: ReferenceGradient) -> Measure:
    """Build a TD path.

    Returns:
        A function that measures it and returns its row as in :func:`ddpg.compare_paths`, with ``gradients`` instead of
        ``difference``.
    """
    actor, critic, recorder = fixture.actors["squashing"], fixture.critic, fixture.recorder
    critic.td_path = _recorded(path, critic.optimizer.compute_gradients)
    fed_y = fixture.fed_y if critic.td_path.feeds_target else None

    def compute(*fields: tf.Tensor) -> GradientsAndVariables:
        recorder.clear()
        batch = Batch(*fields)
        for field, symbol in FIELD_NAMES.items():
            recorder.name(symbol, getattr(batch, field))
        y = recorder.name("y", update.td_target(actor, critic, batch, fixture.gamma))
        if fed_y is not None:
            y = recorder.name("fed_y", fed_y)
        return critic.td_gradients(critic.prediction(batch.observations, batch.actions).output, y)

    feeds = dict(zip(fixture.batch, fixture.values, strict=True))
    return _built(fixture, PathTrial(name, critic, compute, list(fixture.batch), feeds, "squashing", fed_y), expected)


def build_policy(fixture: Fixture, name: str, path: Callable, bounding: str, expected: ReferenceGradient) -> Measure:
    """Build a policy path under a bounding; returns as :func:`build_td`."""
    actor, recorder = fixture.actors[bounding], fixture.recorder

    def compute(*fields: tf.Tensor) -> GradientsAndVariables:
        recorder.clear()
        batch = Batch(*fields)
        recorder.name("s", batch.observations)
        return apply_path(path, actor, fixture.critic, batch)

    feeds = dict(zip(fixture.batch, fixture.values, strict=True))
    return _built(fixture, PathTrial(name, actor, compute, list(fixture.batch), feeds, bounding), expected)


def _recorded(path: Callable, compute_gradients: ComputeGradients) -> TDPath:
    """Return ``path`` bound to ``compute_gradients``, one's own too."""
    for name, supplied in TD_TARGETS.items():
        if path is supplied:
            return TDPath(name, compute_gradients)
    own = TDPath(_started_by(path, compute_gradients))
    own.bootstraps_online = getattr(path, "bootstraps_online", False)
    return own


def _started_by(path: Callable, compute_gradients: ComputeGradients) -> Callable:
    """Return a path that starts by ``compute_gradients``: its argument, or in the place of ``tf.gradients``."""
    if "compute_gradients" in inspect.signature(path).parameters:
        return partial(path, compute_gradients=compute_gradients)

    def started(q: tf.Tensor, target: tf.Tensor, variables: list[tf.Variable]) -> GradientsAndVariables:
        original = tf.gradients
        begun = False

        def recorded(ys: Any, xs: Any, grad_ys: Any = None, **options: Any) -> Any:
            nonlocal begun
            if begun or options or isinstance(ys, (list, tuple)):  # only one tensor starts a path
                return original(ys, xs, grad_ys, **options)
            begun = True
            with _replaced(tf, "gradients", original):
                return [gradient for gradient, _ in compute_gradients(ys, var_list=xs, grad_loss=grad_ys)]

        with _replaced(tf, "gradients", recorded):
            return path(q, target, variables)

    return started


def _built(fixture: Fixture, trial: PathTrial, expected: ReferenceGradient) -> Measure:
    session = fixture.session
    with session.graph.as_default():
        pairs = trial.compute(*trial.inputs)
        _check_variables(trial.network, pairs)
        tensors = [gradient for gradient, _ in pairs]
        nodes, start, groups = dict(fixture.recorder.nodes), fixture.recorder.start, fixture.groups(trial.bounding)
        edges = edge_norms(session, trace_flow(nodes, groups, start, {} if trial.fed_y is None else {"fed_y": "y"}))
        reached = {group: len(gradient_checks.leaks(start.loss, variables)) for group, variables in groups.items()}
        fields = [*trial.inputs, *([] if trial.fed_y is None else [trial.fed_y])]
        rounded = RoundedGradient(session, tensors, fields, [each for group in groups.values() for each in group])
        in_one_function = _compiled(trial)

    def measure() -> dict[str, Any]:
        feeds, calls = dict(trial.feeds), [tensors]
        if trial.fed_y is not None:
            feeds[trial.fed_y] = session.run(nodes["y"], feeds)
            calls = [nodes["y"], tensors]
        gradients = session.run(tensors, feeds)
        return {
            "path": trial.name,
            "gradients": gradients,
            "gradient_norm": float(np.sqrt(sum(np.square(array, dtype=np.float64).sum() for array in gradients))),
            "edges": edges(feeds),
            "finite_difference": expected.against(gradients),
            "bfloat16": rounded.error(feeds, gradients),
            "milliseconds": sum(milliseconds(session, call, feeds) for call in calls),
            "milliseconds_compiled": milliseconds(session, in_one_function, feeds) if in_one_function else None,
            "reached": reached,
        }

    return measure


def _compiled(trial: PathTrial) -> list[tf.Tensor] | None:
    return None if trial.fed_y is not None else compiled(trial.compute, trial.inputs)


def _check_variables(network: Network, pairs: GradientsAndVariables) -> None:
    if [variable.name for _, variable in pairs] != [variable.name for variable in network.trainable_variables]:
        raise UsageError(f"a path must return a gradient for each trainable variable of the {network.name}")
