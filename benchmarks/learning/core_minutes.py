"""Compare the return per core-minute of `plus` with that of stronger algorithms in other packages.

Runs are made on busy machines, so their own seconds are not comparable. A core-minute is 60 seconds at the rate that
``benchmarks.speed`` measured for the same algorithm: environment steps per second of training on one pinned core.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import marks
from benchmarks.learning.long_form import Cell
from benchmarks.learning.tables import STRONGER_STUDY, groups, row_of
from benchmarks.speed.packages import OURS_PLUS
from benchmarks.speed.processors import processor_name
from benchmarks.speed.summary import summarise
from ddpg.progress import format_number
from ddpg.runs.curves import trimmed_mean
from ddpg.studies import study_report
from ddpg.studies.comparison import estimate

SPEED = Path(__file__).parents[1] / "results" / "speed.json"
KIND, MEASURED = "stronger", "HalfCheetah"  # a kind of benchmarks.speed, and its one task
OWN = (("table", "plus"), ("averaged", "plus_averaged"))  # study and recipe; both at the rate of `plus`
MOMENTS = (2, 5, 10, 20)  # core-minutes
GRID = 0.1  # core-minutes between two moments of comparison
NONE_YET = "None yet: no run of these algorithms has finished."


@dataclasses.dataclass(frozen=True)
class Timed:
    """The finished runs of one algorithm in one environment, with its rate.

    Attributes:
        cells: finished runs.
        seeds: their number as text: ``3``, or ``2 of 3``.
        rate: environment steps per second on one core.
    """

    cells: tuple[Cell, ...]
    seeds: str
    rate: float

    @property
    def env_id(self) -> str:
        """The environment's id."""
        return self.cells[0].env_id

    @property
    def label(self) -> str:
        """The algorithm's name."""
        return self.cells[0].recipe

    @property
    def own(self) -> bool:
        """Whether the algorithm is one of our recipes."""
        return self.cells[0].study != STRONGER_STUDY

    @property
    def first(self) -> float:
        """Core-minutes until all seeds have been evaluated once."""
        return self.core_minutes(max(cell.steps[0] for cell in self.cells))

    @property
    def end(self) -> float:
        """Core-minutes of a complete run."""
        return self.core_minutes(self.cells[0].planned_steps)

    def core_minutes(self, steps: float) -> float:
        """Return the core-minutes of this many environment steps."""
        return float(steps) / self.rate / 60

    def returns_at(self, moment: float) -> np.ndarray:
        """Return every seed's last evaluation before ``moment``, in core-minutes: ``[seeds]``, NaN before the first.

        After a run's end its last evaluation counts, because its policy remains usable.
        """
        by_then = [cell.returns[cell.steps <= moment * 60 * self.rate] for cell in self.cells]
        return np.array([returns[-1] if len(returns) else np.nan for returns in by_then])


def compared(cells: Sequence[Cell], speed: Path = SPEED) -> list[Timed]:
    """Return the algorithms to compare: ours, then the peers, for each environment in which a peer has finished."""
    rates = steps_per_second(speed)
    timed = []
    for group in groups(cells, *dict(OWN), STRONGER_STUDY):
        study, label = group[0].study, group[0].recipe
        finished = tuple(cell for cell in group if cell.finished)
        if finished and (study == STRONGER_STUDY or (study, label) in OWN):
            timed.append(Timed(finished, study_report.seeds_of(row_of(group)), rates[label]))
    where = {one.env_id for one in timed if not one.own}
    return [one for one in timed if one.env_id in where]


def steps_per_second(speed: Path = SPEED) -> dict[str, float]:
    """Return the median steps/s on one pinned core, by name of the peer or of our recipe."""
    rows = [row for row in json.loads(speed.read_text())["rows"] if (row["kind"], row["cores"]) == (KIND, 1)]
    rates = {line.peer: line.spreads["steps_per_second"].median for line in summarise(rows) if line.spreads}
    return rates | {recipe: rates[OURS_PLUS] for _, recipe in OWN}


def table(cells: Sequence[Cell], speed: Path = SPEED) -> str:
    """Return a row for each environment and algorithm: the cost of its runs, and its return after some core-minutes."""
    timed = compared(cells, speed)
    if not timed:
        return NONE_YET
    asked = " or ".join(f"{steps:,}" for steps in sorted({one.cells[0].planned_steps for one in timed}))
    heads = ["environment", "algorithm", "seeds", "steps/s", f"core-minutes of {asked} steps"]
    heads += [*(f"return after {moment}" for moment in MOMENTS), "at the end"]
    lines = []
    for one in timed:
        runs = [one.env_id, one.label, one.seeds, f"{one.rate:,.0f}", f"{one.end:.1f}"]
        texts = ["ended" if moment > one.end else _return_text(one.returns_at(moment)) for moment in MOMENTS]
        lines.append([*runs, *texts, _return_text([cell.final for cell in one.cells])])
    about = f"Steps/s: medians in {MEASURED} on one pinned core of {machine(speed)}, used for all environments."
    return f"{marks.table(heads, lines, len(heads) - 3)}\n\n{about} {study_report.NOTE}"


def ahead(cells: Sequence[Cell], speed: Path = SPEED) -> str:
    """Return the share of moments at which our return is higher than each peer's, by environment and peer.

    Moments are :data:`GRID` apart, from the first at which all algorithms of a row have been evaluated to the end of
    the shortest run of a peer in that environment. Environments in which no peer has finished have no row.
    """
    timed = compared(cells, speed)
    if not timed:
        return ""
    recipes = [recipe for _, recipe in OWN]
    heads = ["environment", "compared with", "core-minutes"]
    heads += [
        head for recipe in recipes for head in (f"`{recipe}` is higher", "all its seeds higher than all of theirs")
    ]
    lines = []
    for peer in (one for one in timed if not one.own):
        here = [one for one in timed if one.env_id == peer.env_id]
        ours = {one.label: one for one in here if one.own}
        moments = moments_of([peer, *ours.values()], min(one.end for one in here if not one.own))
        texts = [text for recipe in recipes for text in _shares(ours.get(recipe), peer, moments)]
        between = f"{moments[0]:.1f} to {moments[-1]:.1f}" if len(moments) else "none"
        lines.append([peer.env_id, peer.label, between, *texts])
    return marks.table(heads, lines, len(heads) - 3)


def moments_of(timed: Sequence[Timed], end: float) -> np.ndarray:
    """Return the moments, in core-minutes, from the first at which all of these have been evaluated until ``end``."""
    first = max(one.first for one in timed)
    return GRID * np.arange(np.ceil(first / GRID), np.floor(end / GRID) + 1)


def counts_above(own: Timed, peer: Timed, moments: Sequence[float] | np.ndarray) -> tuple[int, int]:
    """Return the number of moments at which our interquartile mean is higher, and where all our seeds are higher."""
    pairs = [(own.returns_at(moment), peer.returns_at(moment)) for moment in moments]
    means = [_iqm(ours) > _iqm(theirs) for ours, theirs in pairs]
    return sum(means), sum(bool(ours.min() > theirs.max()) for ours, theirs in pairs)


def _iqm(values: np.ndarray) -> float:
    return float(trimmed_mean(values, 0.25, axis=0))


def _shares(own: Timed | None, peer: Timed, moments: np.ndarray) -> list[str]:
    if own is None or not len(moments):
        return ["none yet"] * 2
    return [f"{100 * count // len(moments)} %" for count in counts_above(own, peer, moments)]  # 100 % only for all


def _return_text(returns: Sequence[float] | np.ndarray) -> str:
    """Return rounded returns over seeds with their interval, or ``none yet`` if a seed has not been evaluated."""
    if np.isnan(returns).any():
        return "none yet"
    centre, low, high = (format_number(round(value)) for value in dataclasses.astuple(estimate(returns, "iqm")))
    return f"{centre} ({low} to {high})"


def machine(speed: Path = SPEED) -> str:
    """Return the processor on which the rates were measured."""
    return processor_name(json.loads(speed.read_text())["machine"])
