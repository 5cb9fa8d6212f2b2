"""The table of many runs: what the seeds of a configuration say together, as rows, as CSV and as Markdown."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ddpg.progress import significant
from ddpg.runs.curves import centre_and_interval
from ddpg.storage import atomic

NOTE = "Interquartile mean over the seeds of finished cells, with its 95 % bootstrap interval."
_ENDS = ("", "_low", "_high")


def table_row(
    env: str, config: str, steps: int, finals: Sequence[float], maxima: Sequence[float], asked: int
) -> dict[str, Any]:
    """Return a row of the table.

    Args:
        env: the environment's id.
        config: the configuration's name.
        steps: environment steps of each run.
        finals: the last evaluation of each finished seed (env units).
        maxima: the largest evaluation of each (env units).
        asked: how many seeds there are to be.

    Returns:
        These, and of ``final`` and ``maximum`` the interquartile mean and the ends of its 95 % bootstrap interval,
        ``_low`` and ``_high`` (Agarwal et al. 2021, arXiv 2108.13264); NaN where no seed is finished.
    """
    row: dict[str, Any] = {"env": env, "config": config, "steps": steps, "seeds": len(finals), "seeds_asked": asked}
    for name, seeds in (("final", finals), ("maximum", maxima)):
        row |= {f"{name}{end}": value for end, value in zip(_ENDS, over_seeds(seeds), strict=True)}
    return row


def over_seeds(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the interquartile mean of a value a seed and the ends of its 95 % bootstrap interval; NaN of none."""
    if not len(values):
        return (float("nan"),) * 3
    centre, low, high = centre_and_interval(np.array(values)[:, None], "iqm")
    return float(centre[0]), float(low[0]), float(high[0])


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of :func:`table_row` as a table of Markdown, a line each."""
    heads = ("environment", "configuration", "steps", "seeds", "final return", "largest return")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = (
            row["env"],
            row["config"],
            f"{row['steps']:,}",
            seeds_of(row),
            told(row, "final"),
            told(row, "maximum"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def seeds_of(row: dict[str, Any]) -> str:
    """Return how many seeds a row is of: ``3``, or ``2 of 3``."""
    return str(row["seeds"]) if row["seeds"] == row["seeds_asked"] else f"{row['seeds']} of {row['seeds_asked']}"


def told(row: dict[str, Any], name: str) -> str:
    """Return ``final`` or ``maximum`` of a row with its interval, for people."""
    centre, low, high = (row[f"{name}{end}"] for end in _ENDS)
    return interval(centre, low, high)


def interval(centre: float, low: float, high: float) -> str:
    """Return a number with its interval, for people; ``none yet`` for NaN."""
    return f"{significant(centre)} ({significant(low)} to {significant(high)})" if np.isfinite(centre) else "none yet"


def write_table(path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as a CSV file; NaN, and what a row does not have, is nothing."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: "" if value != value else value for name, value in row.items()})
    atomic.write_text(path, text.getvalue())
