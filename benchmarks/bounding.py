"""Squashing, inverting, zeroing: which bounding learns, and how each meets the bounds, over environments and seeds.

python benchmarks/bounding.py [--only ddpg_envs/Platform-v0] [--workers 2] [--root runs/bounding]

Every run is the environment's preset with the bounding exchanged. Interrupt it as you like: the next call goes on.
Writes results/bounding.csv (a row a run) and results/bounding_curves.csv (a row an evaluation during training, with
the means since the one before of what ddpg.DDPG.update returns about the bounds); draw them with bounding_figures.py.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from jobs import Job, add_flags, run_jobs, write_csv

from ddpg.runs import directory
from ddpg.runs.presets import preset_for

RESULTS = Path(__file__).parent / "results"
BOUNDINGS = ("squashing", "inverting", "zeroing")
ENVIRONMENTS = (
    "ddpg_envs/Platform-v0",
    "ddpg_envs/Goal-v0",
    "ddpg_envs/HalfFieldOffense-v0",
    "Pendulum-v1",
    "ddpg_envs/AsymmetricLQR-v0",
)
SEEDS = 5

COLUMNS = [
    *("env_id", "bounding", "seed", "timesteps", "episodes", "mean_return", "ci95_low", "ci95_high", "success_rate"),
    *("mean_length", "clipped_actions", "steps_per_second", "training_seconds"),
]
DIAGNOSTICS = ("actions_outside", "actions_saturated", "action_gradient_norm", "bounded_gradient_norm")
CURVE_COLUMNS = [
    "env_id",
    "bounding",
    "seed",
    "timesteps",
    "mean_return",
    "success_rate",
    *DIAGNOSTICS,
    "clipped_share",
]


def jobs(env_id: str, seeds: int) -> list[Job]:
    steps = preset_for(env_id).total_timesteps
    return [
        Job(env_id, bounding, seed, steps, ("--bounding", bounding)) for bounding in BOUNDINGS for seed in range(seeds)
    ]


def curve(job: Job, root: Path) -> list[dict[str, Any]]:
    """Return a row for each evaluation, with the diagnostics' means since the one before."""
    run = job.run_directory(root)
    metrics = directory.read_table(run / "metrics.csv")
    steps = np.array([float(row["timesteps"]) for row in metrics])
    rows, before = [], 0.0
    for evaluation in directory.read_table(run / "evaluations.csv"):
        now = float(evaluation["timesteps"])
        window = [row for row, step in zip(metrics, steps, strict=True) if before < step <= now]
        row = {"env_id": job.env_id, "bounding": job.label, "seed": job.seed, "timesteps": int(now)}
        row["mean_return"] = float(evaluation["mean_return"])
        row["success_rate"] = float(evaluation["success_rate"]) if evaluation["success_rate"] else ""
        for name in DIAGNOSTICS:
            values = [float(entry[name]) for entry in window if entry[name]]
            row[name] = float(np.mean(values)) if values else ""
        row["clipped_share"] = sum(float(entry["clipped_actions"]) for entry in window) / (now - before)
        rows.append(row)
        before = now
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=ENVIRONMENTS, metavar="ENV", help=f"of {', '.join(ENVIRONMENTS)}")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds of each (default: {SEEDS})")
    add_flags(parser, "runs/bounding")
    options = parser.parse_args()
    chosen = [job for env_id in options.only or ENVIRONMENTS for job in jobs(env_id, options.seeds)]
    rows = run_jobs(chosen, options.root, options.workers)
    if options.only:
        return
    write_csv(RESULTS / "bounding.csv", [row | {"bounding": row["label"]} for row in rows], COLUMNS)
    curves = [row for job in chosen for row in curve(job, options.root)]
    write_csv(RESULTS / "bounding_curves.csv", curves, CURVE_COLUMNS)


if __name__ == "__main__":
    main()
