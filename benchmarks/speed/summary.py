"""Summarise repeated measurements: median, minimum and maximum of each package, and its ratio to ours."""

import dataclasses
import statistics
from collections.abc import Sequence

from benchmarks.speed.kinds import KINDS, MORE, main_quantity


@dataclasses.dataclass(frozen=True)
class Spread:
    """Repeated measurements of one number."""

    median: float
    least: float
    most: float


@dataclasses.dataclass(frozen=True)
class Line:
    """The results of one package.

    Attributes:
        kind: of the measurement.
        task: its name.
        cores: number of cores.
        peer: the package.
        spreads: of each of the kind's quantities, by key; empty if every measurement failed.
        ratio: the factor by which our median of the first quantity is better; ``None`` if ours or this package was not
            measured.
        ratios: the same factor for this package's minimum and maximum.
        failed: number of failed measurements.
        why: the last failure's message.
    """

    kind: str
    task: str
    cores: int
    peer: str
    spreads: dict[str, Spread]
    ratio: float | None
    ratios: tuple[float, float] | None
    failed: int
    why: str | None


def summarise(rows: Sequence[dict]) -> list[Line]:
    """Return a line for each kind, task, number of cores and peer, in the order of the kinds, tasks and cores.

    Args:
        rows: the fields of a :class:`~benchmarks.speed.plan.Job`, and either the kind's quantities or ``failed`` with
            the reason.
    """
    known, lines = list(KINDS), []
    cells = dict.fromkeys((row["kind"], row["task"], row["cores"]) for row in rows)
    for cell in sorted(cells, key=lambda cell: (known.index(cell[0]), list(KINDS[cell[0]].tasks).index(cell[1]), cell)):
        here = [row for row in rows if (row["kind"], row["task"], row["cores"]) == cell]
        ours = _spreads(cell[0], [row for row in here if row["peer"] == KINDS[cell[0]].ours])
        lines += [_line(cell, peer, here, ours) for peer in dict.fromkeys(row["peer"] for row in here)]
    return lines


def better(kind: str, ours: float, theirs: float) -> float:
    """Return the factor by which ours is better."""
    return ours / theirs if main_quantity(kind).better == MORE else theirs / ours


def _line(cell: tuple, peer: str, here: Sequence[dict], ours: dict[str, Spread]) -> Line:
    mine = [row for row in here if row["peer"] == peer]
    spreads, failed = _spreads(cell[0], mine), [row["failed"] for row in mine if "failed" in row]
    ratio, ratios = None, None
    if ours and spreads:
        key = main_quantity(cell[0]).key
        found, middle = spreads[key], ours[key].median
        ratio = better(cell[0], middle, found.median)
        low, high = sorted(better(cell[0], middle, end) for end in (found.least, found.most))
        ratios = low, high
    return Line(*cell, peer, spreads, ratio, ratios, len(failed), failed[-1] if failed else None)


def _spreads(kind: str, rows: Sequence[dict]) -> dict[str, Spread]:
    measured = [row for row in rows if "failed" not in row]
    keys = [each.key for each in KINDS[kind].quantities if measured and all(each.key in row for row in measured)]
    found = {key: [row[key] for row in measured] for key in keys}
    return {key: Spread(statistics.median(values), min(values), max(values)) for key, values in found.items()}
