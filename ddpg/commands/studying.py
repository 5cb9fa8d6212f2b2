"""``ddpg study``. TensorFlow is imported by the processes of its cells alone."""

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from ddpg.answers import stdout_kept
from ddpg.commands.base import WithJson, WithProgress, find_here
from ddpg.errors import CellsFailed
from ddpg.options import option
from ddpg.progress import saying

if TYPE_CHECKING:
    from ddpg.studies.study_jobs import Outcome
    from ddpg.studies.study_report import Report


@dataclasses.dataclass(frozen=True, kw_only=True)
class Study(WithJson, WithProgress):
    """Environments, configurations, seeds: many runs, resumable; a table."""

    study: str = option(
        dataclasses.MISSING, "a TOML file that describes it (docs/studies.md)", positional=True, metavar="STUDY.toml"
    )
    root: str | None = option(None, "the study's folder; none: studies/ and the name of its file", metavar="DIR")
    jobs: int | None = option(None, "runs at a time, which share the cores; none: one for every core")
    engine: str = option(
        "process", "where they are; process: processes of this machine; ray: a Ray cluster", metavar="{process,ray}"
    )
    ray_address: str | None = option(None, "of a Ray cluster; none: one on this machine", metavar="ADDRESS")
    retry: bool = option(False, "go on with cells that failed, too")
    report: bool = option(False, "only write what there is so far, also while it runs")
    allow_import: tuple[str, ...] = option((), "let an environment, module:Id, import MODULE", metavar="MODULE")

    def __post_init__(self):
        super().__post_init__()
        self._check(self.jobs is None or self.jobs >= 1, "jobs", "at least 1, or none")

    def __call__(self) -> None:
        """Run what is left of it, and report."""
        path = Path(self.study)
        root = Path("studies", path.stem) if self.root is None else Path(self.root)
        with stdout_kept(self.json):
            report, outcome = self._report(path, root)
        self._print(root, report, outcome)
        if outcome is not None and outcome.failed:
            cell, why = next(iter(outcome.failed.items()))
            count = f"{len(outcome.failed)} of {outcome.cells} cells failed, {cell} with: {why}"
            raise CellsFailed(f"{count}; with that put right, try them again with --retry")

    def _report(self, path: Path, root: Path) -> "tuple[Report, Outcome | None]":
        from ddpg.studies.study_report import write_report

        outcome = None
        if self.report:
            from ddpg.studies.study_folder import read_cells

            groups = read_cells(root)
        else:
            from ddpg.runs import directory
            from ddpg.studies.study import read_study
            from ddpg.studies.study_jobs import run_study

            find_here(*self.allow_import)
            with saying("checking the cells", self.progress_bar):
                groups = read_study(path, self.allow_import)
            directory.check_root(root)
            outcome = run_study(
                path,
                root,
                groups,
                jobs=self.jobs,
                retry=self.retry,
                engine=self.engine,
                ray_address=self.ray_address,
                progress_bar=self.progress_bar,
            )
        return write_report(root, groups), outcome

    def _print(self, root: Path, report: "Report", outcome: "Outcome | None") -> None:
        files = {"results": report.results, "table": report.table, "text": report.text, "figure": report.figure}
        if self.json:
            rows = [{name: _finite(value) for name, value in row.items()} for row in report.rows]
            named = {name: None if path is None else str(path) for name, path in files.items()}
            print(json.dumps({"study": str(root), **named, "rows": rows, **(vars(outcome) if outcome else {})}))
            return
        print(report.text.read_text(encoding="utf-8"))
        print("Written: " + ", ".join(str(path) for path in files.values() if path is not None))


def _finite(value: object) -> object:
    """Return a value as JSON takes it: NaN is none."""
    return None if isinstance(value, float) and math.isnan(value) else value
