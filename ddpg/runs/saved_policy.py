"""Use the policy of a saved run: record, watch, export."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ddpg.agents.off_policy import OffPolicyAgent, load_agent
from ddpg.checkpoints import checkpoint
from ddpg.config.imports import imports_allowed, references_of
from ddpg.errors import UsageError, did_you_mean
from ddpg.exports.export import FORMATS, NAMES, check_options, export, unit_of_difference
from ddpg.exports.policy_graph import ActingPolicy
from ddpg.interaction import env_calls
from ddpg.runs import run_directory
from ddpg.runs.drawing_process import DrawingProcess
from ddpg.runs.env_factory import check_imports
from ddpg.runs.evaluation import final_seed
from ddpg.runs.rendering import DrawnEnv
from ddpg.runs.video import drawing, record_drawn, watch_drawn


def record_run(
    run: str | Path,
    output: str | Path | None = None,
    *,
    episodes: int = 1,
    which: str = "latest",
    seed: int | None = None,
    allow_import: Sequence[str] = (),
) -> dict[str, Any]:
    """Record episodes of a run's policy.

    Args:
        run: a run directory.
        output: a ``.gif`` or ``.mp4``; by default ``video.gif`` in the run directory.
        episodes: number of episodes.
        which: ``"latest"``, ``"best"`` or a number of timesteps.
        seed: seed of the first episode; by default the one that ``ddpg evaluate`` uses.
        allow_import: modules that the run may import, for an environment, an algorithm or an option that its
            ``config.json`` names as ``module:Name``.

    Returns:
        ``path``, ``env_id``, ``checkpoint``, ``timesteps``, ``episodes`` and ``seed``.

    Raises:
        UsageError: if there is no such run or checkpoint, or as :func:`ddpg.record`.
    """
    with env_calls.own_directory(), _loaded(run, which, seed, allow_import) as (agent, drawn, about):
        path = record_drawn(agent, drawn, output or Path(run) / "video.gif", episodes, about["seed"])
    return {"path": str(path), **about, "episodes": episodes}


def watch_run(
    run: str | Path,
    *,
    episodes: int = 1,
    which: str = "latest",
    seed: int | None = None,
    allow_import: Sequence[str] = (),
) -> None:
    """Show episodes of a run's policy in a window; arguments and errors as those of :func:`record_run`."""
    with env_calls.own_directory(), _loaded(run, which, seed, allow_import) as (agent, drawn, about):
        title = f"{about['env_id']} after {about['timesteps']:,} steps"
        watch_drawn(agent, drawn, episodes, about["seed"], title)


@contextlib.contextmanager
def _loaded(
    run: str | Path, which: str, seed: int | None, allow_import: Sequence[str]
) -> Iterator[tuple[OffPolicyAgent, DrawnEnv | DrawingProcess, dict[str, Any]]]:
    checkpoint.find(run, which)
    document = run_directory.read_config(run)
    check_imports(references_of(document), run, allow_import)
    with drawing(document["env_id"], document["wrappers"]) as drawn:
        path = checkpoint.find(run, which)  # again: a run that is being trained keeps only its newest checkpoints
        with imports_allowed(allow_import):
            agent = load_agent(path, drawn.spaces)
        yield (
            agent,
            drawn,
            {
                "env_id": document["env_id"],
                "checkpoint": path.name,
                "timesteps": agent.num_timesteps,
                "seed": final_seed(document["seed"]) if seed is None else seed,
            },
        )


def export_run(
    run: str | Path,
    format: str = "numpy",
    output: str | Path | None = None,
    which: str = "latest",
    *,
    quantize: str | None = None,
    name: str = "policy",
    allow_import: Sequence[str] = (),
) -> dict[str, Any]:
    """Write the policy of a run as files: :meth:`ddpg.DDPG.export`.

    Args:
        run: a run directory, or a checkpoint.
        format: one of :data:`ddpg.exports.export.FORMATS`.
        output: the path to write; by default the format's name in :data:`NAMES`, in the run directory.
        which: ``"latest"``, ``"best"`` or a number of timesteps.
        quantize: ``"int8"``: with format ``"c"``, store the weights as 8-bit integers.
        name: with format ``"c"``, what files, functions and macros begin with, as for :meth:`ddpg.DDPG.export`.
        allow_import: as for :func:`record_run`.

    Returns:
        ``path``, ``format``, ``checkpoint``, ``timesteps``, and ``difference``: the largest difference between the
        outputs of the exported policy and of the agent, in units of ``difference_unit``: half-ranges of the actions, or
        DQN's largest value.

    Raises:
        UsageError: if there is no such run or checkpoint, or as :meth:`ddpg.DDPG.export`.
    """
    found = checkpoint.find(run, which)
    if format not in FORMATS:
        raise UsageError(f"format={format!r} is not one of {', '.join(FORMATS)}{did_you_mean(format, FORMATS)}")
    check_options(format, quantize, name)
    if output is None:
        output = Path(run) / NAMES[format]
        if found == Path(run):
            raise UsageError(f"{run} is a checkpoint, where nothing else belongs; say where to write: -o PATH")
    with imports_allowed(allow_import):
        agent = load_agent(found)
    difference = export(output, format, ActingPolicy.of(agent), quantize, name)
    return {
        "path": str(output),
        "format": format,
        "checkpoint": found.name,
        "timesteps": agent.num_timesteps,
        "difference": difference,
        "difference_unit": unit_of_difference(agent.action_space),
    }
