"""Load and run forged exported policies: they must act within the action space or fail with a one-line message.

    python -m benchmarks.faults.policies [--trials 10000] [--seed 0]

Each trial changes one of four policies (a layer for a box, layer normalisation for parameterised actions, values of
discrete actions for matrices of observations, and a convolution of stacked frames): values of its description, steps
of its program, shapes, types and numbers of its arrays, or bytes of its array file. All checksums are adjusted. Then
the policy is loaded and computes actions. A trial has one of these outcomes:

- ``refused``: a ``UsageError`` with one line when it is loaded.
- ``refuses to act``: it loads, and a one-line error says why an observation has no action.
- ``acts``: every action is in the action space; a changed number within its range is just another policy.
- ``NAN``, ``RAW`` (another error, or several lines), ``MEMORY`` (over 200 MB), ``TIME`` (over 5 s): failures.
"""

import argparse
import collections
import copy
import hashlib
import json
import random
import resource
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import ddpg
from benchmarks.faults import common
from benchmarks.faults.damage import EVIL, MOST_MEMORY, MOST_TIME, damaged
from ddpg.checkpoints import arrays as array_files
from ddpg.checkpoints import safe_json
from ddpg.errors import UsageError
from ddpg.exports import policy_file
from ddpg.policies.numpy_program import NumpyProgram, ProgramStep
from ddpg.policies.standalone import OPERATIONS

ABOUT, ARRAYS = policy_file.ABOUT, policy_file.ARRAYS
BAD = ("NAN", "RAW", "MEMORY", "TIME")
NUMBERS = (0.0, -0.0, 1e-45, -1e-30, 1.0, -1.0, 1e10, 3e38, -3e38)


def sources(folder: Path) -> list[Path]:
    """Write the four policies and return their paths."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    one, two = np.array(1, np.int32), np.array([1], np.int32)
    small = np.array(1e-3, np.float32)
    box = gym.spaces.Box(np.array([-1, 0], np.float32), np.array([3, 5], np.float32))
    boxes = gym.spaces.Tuple((gym.spaces.Box(0, 30, (1,)), gym.spaces.Box(0, 1, (0,)), gym.spaces.Box(-2, 9, (2,))))
    moves = gym.spaces.Tuple((gym.spaces.Discrete(3), boxes))
    plain = [ProgramStep("MatMul", (0, 1), 3), ProgramStep("BiasAdd", (3, 2), 4), ProgramStep("Tanh", (4,), 5)]
    normed = [
        *(
            ProgramStep("MatMul", (0, 1), 4),
            ProgramStep("Mean", (4, 2), 5),
            ProgramStep("Sub", (4, 5), 6),
            ProgramStep("Square", (6,), 7),
        ),
        *(
            ProgramStep("Mean", (7, 2), 8),
            ProgramStep("AddV2", (8, 3), 9),
            ProgramStep("Rsqrt", (9,), 10),
            ProgramStep("Mul", (6, 10), 11),
        ),
        ProgramStep("Elu", (11,), 12),
    ]
    valued = [
        *(ProgramStep("Reshape", (0, 1), 5), ProgramStep("Neg", (5,), 6), ProgramStep("ConcatV2", (5, 6, 2), 7)),
        *(ProgramStep("MatMul", (7, 3), 8), ProgramStep("RealDiv", (8, 4), 9)),
    ]
    seen = [
        *(ProgramStep("Transpose", (0, 1), 8), ProgramStep("Conv2D", (8, 2, 3), 9), ProgramStep("BiasAdd", (9, 4), 10)),
        *(ProgramStep("Mean", (10, 5), 11), ProgramStep("Sub", (10, 11), 12), ProgramStep("Reshape", (12, 6), 13)),
        ProgramStep("MatMul", (13, 7), 14),
    ]
    flat, images = np.array([-1, 6], np.int32), np.array([0, 2, 3, 1], np.int32)
    convolved = {1: images, 2: weights(3, 2, 2, 4), 3: np.array([2, 1, 1], np.int32), 4: weights(4)}
    convolved |= {5: np.array([1, 2, 3], np.int32), 6: np.array([-1, 48], np.int32), 7: weights(48, 2)}
    made = {
        "plain": (plain, {1: weights(3, 2), 2: weights(2)}, 6, 5, gym.spaces.Box(-9, 9, (3,)), box),
        "normed": (normed, {1: weights(4, 6), 2: two, 3: small}, 13, 12, gym.spaces.Box(-9, 9, (4,)), moves),
        "valued": (
            *(valued, {1: flat, 2: one, 3: weights(12, 4), 4: 1 + weights(4) ** 2}, 10, 9),
            *(gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float64), gym.spaces.Discrete(4, start=-1)),
        ),
        "seen": (seen, convolved, 15, 14, gym.spaces.Box(0, 255, (2, 5, 4), np.uint8), box),
    }
    for name, (steps, arrays, size, result, observations, actions) in made.items():
        program = NumpyProgram(steps, size, arrays, [], [0], result)
        test = policy_file.SelfTest(np.zeros((8, *observations.shape)), np.zeros((8, 1)), 0.0)
        policy_file.write(folder / name, program, observations, actions, test)
    return [folder / name for name in made]


def write(folder: Path, about: dict[str, Any], data: bytes) -> None:
    """Write both files of a policy, with matching checksums where they can be computed."""
    about = {**about, "arrays_sha256": hashlib.sha256(data).hexdigest()}
    about.pop("policy_sha256", None)
    try:
        about["policy_sha256"] = hashlib.sha256(safe_json.canonical_json(about)).hexdigest()
    except (TypeError, ValueError):
        about["policy_sha256"] = "0" * 64
    (folder / ABOUT).write_text(json.dumps(about))
    (folder / ARRAYS).write_bytes(data)


def forged(source: Path, folder: Path, rng: random.Random) -> str:
    """Write a forged copy of a policy to a directory; return a description of the change."""
    about = json.loads((source / ABOUT).read_text())
    table = {name: policy_file.ArraySpec(**spec) for name, spec in about["arrays"].items()}
    arrays = array_files.read(source / ARRAYS, table, about["arrays_sha256"])
    kind = rng.choice(["value", "step", "step", "array", "array", "number", "number", "bytes"])
    if kind == "value":
        what = _other_value(about, rng)
    elif kind == "step":
        what = "; ".join(_other_step(about["program"], rng) for _ in range(rng.randint(1, 3)))
    else:
        what = kind
    if kind in ("array", "number"):
        name = rng.choice(sorted(arrays))
        change = _other_array if kind == "array" else _other_number
        arrays[name] = change(arrays[name], rng)
        what = f"{kind} {name}: {arrays[name].dtype} {arrays[name].shape}"
        about["arrays"] = array_files.describe(arrays)
    array_files.write(folder / ARRAYS, arrays)
    data = (folder / ARRAYS).read_bytes()
    write(folder, about, damaged(data, rng) if kind == "bytes" else data)
    return what


def _other_value(about: dict[str, Any], rng: random.Random) -> str:
    holder, places = about, []
    while True:
        key = rng.choice(sorted(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
        places.append(key)
        inner = holder[key]
        if not (isinstance(inner, (dict, list)) and inner) or rng.random() < 0.2:
            break
        holder = inner
    holder[key] = rng.choice([rng.randint(-2, 12), copy.deepcopy(rng.choice(EVIL))])
    return f"{'.'.join(map(str, places))} = {str(holder[key])[:40]}"


def _other_step(program: dict[str, Any], rng: random.Random) -> str:
    steps, size = program["steps"], program["size"]
    place = rng.randrange(len(steps))
    kind = rng.choice(["operation", "input", "inputs", "output", "remove", "repeat", "swap", "result", "insert"])
    if kind == "operation":
        steps[place]["operation"] = rng.choice(sorted(OPERATIONS))
    elif kind == "input":
        steps[place]["inputs"][rng.randrange(len(steps[place]["inputs"]))] = rng.randint(0, size)
    elif kind == "inputs":
        steps[place]["inputs"] = [rng.randint(0, size) for _ in range(rng.randint(1, 4))]
    elif kind == "output":
        steps[place]["output"] = rng.randint(0, size)
    elif kind == "remove" and len(steps) > 1:
        del steps[place]
    elif kind == "swap":
        other = rng.randrange(len(steps))
        steps[place], steps[other] = steps[other], steps[place]
    elif kind == "result":
        program["result"] = rng.randint(0, size)
    else:  # insert a step; kind "insert" also makes the last step read its output
        operation = rng.choice(sorted(OPERATIONS))
        inputs = [rng.randint(0, size - 1) for _ in range(rng.randint(1, 3))]
        steps.insert(place, {"operation": operation, "inputs": inputs, "output": size})
        steps[-1]["inputs"][0] = size if kind == "insert" else steps[-1]["inputs"][0]
        program["size"] += 1
    return f"{kind} of step {place}"


def _other_array(array: np.ndarray, rng: random.Random) -> np.ndarray:
    shape = [*array.shape]
    kind = rng.choice(["dtype", "axis", "longer", "scalar", "empty", "transposed"])
    if kind == "dtype":
        return np.nan_to_num(array).astype(rng.choice(["float32", "float64", "uint8", "int32", "int64"]))
    if kind == "axis":
        return array.reshape([1, *shape] if rng.random() < 0.5 else [*shape, 1])
    if kind == "scalar":
        return array.reshape(-1)[:1].reshape([])
    if kind == "empty":
        return np.zeros([0] if not shape else [*shape[:-1], 0], array.dtype)
    if kind == "longer" and shape:
        return np.concatenate([array, array], axis=rng.randrange(len(shape)))
    return np.ascontiguousarray(array.T)


def _other_number(array: np.ndarray, rng: random.Random) -> np.ndarray:
    other = np.array(array)
    flat = other.reshape(-1)
    for _ in range(rng.choice([1, 3, flat.size])):
        value = rng.choice(NUMBERS if array.dtype.kind == "f" else (-(2**31), -2, -1, 0, 2, 2**31 - 1))
        flat[rng.randrange(flat.size)] = value
    return other


def outcome(folder: Path) -> tuple[str, str]:
    """Load a policy and compute actions; return the outcome and the message."""
    begin = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ended, message = _acted(folder)
    except UsageError as error:
        ended, message = ("refused", str(error)) if "\n" not in str(error) else ("RAW", str(error))
    except Exception as error:
        ended, message = "RAW", f"{type(error).__name__}: {error}"
    if time.perf_counter() - begin > MOST_TIME:
        return "TIME", message
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory > MOST_MEMORY:
        return "MEMORY", message
    return ended, message


def _acted(folder: Path) -> tuple[str, str]:
    policy = ddpg.load_policy(folder)
    shape = policy.observation_space.shape
    draw = np.random.default_rng(0)
    ended = "acts", ""
    with np.errstate(all="ignore"):
        tried = [np.zeros((2, *shape)), draw.normal(size=(2, *shape)), np.full((1, *shape), 1e30)]
        tried.append(np.where(draw.random((2, *shape)) < 0.5, 3e38, -3e38))
    for observations in tried:
        try:
            actions = policy.predict(observations)[0]
        except UsageError as error:
            ended = ("refuses to act", str(error)) if "\n" not in str(error) else ("RAW", str(error))
            continue
        if not all(map(_in_space(policy.action_space), _each(actions, len(observations)))):
            return "NAN", str(actions)
    return ended


def _each(actions: Any, count: int) -> list[Any]:
    if isinstance(actions, tuple):
        choices, parameters = actions
        return [(choices[row], tuple(part[row] for part in parameters)) for row in range(count)]
    return [*actions]


def _in_space(space: gym.Space) -> Callable[[Any], bool]:
    return lambda action: bool(space.contains(action))


def main() -> None:
    """Run the trials and count their outcomes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, ended = random.Random(options.seed), collections.Counter[str]()
    with tempfile.TemporaryDirectory() as root:
        policies = sources(Path(root))
        folder = Path(root) / "forged"
        folder.mkdir()
        for trial in range(options.trials):
            source = rng.choice(policies)
            what = forged(source, folder, rng)
            how, message = outcome(folder)
            ended[how] += 1
            if how in BAD:
                print(f"trial {trial}, {source.name}, {what}: {how} {message}", flush=True)
    common.report("policies", [dict(sorted(ended.items()))], trials=options.trials, seed=options.seed)
    raise SystemExit(any(ended[bad] for bad in BAD))


if __name__ == "__main__":
    main()
