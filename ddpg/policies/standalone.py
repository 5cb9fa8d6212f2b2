"""Run a trained policy with NumPy alone: copy this directory to the robot; no other package is needed.

    from act import load

    policy = load()               # the policy in this file's directory; load(path) for another directory
    action = policy(observation)  # one observation or a batch; observations and actions are in the environment's units

``python act.py`` compares the policy's outputs with those of the agent at export. The other files in this directory are
data (JSON and safetensors), and their checksums are verified. The source is ``ddpg/policies/standalone.py``.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CHECKS = 8  # number of observations on which policies are compared
_DTYPES = {"F32": np.float32, "F64": np.float64, "U8": np.uint8, "I32": np.int32, "I64": np.int64}


# np.where computes both branches, so the argument of each exponential is bounded to avoid overflow.
def _selu(x):
    negative = np.float32(1.6732632423543772) * np.expm1(np.minimum(x, 0))
    return np.float32(1.0507009873554805) * np.where(x > 0, x, negative)


def _sigmoid(x):
    decay = np.exp(-np.abs(x))
    return np.where(x >= 0, np.float32(1), decay) / (1 + decay)


def positions(sizes, reach, how):
    """Return, down and across, the zeros before and after an image and the number of positions of a filter in it.

    ``sizes`` and ``reach`` are heights and widths; ``how`` is the stride down, the stride across, and 1 if zeros
    surround the images (TensorFlow's SAME) or 0 (VALID).
    """
    found = []
    for axis in range(2):
        size, length, stride = sizes[axis], reach[axis], how[axis]
        missing = max((-(-size // stride) - 1) * stride + length - size, 0) if how[2] else 0
        found.append((missing // 2, missing - missing // 2, (size + missing - length) // stride + 1))
    return found


def convolution(images, filters, how, product=np.matmul):
    """Return the convolution ``[B, y, x, n]`` of images ``[B, height, width, c]`` with filters ``[h, w, c, n]``.

    One row of the filters at a time: the patches that all their rows see would take h times the memory.
    """
    (tall, wide, channels, number), (down, across, same) = filters.shape, map(int, how)
    (above, below, high), (left, right, broad) = positions(images.shape[1:3], (tall, wide), (down, across, same))
    images = np.pad(images, [(0, 0), (above, below), (left, right), (0, 0)], mode="constant")
    images = np.ascontiguousarray(images)  # then the numbers that a row of a filter sees are beside each other
    total: Any = 0
    for row in range(tall):
        seen = images[:, row : row + (high - 1) * down + 1 : down]
        shape, apart = (len(images), high, broad, wide * channels), (*seen.strides[:2], across * seen.strides[2])
        patches = np.lib.stride_tricks.as_strided(seen, shape, (*apart, seen.strides[3]), writeable=False)
        total = total + product(patches.reshape(-1, wide * channels), filters[row].reshape(-1, number))
    return total.reshape(len(images), high, broad, number)


def _each(function):
    """Return a function of arrays that calls one of the standard library on each number."""
    return lambda x: np.fromiter(map(function, np.ravel(x).tolist()), x.dtype, x.size).reshape(x.shape)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "MatMul": np.matmul,
    "BiasAdd": np.add,
    "AddV2": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "RealDiv": np.divide,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Neg": np.negative,
    "Square": np.square,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Tanh": np.tanh,
    "Erf": _each(math.erf),
    "Erfc": _each(math.erfc),
    "Sigmoid": _sigmoid,
    "Softplus": lambda x: np.logaddexp(x, np.float32(0)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "Selu": _selu,
    "Conv2D": convolution,
    "Reshape": lambda x, shape: np.reshape(x, shape),
    "Transpose": lambda x, order: np.transpose(x, order),
    "ConcatV2": lambda x, y, axis: np.concatenate((x, y), axis=int(axis)),
    "Mean": lambda x, axis: np.mean(x, axis=tuple(np.atleast_1d(axis)), keepdims=True),
}


class Policy:
    """Maps observations to actions, from the contents of ``policy.json`` and the weights by register."""

    def __init__(self, about: dict[str, Any], arrays: dict[int, np.ndarray]):
        program = about["program"]
        self.about = about
        self._shape = tuple(about["observation_space"]["shape"])
        self._registers: list[Any] = [arrays.get(register) for register in range(program["size"])]
        self._steps = [(step["operation"], step["inputs"], step["output"]) for step in program["steps"]]
        self._result = program["result"]
        known = {0, *arrays}  # register 0 holds the observations
        for operation, inputs, output in self._steps:
            if operation not in OPERATIONS or not known.issuperset(inputs) or output in known:
                raise ValueError(f"policy.json: {operation!r} of registers {inputs} to {output} is no step of a policy")
            known.add(output)

    def outputs(self, observations: np.ndarray) -> np.ndarray:
        """Return the network's outputs, ``[B, n]``, for float32 observations ``[B, *shape]``."""
        registers = [observations, *self._registers[1:]]
        for operation, inputs, output in self._steps:
            registers[output] = OPERATIONS[operation](*[registers[register] for register in inputs])
        return registers[self._result]

    def __call__(self, observation: Any) -> Any:
        """Return the action for one observation, or the actions for a batch of them.

        Raises:
            ValueError: if the observation is not made of real numbers, has another shape, holds NaN, infinity or an
                integer beyond ±2^24, ends in no mask though it should, or is so large that the layers overflow.
        """
        given = np.asarray(observation)
        if given.dtype.kind not in "buif" or np.ma.is_masked(observation):
            kind = "masked numbers" if np.ma.is_masked(observation) else given.dtype
            raise ValueError(f"the observation holds {kind}, expected real numbers")
        if given.dtype.kind in "iu" and (np.abs(given.astype(np.float64)) > 2**24).any():
            raise ValueError("the observation holds an integer beyond 2**24, which float32 rounds: scale it")
        array = given.astype(np.float32)
        size = int(np.prod(self._shape))
        single = array.shape in (self._shape, (size,))
        if not single and array.shape[1:] not in (self._shape, (size,)):
            raise ValueError(f"the observation has shape {array.shape}, expected {self._shape}, or a batch of such")
        if not np.isfinite(array).all():
            raise ValueError("the observation holds NaN or infinity")
        mask = self.about.get("check", {}).get("mask", 0)
        if mask and not np.isin(array[..., -mask:], (0, 1)).all():
            raise ValueError(f"the last {mask} numbers of the observation are its action mask, expected zeros and ones")
        outputs = self.outputs(array.reshape(-1, *self._shape))
        if not np.isfinite(outputs).all():
            raise ValueError("the policy puts out NaN or infinity: its layers overflow with so large an observation")
        actions = _to_env(self.about["action_space"], outputs)
        return first(actions) if single else actions

    def check(self) -> tuple[float, float]:
        """Return the largest difference between these outputs and the agent's, and the tolerance for rounding."""
        stored = self.about["check"]
        expected = np.array(stored["outputs"])
        moments = statistics(self._steps, self._registers) if stored.get("normalised") else None
        found = self.outputs(check_observations(self.about["observation_space"], stored.get("mask", 0), moments))
        meant = compared(self.about["action_space"], expected)
        return float(np.abs(meant(found) - meant(expected)).max()), float(stored["tolerance"])


def first(actions: Any) -> Any:
    """Return the first environment's action of a batch."""
    return tuple(map(first, actions)) if isinstance(actions, tuple) else actions[0]


def compared(space: dict[str, Any], expected: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that scales outputs before they are compared.

    Actions are clipped to [-1, 1]; allowed values are divided by the largest of them, forbidden ones by themselves.
    """
    if space["type"] != "Discrete":
        return lambda outputs: np.clip(outputs.astype(np.float64), -1, 1)
    allowed = expected > -5e8  # actions that a mask forbids have the value -1e9
    scale = np.where(allowed, np.abs(expected).max(initial=1.0, where=allowed), -expected)
    return lambda outputs: outputs.astype(np.float64) / scale


def statistics(steps: Sequence[Any], registers: Sequence[Any]) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the mean and factor of a program that begins with ``(observations - mean) * factor``, each ``[1, n]``."""
    first = [step for step in steps if step[0] != "Reshape"][:2]
    if [step[0] for step in first] != ["Sub", "Mul"] or first[1][1][0] != first[0][2]:
        return None
    mean, factor = (registers[step[1][1]] for step in first)
    return (mean, factor) if mean is not None and factor is not None and (factor > 0).all() else None


def check_observations(space: dict[str, Any], mask: int = 0, moments: Any = None) -> np.ndarray:
    """Return the observations on which policies are compared: sines; masks allow half.

    They are scaled to the mean and deviation where ``moments`` holds the mean and 1 / deviation, else to finite bounds.
    """
    shape, (low, high), whole = space["shape"], _bounds(space), "float" not in space["dtype"]
    waves = np.sin(np.arange(1, CHECKS + 1)[:, None] + 0.7 * np.arange(int(np.prod(shape))))
    finite = (low > -1e6) & (high < 1e6)
    # An integer is rounded down, so that each has an equal part of the range: the largest one ends at high + 1.
    between = np.where(finite, low, 0) + np.where(finite, high - low + whole, 0) * (waves + 1) / 2
    drawn = np.where(finite, between, np.clip(np.rint(waves) if whole else waves, low, high))
    if moments is not None:
        around = moments[0] + waves / moments[1]
        drawn = np.clip(np.rint(around) if whole else around, low, high)
    if mask:  # the last numbers are the action mask
        drawn[:, -mask:] = (np.arange(mask) - np.arange(CHECKS)[:, None]) % mask <= (mask - 1) // 2
    return (np.minimum(np.floor(drawn), high) if whole else drawn).reshape(-1, *shape).astype(np.float32)


def _bounds(space: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of a box, each ``[n]`` or ``[1]``."""
    low = [-np.inf if bound is None else bound for bound in np.ravel(space["low"])]
    high = [np.inf if bound is None else bound for bound in np.ravel(space["high"])]
    return np.array(low, np.float64), np.array(high, np.float64)


def _to_env(space: dict[str, Any], outputs: np.ndarray) -> Any:
    """Return the actions ``[B, ...]`` in a space for a network's outputs ``[B, n]``."""
    if space["type"] == "Discrete":
        return (outputs.argmax(axis=1) + space["start"]).astype(space.get("dtype", "int64"))
    if space["type"] == "Box":
        low, high = _bounds(space)
        scaled = np.minimum(np.maximum((high - low) / 2 * outputs + (high + low) / 2, low), high)
        return scaled.astype(space["dtype"]).reshape(len(outputs), *space["shape"])
    one_of = space["type"] == "OneOf"
    boxes = space["spaces"] if one_of else space["spaces"][1]["spaces"]
    choices = np.clip(outputs[:, : len(boxes)], -1, 1).argmax(axis=1)
    ends = len(boxes) + np.cumsum([0, *(int(np.prod(box["shape"])) for box in boxes)])
    parts = [_to_env(box, outputs[:, ends[index] : ends[index + 1]]) for index, box in enumerate(boxes)]
    if one_of:
        return [(choice, parts[choice][row]) for row, choice in enumerate(choices)]
    return choices + space["spaces"][0]["start"], tuple(parts)


def load(folder: str | Path | None = None) -> Policy:
    """Return the policy in ``folder``, by default in the directory of this file.

    Raises:
        OSError: if a file is missing.
        ValueError: if a file is damaged, or does not belong to a policy.
    """
    folder = Path(__file__).parent if folder is None else Path(folder)
    try:
        about = json.loads((folder / "policy.json").read_bytes())
        rest = {name: value for name, value in about.items() if name != "policy_sha256"}
    except (ValueError, AttributeError):  # no JSON, or JSON of something else
        raise ValueError(f"{folder / 'policy.json'} is damaged: export the policy again") from None
    data = (folder / "policy.safetensors").read_bytes()
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    if hashlib.sha256(canonical).hexdigest() != about.get("policy_sha256"):
        raise ValueError(f"{folder / 'policy.json'} does not match its checksum: export the policy again")
    if hashlib.sha256(data).hexdigest() != about["arrays_sha256"]:
        raise ValueError(f"{folder / 'policy.safetensors'} does not match its checksum: export the policy again")
    begin = 8 + int.from_bytes(data[:8], "little")
    arrays = {}
    for name, entry in json.loads(data[8:begin]).items():
        start, end = entry["data_offsets"]
        dtype = np.dtype(_DTYPES[entry["dtype"]]).newbyteorder("<")
        array = np.frombuffer(data[begin + start : begin + end], dtype).reshape(entry["shape"])
        if list(array.shape) != about["arrays"][name]["shape"] or not np.isfinite(array).all():
            raise ValueError(f"{folder / 'policy.safetensors'}: array {name} is not what policy.json says of it")
        arrays[int(name)] = array.astype(_DTYPES[entry["dtype"]])
    return Policy(about, arrays)


if __name__ == "__main__":
    try:
        difference, tolerance = load(*sys.argv[1:2]).check()
    except (OSError, ValueError) as error:
        sys.exit(str(error))
    print(f"differs from the agent by {difference:.2g} at most; rounding alone may cause {tolerance:.2g}")
    sys.exit(difference > tolerance)
