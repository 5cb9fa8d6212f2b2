"""Policy files forged with matching checksums are refused in one line, or act within their action space."""

import random

import gymnasium as gym
import numpy as np
import pytest
from refusals import refuses

import ddpg
from benchmarks.faults import policies
from ddpg import UsageError
from ddpg.errors import FileFault
from ddpg.exports import export_dir, policy_file
from ddpg.exports.policy_file import SelfTest
from ddpg.policies.numpy_program import NumpyProgram, ProgramStep

OBSERVATIONS = gym.spaces.Box(-9, 9, (3,))
ACTIONS = gym.spaces.Box(-1, 1, (2,))
MATRIX = np.ones((3, 2), np.float32)


def write_policy(folder, steps, arrays, observations=OBSERVATIONS, actions=ACTIONS):
    """Write a policy whose result is the last step's output."""
    size = 1 + max([*arrays, *(step.output for step in steps)])
    constants = NumpyProgram(steps, size, {}, [], [0], steps[-1].output)
    constants.arrays = lambda: arrays  # written unchanged
    policy_file.write(folder, constants, observations, actions, SelfTest(np.zeros((8, 3)), np.zeros((8, 1)), 0.0))
    return folder


def test_hundreds_of_forged_policies_are_refused_or_act_within_their_space(tmp_path):
    """Uses the generator of ``python -m benchmarks.faults.policies`` with another seed."""
    sources, rng, found = policies.sources(tmp_path), random.Random(7), []
    folder = tmp_path / "forged"
    folder.mkdir()
    for _ in range(300):
        source = rng.choice(sources)
        what = policies.forged(source, folder, rng)
        found.append((source.name, what, *policies.outcome(folder)))
    assert [row for row in found if row[2] in ("NAN", "RAW")] == []
    assert {row[2] for row in found} >= {"acts", "refused", "refuses to act"}


@pytest.mark.parametrize(
    ("before", "after"),
    [('"format"', '"format'), ('"MatMul"', '"AddV2"'), ("{", "[" * 500)],
    ids=["JSON", "edited", "deep"],
)
def test_a_damaged_policy_is_a_fault_of_its_file(before, after, tmp_path):
    """So ``ddpg evaluate`` ends with the status of damaged files."""
    folder = write_policy(tmp_path / "it", [ProgramStep("MatMul", (0, 1), 2)], {1: MATRIX})
    path = folder / "policy.json"
    path.write_text(path.read_text().replace(before, after, 1))
    with refuses(FileFault, "policy.json export the policy again"):
        ddpg.load_policy(folder)


def test_an_array_in_the_register_of_the_observations_is_refused(tmp_path):
    steps = [ProgramStep("MatMul", (0, 1), 2)]
    assert ddpg.load_policy(write_policy(tmp_path / "good", steps, {1: MATRIX})).predict(np.zeros(3))[0].shape == (2,)
    forged = write_policy(tmp_path / "bad", steps, {0: np.ones((1, 3), np.float32), 1: MATRIX})
    with refuses(UsageError, "arrays 0"):
        ddpg.load_policy(forged)


def test_a_scalar_array_counts_as_a_row(tmp_path):
    """Its mean is itself, 0.25. Both outputs are 3 · 0.1 + 0.25 = 0.55, which the box scales by 10."""
    steps = [ProgramStep("MatMul", (0, 1), 4), ProgramStep("Mean", (2, 3), 5), ProgramStep("AddV2", (4, 5), 6)]
    lone, axis = np.array(0.25, np.float32), np.array(1, np.int32)
    box = gym.spaces.Box(-10, 10, (2,))
    folder = write_policy(tmp_path / "lone", steps, {1: MATRIX, 2: lone, 3: axis}, actions=box)
    np.testing.assert_allclose(ddpg.load_policy(folder).predict(np.full(3, 0.1))[0], [5.5, 5.5], rtol=1e-5)


@pytest.mark.parametrize(
    ("steps", "arrays", "named"),
    [
        ([ProgramStep("MatMul", (2, 1), 3)], {1: MATRIX, 2: np.ones((1, 3), np.float32)}, "register 3"),
        (
            [ProgramStep("MatMul", (0, 1), 3), ProgramStep("AddV2", (3, 2), 4)],
            {1: MATRIX, 2: np.ones((1, 0), np.float32)},
            "(1, 0)",
        ),
    ],
    ids=["a result without observations", "an array without numbers"],
)
def test_programs_without_valid_outputs_are_refused(steps, arrays, named, tmp_path):
    with refuses(UsageError, named):
        ddpg.load_policy(write_policy(tmp_path / "forged", steps, arrays))


def test_registers_that_need_too_much_memory_together_are_refused(tmp_path):
    """Each of 40 registers holds a million numbers per observation: 160 MB."""
    wide = np.zeros((1, 1 << 20), np.float32)
    steps = [ProgramStep("Mean", (0, 2), 4), ProgramStep("AddV2", (4, 1), 5)]
    steps += [ProgramStep("Neg", (number,), number + 1) for number in range(5, 45)]
    with refuses(UsageError, str((8 << 20) + 1)):
        ddpg.load_policy(write_policy(tmp_path / "forged", steps, {1: wide, 2: np.array(1, np.int32)}))


@pytest.mark.parametrize("shape", [(), (0,)])
def test_scalar_and_empty_observations_are_refused(shape, tmp_path):
    steps = [ProgramStep("Reshape", (0, 2), 3), ProgramStep("MatMul", (3, 1), 4)]
    arrays = {1: np.ones((1, 2), np.float32), 2: np.array([-1, 1], np.int32)}
    with refuses(UsageError, "observation"):
        ddpg.load_policy(write_policy(tmp_path / "forged", steps, arrays, gym.spaces.Box(-1, 1, shape)))


def test_a_box_wider_than_float64_is_refused(tmp_path):
    """Its width overflows to infinity."""
    wide = gym.spaces.Box(-1.7e308, 1.7e308, (2,), np.float64)
    forged = write_policy(tmp_path / "forged", [ProgramStep("MatMul", (0, 1), 2)], {1: MATRIX}, actions=wide)
    with refuses(UsageError, "1.7e+308"):
        ddpg.load_policy(forged)


def test_a_file_created_during_an_export_is_kept(tmp_path):
    target = tmp_path / "policy"

    def export():
        with export_dir.write_aside(target) as path:
            path.write_text("a policy")
            target.write_text("a thesis")  # another process's file

    with refuses(UsageError, "policy"):
        export()
    assert target.read_text() == "a thesis"
    assert [path.name for path in tmp_path.iterdir()] == ["policy"]
