"""Write a table of returns with no, two and four workers, from a study, into docs/scaling.md.

    ddpg study benchmarks/studies/workers.toml --jobs 1
    python -m benchmarks.workers --study studies/workers    # writes results/workers.csv and the table
    python -m benchmarks.workers                            # writes the table from results/workers.csv

Times are left out, because they depend on the machine's load during the study.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import marks

HERE = Path(__file__).parent
RESULTS, PAGE = HERE / "results" / "workers.csv", HERE.parent / "docs" / "scaling.md"
MEASURES = ("evaluation_mean_return", "final_mean_return", "final_std_return")


def returns_of(study: Path) -> list[dict[str, str]]:
    """Return the rows of a study's results that are returns, with four decimals."""
    with (study / "results.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["measure"] in MEASURES]
    return [row | {"value": f"{float(row['value']):.4f}"} for row in rows]


def read(path: Path = RESULTS) -> list[dict[str, str]]:
    """Return the rows of a results file."""
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def tables() -> dict[str, str]:
    """Return the page's tables of the committed results, by mark."""
    return {"returns": table(read())}


def table(rows: Sequence[dict[str, str]]) -> str:
    """Return a table of final returns by configuration: every seed, and their mean."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in rows:
        if row["measure"] == "final_mean_return":
            found.setdefault((row["env"], row["config"]), []).append((int(row["seed"]), float(row["value"])))
    lines = []
    for (env, config), seeds in found.items():
        values = [value for _, value in sorted(seeds)]
        texts = ", ".join(f"{value:.1f}" for value in values)
        workers = config.removesuffix("_early")
        lines.append([env, workers, texts, f"{np.mean(values):.1f}"])
    return marks.table(["environment", "workers", "return of each seed", "mean"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--study", type=Path, help="the folder of the finished study (default: use the stored results)")
    options = parser.parse_args()
    if options.study is not None:
        rows = returns_of(options.study)
        with RESULTS.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, [*rows[0]], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    print(*tables().values())
    marks.write(PAGE, tables())


if __name__ == "__main__":
    main()
