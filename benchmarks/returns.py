"""Returns of the presets, per seed: trains every run of the table in docs/results.md, and goes on where it was cut.

python benchmarks/returns.py [--only Pendulum-v1] [--root runs/returns]
"""

import argparse
from pathlib import Path

from jobs import Job, add_flags, run_jobs, write_csv

RESULTS = Path(__file__).parent / "results" / "returns.csv"

COLUMNS = [
    *("env_id", "label", "seed", "timesteps", "episodes", "mean_return", "ci95_low", "ci95_high", "std_return"),
    *("success_rate", "steps_per_second", "training_seconds", "flags"),
]


def jobs() -> list[Job]:
    deltas = {"stop_gradient": (), "output_delta": ("--td-target", "output_delta")}
    return [
        *(Job("Pendulum-v1", "preset", seed, 10_000) for seed in range(10)),
        *(Job("InvertedDoublePendulum-v5", "preset", seed, 50_000) for seed in range(5)),
        *(Job("HalfCheetah-v5", "preset", seed, 100_000) for seed in range(3)),
        *(Job("CartPole-v1", label, seed, 100_000, flags) for label, flags in deltas.items() for seed in range(5)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="ENV", help="the runs in one environment; nothing is written then")
    add_flags(parser, "runs/returns")
    options = parser.parse_args()
    chosen = [job for job in jobs() if options.only in (None, job.env_id)]
    rows = run_jobs(chosen, options.root, options.workers)
    if options.only is None:
        write_csv(RESULTS, rows, COLUMNS)


if __name__ == "__main__":
    main()
