"""The folder of a study, and the state of each of its cells as its files show it.

.slurm/                        files of Slurm jobs (see slurm_node)
study.toml                     a copy of the study's file
study.json                     the study's cells with all options, which must not change
CONFIGURATION/SEED/ENV/1/      the run directory of a cell
CONFIGURATION/SEED/ENV/        options.toml, log.txt, final.json, failed.json of a cell
results.csv, table.csv, comparison.csv, table.md, curves.png
"""

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from ddpg.checkpoints import atomic_write, safe_json
from ddpg.checkpoints.safe_json import convert
from ddpg.checkpoints.target_dir import numbered
from ddpg.config.algorithm_options import CONFIGS
from ddpg.config.imports import is_reference
from ddpg.config.options import as_toml
from ddpg.errors import FileFault, UsageError
from ddpg.runs import run_config, run_directory
from ddpg.runs.commands import allow_import_flags, as_argument
from ddpg.runs.lock import LOG, is_cell_running, is_run_locked
from ddpg.runs.tables import read_table
from ddpg.studies.study import FILES, Cell, Group, cells_of

SLURM = ".slurm"  # begins with a dot, so it cannot be the name of a configuration
TUNING_PLAN = "tuning.json"  # marks the folder of a tuning, into which no study is written


class _Evaluation(msgspec.Struct):
    mean_return: float
    std_return: float | None = None  # null in the file: infinite, as the spread of very large returns can be
    mean_length: float | None = None
    success_rate: float | None = None


EVALUATED = _Evaluation.__struct_fields__  # the numbers of an evaluation that go into results.csv


class _Cells(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1]
    groups: Annotated[list[Group], msgspec.Meta(min_length=1)]


class CellFolder:
    """The folder of one cell, and the cell's state as its files show it.

    Attributes:
        root: the study's folder.
        path: ``CONFIGURATION/SEED/ENV`` in the study's folder.
    """

    def __init__(self, root: Path, cell: Cell):
        self.root, self.cell = root, cell
        self._home = root / cell.group.configuration / str(cell.seed)
        self.path = self._home / cell.group.name
        self.log, self.final, self.failed, self._options = (
            self.path / name for name in (LOG, "final.json", "failed.json", "options.toml")
        )

    @property
    def run(self) -> Path | None:
        """The newest run directory, or ``None``."""
        return next(reversed(numbered(self.path, run_config.CONFIG)), None)

    @property
    def saved(self) -> int:
        """The step of the newest checkpoint; 0 if there is none."""
        run = self.run
        saved = run_directory.checkpoints(run) if run else []
        return int(saved[-1].name) if saved else 0

    @property
    def steps(self) -> int:
        """Steps trained so far, according to the newest checkpoint or table row; the table may be damaged."""
        rows: list[dict[str, str]] = []
        with contextlib.suppress(FileFault):
            rows = self._table("metrics.csv")
        return max(self.saved, int(rows[-1]["timesteps"]) if rows else 0)

    @property
    def written_at(self) -> float:
        """When the log or a table of the newest run was last written, in seconds since the epoch; 0: never."""
        tables = (self.run or self.path).glob("*.csv")
        return max((path.stat().st_mtime for path in (self.log, *tables) if path.exists()), default=0.0)

    @property
    def evaluations(self) -> list[dict[str, str]]:
        """The rows of the newest run's evaluations so far, see :meth:`up_to_goal`."""
        return self.up_to_goal(self._table("evaluations.csv"))

    def up_to_goal(self, rows: list[dict[str, str]]) -> list[dict[str, str]]:
        """Return the rows of a table up to the first at the study's steps; the user may have extended the run."""
        goal = self.cell.group.total_timesteps
        reached = (number for number, row in enumerate(rows, 1) if int(row["timesteps"]) >= goal)
        return rows[: next(reached, len(rows))]

    @property
    def stage(self) -> str | None:
        """The next stage: ``"train"``, ``"resume"`` or ``"evaluate"``; ``None``: the cell has finished."""
        if self.run is None:
            return "train"
        if self.saved < self.cell.group.total_timesteps or self._lacks_last_evaluation():
            return "resume"
        return "evaluate" if self.cell.group.final_episodes and not self.final.exists() else None

    def has_completed(self, stage: str) -> bool:
        """Whether the results of ``stage`` are complete, however its process ended."""
        now = self.stage
        return now is None or (now == "evaluate" and stage != "evaluate")

    def _lacks_last_evaluation(self) -> bool:
        """Whether the run was interrupted in the evaluation at its goal, so that its table ends before.

        Not if the table is lost or damaged: training has ended, and the report names the file.
        """
        if self.run is None or not (self.run / "evaluations.csv").exists():
            return False
        try:
            rows = self.evaluations
        except FileFault:
            return False
        return not rows or int(rows[-1]["timesteps"]) < self.cell.group.total_timesteps

    @property
    def state(self) -> str:
        """``finished``, ``running``, ``failed``, ``interrupted`` or ``waiting``."""
        if self.run is not None and is_run_locked(self.run):
            return "running"
        if self.stage is None:
            return "finished"
        if is_cell_running(self.log):  # true even before it has a run directory, or after its study was killed
            return "running"
        return "failed" if self.failed.exists() else "waiting" if self.run is None else "interrupted"

    @property
    def failure_reason(self) -> str:
        """The reason why the cell failed, as recorded in its folder; if the record is damaged, that it is."""
        try:
            record = read_record(self.failed, "the reason is lost")
        except FileFault as fault:
            return str(fault)
        return safe_json.one_line(str(record.get("why"))) if isinstance(record, dict) else "unknown"

    @property
    def evaluated(self) -> dict[str, float]:
        """The result of the evaluation after training; empty if there is none yet."""
        return read_evaluation(self.final) if self.final.exists() else {}

    def log_error(self, why: str) -> None:
        """Append an error to the log, in the form in which ``ddpg`` prints its own."""
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"ddpg: error: {why}\n")

    def _table(self, name: str) -> list[dict[str, str]]:
        run = self.run
        return read_table(run / name) if run else []

    def arguments(self) -> list[str]:
        """Write the options file of the next stage, and return the arguments of the ``ddpg`` command that reads it."""
        group, run = self.cell.group, as_argument(self.run or self.path)
        allowed = allow_import_flags(*group.references)
        if self.stage == "evaluate":
            return ["evaluate", run, "--episodes", str(group.final_episodes), "--json", *allowed]
        if self.stage == "resume":
            return ["resume", run, "--json", "--no-progress-bar", *allowed]
        atomic_write.write_text(self._options, as_toml(group.options))
        asked: dict[str, Any] = {"seed": self.cell.seed}
        asked |= {"root": as_argument(self._home), "config": as_argument(self._options)}
        for name in ("total_timesteps", "evaluation_interval", "evaluation_episodes", "n_envs", "vectorization"):
            asked[name] = getattr(group, name)
        if group.collector != "local":
            asked |= {"collector": group.collector, "workers": group.workers}
        flags = [word for name, value in asked.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        own = ["--algorithm", group.algorithm] if is_reference(group.algorithm) else []
        return ["train", group.env_id, *flags, *own, *allowed, *group.source.flags(), "--json", "--no-progress-bar"]


def folders_of(root: Path, groups: Sequence[Group]) -> list[CellFolder]:
    """Return the folders of the groups' cells, in the order of :func:`ddpg.studies.study.cells_of`."""
    return [CellFolder(root, cell) for cell in cells_of(groups)]


def read_evaluation(path: Path, advice: str = "remove it, and the study evaluates again") -> dict[str, float]:
    """Return the numbers of a report in the output of ``ddpg evaluate --json``, from a file; null is left out.

    Raises:
        FileFault: if the file holds anything else; the message ends with ``advice``.
    """
    found = msgspec.structs.asdict(read_record(path, advice, _Evaluation))
    return {name: value for name, value in found.items() if value is not None}


def read_record(path: Path, advice: str, kind: Any = Any) -> Any:
    """Return the msgspec type ``kind`` from a JSON file.

    Raises:
        FileFault: if the file holds anything else; the message ends with ``advice``.
        FileNotFoundError: if there is no file.
    """
    with safe_json.advising(advice):
        return convert(f"{path}:", safe_json.read_json(path), kind)


def write_study(root: Path, study: Path, groups: Sequence[Group]) -> None:
    """Write a study into its folder, or add new cells to the study that is in the folder already.

    Raises:
        UsageError: if a cell of the study in the folder that has a run was removed or changed; the message names the
            difference. Also if the folder is that of a tuning.
    """
    if (root / TUNING_PLAN).exists():
        raise UsageError(f"{root} is the folder of a tuning; give another --root")
    if (root / FILES.cells).exists():
        check_same(root, [group for group in read_cells(root) if _has_begun(root, group)], groups)
    record = json.dumps({"format": 1, "groups": msgspec.to_builtins(list(groups))})
    if len(record) >= safe_json.LARGEST:
        raise UsageError(f"{study} has {len(groups)} configurations in environments, too many for one; make it several")
    copy = root / FILES.copy
    if not (copy.exists() and copy.samefile(study)):
        atomic_write.write_text(copy, study.read_bytes().decode())
    atomic_write.write_text(root / FILES.cells, f"{record}\n")


def _has_begun(root: Path, group: Group) -> bool:
    """Return whether a cell of a group has a run, or is about to have one."""
    if (root / SLURM).exists():  # a job that waits holds the options with which it was submitted
        return True
    return any(folder.run is not None or folder.state == "running" for folder in folders_of(root, [group]))


def read_cells(root: Path) -> list[Group]:
    """Return the groups of the study in a folder.

    Raises:
        UsageError: if there is no study; a :class:`FileFault` if its file is damaged.
    """
    try:
        return read_record(root / FILES.cells, "bring it back, or take another --root", _Cells).groups
    except FileNotFoundError:
        raise UsageError(f"no study in {str(root)!r} yet; start it without --report") from None


def check_same(root: Path, before: Sequence[Group], now: Sequence[Group]) -> None:
    """Check that no cell of a study was removed or changed.

    Raises:
        UsageError: if one was; the message names the difference.
    """
    known = {(group.name, group.configuration): group for group in now}
    advice = f"cells may only be added to the study in {root}; put that back, or give another --root"
    for group in before:
        what = f"{group.configuration!r} in {group.name}"
        other = known.get((group.name, group.configuration))
        if other is None:
            raise UsageError(f"{what} is not in the study any more; {advice}")
        if missing := [seed for seed in group.seeds if seed not in other.seeds]:
            raise UsageError(f"seed {missing[0]} of {what} is not in the study any more; {advice}")
        for name, old, new in _differences(group, other):
            if name == "evaluation_interval":  # its default may be another one than when the study began
                advice = f"{advice}; evaluation_interval = {old} in the file goes on with these cells"
            raise UsageError(f"{name} of {what} was {old!r} and is now {new!r}; {advice}")


def _differences(one: Group, other: Group) -> list[tuple[str, Any, Any]]:
    olds, news = (msgspec.to_builtins(group) for group in (one, other))
    if one.algorithm == other.algorithm:  # options that are newer than the study count with their defaults
        olds["options"] = CONFIGS[one.algorithm]().to_json() | one.options
    for values in (olds, news):
        del values["seeds"]
        values |= values.pop("options")
    return changed_values(olds, news)


def changed_values(olds: dict[str, Any], news: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the name, old and new value of everything that differs; ``None`` stands for a missing value."""
    return [(name, olds.get(name), news.get(name)) for name in {**olds, **news} if olds.get(name) != news.get(name)]
