"""Turn the JSON lines of ``ddpg train --json`` and ``ddpg evaluate --json`` into one CSV for the repository.

    python benchmarks/collect.py trained.jsonl evaluated.jsonl > benchmarks/results/returns.csv

Runs are matched by their directory. Machine-dependent paths are left out.
"""

import csv
import json
import sys
from pathlib import Path

COLUMNS = [
    "env_id",
    "seed",
    "timesteps",
    "episodes",
    "mean_return",
    "ci95_low",
    "ci95_high",
    "std_return",
    "steps_per_second",
    "training_seconds",
]


def main(trained: str, evaluated: str) -> None:
    runs = {}
    for line in [*Path(trained).read_text().splitlines(), *Path(evaluated).read_text().splitlines()]:
        result = json.loads(line)
        # Evaluations name the run as it was given: of both paths, the end they share.
        key = Path(result["run"]).parts[-3:]
        # The evaluation's seed is the environment's; the run's own comes with its training.
        runs[key] = result | runs.get(key, {})
    writer = csv.DictWriter(sys.stdout, COLUMNS, extrasaction="ignore")
    writer.writeheader()
    for run in sorted(runs.values(), key=lambda run: (run["env_id"], run["seed"])):
        writer.writerow({name: f"{value:.6g}" if isinstance(value, float) else value for name, value in run.items()})


if __name__ == "__main__":
    main(*sys.argv[1:])
