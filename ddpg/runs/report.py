"""What a run ended with, for people or as one JSON object."""

import json
import shlex
from pathlib import Path

from ddpg.progress import significant
from ddpg.runs import directory
from ddpg.runs.next_commands import command_for


def print_report(run: Path, as_json: bool) -> None:
    """Print where a run is, its speed, and its last evaluation."""
    document = directory.read_config(run)
    env_id = document["env_id"]
    # None yet where a run was left early.
    metrics, evaluation = (
        (directory.read_table(run / f"{name}.csv") or [{}])[-1] for name in ("metrics", "evaluations")
    )
    timesteps = int(directory.checkpoints(run)[-1].name)
    summary = {
        "run": str(run),
        "env_id": env_id,
        "seed": document["seed"],
        "timesteps": timesteps,
        "finished": timesteps >= document["total_timesteps"],
        "steps_per_second": float(metrics.get("fps") or 0),
        "training_seconds": float(metrics.get("seconds", 0)),
        "compile_seconds": float(metrics.get("compile_seconds") or 0),
        "evaluation_mean_return": float(evaluation["mean_return"]) if evaluation else None,
        "evaluation_episodes": int(evaluation.get("episodes") or 0),
        "evaluation_success_rate": float(evaluation["success_rate"]) if evaluation.get("success_rate") else None,
    }
    if as_json:
        print(json.dumps(summary))
        return
    if evaluation and summary["finished"]:  # of a run that was left, that was said when it was
        success = summary["evaluation_success_rate"]
        compiling, seconds = summary["compile_seconds"], summary["training_seconds"]
        print(
            f"{env_id}: evaluation return {significant(summary['evaluation_mean_return'])}"
            + (f", success rate {success:.0%}," if success is not None else "")
            + f" after {int(evaluation['timesteps']):,} steps, {seconds:.1f} s of training "
            f"({compiling:.1f} s of them compiling), {summary['steps_per_second']:,.0f} steps/s without those"
        )
    print(f"Everything is in {run}; evaluate it with: {command_for('evaluate', run, env_id)}")
    print(f"Its curves (pip install tensorboard): {shlex.join(['tensorboard', '--logdir', str(run)])}")
