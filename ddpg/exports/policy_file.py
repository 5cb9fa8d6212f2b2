"""A policy as a directory of plain data, read and run without TensorFlow.

    policy.json         the network as a NumPy program, the spaces, tables of arrays, checksums
    policy.safetensors  the program's arrays, each named by its register
    act.py              acts with NumPy alone; :func:`read` does not look at it

Reading one executes nothing: a program is a list of names of :data:`ddpg.acting.standalone.OPERATIONS` and numbers of
registers, and it is held to the shapes of its arrays and spaces before it runs. The checksums tell damage, not forgery.
"""

import hashlib
import importlib.resources
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import gymnasium as gym
import msgspec
import numpy as np

from ddpg.acting import standalone
from ddpg.acting.program import NumpyProgram, Step
from ddpg.acting.standalone import OPERATIONS
from ddpg.errors import UsageError
from ddpg.experience.actions import actions_of
from ddpg.experience.spaces import check_observation_space
from ddpg.exports.place import ABOUT, ACT, MARK, made_by_us
from ddpg.exports.widths import result_width
from ddpg.storage import arrays as array_files
from ddpg.storage import document
from ddpg.storage.manifest import Array
from ddpg.storage.schema import converted, one_of
from ddpg.storage.spaces import check_space, describe_space, restore_space

FORMAT = 1
ARRAYS = "policy.safetensors"
_DIGEST = "policy_sha256"

_Register: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=10_000)]
_Sha256: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class _Step(msgspec.Struct, forbid_unknown_fields=True):
    operation: one_of(*OPERATIONS)  # type: ignore[valid-type]
    inputs: Annotated[list[_Register], msgspec.Meta(min_length=1, max_length=3)]
    output: _Register


class _Program(msgspec.Struct, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    result: _Register
    steps: Annotated[list[_Step], msgspec.Meta(min_length=1, max_length=10_000)]


class _Check(msgspec.Struct, forbid_unknown_fields=True):
    outputs: list[list[float]]
    tolerance: float


class _Policy(msgspec.Struct, forbid_unknown_fields=True):
    made_by: str
    format: Literal[1]
    kind: Literal["numpy"]
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    program: _Program
    check: _Check
    act_sha256: _Sha256
    arrays: dict[Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,4}\Z")], Array]
    arrays_sha256: _Sha256
    policy_sha256: _Sha256


def about(kind: str, observation_space: gym.Space, action_space: gym.Space) -> dict[str, Any]:
    """Return what every export says of itself."""
    return {
        "made_by": MARK,
        "format": FORMAT,
        "kind": kind,
        "observation_space": describe_space(observation_space),
        "action_space": describe_space(action_space),
    }


def write(
    folder: Path,
    program: NumpyProgram,
    observation_space: gym.Space,
    action_space: gym.Space,
    expected: np.ndarray,
    tolerance: float,
) -> None:
    """Write a policy of one input to a directory, which is made.

    Args:
        folder: where.
        program: the network; its observations are ``[B, *observation_space.shape]``.
        observation_space: of the environment.
        action_space: of the environment.
        expected: what the agent's network puts out for :func:`check_observations`, ``[CHECKS, n]``.
        tolerance: by how much rounding may change what :func:`ddpg.acting.standalone.compared` makes of it.

    Raises:
        UsageError: its arrays hold NaN or infinity.
    """
    arrays = {str(register): array for register, array in program.arrays().items()}
    array_files.check_finite("policy", arrays)
    steps = [step._asdict() for step in program.steps]
    act = importlib.resources.files(standalone.__package__).joinpath("standalone.py").read_bytes()
    folder.mkdir()
    (folder / ACT).write_bytes(act)
    whole = {
        **about("numpy", observation_space, action_space),
        "check": {"outputs": expected.tolist(), "tolerance": tolerance},
        "act_sha256": hashlib.sha256(act).hexdigest(),
        "program": {"size": program.size, "result": program.result, "steps": steps},
        "arrays": array_files.describe(arrays),
        "arrays_sha256": array_files.write(folder / ARRAYS, arrays),
    }
    whole[_DIGEST] = hashlib.sha256(document.canonical(whole)).hexdigest()
    (folder / ABOUT).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def check_observations(observation_space: gym.Space) -> np.ndarray:
    """Return the observations that ``act.py`` compares itself on, float32 ``[CHECKS, *shape]``."""
    return standalone.check_observations(describe_space(observation_space))


def compared(action_space: gym.Space, expected: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return what ``act.py`` compares of the network's outputs."""
    return standalone.compared(describe_space(action_space), expected)


def read(folder: Path) -> tuple[NumpyProgram, gym.spaces.Box, gym.Space]:
    """Return the program, the observation space and the action space of a directory of :func:`write`.

    Raises:
        UsageError: no such directory, damaged, or one that says what :func:`write` would not have written.
    """
    try:
        return _read(folder)
    except FileNotFoundError:
        raise UsageError(f"{str(folder)!r} is no policy: it lacks {ABOUT} or {ARRAYS}; see `ddpg export`") from None
    except UsageError as error:
        raise UsageError(str(error).replace(document.ADVICE, "export the policy again")) from None


def _read(folder: Path) -> tuple[NumpyProgram, gym.spaces.Box, gym.Space]:
    found = document.read(folder / ABOUT)
    where = str(folder / ABOUT)
    if not made_by_us(found):
        raise UsageError(f"{where} is not that of an exported policy; see `ddpg export`")
    if found.get("kind") != "numpy":
        raise UsageError(f"{folder} is a {found.get('kind')!r} export; load_policy reads those of --format numpy")
    if found.get("format") != FORMAT:
        raise UsageError(f"{where} has format {document.brief(found.get('format'))}, this version reads {FORMAT}")
    whole = converted(f"{where}:", found, _Policy)
    rest = {name: value for name, value in found.items() if name != _DIGEST}
    if hashlib.sha256(document.canonical(rest)).hexdigest() != whole.policy_sha256:
        raise UsageError(f"{where} does not match its own checksum: it was edited or damaged; {document.ADVICE}")
    check_space(f"{where}: observation_space", whole.observation_space)
    check_space(f"{where}: action_space", whole.action_space)
    loaded = array_files.read(folder / ARRAYS, whole.arrays, whole.arrays_sha256)
    spaces = [restore_space(space) for space in (whole.observation_space, whole.action_space)]
    return _program(where, whole.program, {int(name): array for name, array in loaded.items()}, *spaces)


def _program(
    where: str,
    described: _Program,
    arrays: dict[int, np.ndarray],
    observation_space: gym.Space,
    action_space: gym.Space,
) -> tuple[NumpyProgram, gym.spaces.Box, gym.Space]:
    steps = [Step(step.operation, tuple(step.inputs), step.output) for step in described.steps]
    registers = [described.result, *arrays, *(register for step in steps for register in (*step.inputs, step.output))]
    if max(registers) >= described.size:
        raise document.refusal(f"{where}: program.size", described.size, f"more than register {max(registers)}")
    if 0 in arrays:
        raise document.refusal(f"{where}: arrays", 0, "other registers: that one holds the observations")
    try:
        observation_space, expected = check_observation_space(observation_space), _numbers(action_space)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    # A lone number is a row of one: where a row is expected, as by a mean, it has that axis.
    arrays = {
        register: array.reshape(1, 1) if array.dtype.kind == "f" and not array.ndim else array
        for register, array in arrays.items()
    }
    width = result_width(steps, arrays, observation_space.shape, described.result)
    if width != expected:
        raise UsageError(f"{where}: its program puts out {width} numbers, its action space has {expected}")
    return NumpyProgram(steps, described.size, arrays, [], [0], described.result), observation_space, action_space


def _numbers(space: gym.Space) -> int:
    """Return how many numbers a network puts out for an action space."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    return actions_of(space).size
