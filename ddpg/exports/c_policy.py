"""Write the directory of a policy in C: ``policy.h``, ``policy.c``, and ``policy.json``, which says what they are."""

import hashlib
import json
from pathlib import Path

import gymnasium as gym
import numpy as np

from ddpg.checkpoints import arrays as array_files
from ddpg.exports import c_source, formats, policy_file
from ddpg.exports.c_program import CProgram, lower_to_c
from ddpg.exports.c_source import HEADER, SOURCE, SelfTest
from ddpg.exports.export_dir import ABOUT, CODE_SHA256
from ddpg.exports.policy_graph import ACTIONS, VALUES
from ddpg.interaction.actions import Actions, BoxActions, ParameterisedActions
from ddpg.policies.numpy_program import NumpyProgram


def write(
    folder: Path,
    program: NumpyProgram,
    observation_space: gym.spaces.Box,
    actions: Actions,
    expected: np.ndarray,
    tolerance: float,
    quantize: str | None = None,
    mask: int = 0,
) -> formats.Runner:
    """Write a policy to a new directory.

    Args:
        folder: the directory, which must not exist.
        program: the network; its input is ``[B, *observation_space.shape]``.
        observation_space: of the environment.
        actions: what the outputs mean.
        expected: the outputs of the agent's network for :func:`ddpg.exports.policy_file.check_observations`; with
            ``quantize`` the self-test expects those of the quantised network instead.
        tolerance: how much rounding may change them.
        quantize: as for :func:`ddpg.exports.c_program.lower_to_c`.
        mask: as for :func:`ddpg.exports.policy_file.write`.

    Returns:
        What the text computes, on NumPy arrays, with the constants that were read back from it.

    Raises:
        UsageError: if a weight is NaN or infinite, or the space has actions that C's ``int`` does not number.
    """
    c_source.check_action_space(actions.space)
    array_files.check_finite("policy", {str(register): array for register, array in program.arrays().items()})
    lowered = lower_to_c(program, int(np.prod(observation_space.shape)), quantize)
    checks = policy_file.check_observations(observation_space, mask)
    test = SelfTest(checks, expected if quantize is None else lowered.outputs(checks), tolerance)
    about = _about(lowered, quantize)
    texts = {
        HEADER: c_source.header_text(lowered, observation_space, actions, about),
        SOURCE: c_source.source_text(lowered, actions, test, about),
    }
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="ascii")
    whole = {
        **policy_file.export_metadata("c", observation_space, actions.space),
        "quantize": quantize,
        **{CODE_SHA256[name]: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()},
    }
    (folder / ABOUT).write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    constants = c_source.read_arrays((folder / SOURCE).read_text(encoding="ascii"))

    def run(observations: np.ndarray) -> formats.Outputs:
        outputs = lowered.outputs(observations, {**lowered.arrays, **constants})
        if isinstance(actions, (BoxActions, ParameterisedActions)):
            return {ACTIONS: c_source.scaled_actions(actions, outputs, constants)}
        return {VALUES: outputs, ACTIONS: outputs.argmax(axis=1) + c_source.first_choice(actions.space)}

    return run


def _about(program: CProgram, quantize: str | None) -> str:
    """Return a line on the size of the constants."""
    size = sum(array.nbytes for array in program.arrays.values())
    kind = "float32" if quantize is None else f"weights {quantize}, with a float32 scale for each output of a layer"
    return f"{sum(array.size for array in program.arrays.values()):,} constants of {size:,} bytes: {kind}."
