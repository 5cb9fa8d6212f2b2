"""Compare all gradient paths and boundings on one real minibatch of an environment.

With the same weights and transitions, each path's gradient is compared with the other paths' and with central
differences in float64, and timed, and its backward pass is traced. All paths are built before the first is measured,
because a session reads its graph again after every change, which would be timed too.
"""

import contextlib
import inspect
import time
from collections.abc import Callable, Mapping
from functools import partial, update_wrapper
from typing import Any, NamedTuple, TypeVar

import gymnasium as gym
import numpy as np
import tensorflow as tf

from ddpg.algorithms import ddpg as update
from ddpg.config.algorithm_options import DDPGConfig
from ddpg.errors import UsageError, brief
from ddpg.gradients import sign_check
from ddpg.gradients.bounding import BOUNDINGS
from ddpg.gradients.policy import POLICY_GRADIENTS, apply_path
from ddpg.gradients.td import TD_TARGETS, ComputeGradients, GradientsAndVariables, TDPath, check_gradients, dense
from ddpg.interaction.validation import validate_bool, validate_int
from ddpg.laboratory import gradient_checks
from ddpg.laboratory.finite_differences import ReferenceGradient
from ddpg.laboratory.fixture import Fixture
from ddpg.laboratory.flow import edge_norms, trace_flow, tracing
from ddpg.laboratory.gradient_checks import RoundedGradient
from ddpg.networks.base import Network
from ddpg.progress import tqdm_bar
from ddpg.replay.minibatch import Batch

_Made = TypeVar("_Made")
Progress = Callable[[], object]

EQUAL = 1e-5  # of the gradient's largest value: float32 rounding
WARM_UP_CALLS = 2
TIMED_CALLS = 10


def milliseconds(session: tf.compat.v1.Session, fetches, feeds: dict) -> float:
    """Return the median duration of a session call in milliseconds. Ops that are not fetched do not run."""
    call = session.make_callable(fetches, feed_list=list(feeds))
    durations = []
    for _ in range(WARM_UP_CALLS + TIMED_CALLS):
        start = time.perf_counter()
        call(*feeds.values())
        durations.append(time.perf_counter() - start)
    return 1e3 * float(np.median(durations[WARM_UP_CALLS:]))


def milliseconds_compiled(session: tf.compat.v1.Session, compiled: list[tf.Tensor] | None, feeds: dict) -> float | None:
    """Return :func:`milliseconds` of tensors that XLA computes; ``None`` if it cannot, or if there are none."""
    if compiled is not None:
        # Raised for an op that XLA does not know.
        with contextlib.suppress(tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
            return milliseconds(session, compiled, feeds)
    return None


class PathTrial(NamedTuple):
    """A path, ready to be built and measured.

    Attributes:
        network: the network whose gradient it computes.
        compute: the minibatch's fields ``-> [(gradient, variable)]``; records its tensors in the fixture's recorder.
        bounding: the actor's bounding.
        fed_y: a placeholder that is fed the value of the node ``y``; ``None``: y stays in the graph.
    """

    name: str
    network: Network
    compute: Callable[..., GradientsAndVariables]
    bounding: str
    fed_y: tf.Tensor | None = None


Measure = Callable[[], dict[str, Any]]


def build_td(fixture: Fixture, name: str, path: Callable, expected: ReferenceGradient) -> Measure:
    """Build a TD path; return a function that measures its row of :func:`ddpg.compare_paths` and its gradients."""
    actor, critic, recorder = fixture.actors["squashing"], fixture.critic, fixture.recorder
    critic.td_path = _recorded(name, path, critic.optimizer.compute_gradients)
    fed_y = fixture.fed_y if critic.td_path.feeds_target else None

    def compute(*fields: tf.Tensor) -> GradientsAndVariables:
        batch = Batch(*fields)
        recorder.begin(batch)
        y = recorder.name("y", update.td_target(actor, critic, batch, fixture.gamma))
        if fed_y is not None:
            y = recorder.name("fed_y", fed_y)
        q = critic.prediction(batch.observations, batch.actions).output
        return critic.td_gradients(q, y)

    return _built(fixture, PathTrial(name, critic, compute, "squashing", fed_y), expected)


def build_policy(fixture: Fixture, name: str, path: Callable, bounding: str, expected: ReferenceGradient) -> Measure:
    """Build a policy path under a bounding; returns as :func:`build_td`."""
    actor, recorder = fixture.actors[bounding], fixture.recorder

    def compute(*fields: tf.Tensor) -> GradientsAndVariables:
        batch = Batch(*fields)
        recorder.begin(batch, ("observations", "actions"))
        with recorder.recording(actor.trainable_variables):
            return apply_path(path, actor, fixture.critic, batch)

    return _built(fixture, PathTrial(name, actor, compute, bounding), expected)


def _recorded(name: str, path: Callable, compute_gradients: ComputeGradients) -> TDPath:
    """Return ``path`` bound to ``compute_gradients`` if it takes one; messages name the user's own by ``name``."""
    for supplied, function in TD_TARGETS.items():
        if path is function:
            return TDPath(supplied, compute_gradients)
    takes_it = "compute_gradients" in inspect.signature(path).parameters
    own = update_wrapper(partial(path, **({"compute_gradients": compute_gradients} if takes_it else {})), path)
    own.__name__ = name
    return TDPath(own)


def _built(fixture: Fixture, trial: PathTrial, expected: ReferenceGradient) -> Measure:
    session = fixture.session
    with session.graph.as_default():
        pairs = _in_order(trial, trial.compute(*fixture.batch))
        tensors = [gradient for gradient, _ in pairs]
        nodes, groups = dict(fixture.recorder.nodes), fixture.groups(trial.bounding)
        starts = fixture.recorder.starts_of(pairs, f"path {trial.name!r}")
        with tracing(f"path {trial.name!r}"):
            traced = trace_flow(nodes, groups, starts, {} if trial.fed_y is None else {"fed_y": "y"})
        edges = edge_norms(session, traced)
        fields = [*fixture.batch, *([] if trial.fed_y is None else [trial.fed_y])]
        weights = [each for group in groups.values() for each in group]
        names = {name for start in starts for name in gradient_checks.leaks(start.loss, weights, start.constants)}
        reached = {group: sum(each.name in names for each in variables) for group, variables in groups.items()}
        rounded = RoundedGradient(session, tensors, fields, weights)
        compiled = _compiled(trial, fixture.batch)

    def measure() -> dict[str, Any]:
        feeds, calls = dict(fixture.feeds), [tensors]
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
            **rounded.errors(feeds, gradients),
            "milliseconds": sum(milliseconds(session, call, feeds) for call in calls),
            "milliseconds_compiled": milliseconds_compiled(session, compiled, feeds),
            "reached": reached,
        }

    return measure


def _compiled(trial: PathTrial, batch: Batch) -> list[tf.Tensor] | None:
    """Return a path's gradients, compiled by XLA; ``None`` if the path's target is fed, which cannot be compiled."""
    if trial.fed_y is not None:
        return None

    def gradients(*fields: tf.Tensor) -> list[tf.Tensor]:
        return [gradient for gradient, _ in trial.compute(*fields)]

    return tf.function(gradients, jit_compile=True, autograph=False)(*batch)


def _in_order(trial: PathTrial, pairs: GradientsAndVariables) -> GradientsAndVariables:
    """Return a path's pairs, checked as in training, in the order of its network's variables."""
    variables = trial.network.trainable_variables
    check_gradients(pairs, variables, f"path {trial.name!r}")
    found = {variable.name: (dense(gradient), variable) for gradient, variable in pairs}
    return [found[variable.name] for variable in variables]


def compare_paths(
    env: gym.Env,
    config: DDPGConfig,
    seed: int | None = None,
    *,
    td_targets: Mapping[str, Callable] = TD_TARGETS,
    policy_gradients: Mapping[str, Callable] = POLICY_GRADIENTS,
    progress_bar: bool = False,
) -> dict[str, Any]:
    """Measure every TD path, and every policy path under every bounding.

    Args:
        env: the environment from which the minibatch is collected.
        config: networks, discount, batch size; its choice of paths and its clippings are ignored.
        seed: of weights, actions, minibatch and coordinates; ``None``: random.
        td_targets: TD paths by name; the first is the reference for the others. Central differences are taken of the
            mean squared error, or of a path's attribute ``loss``, ``(q, target) -> loss``. Your own path must start its
            backward passes with ``tf.gradients``, or with an argument ``compute_gradients`` as the supplied paths have.
        policy_gradients: policy paths by name; the first is the reference for the others. Your own path must start its
            backward passes with ``tf.gradients`` or by the actor's optimizer and methods.
        progress_bar: show how many paths are built and measured.

    Returns:
        What ``ddpg paths --json`` prints: ``seed``, ``batch_size``, ``hidden``, ``critic_hidden``; ``outside``, for
        each bounding the share of actions outside their box; ``td`` and ``policy``, lists of rows with

        - ``gradient_norm``: over all weights, in float32;
        - ``difference``: from the first path, over all weights: ``max_abs``, ``max_relative`` (to the first path's
          largest value), and whether they are ``equal``;
        - ``finite_difference``: the same from central differences, and the ``cosine``, at ``coordinates``
          sampled weights;
        - ``bfloat16``, ``bfloat16x3``: the gradient when this ``precision`` rounds the arguments of matrix products:
          ``relative_norm`` of its difference, and the ``cosine``; ``None`` if the compiler does not know an op;
        - ``milliseconds``, ``milliseconds_compiled``: duration of one gradient, its target included; ``None`` if
          it cannot be compiled;
        - ``reached``: in how many variables of each group ``tf.gradients`` finds a gradient;
        - ``edges``: the traced backward pass, see :class:`ddpg.laboratory.flow.Edge`, with its ``norm``.

    Raises:
        UsageError: if an argument has the wrong type, a network has an op without a NumPy counterpart, or a
            path's backward pass cannot be recorded or traced.

    Warns:
        UserWarning: if a path of your own has the wrong sign, by the check that training makes before its first update:
            terms without Q, or without the TD error, are left out (:mod:`ddpg.gradients.sign_check`).
    """
    if not isinstance(env, gym.Env):
        raise UsageError(f"env={brief(env)} must be a gymnasium Env")
    if not isinstance(config, DDPGConfig):
        raise UsageError(f"config={brief(config)} must be a DDPGConfig")
    seed = seed if seed is None else validate_int(seed, "seed", at_least=0)
    validate_bool(progress_bar, "progress_bar")
    for name, paths in (("td_targets", td_targets), ("policy_gradients", policy_gradients)):
        if not isinstance(paths, Mapping) or not all(callable(path) for path in paths.values()):
            raise UsageError(f"{name}={brief(paths)} must be a dict of callables")
    tried = len(td_targets) + len(BOUNDINGS) * len(policy_gradients)
    with tqdm_bar(total=2 * tried, desc="paths, built and measured", leave=False, disable=not progress_bar) as shown:
        fixture = Fixture(env, config, seed)
        td = _td_paths(fixture, td_targets, shown.update)
        policy = {bounding: _policy_paths(fixture, policy_gradients, bounding, shown.update) for bounding in BOUNDINGS}
        signs = _signs(fixture, td_targets, policy_gradients)
        report = {
            "seed": fixture.seed,
            "batch_size": config.batch_size,
            "hidden": list(config.hidden),
            "critic_hidden": list(config.hidden_of_critics),
            "outside": fixture.outside(),
            "td": _compared(td, shown.update),
            "policy": [
                {"bounding": bounding, **row}
                for bounding, paths in policy.items()
                for row in _compared(paths, shown.update)
            ],
        }
    cosines = fixture.session.run([cosine for _, cosine in signs], fixture.feeds)
    for (name, _), cosine in zip(signs, cosines, strict=True):
        sign_check.warn_of_wrong_sign(name, float(cosine))
    return report


def _signs(
    fixture: Fixture, td_targets: Mapping[str, Callable], policy_gradients: Mapping[str, Callable]
) -> list[tuple[str, tf.Tensor]]:
    """Build the check of every path of the user's own, of policies under every bounding; return names and cosines.

    As in training, a path that cannot be built with a stand-in for the critic or for y is not checked.
    """
    critic, batch, signs = fixture.critic, fixture.batch, []
    with fixture.session.graph.as_default():
        for name, path in td_targets.items():
            if sign_check.is_checked(path):
                with contextlib.suppress(Exception):
                    q = critic.prediction(batch.observations, batch.actions).output
                    own = _recorded(name, path, critic.optimizer.compute_gradients)
                    signs.append((name, sign_check.descent_cosine(own, q, critic.trainable_variables)))
        for name, path in policy_gradients.items():
            for actor in fixture.actors.values() if sign_check.is_checked(path) else ():
                with contextlib.suppress(Exception):
                    signs.append((name, sign_check.climb_cosine(path, actor, critic, batch)))
    return signs


def _td_paths(fixture: Fixture, paths: Mapping[str, Callable], done: Progress) -> list[Measure]:
    kinds = {
        name: (getattr(path, "bootstraps_online", False), getattr(path, "loss", None)) for name, path in paths.items()
    }
    expected = {kind: fixture.expected_td(*kind) for kind in dict.fromkeys(kinds.values())}
    return [_with_progress(done, build_td(fixture, name, path, expected[kinds[name]])) for name, path in paths.items()]


def _policy_paths(fixture: Fixture, paths: Mapping[str, Callable], bounding: str, done: Progress) -> list[Measure]:
    if not paths:
        return []
    expected = fixture.expected_policy(bounding)
    return [_with_progress(done, build_policy(fixture, name, path, bounding, expected)) for name, path in paths.items()]


def _compared(paths: list[Measure], done: Progress) -> list[dict[str, Any]]:
    """Measure paths, and replace gradients by their differences from the first path's."""
    if not paths:
        return []
    rows = [_with_progress(done, measured()) for measured in paths]
    gradients = {row["path"]: row.pop("gradients") for row in rows}
    reference = rows[0]["path"]
    largest = max(float(np.abs(array).max()) for array in gradients[reference])
    differences = gradient_checks.compare(gradients, reference)
    return [
        {
            **row,
            "difference": {
                "from": reference,
                "max_abs": differences[row["path"]],
                "max_relative": gradient_checks.relative(differences[row["path"]], largest),
                "equal": differences[row["path"]] <= EQUAL * largest,
            },
        }
        for row in rows
    ]


def _with_progress(done: Progress, made: _Made) -> _Made:
    done()
    return made
