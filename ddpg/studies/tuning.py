"""Run a tuning: propose trials, train and prune them, then compare the best with the preset on fresh seeds."""

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ddpg.config.algorithm_options import CONFIGS
from ddpg.errors import UsageError
from ddpg.progress import format_number
from ddpg.studies.engine_choice import EngineChoice
from ddpg.studies.scheduler import Scheduler, locked_folder
from ddpg.studies.search_space import Check, accept_all
from ddpg.studies.study import Group
from ddpg.studies.study_folder import CellFolder, folders_of
from ddpg.studies.study_progress import TuningProgress
from ddpg.studies.trials import Trial, Trials, check_installed
from ddpg.studies.tuning_plan import JOURNAL, TuningPlan, write_plan

_DIVERGED = "training diverged"  # part of the updater's error message
_JOBS_ON_SLURM = 10  # the sampler draws this many trials at random before it uses results
_MAX_FAILURES_IN_A_ROW = 3  # after these the tuning ends, because the options are hardly the cause


@dataclasses.dataclass(frozen=True)
class TuningOutcome:
    """The state of a tuning after a run.

    Attributes:
        trials: all trials so far.
        best: the finished trial with the largest value, if any.
        compared: the groups of the comparison: the best trial and the preset; empty before all trials are over.
        failed: the reasons why cells of the comparison failed, by cell.
        base_first: whether the base configuration is in the space, and so was the first trial.
        stopped: the reason why the tuning ended before the requested number of trials, if it did.
        fresh_seeds: the requested number of seeds of the comparison; 0: no comparison.
    """

    trials: list[Trial]
    best: Trial | None
    compared: list[Group]
    failed: dict[str, str]
    base_first: bool
    stopped: str | None
    fresh_seeds: int


class Tuner:
    """Proposes trials, follows their evaluations, and records their results.

    It continues the unfinished trials of an earlier process.

    Args:
        root: the tuning's folder.
        plan: the plan of the tuning.
        trials: the trials recorded so far.
        wanted: the requested number of trials.
        cells: runs the cells of trials.
        say: called with a line of text for every trial that ends.
        check: raises ``UsageError`` for options with which no run can begin.

    Attributes:
        stopped: the reason why no more trials are proposed although there are fewer than requested.
    """

    def __init__(
        self,
        root: Path,
        plan: TuningPlan,
        trials: Trials,
        wanted: int,
        cells: Scheduler,
        say: Callable[[str], None],
        check: Check = accept_all,
    ):
        self._root, self._plan, self._trials, self._wanted = root, plan, trials, wanted
        self._cells, self._say, self._check = cells, say, check
        self._running: dict[int, _RunningTrial] = {}
        self._failed_in_a_row = 0
        self.stopped: str | None = None
        known = trials.all()
        self._count = len(known)
        for trial in known:
            if trial.state == "running":
                self._begin(trial)

    def look(self, proposing: bool = True) -> None:
        """Record new evaluations and finished trials; propose trials while there are free jobs."""
        for trial in [*self._running.values()]:
            self._follow(trial)
        while proposing and self.stopped is None and self._count < self._wanted and self._cells.free > 0:
            self._count += 1
            self._begin(self._trials.ask())

    def _begin(self, trial: Trial) -> None:
        try:
            group = self._plan.trial(trial.number, trial.changes)
            self._check(CONFIGS[group.algorithm].from_json(group.options))
        except UsageError as error:
            self._trials.prune(trial.number, f"refused: {error}")
            self._say(f"trial {trial.number}: refused: {error}")
            return
        folders, reported = folders_of(self._root, [group]), max(trial.returns, default=0)
        self._running[trial.number] = _RunningTrial(trial.number, folders, reported, max(0, reported - 1))
        self._cells.add([folder for folder in folders if folder.state not in ("finished", "failed")])

    def _follow(self, trial: "_RunningTrial") -> None:
        number = trial.number
        failed = [why for folder in trial.folders if (why := self._failure_of(folder)) is not None]
        if failed and _DIVERGED in failed[0]:
            self._trials.prune(number, failed[0])
            self._finish(trial, f"pruned: {failed[0]}")
        elif failed:
            self._fail(trial, failed[0])
        else:
            self._evaluations(trial)

    def _fail(self, trial: "_RunningTrial", why: str) -> None:
        self._failed_in_a_row += 1
        if self._failed_in_a_row == _MAX_FAILURES_IN_A_ROW:
            self.stopped = f"{_MAX_FAILURES_IN_A_ROW} trials failed one after the other, the last with: {why}"
        self._trials.fail(trial.number, why)
        self._finish(trial, f"failed: {why}")

    def _evaluations(self, trial: "_RunningTrial") -> None:
        """Record, in order, the evaluations that all seeds of a trial have reached, until the trial should be pruned.

        Evaluations before the warm-up are left out, because the policy has hardly learned anything by then.
        """
        number, ended = trial.number, not any(map(self._cells.is_busy, trial.folders))
        rows = [evaluations(folder) for folder in trial.folders]
        by_seed = [{self._plan.nth(step): value for step, value in of_seed} for of_seed in rows]
        for nth in sorted(set.intersection(*map(set, by_seed))):  # a seed lacks one if an episode outlasts the interval
            if nth <= trial.judged or nth < self._plan.warmup:
                continue
            mean = float(np.mean([of_seed[nth] for of_seed in by_seed]))
            if nth > trial.reported:
                self._trials.report(number, nth, mean)
                trial.reported = nth
            trial.judged = nth
            if nth < self._plan.nth(self._plan.base.total_timesteps) and self._trials.should_prune(number):
                self._trials.prune(number)
                at = nth * self._plan.base.evaluation_interval
                self._finish(trial, f"pruned at step {at:,}, evaluation return {format_number(mean)}")
                return
        if ended and all(folder.stage is None for folder in trial.folders):
            if [] in rows:
                run = trial.folders[rows.index([])].run
                self._fail(trial, f"{run}/evaluations.csv has no evaluation, although the run has finished")
                return
            value = float(np.mean([of_seed[-1][1] for of_seed in rows]))
            self._failed_in_a_row = 0
            self._trials.complete(number, value)
            self._finish(trial, f"evaluation return {format_number(value)}{self._best()}")

    def _finish(self, trial: "_RunningTrial", text: str) -> None:
        del self._running[trial.number]
        for folder in trial.folders:
            self._cells.end(folder)
        self._say(f"trial {trial.number}: {text}")

    def _best(self) -> str:
        best = self._trials.best
        return "" if best is None or best.value is None else f"; best: trial {best.number}, {format_number(best.value)}"

    def _failure_of(self, folder: CellFolder) -> str | None:
        if folder in self._cells.failed:
            return self._cells.failed[folder]
        return folder.failure_reason if not self._cells.is_busy(folder) and folder.failed.exists() else None


@dataclasses.dataclass
class _RunningTrial:
    """A trial in training; ``reported`` and ``judged`` are its last recorded evaluation and the last one judged."""

    number: int
    folders: list[CellFolder]
    reported: int
    judged: int


def evaluations(folder: CellFolder) -> list[tuple[int, float]]:
    """Return (environment step, mean return in env units) of a cell's evaluations so far."""
    return [(int(row["timesteps"]), float(row["mean_return"])) for row in folder.evaluations]


def run_tuning(
    root: Path,
    plan: TuningPlan,
    wanted: int,
    fresh_seeds: int,
    engine: EngineChoice,
    *,
    again: Sequence[str] = (),
    check: Check = accept_all,
    progress_bar: bool = True,
) -> TuningOutcome:
    """Run the remaining trials of a tuning, then compare the best with the preset on fresh seeds.

    The first SIGINT, SIGTERM or SIGHUP lets the running cells save and end; if one came before, nothing is begun.

    Args:
        root: the tuning's folder.
        plan: its plan.
        wanted: the requested number of trials, including earlier ones.
        fresh_seeds: number of seeds of the comparison; 0: no comparison.
        engine: runs the cells; with Slurm at most ten at a time unless it says how many, because trials proposed at the
            same time cannot use each other's results.
        again: the words of the command that resumes the tuning.
        check: raises ``UsageError`` for options with which no run can begin; a trial with such options is pruned.
        progress_bar: show a bar over the trials if stderr is a terminal.

    Raises:
        UsageError: if the folder has another plan, another process holds it, or Optuna, Ray or Slurm is not installed;
            a :class:`FileFault` if a file is damaged, or cannot be read or written.
        KeyboardInterrupt: if a stop was requested before; nothing is written then.
    """
    check_installed()
    engine.check()
    if engine.name == "slurm" and engine.jobs is None:
        engine = dataclasses.replace(engine, jobs=_JOBS_ON_SLURM)
    with locked_folder(root, lambda: shlex.join(again)) as request:
        write_plan(root, plan)
        trials = Trials(root / JOURNAL, plan.fields, plan.tuning_seed, plan.pruning)
        base_first = trials.enqueue_base(plan.base.options)
        cells_failed: dict[str, str] = {}
        compared: list[Group] = []
        with TuningProgress(wanted, progress_bar) as bar, engine.started() as started:
            cells = Scheduler([], started, request, bar.say)
            tuner = Tuner(root, plan, trials, wanted, cells, bar.say, check)
            if "learning_starts" not in plan.space and (note := plan.base.budget_note(plan.base.name)):
                bar.say(note)

            def look() -> None:
                tuner.look(proposing=request.number is None)
                bar.move(trials)

            look()
            cells.run(look)
            bar.move(trials, at_once=True)
            over = request.number is None and tuner.stopped is None
            if over and fresh_seeds:
                compared = _comparison_groups(plan, trials.best, fresh_seeds)
                folders = folders_of(root, compared)
                left = [folder for folder in folders if folder.state != "finished"]
                cells = Scheduler(left, started, request, bar.say)
                cells.run()
                cells_failed = {str(folder.cell): why for folder, why in cells.failed.items()}
                over = all(folder.state == "finished" for folder in folders)
        if request.number is not None and not over:
            request.left = True
            done = sum(trial.state != "running" for trial in trials.all())
            request.say(f"{done} of {wanted} trials are over; {request.resumable()}")
        return TuningOutcome(trials.all(), trials.best, compared, cells_failed, base_first, tuner.stopped, fresh_seeds)


def _comparison_groups(plan: TuningPlan, best: Trial | None, seeds: int) -> list[Group]:
    """Return the groups of the best trial and of the preset; none if there is no best trial or it is the preset."""
    if best is None:
        return []
    options = plan.trial(best.number, best.changes).options
    if options == plan.preset:
        return []
    return [plan.fresh(f"best-{best.number:04d}", options, seeds), plan.fresh("preset", plan.preset, seeds)]
