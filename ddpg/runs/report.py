"""The final report of a run, for people or as one JSON object, and the command that resumes it."""

import json
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ddpg.config.imports import references_of
from ddpg.progress import format_number
from ddpg.runs import run_directory


def command_for(verb: str, run: Path, document: Mapping[str, Any], *flags: str) -> str:
    """Return the command ``ddpg VERB RUN`` with the flags that the run needs; ``document`` is its ``config.json``."""
    return shlex.join(["ddpg", verb, as_argument(run), *allow_import_flags(*references_of(document)), *flags])


def as_argument(path: Path) -> str:
    """Return a path as an argument of a command that does not look like a flag."""
    return os.path.join(os.curdir, path) if str(path).startswith("-") else str(path)


def allow_import_flags(*names: str) -> list[str]:
    """Return the ``--allow-import`` flags for names ``module:Name``, one for each module."""
    modules = dict.fromkeys(name.rpartition(":")[0] for name in names)
    return [word for module in modules if module for word in ("--allow-import", module)]


def resume_hint(run: Path, document: Mapping[str, Any]) -> str:
    """Return a sentence with the step from which a run can be resumed, and the command for it."""
    newest = run_directory.checkpoints(run)[-1:]
    command = command_for("resume", run, document)
    return f"go on from step {newest[0].name} with: {command}" if newest else "it has no checkpoint"


def without_resume_hint(text: str) -> str:
    """Return a message without the sentence of :func:`resume_hint` at its end."""
    return re.sub(r"(; with that put right)?[;,] go on from step \d+ with: .*", "", text)


def print_report(run: Path, as_json: bool) -> None:
    """Print the path of a run, its speed, and its last evaluation."""
    document = run_directory.read_config(run)
    env_id = document["env_id"]
    # A run that was stopped early may have no row yet.
    metrics, evaluation = (
        (run_directory.read_table(run / f"{name}.csv") or [{}])[-1] for name in ("metrics", "evaluations")
    )
    timesteps = int(run_directory.checkpoints(run)[-1].name)
    seconds, compiling = (float(metrics.get(name) or 0) for name in ("seconds", "compile_seconds"))
    steps = int(metrics.get("timesteps", 0))
    summary = {
        "run": str(run),
        "env_id": env_id,
        "seed": document["seed"],
        "timesteps": timesteps,
        "finished": timesteps >= document["total_timesteps"],
        "steps_per_second": steps / max(seconds - compiling, 1e-9),  # of all processes; the table's are of the last
        "training_seconds": seconds,
        "compile_seconds": compiling,
        "evaluation_mean_return": float(evaluation["mean_return"]) if evaluation else None,
        "evaluation_episodes": int(evaluation.get("episodes") or 0),
        "evaluation_success_rate": float(evaluation["success_rate"]) if evaluation.get("success_rate") else None,
    }
    if as_json:
        print(json.dumps(summary))
        return
    if evaluation and summary["finished"]:  # a run that stopped early has printed it already
        success = summary["evaluation_success_rate"]
        until = timesteps if document["offline_timesteps"] is None else document["offline_timesteps"]
        unit = "updates" if document["dataset"] is not None and timesteps <= until else "steps"
        print(
            f"{env_id}: evaluation return {format_number(summary['evaluation_mean_return'])}"
            + (f", success rate {success:.0%}," if success is not None else "")
            + f" after {int(evaluation['timesteps']):,} {unit}, {seconds:.1f} s of training "
            f"({compiling:.1f} s of them compiling), {summary['steps_per_second']:,.0f} {unit}/s without those"
        )
    print(f"Everything is in {run}; evaluate it with: {command_for('evaluate', run, document)}")
    print(f"Its curves (pip install tensorboard): {shlex.join(['tensorboard', '--logdir', as_argument(run)])}")
