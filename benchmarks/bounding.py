"""Collect returns and metrics about action bounds from the runs of studies/bounding.toml.

ddpg study benchmarks/studies/bounding.toml
python benchmarks/bounding.py [--root studies/bounding]

Writes results/bounding.csv, with a row for each run, and results/bounding_curves.csv, with a row for each evaluation
during training. A row has the means, since the previous evaluation, of the metrics about the bounds that
ddpg.DDPG.update returns. bounding_figures.py draws both files. Unfinished cells are left out.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.runs.tables import read_table
from ddpg.studies.study import cells_of
from ddpg.studies.study_folder import CellFolder, read_cells

RESULTS = Path(__file__).parent / "results"

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


def cell_columns(place: CellFolder) -> dict[str, Any]:
    """Return the columns that identify a cell."""
    cell = place.cell
    return {"env_id": cell.group.name, "bounding": cell.group.configuration, "seed": cell.seed}


def result(place: CellFolder) -> dict[str, Any]:
    """Return the row of a finished cell."""
    last = read_table(place.run / "metrics.csv")[-1]
    speed = {"steps_per_second": float(last["fps"]), "training_seconds": float(last["seconds"])}
    return place.evaluated | cell_columns(place) | speed


def curve(place: CellFolder) -> list[dict[str, Any]]:
    """Return a row for each evaluation, with the means of the diagnostics since the previous one."""
    metrics = read_table(place.run / "metrics.csv")
    steps = np.array([float(row["timesteps"]) for row in metrics])
    rows, before = [], 0.0
    for evaluation in read_table(place.run / "evaluations.csv"):
        now = float(evaluation["timesteps"])
        window = [row for row, step in zip(metrics, steps, strict=True) if before < step <= now]
        row = {**cell_columns(place), "timesteps": int(now), "mean_return": float(evaluation["mean_return"])}
        row["success_rate"] = float(evaluation["success_rate"]) if evaluation["success_rate"] else ""
        for name in DIAGNOSTICS:
            values = [float(entry[name]) for entry in window if entry[name]]
            row[name] = float(np.mean(values)) if values else ""
        row["clipped_share"] = sum(float(entry["clipped_actions"]) for entry in window) / (now - before)
        rows.append(row)
        before = now
    return rows


def write_csv(path: Path, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """Write rows, with numbers rounded to six digits."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items()})
    print(f"wrote {len(rows)} rows to {path}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path("studies/bounding"), help="the study's folder")
    parser.add_argument("--out", type=Path, default=RESULTS, help=f"folder of the files (default: {RESULTS})")
    options = parser.parse_args()
    places = [CellFolder(options.root, cell) for cell in cells_of(read_cells(options.root))]
    places = sorted(
        (place for place in places if place.stage is None), key=lambda place: [*cell_columns(place).values()]
    )
    write_csv(options.out / "bounding.csv", [result(place) for place in places], COLUMNS)
    write_csv(options.out / "bounding_curves.csv", [row for place in places for row in curve(place)], CURVE_COLUMNS)


if __name__ == "__main__":
    main()
