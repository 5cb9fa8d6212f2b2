"""Exporting the policy of a run."""

from pathlib import Path
from typing import Any

from ddpg.agents.registry import load_agent
from ddpg.errors import UsageError
from ddpg.exports.export import FORMATS, export
from ddpg.exports.graph import Acting
from ddpg.storage import checkpoint

NAMES = {"numpy": "policy", "savedmodel": "policy_savedmodel", "tflite": "policy.tflite", "onnx": "policy.onnx"}


def export_run(
    run: str | Path, format: str = "numpy", output: str | Path | None = None, which: str = "latest"
) -> dict[str, Any]:
    """Write the policy of a run as files: :meth:`ddpg.DDPG.export`.

    Args:
        run: a run directory, or a checkpoint.
        format: one of :data:`ddpg.exports.export.FORMATS`.
        output: where; by default beside the checkpoints, under the name in :data:`NAMES`.
        which: ``"latest"``, ``"best"`` or a number of timesteps.

    Returns:
        ``path``, ``format``, ``checkpoint``, ``timesteps``, and ``difference``: the largest one between what was
        written and the agent, in half-ranges of the actions.

    Raises:
        UsageError: no such run or checkpoint, or as :meth:`ddpg.DDPG.export`.
    """
    found = checkpoint.find(run, which)
    if format not in FORMATS:
        raise UsageError(f"format={format!r} is not one of {', '.join(FORMATS)}")
    if output is None:
        output = Path(run) / NAMES[format]
        if found == Path(run):
            raise UsageError(f"{run} is a checkpoint, where nothing else belongs; say where to write: -o PATH")
    agent = load_agent(found)
    difference = export(output, format, Acting.of(agent))
    return {
        "path": str(output),
        "format": format,
        "checkpoint": found.name,
        "timesteps": agent.num_timesteps,
        "difference": difference,
    }
