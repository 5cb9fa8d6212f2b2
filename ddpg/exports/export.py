"""Export a policy: write it to a temporary path, compare it with the agent, and only then move it into place.

Runtimes add numbers in different orders, so the comparison allows the differences that rounding alone can cause.
:class:`Rounding` estimates them.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
import tensorflow as tf

from ddpg.checkpoints.target_dir import names_in, resolved
from ddpg.errors import UsageError, brief
from ddpg.exports import c_policy, export_dir, formats, policy_file, policy_graph
from ddpg.exports.c_network import QUANTIZATIONS
from ddpg.exports.policy_graph import ACTIONS, VALUES, ActingPolicy, inputs_and_outputs
from ddpg.interaction.action_mask import FORBIDDEN
from ddpg.interaction.actions import Actions
from ddpg.interaction.validation import validate_choice
from ddpg.policies import standalone
from ddpg.policies.graph_to_numpy import UnsupportedOp
from ddpg.policies.numpy_program import NumpyProgram

v1 = tf.compat.v1

# The formats, each with the default name of its file or directory.
NAMES = {
    "numpy": "policy",
    "savedmodel": "policy_savedmodel",
    "tflite": "policy.tflite",
    "onnx": "policy.onnx",
    "c": "policy_c",
}
FORMATS = tuple(NAMES)
TOLERANCE = 1e-5
SAMPLES = 64
TRIALS = 8
_UNIT = 2.0**-24  # of float32: the largest relative error of one rounding
_AMPLIFIED = 64  # size of the perturbations, in _UNIT: above the session's own rounding, yet small for any network

_WRITERS = {
    "savedmodel": (formats.write_savedmodel, formats.run_savedmodel),
    "tflite": (formats.write_tflite, formats.run_tflite),
    "onnx": (formats.write_onnx, formats.run_onnx),
}


def check_options(kind: str, quantize: str | None = None, name: str = export_dir.POLICY) -> None:
    """Refuse options of :func:`export` that no agent could make right, before one is loaded.

    Raises:
        UsageError: if the format is unknown, or ``quantize`` or ``name`` is none for it.
    """
    validate_choice(kind, "format", FORMATS)
    if quantize is not None:
        validate_choice(quantize, "quantize", QUANTIZATIONS)
        if kind != "c":
            raise UsageError(f"quantize={quantize!r} is for format='c', not for format={kind!r}; leave it out")
    if c_policy.check_name(name) != export_dir.POLICY and kind != "c":
        raise UsageError(f"name={name!r} is for format='c', not for format={kind!r}; leave it out")


def _check_path_fits(path: str | Path, kind: str) -> None:
    """Refuse a name that means another format's file, or that of a file for a directory, or the other way round."""
    suffixes = {format: Path(name).suffix for format, name in NAMES.items()}
    for other, suffix in suffixes.items():
        if suffix and other != kind and Path(path).suffix == suffix:
            raise UsageError(
                f"{str(path)!r} is a name for format={other!r}, and the format is {kind!r}; give format={other!r}, or "
                "another name"
            )
    if kind == "c" and Path(path).suffix in (".c", ".h"):
        raise UsageError(
            f"{str(path)!r} names a file, and format='c' writes a directory; name that, such as "
            f"{str(Path(path).with_suffix(''))!r}, and its files with the option name"
        )
    directory = str(path).endswith(("/", os.sep)) or (os.path.isdir(path) and not names_in(Path(path)))
    if suffixes[kind] and directory:
        raise UsageError(
            f"{str(path)!r} names a directory, and format={kind!r} writes a file; name the file in it, such as "
            f"{str(Path(path) / NAMES[kind])!r}"
        )


def export(
    path: str | Path, kind: str, acting: ActingPolicy, quantize: str | None = None, name: str = export_dir.POLICY
) -> float:
    """Write a policy to ``path``: a new path, or an earlier export, which is replaced.

    Args:
        path: a directory, which may also be an empty one, for ``"numpy"``, ``"savedmodel"`` and ``"c"``; a file for
            ``"tflite"`` and ``"onnx"``. Only theirs may end in ``.tflite`` and ``.onnx``, and that of ``"c"`` not in
            ``.c`` or ``.h``.
        kind: one of :data:`FORMATS`.
        acting: the parts of the agent that act.
        quantize: how weights are stored, one of :data:`ddpg.exports.c_network.QUANTIZATIONS`; for ``"c"`` only.
        name: of the files, functions and, in capitals, macros of ``"c"``, as
            :func:`ddpg.exports.c_policy.check_name` accepts it; for ``"c"`` only.

    Returns:
        The largest difference between the export and the agent on ``SAMPLES`` observations. Differences of actions are
        in half-ranges of their bounds, those of DQN's values are relative to the largest value.

    Raises:
        UsageError: if the format is unknown, ``name`` is none for C, ``path`` holds something else or is none for the
            format, the format cannot hold the network, a package is missing, float32 cannot compute the actions, or the
            difference exceeds ``TOLERANCE`` plus the effect of float32 rounding. ``path`` stays as it was.
        OSError: if it cannot be written; ``path`` stays as it was.
    """
    check_options(kind, quantize, name)
    _check_path_fits(path, kind)
    path = Path(path)
    export_dir.check_export_path(path)
    if kind == "savedmodel" and re.search(r"[\[\udc80-\udcff]", str(resolved(path))):  # surrogates: other bytes
        raise UsageError(
            f"TensorFlow loads no SavedModel from a path with '[' in it or one that is not UTF-8, {brief(str(path))}; "
            "name another one"
        )
    observation_space, action_space = acting.network.observation_space, acting.actions.space
    if kind != "numpy":
        policy_graph.check_float32(kind, action_space)
    mask: int = getattr(acting.network, "mask_size", 0)
    program = None
    try:
        program = policy_graph.numpy_program(acting).folded()
    except UnsupportedOp as op:
        if kind in ("numpy", "c"):
            raise UsageError(
                f"format={kind!r} cannot hold this network: its op {op} has no counterpart in NumPy; use savedmodel, "
                "tflite or onnx"
            ) from None
    if program is not None and kind in ("numpy", "c"):
        _check_rows(kind, program, observation_space)
    moments = _moments(acting, program)
    observations = sample_observations(observation_space, mask, moments)
    with export_dir.write_aside(path) as temporary:
        if kind in ("numpy", "c"):
            assert program is not None, "refused above"
            test = _self_test(acting, mask, moments)
            if kind == "c":
                act = c_policy.write(temporary, program, observation_space, acting.actions, test, quantize, name)
                found = act(observations)
            else:
                policy_file.write(temporary, program, observation_space, action_space, test)
                found = {VALUES: policy_file.read(temporary)[0](observations)}
        else:
            write, run = _WRITERS[kind]
            write(
                temporary,
                policy_graph.policy_function(acting),
                policy_file.export_metadata(kind, observation_space, action_space),
            )
            found = run(temporary)(observations)
        difference, allowed = compare(found, acting, observations)
        if not difference <= (allowed if quantize is None else np.finfo(float).max):
            raise UsageError(
                f"the {kind} export differs from the agent by {difference:.2g}, where rounding explains {allowed:.2g}; "
                "it was not written: please report this with the configuration of the agent"
            )
    return difference


def _check_rows(kind: str, program: NumpyProgram, space: gym.spaces.Box) -> None:
    """Refuse a network whose layers do more than map each observation, by itself, to a row.

    Raises:
        UsageError: if it is such a network, as one that shares layers between parts of an observation by reshaping it.
    """
    try:
        policy_file.result_width(program.steps, program.arrays(), space.shape, program.result)
    except policy_file.InvalidProgram as error:
        raise UsageError(
            f"format={kind!r} cannot hold this network, whose layers do more than map observations to rows, or in ways "
            f"that it lacks: in its NumPy program {error.problem}; use savedmodel, tflite or onnx"
        ) from None


def unit_of_difference(action_space: gym.Space) -> str:
    """Return the unit of the difference that :func:`export` returns, in words."""
    discrete = isinstance(action_space, gym.spaces.Discrete)
    return "the largest of the values" if discrete else "the actions' half-range"


def _moments(acting: ActingPolicy, program: NumpyProgram | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the mean of the observations and 1 / deviation, each ``[1, n]``; ``None`` if the policy has no such."""
    if program is not None:
        return standalone.statistics(program.steps, program.registers)
    if acting.normaliser is None:
        return None
    mean, factor = acting.normaliser.transformation
    return mean.reshape(1, -1), factor.reshape(1, -1)


def _self_test(acting: ActingPolicy, mask: int, moments: tuple[np.ndarray, np.ndarray] | None) -> policy_file.SelfTest:
    """Return what an export in format numpy or c compares itself with."""
    observations = policy_file.check_observations(acting.network.observation_space, mask, moments)
    outputs = _outputs(acting, observations)
    rounding = Rounding(acting, observations).bound(policy_file.compared(acting.actions.space, outputs))
    return policy_file.SelfTest(
        observations, outputs, TOLERANCE + float(rounding.max()), mask, normalised=moments is not None
    )


def sample_observations(
    space: gym.spaces.Box, mask: int = 0, moments: tuple[np.ndarray, np.ndarray] | None = None
) -> np.ndarray:
    """Return random observations for the comparison, float32 ``[SAMPLES, *shape]``.

    A policy that normalises observations is compared where its statistics lie: elsewhere its units saturate, and hide
    differences.

    Args:
        space: of the observations. Without ``moments``, numbers are uniform between finite bounds, otherwise standard
            normal and clipped to the bounds; for integer spaces, such as images, they are rounded down, so that every
            integer between finite bounds is equally likely.
        mask: how many of the last numbers are zeros and ones, with at least one 1.
        moments: mean of the observations and 1 / deviation, each ``[1, n]``: numbers are normal with these, rounded for
            integer spaces, and clipped to the bounds.
    """
    rng = np.random.default_rng(0)
    low, high, whole = space.low.astype(np.float64), space.high.astype(np.float64), space.dtype.kind != "f"
    bounded = (low > -1e6) & (high < 1e6)
    uniform = rng.uniform(np.where(bounded, low, 0), np.where(bounded, high + whole, 1), (SAMPLES, *space.shape))
    normal = rng.standard_normal((SAMPLES, *space.shape))
    drawn = np.where(bounded, uniform, np.clip(normal, low, high))
    if moments is not None:
        around = (moments[0] + normal.reshape(SAMPLES, -1) / moments[1]).reshape(normal.shape)
        drawn = np.clip(np.rint(around) if whole else around, low, high)
    if mask:
        drawn[:, -mask:] = rng.random((SAMPLES, mask)) < 0.5
        drawn[np.arange(SAMPLES), rng.integers(-mask, 0, SAMPLES)] = 1
    return (np.minimum(np.floor(drawn), high) if whole else drawn).astype(np.float32)


def compare(found: formats.Outputs, acting: ActingPolicy, observations: np.ndarray) -> tuple[float, float]:
    """Compare the outputs of an export with those of the agent.

    Args:
        found: the export's outputs, named as :func:`ddpg.exports.policy_graph.policy_function` names them; for
            ``"numpy"``, the network's outputs as ``values``.
        acting: the parts of the agent that act.
        observations: ``[B, ...]`` float32, from which ``found`` was computed.

    Returns:
        The largest difference as :func:`export` returns it, and the largest allowed one: ``TOLERANCE`` plus the effect
        of rounding to float32, of the actions (:func:`ddpg.exports.policy_graph.rounding_of_actions`) and in this
        network (:class:`Rounding`). If an output differs by more than its own allowance, both numbers belong to the
        output that exceeds it most.
    """
    outputs = _outputs(acting, observations)
    meaning, differences, of_box = _differences(found, acting.actions, outputs)
    largest, allowed = float(differences.max()), TOLERANCE + of_box
    if not largest < np.inf or (differences <= allowed).all():
        return largest, float(allowed.max())
    allowed = allowed + Rounding(acting, observations).bound(meaning)
    worst = np.unravel_index(np.argmax(differences - allowed), differences.shape)
    fits = bool((differences <= allowed).all())
    return (largest, float(allowed.max())) if fits else (float(differences[worst]), float(allowed[worst]))


def _outputs(acting: ActingPolicy, observations: np.ndarray) -> np.ndarray:
    """Return the network's outputs in the agent's own session, ``[B, ...]``."""
    if acting.normaliser is not None:
        observations = acting.normaliser(observations)
    with acting.session.as_default(), acting.network.graph.as_default():
        return acting.network.predict(observations)  # type: ignore[attr-defined] # of actor and Q-network


def _differences(
    found: formats.Outputs, actions: Actions, outputs: np.ndarray
) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray, np.ndarray]:
    """Return the function of the network's outputs that is compared, its differences and the rounding of actions.

    The differences are ``[B, A]``; the last array, ``[A]``, says how much of them rounding an action to float32 may be.
    """
    meaning = policy_file.compared(actions.space, outputs)
    if VALUES in found:
        differences = np.abs(meaning(found[VALUES]) - meaning(outputs))
        if ACTIONS in found:
            chosen = outputs[np.arange(len(outputs)), found[ACTIONS] - actions.start]
            # Where two values are almost equal, either action is right.
            largest = np.abs(outputs).max(initial=1.0, where=outputs > FORBIDDEN / 2)
            lost = (outputs.max(axis=1).astype(np.float64) - chosen) / largest
            differences = np.maximum(differences, lost[:, None])
        return meaning, differences, np.zeros(differences.shape[1])
    low, high = actions.bounds  # type: ignore[attr-defined] # of boxes and parameterised actions
    half, middle = (high - low) / 2, (high + low) / 2

    differences = np.abs((found[ACTIONS].reshape(len(outputs), -1) - middle) / half - meaning(outputs))
    return meaning, differences, policy_graph.rounding_of_actions(low, high)


class Rounding:
    """Estimates how much rounding can change a network's outputs, from runs with perturbed weights and observations.

    A layer that normalises by a small deviation amplifies the rounding errors of the layers before it, so no fixed
    tolerance fits every network. Monte Carlo arithmetic (Parker 1997) measures the amplification: it perturbs the
    inputs of every operation at random by a few units of rounding, and the network propagates the perturbations.

    Args:
        acting: the parts of the agent that act.
        observations: ``[B, ...]`` float32, in env units.

    Attributes:
        outputs: the unperturbed outputs ``[B, A]``.
    """

    def __init__(self, acting: ActingPolicy, observations: np.ndarray):
        states, outputs = inputs_and_outputs(acting)
        reads = _reads(outputs)
        values = acting.session.run(reads)
        rng = np.random.default_rng(0)

        def perturbed(array: np.ndarray) -> np.ndarray:
            return (array * (1 + _AMPLIFIED * _UNIT * rng.choice((-1.0, 1.0), array.shape))).astype(np.float32)

        # Of normalised observations their distance from the mean, which a subtraction yields without rounding.
        centre = np.float32(0) if acting.normaliser is None else acting.normaliser.transformation[0]
        feeds = [
            {states: centre + perturbed(observations - centre)} | dict(zip(reads, map(perturbed, values), strict=True))
            for _ in range(TRIALS)
        ]
        self.outputs = acting.session.run(outputs, {states: observations})
        self._perturbed = [acting.session.run(outputs, feed) for feed in feeds]
        # A sum of n numbers with independent rounding errors is off by about √n units (Higham & Mary 2019).
        sums = max((value.size // value.shape[-1] for value in values if value.ndim > 1), default=1)
        self._factor = 2 * np.sqrt(sums) / _AMPLIFIED

    def bound(self, meaning: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return how much rounding can change each number of ``meaning(outputs)``: two standard deviations."""
        expected = meaning(self.outputs)
        squares = [np.square(meaning(outputs) - expected) for outputs in self._perturbed]
        return self._factor * np.sqrt(np.mean(squares, axis=0))


def _reads(output: tf.Tensor) -> list[tf.Tensor]:
    """Return the read values of all variables that a tensor depends on."""
    found: list[tf.Tensor] = []
    seen, waiting = set(), [output.op]
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type == "ReadVariableOp":
            found.append(op.outputs[0])
        else:
            waiting.extend(tensor.op for tensor in op.inputs)
    return found
