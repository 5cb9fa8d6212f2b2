"""Read and write learning results in long form, ``benchmarks/results/learning.csv``: a row per measure and run."""

import csv
import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ddpg.errors import FileFault
from ddpg.runs.found_runs import Run
from ddpg.studies.study_report import write_table

COLUMNS = ("study", "env", "recipe", "seed", "step", "measure", "value")
# The measures of a study's results that are kept. Each cell also has its planned steps and a checksum of its options.
RETURN, SECONDS, FINAL = "evaluation_mean_return", "training_seconds", "final_mean_return"
KEPT = (RETURN, "evaluation_success_rate", SECONDS, FINAL, "last_steps_per_second", "last_compile_seconds")
ASKED, OPTIONS = "asked_steps", "options_crc32"
LATE = 5  # number of evaluations


@dataclasses.dataclass(frozen=True)
class Cell(Run):
    """One run; all pages and pictures are made from these.

    Attributes:
        study: the study's name.
        recipe: the configuration's name in the study.
        seed: the run's seed.
        values: ``(step, measure, value)`` in the file's order.
    """

    study: str
    recipe: str
    seed: int
    values: tuple[tuple[int, str, str], ...]

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The key that identifies the run."""
        return self.study, self.env_id, self.recipe, self.seed

    @property
    def planned_steps(self) -> int:
        """The planned number of environment steps."""
        return int(self.one(ASKED, "0"))

    @property
    def reached(self) -> int:
        """The step of the newest evaluation; 0 before there is one."""
        return int(self.steps[-1]) if self.rows else 0

    @property
    def finished(self) -> bool:
        """Whether the run was evaluated at its last planned step."""
        return self.reached >= self.planned_steps > 0

    @property
    def final(self) -> float:
        """The mean return of the last evaluation, or of the evaluation after training if the study has one."""
        return float(self.one(FINAL, self.rows[-1]["mean_return"]))

    @property
    def late(self) -> float:
        """The mean return of the last five evaluations, which is less noisy than the last one."""
        return float(self.returns[-LATE:].mean())

    @property
    def seconds(self) -> np.ndarray:
        """Seconds of training at every evaluation, without evaluations, ``[T]``."""
        seconds = {step: float(value) for step, measure, value in self.values if measure == SECONDS}
        return np.array([seconds.get(int(step), np.nan) for step in self.steps])

    def times(self, against: str) -> np.ndarray:
        """Return the time of every evaluation, in ``"steps"`` or in ``"seconds"`` of training, ``[T]``."""
        return self.steps if against == "steps" else self.seconds

    def returns_until(self, step: int) -> np.ndarray:
        """Return the mean returns of all evaluations up to the first one at or after a step, ``[T]``."""
        return self.returns[: int((self.steps >= step).argmax()) + 1]

    def return_at(self, step: int) -> float:
        """Return the mean return of the first evaluation at or after a step."""
        return float(self.returns_until(step)[-1])

    def one(self, measure: str, default: str) -> str:
        """Return the last value of a measure, or ``default`` if there is none."""
        return next((value for _, name, value in reversed(self.values) if name == measure), default)


def make_cell(key: tuple[str, str, str, int], values: Sequence[tuple[int, str, str]]) -> Cell:
    """Return the cell with these values; ``key`` is study, environment, recipe and seed."""
    study, env_id, recipe, seed = key
    rows = [{"timesteps": str(step), "mean_return": value} for step, measure, value in values if measure == RETURN]
    return Cell(Path(), {"env_id": env_id}, rows, study, recipe, seed, tuple(values))


def read(path: Path) -> list[Cell]:
    """Return the cells of a file in its order, or none if there is no file.

    Raises:
        FileFault: if the file has other columns, or a seed, step or value that is not a number.
    """
    if not path.exists():
        return []
    cells: dict[tuple[str, str, str, int], list[tuple[int, str, str]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise FileFault(f"{path} has the columns {reader.fieldnames}, expected {', '.join(COLUMNS)}")
        for row in reader:
            try:
                if None in row:
                    raise ValueError("too many cells")
                float(row["value"])
                key = row["study"], row["env"], row["recipe"], int(row["seed"])
                cells.setdefault(key, []).append((int(row["step"]), row["measure"], row["value"]))
            except (TypeError, ValueError):
                raise FileFault(
                    f"{path}, line {reader.line_num}: seed, step and value must be numbers, the last of {len(COLUMNS)} "
                    f"cells, got {row}; restore the line, or collect again"
                ) from None
    return [make_cell(key, values) for key, values in cells.items()]


def write(path: Path, cells: Iterable[Cell]) -> None:
    """Write cells to a file atomically, with studies in alphabetical order."""
    rows = [
        dict(zip(COLUMNS, (*cell.key, *value), strict=True))
        for cell in sorted(cells, key=lambda cell: cell.study)
        for value in cell.values
    ]
    write_table(path, COLUMNS, rows)
