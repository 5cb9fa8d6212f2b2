"""Compare all gradient paths and boundings on one real minibatch of an environment.

With the same weights and transitions, each path's gradient is compared with the other paths' and with central
differences in float64, timed, and its backward pass traced.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np

from ddpg.config.algorithm_options import DDPGConfig
from ddpg.errors import UsageError, brief
from ddpg.gradients.bounding import BOUNDINGS
from ddpg.gradients.policy import POLICY_GRADIENTS
from ddpg.gradients.sign_check import warn_of_wrong_sign
from ddpg.gradients.td import TD_TARGETS
from ddpg.interaction.validation import validate_bool, validate_int
from ddpg.laboratory import gradient_checks
from ddpg.laboratory.fixture import Fixture
from ddpg.laboratory.trial import Measure, build_policy, build_td
from ddpg.progress import tqdm_bar

_Made = TypeVar("_Made")
Progress = Callable[[], object]

EQUAL = 1e-5  # of the gradient's largest value: float32 rounding


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
        env: where the minibatch comes from.
        config: networks, discount, batch size; its choice of paths and its clippings are ignored.
        seed: of weights, actions, minibatch and coordinates; ``None``: random.
        td_targets: TD paths by name; the first is the reference for the others. Central differences are taken of the
            mean squared error, or of a path's attribute ``loss``, ``(q, target) -> loss``. A path of your own starts
            backward by ``tf.gradients``, or by an argument ``compute_gradients`` like that of the supplied paths.
        policy_gradients: policy paths by name; the first is the reference for the others.
        progress_bar: show how many paths are built and measured.

    Returns:
        What ``ddpg paths --json`` prints: ``seed``, ``batch_size``, ``hidden``; ``outside``, for each
        bounding the share of actions outside their box; ``td`` and ``policy``, lists of rows with

        - ``gradient_norm``: over all weights, in float32;
        - ``difference``: from the first path, over all weights: ``max_abs``, ``max_relative`` (to the largest
          value there), and whether they are ``equal``;
        - ``finite_difference``: the same from central differences, and the ``cosine``, at ``coordinates``
          sampled weights;
        - ``bfloat16``: the same gradient where ``precision="bfloat16"`` rounds what matrix products multiply:
          ``relative_norm`` of its difference, and the ``cosine``; ``None`` where the compiler does not know an op;
        - ``milliseconds``, ``milliseconds_compiled``: of one gradient, its target included; ``None`` where it
          cannot be compiled;
        - ``reached``: in how many variables of each group ``tf.gradients`` finds a gradient;
        - ``edges``: the traced backward pass, see :class:`ddpg.laboratory.flow.Edge`, with its ``norm``.

    Raises:
        UsageError: if an argument is of another kind, a network has an op without a NumPy counterpart, or the start
            of a path's backward pass cannot be recorded.

    Warns:
        UserWarning: if a path has the wrong sign: its gradient and the central differences have a negative cosine.
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
        return {
            "seed": fixture.seed,
            "batch_size": config.batch_size,
            "hidden": list(config.hidden),
            "outside": fixture.outside(),
            "td": _compared(td, shown.update, td_targets),
            "policy": [
                {"bounding": bounding, **row}
                for bounding, paths in policy.items()
                for row in _compared(paths, shown.update, policy_gradients)
            ],
        }


def _td_paths(fixture: Fixture, paths: Mapping[str, Callable], done: Progress) -> list[Measure]:
    online = {name: getattr(path, "bootstraps_online", False) for name, path in paths.items()}
    losses = {name: getattr(path, "loss", None) for name, path in paths.items()}
    kinds = {name: (online[name], losses[name]) for name in paths}
    expected = {kind: fixture.expected_td(*kind) for kind in dict.fromkeys(kinds.values())}
    return [_with_progress(done, build_td(fixture, name, path, expected[kinds[name]])) for name, path in paths.items()]


def _policy_paths(fixture: Fixture, paths: Mapping[str, Callable], bounding: str, done: Progress) -> list[Measure]:
    if not paths:
        return []
    expected = fixture.expected_policy(bounding)
    return [_with_progress(done, build_policy(fixture, name, path, bounding, expected)) for name, path in paths.items()]


def _compared(paths: list[Measure], done: Progress, functions: Mapping[str, Callable]) -> list[dict[str, Any]]:
    """Measure paths, warn of wrong signs, and replace gradients by their differences from the first path's."""
    if not paths:
        return []
    rows = [_with_progress(done, measured()) for measured in paths]
    for row in rows:
        warn_of_wrong_sign(row["path"], functions[row["path"]], row["finite_difference"]["cosine"], stacklevel=3)
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
                "max_relative": differences[row["path"]] / largest,
                "equal": differences[row["path"]] <= EQUAL * largest,
            },
        }
        for row in rows
    ]


def _with_progress(done: Progress, made: _Made) -> _Made:
    done()
    return made
