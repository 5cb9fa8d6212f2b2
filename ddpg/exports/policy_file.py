"""Write and read the directory of an exported NumPy policy: plain data, checked when it is read.

    policy.json         the network as a NumPy program, the spaces, dtype and shape of every array, checksums
    policy.safetensors  the program's arrays, each named by its register
    act.py              a script that acts with NumPy alone; :func:`read` ignores it

Reading executes no code: a program is a list of operations by name (:data:`ddpg.policies.standalone.OPERATIONS`) on
numbered registers. The checksums reveal damage, not forgery, and a few forged bytes could concatenate a register with
itself until it fills the memory. So :func:`register_shapes` infers the shape of every step before a program runs.
"""

import hashlib
import importlib.resources
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import gymnasium as gym
import msgspec
import numpy as np

from ddpg.checkpoints import arrays as array_files
from ddpg.checkpoints import safe_json
from ddpg.checkpoints.manifest import ArraySpec, Sha256
from ddpg.checkpoints.safe_json import convert, one_of
from ddpg.checkpoints.space_json import describe_space, restore_space
from ddpg.errors import FileFault, UsageError, brief, located
from ddpg.exports.export_dir import ABOUT, ACT, MARK, is_export
from ddpg.interaction.action_mask import MaskedBox, check_masked_space
from ddpg.interaction.actions import Actions, DiscreteActions, make_actions
from ddpg.interaction.spaces import check_discrete_space, check_observation_space
from ddpg.policies import standalone
from ddpg.policies.numpy_program import NumpyProgram, ProgramStep
from ddpg.policies.standalone import OPERATIONS

FORMAT = 1
ARRAYS = "policy.safetensors"
_DIGEST = "policy_sha256"

LARGEST = 1 << 20  # numbers of one observation in one register
MOST = 1 << 23  # numbers of one observation in all registers together, which are kept to the end of a call
DEEPEST = 8  # axes of an observation in a register
_UNARY = {"Neg", "Square", "Sqrt", "Rsqrt", "Tanh", "Erf", "Erfc", "Sigmoid", "Softplus", "Softsign", "Elu", "Selu"}
_BINARY = {"BiasAdd", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum"}

_Shape: TypeAlias = tuple[int, ...]
_Register: TypeAlias = Annotated[int, msgspec.Meta(ge=0, lt=10_000)]


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
    mask: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 0
    normalised: bool = False  # whether the observations lie where the policy's statistics do


class _Policy(msgspec.Struct, forbid_unknown_fields=True):
    made_by: str
    format: Literal[1]
    kind: Literal["numpy"]
    observation_space: dict[str, Any]
    action_space: dict[str, Any]
    program: _Program
    arrays: dict[Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,4}\Z")], ArraySpec]
    arrays_sha256: Sha256
    policy_sha256: Sha256
    # Only act.py reads these two; exports older than act.py lack them.
    check: _Check | None = None
    act_sha256: Sha256 | None = None


class InvalidProgram(UsageError):
    """A program does not map each observation by itself to a row of outputs; ``problem`` says which step."""

    def __init__(self, problem: str):
        self.problem = problem
        super().__init__(f"the policy's program is invalid: {self.problem}; export the policy again")


class SelfTest(NamedTuple):
    """What ``act.py``, or the C code, compares itself with.

    Attributes:
        observations: from :func:`check_observations`, ``[CHECKS, *shape]`` float32.
        outputs: those of the agent's network for them, ``[CHECKS, n]``.
        tolerance: how much rounding may change the values that :func:`ddpg.policies.standalone.compared` computes.
        mask: how many of an observation's last numbers are its action mask.
        normalised: whether :func:`check_observations` was given the policy's statistics.
    """

    observations: np.ndarray
    outputs: np.ndarray
    tolerance: float
    mask: int = 0
    normalised: bool = False


def export_metadata(kind: str, observation_space: gym.Space, action_space: gym.Space) -> dict[str, Any]:
    """Return the metadata that every export carries, in any format."""
    return {
        "made_by": MARK,
        "format": FORMAT,
        "kind": kind,
        "observation_space": describe_space(observation_space),
        "action_space": describe_space(action_space),
    }


def write(
    folder: Path, program: NumpyProgram, observation_space: gym.Space, action_space: gym.Space, test: SelfTest
) -> None:
    """Write a policy to a new directory.

    Args:
        folder: the directory, which must not exist.
        program: the network; its input is ``[B, *observation_space.shape]``.
        observation_space, action_space: of the environment.
        test: what ``act.py`` compares itself with; it makes the observations itself.

    Raises:
        UsageError: if an array holds NaN or infinity, or the description is too long.
    """
    arrays = {str(register): array for register, array in program.arrays().items()}
    array_files.check_finite("policy", arrays)
    steps = [step._asdict() for step in program.steps]
    drawn = {name: value for name in ("mask", "normalised") if (value := getattr(test, name))}
    act = importlib.resources.files(standalone.__package__).joinpath("standalone.py").read_bytes()
    folder.mkdir()
    (folder / ACT).write_bytes(act)
    whole = {
        **export_metadata("numpy", observation_space, action_space),
        "check": {"outputs": test.outputs.tolist(), "tolerance": test.tolerance, **drawn},
        "act_sha256": hashlib.sha256(act).hexdigest(),
        "program": {"size": program.size, "result": program.result, "steps": steps},
        "arrays": array_files.describe(arrays),
        "arrays_sha256": array_files.write(folder / ARRAYS, arrays),
    }
    whole[_DIGEST] = safe_json.document_sha256(whole, _DIGEST)
    write_about(folder, whole)


def write_about(folder: Path, whole: Mapping[str, Any]) -> None:
    """Write :data:`ABOUT` to the directory of an export.

    Raises:
        UsageError: if it is longer than the longest file that :func:`read` accepts.
    """
    text = (json.dumps(whole, indent=1) + "\n").encode()
    if len(text) > safe_json.LARGEST:
        raise UsageError(
            f"format={whole['kind']!r} describes a policy in at most {safe_json.LARGEST} bytes, and this one, with its "
            f"spaces and test data, has {len(text)}; use format='savedmodel'"
        )
    (folder / ABOUT).write_bytes(text)


def check_observations(
    observation_space: gym.Space, mask: int = 0, moments: tuple[np.ndarray, np.ndarray] | None = None
) -> np.ndarray:
    """Return the observations with which exports test themselves, ``[CHECKS, *shape]``.

    ``moments`` are the mean of the observations and 1 / deviation, each ``[1, n]``, if the policy normalises them.
    """
    return standalone.check_observations(describe_space(observation_space), mask, moments)


def compared(action_space: gym.Space, expected: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function of the network's outputs whose values ``act.py`` compares with the expected ones."""
    return standalone.compared(describe_space(action_space), expected)


def read(folder: Path) -> tuple[NumpyProgram, gym.spaces.Box, gym.Space]:
    """Read an export of :func:`write`: the program, the observation space and the action space.

    Observations that end in an action mask have a :class:`~ddpg.interaction.action_mask.MaskedBox`.

    Raises:
        FileFault: if a file is damaged.
        UsageError: if there is no such directory, or the program does not fit its arrays and spaces.
    """
    try:
        with safe_json.advising("export the policy again"):
            return _read(folder)
    except FileNotFoundError:
        raise UsageError(
            f"{str(folder)!r} is no exported policy: expected the directory that `ddpg export` wrote in format numpy, "
            f"and it {_instead(folder)}"
        ) from None


def _instead(folder: Path) -> str:
    """Return what is there in place of an exported policy, for a message that begins with "it"."""
    if (folder / "checkpoints").is_dir() or (folder / "manifest.json").is_file():
        where = brief(str(folder))
        return f"has checkpoints: load it with DDPG.load({where}) or DQN.load({where}), or export it with that command"
    if folder.is_file():
        return "is a file, such as ONNX's or TFLite's, which their own packages load"
    if not folder.exists():
        return "does not exist; a policy of the zoo is 'zoo:NAME'"
    return f"lacks {ABOUT} or {ARRAYS}"


def _read(folder: Path) -> tuple[NumpyProgram, gym.spaces.Box, gym.Space]:
    found = safe_json.read_json(folder / ABOUT)
    where = str(folder / ABOUT)
    if not is_export(found):
        raise UsageError(f"{where} does not describe an exported policy; see `ddpg export`")
    if found.get("kind") != "numpy":
        raise UsageError(f"{folder} is a {found.get('kind')!r} export; load_policy reads those of --format numpy")
    if found.get("format") != FORMAT:
        raise UsageError(f"{where} has format {safe_json.short_repr(found.get('format'))}, this version reads {FORMAT}")
    whole = convert(f"{where}:", found, _Policy)
    if safe_json.document_sha256(found, _DIGEST) != whole.policy_sha256:
        raise FileFault(f"{where} does not match its own checksum: it was edited or damaged; export the policy again")
    observation_space = restore_space(whole.observation_space, f"{where}: observation_space")
    action_space = restore_space(whole.action_space, f"{where}: action_space")
    with located(where):
        box, actions = check_observation_space(observation_space), actions_of(action_space)
    loaded = array_files.read(folder / ARRAYS, whole.arrays, whole.arrays_sha256)
    program = _program(where, whole.program, {int(name): array for name, array in loaded.items()}, box, actions)
    if whole.check is not None and whole.check.mask:
        check_masked_space(box, check_discrete_space(action_space))
        box = MaskedBox(box.low, box.high, dtype=box.low.dtype)
    return program, box, action_space


def _program(
    where: str, described: _Program, arrays: dict[int, np.ndarray], box: gym.spaces.Box, actions: Actions
) -> NumpyProgram:
    """Return a stored program, after a check that it maps observations of ``box`` to outputs for ``actions``."""
    steps = [ProgramStep(step.operation, tuple(step.inputs), step.output) for step in described.steps]
    registers = [described.result, *arrays, *(register for step in steps for register in (*step.inputs, step.output))]
    if max(registers) >= described.size:
        raise safe_json.refusal(f"{where}: program.size", described.size, f"more than register {max(registers)}")
    if 0 in arrays:
        raise safe_json.refusal(f"{where}: arrays", 0, "no array for register 0, which holds the observations")
    # A scalar becomes a row of one number, so that operations on rows, such as a mean, find their axis.
    arrays = {
        register: array.reshape(1, 1) if array.dtype.kind == "f" and not array.ndim else array
        for register, array in arrays.items()
    }
    width = result_width(steps, arrays, box.shape, described.result)
    expected = int(actions.space.n) if isinstance(actions.space, gym.spaces.Discrete) else actions.size
    if width != expected:
        raise UsageError(f"{where}: its program outputs {width} numbers, its action space needs {expected}")
    return NumpyProgram(steps, described.size, arrays, [], [0], described.result)


def actions_of(space: gym.Space) -> Actions:
    """Return the translation for the action space of any agent: DDPG's, or DQN's ``Discrete``.

    Raises:
        UsageError: if no agent can act in the space.
    """
    return DiscreteActions(space) if isinstance(space, gym.spaces.Discrete) else make_actions(space)


def result_width(
    steps: Sequence[ProgramStep], arrays: Mapping[int, np.ndarray], observation_shape: tuple[int, ...], result: int
) -> int:
    """Return the width of a program's output ``[B, width]``.

    Raises:
        InvalidProgram: as :func:`register_shapes`, or if the result is no row that depends on the observations.
    """
    shapes = register_shapes(steps, arrays, observation_shape)
    if result not in shapes or result in arrays:
        raise InvalidProgram(f"the result is register {result}, which no step sets")
    dependent = {0}
    for step in steps:
        if dependent & set(step.inputs):
            dependent.add(step.output)
    if result not in dependent:
        raise InvalidProgram(f"the result is register {result}, which does not depend on the observations")
    if len(shapes[result]) != 1:
        raise InvalidProgram(f"the result has shape {shapes[result]} for each observation, expected a row")
    return shapes[result][0]


def register_shapes(
    steps: Sequence[ProgramStep], arrays: Mapping[int, np.ndarray], observation_shape: tuple[int, ...]
) -> dict[int, _Shape]:
    """Infer the shape of one observation in every register of a program.

    Register 0 holds the observations ``[B, *observation_shape]``, any other ``[B, *shape]`` or ``[1, *shape]``.

    Raises:
        InvalidProgram: if a register is read before it is set or is set twice, shapes do not fit, observations are not
            computed each by itself, or a register has more than ``LARGEST`` numbers of one, or all together more than
            ``MOST``.
    """
    for register, array in arrays.items():
        if not array.size:
            raise InvalidProgram(f"the array of register {register} has shape {array.shape}, without a number")
    shapes = {register: np.atleast_2d(array).shape[1:] for register, array in arrays.items()}
    shapes[0] = tuple(observation_shape)
    total = 0
    for number, step in enumerate(steps):
        try:
            if step.output in shapes:
                raise InvalidProgram(f"sets register {step.output} again")
            if unset := [register for register in step.inputs if register not in shapes]:
                raise InvalidProgram(f"reads register {unset[0]}, which is not set")
            shapes[step.output] = _step_shape(step, arrays, shapes)
            size = math.prod(shapes[step.output])
            if not 1 <= size <= LARGEST:
                raise InvalidProgram(f"makes rows of {size} numbers, expected 1 to {LARGEST}")
            total += size
            if total > MOST:
                raise InvalidProgram(f"brings a row of all registers to {total} numbers, expected at most {MOST}")
        except InvalidProgram as error:
            raise InvalidProgram(f"step {number}, {step.operation} {error.problem}") from None
    return shapes


def _step_shape(step: ProgramStep, arrays: Mapping[int, np.ndarray], shapes: Mapping[int, _Shape]) -> _Shape:
    """Return the shape of one observation in the register that a step sets; check its inputs."""
    registers = list(step.inputs)
    expected = 1 if step.operation in _UNARY else 3 if step.operation in ("ConcatV2", "Conv2D") else 2
    if len(registers) != expected:
        raise InvalidProgram(f"has {len(registers)} inputs, expected {expected}")
    given, fixed = [shapes[register] for register in registers], [arrays.get(register) for register in registers]
    if step.operation in _UNARY | _BINARY:
        _check_rows(fixed)
        return _broadcast_shape(given, fixed)
    _check_rows(fixed[:1])
    if step.operation == "MatMul":
        matrix, (*outer, width) = fixed[1], given[0]
        if outer or matrix is None or matrix.dtype.kind != "f" or matrix.ndim != 2 or len(matrix) != width:
            raise InvalidProgram(f"needs a constant matrix of {width} rows, and multiplies shape {given[0]}")
        return (matrix.shape[1],)
    if step.operation == "Conv2D":
        return _convolved_shape(given[0], fixed[1], _integers(fixed[2]))
    if step.operation == "ConcatV2":
        _check_rows(fixed[1:2])
        if _integers(fixed[2]) not in (1, -1) or [len(shape) for shape in given[:2]] != [1, 1]:
            raise InvalidProgram("must concatenate rows, along axis 1")
        return (given[0][0] + given[1][0],)
    numbers, axes = _integers(fixed[1]), len(given[0]) + 1
    listed = numbers if isinstance(numbers, list) else [numbers]
    if step.operation == "Reshape":
        sizes = listed[1:]
        whole = all(isinstance(size, int) and size > 0 for size in sizes) and math.prod(sizes) == math.prod(given[0])
        if listed[0] != -1 or not whole or not 1 <= len(sizes) <= DEEPEST:
            raise InvalidProgram(f"must keep the {math.prod(given[0])} numbers of each observation together")
        return tuple(sizes)
    if step.operation == "Transpose":
        if axes > 2 and listed[0] == 0 and sorted(listed) == [*range(axes)]:
            return tuple(given[0][axis - 1] for axis in listed[1:])
        raise InvalidProgram("would make rows of columns")
    assert step.operation == "Mean", step.operation
    if sorted(axis + axes * (axis < 0) if isinstance(axis, int) else -1 for axis in listed) != [*range(1, axes)]:
        raise InvalidProgram("must take the mean over all numbers of an observation, from axis 1 to the last")
    return (1,) * len(given[0])


def _broadcast_shape(given: Sequence[_Shape], fixed: Sequence[np.ndarray | None]) -> _Shape:
    """Return the shape of an operation on each number: one number, or a constant for the last axes, is repeated."""
    largest = max(given, key=lambda shape: (len(shape), math.prod(shape)))
    for shape, array in zip(given, fixed, strict=True):
        own = list(shape)
        while array is not None and own[:1] == [1]:
            del own[0]
        repeated = len(own) == len(largest) and math.prod(own) == 1 if array is None else own == [*largest][-len(own) :]
        if own and shape != largest and not repeated:
            raise InvalidProgram(f"combines numbers of shapes {given[0]} and {given[-1]}")
    return largest


def _convolved_shape(images: _Shape, filters: np.ndarray | None, how: Any) -> _Shape:
    floats = filters is not None and filters.dtype.kind == "f" and filters.ndim == 4
    if filters is None or not floats or len(images) != 3 or images[2] != filters.shape[2]:
        raise InvalidProgram(f"needs images (height, width, channels) and filters for them, and sees {images}")
    strides = how[:2] if isinstance(how, list) and len(how) == 3 and how[2] in (0, 1) else [0]
    if not all(isinstance(stride, int) and 1 <= stride <= LARGEST for stride in strides):
        raise InvalidProgram("needs two strides of at least 1, and 1 for zeros around images or else 0")
    (above, below, high), (left, right, broad) = standalone.positions(images[:2], filters.shape, how)
    if min(high, broad) < 1:
        raise InvalidProgram(f"has filters of {filters.shape[:2]}, larger than its images")
    padded = (images[0] + above + below) * (images[1] + left + right) * images[2]
    needed = max(padded, high * broad * filters.shape[1] * filters.shape[2])
    if needed > MOST:
        raise InvalidProgram(f"needs {needed} numbers at a time, expected at most {MOST}")
    return high, broad, filters.shape[3]


def _integers(array: np.ndarray | None) -> Any:
    """Return a constant of integers as a number or lists, such as an axis or a shape; ``None`` for anything else."""
    return None if array is None or array.dtype.kind not in "iu" else array.tolist()


def _check_rows(arrays: Sequence[np.ndarray | None]) -> None:
    """Refuse a constant of several rows: it would not broadcast against a batch, or would multiply its rows."""
    for array in arrays:
        if array is not None and (array.dtype.kind != "f" or (array.ndim > 1 and len(array) != 1)):
            what = f"uses an array of shape {array.shape} and dtype {array.dtype}, expected one row"
            raise InvalidProgram(what)
