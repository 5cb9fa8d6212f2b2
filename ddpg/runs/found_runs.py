"""Find the runs in and below directories, and read their configurations and evaluations."""

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ddpg.errors import FileFault, UsageError, printable
from ddpg.progress import print_to_stderr
from ddpg.runs import run_config, run_directory
from ddpg.runs.tables import read_table

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Run:
    """A run: its directory, configuration and evaluations so far.

    Attributes:
        path: its directory.
        document: the contents of its ``config.json``.
        rows: the rows of its ``evaluations.csv``.
    """

    path: Path
    document: dict[str, Any]
    rows: list[dict[str, str]]

    @property
    def env_id(self) -> str:
        """The environment's id, without the ``module:`` prefix."""
        return str(self.document["env_id"]).rpartition(":")[2]

    @property
    def steps(self) -> np.ndarray:
        """Environment steps at every evaluation."""
        return np.array([float(row["timesteps"]) for row in self.rows])

    @property
    def returns(self) -> np.ndarray:
        """The mean return of every evaluation."""
        return np.array([float(row["mean_return"]) for row in self.rows])

    def times(self, against: str) -> np.ndarray:
        """Return the time of every evaluation, in ``"steps"`` or ``"seconds"`` of training (evaluations excluded).

        Raises:
            FileFault: if ``metrics.csv``, which has the seconds, is damaged or has no rows.
        """
        return self.steps if against == "steps" else self._seconds

    @functools.cached_property
    def _seconds(self) -> np.ndarray:
        metrics = read_table(self.path / "metrics.csv")
        if self.rows and not metrics:
            raise FileFault(f"{self.path / 'metrics.csv'} has no rows, which have the seconds; draw its run over steps")
        logged = [[float(row[name]) for row in metrics] for name in ("timesteps", "seconds")]
        return np.interp(self.steps, [0.0, *logged[0]], [0.0, *logged[1]])


def read_run(path: Path) -> Run:
    """Return the run of a directory."""
    return Run(path, run_directory.read_config(path), read_table(path / "evaluations.csv"))


def find_runs(paths: Sequence[str | Path], against: str = "steps") -> list[Run]:
    """Return the runs at ``paths`` and below them whose times ``against`` steps or seconds can be read.

    Unreadable runs are handled as in :func:`runs_at`.

    Raises:
        UsageError: if there is no run at a path, nor below it.
    """
    found: dict[Path, Run] = {}
    for path in map(Path, paths):
        runs = [run for run, _ in runs_at(path, lambda run: run.times(against))]
        if not runs:
            run_directory.refuse_zoo(path)
            raise UsageError(f"no run at {str(path)!r} or below it; give one such as runs/Pendulum-v1/1")
        found |= {run.path.resolve(): run for run in runs}
    return list(found.values())


def runs_at(path: Path, about: Callable[[Run], T]) -> list[tuple[Run, T]]:
    """Return the run at ``path``, or those below it, each with the result of ``about(run)``.

    A run below ``path`` that cannot be read, or for which ``about`` fails, is skipped with a line on stderr. Hidden
    folders, such as a run that is being created, are skipped silently.

    Raises:
        UsageError: if there is a run at ``path`` itself and it cannot be read.
    """
    if (path / run_config.CONFIG).exists():
        run = read_run(path)
        return [(run, about(run))]
    found = []
    for place in sorted(find_run_folders(path), key=_sort_key):
        try:
            run = read_run(place)
            found.append((run, about(run)))
        except (UsageError, OSError) as error:  # OSError: the run is being removed, or we lack permission to read it
            print_to_stderr(f"skipped: {printable(str(error))}")
    return found


def find_run_folders(root: Path) -> Iterator[Path]:
    """Yield the directories of runs at ``root`` and below it, each once; hidden ones are skipped.

    They have a ``config.json``, or evaluations and checkpoints, so that a run that has lost it is not overlooked.
    Links to directories are followed last, so that a run is found under its own path rather than a link's.
    """
    seen: set[str] = set()
    waiting = [str(root)]
    for start in waiting:  # the loop appends the links it finds
        for folder, names, files in os.walk(start):
            place = os.path.realpath(folder)
            if place in seen:
                names.clear()
                continue
            seen.add(place)
            names[:] = [name for name in names if not name.startswith(".")]
            waiting += [link for name in names if os.path.islink(link := os.path.join(folder, name))]
            if run_config.CONFIG in files or ("evaluations.csv" in files and "checkpoints" in names):
                yield Path(folder)


def _sort_key(path: Path) -> tuple[str, int, str]:
    return str(path.parent), int(path.name) if path.name.isdecimal() else -1, path.name
