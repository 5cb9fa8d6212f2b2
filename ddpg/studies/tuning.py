"""Tuning: propose trials, train them as cells, prune hopeless ones, compare the best on fresh seeds."""

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ddpg.errors import UsageError
from ddpg.progress import format_number
from ddpg.runs import run_directory, signals
from ddpg.runs.lock import run_lock
from ddpg.studies.cell_process import COMMAND
from ddpg.studies.engines import check_engine, engine_of
from ddpg.studies.scheduler import ANSWER, TrialScheduler
from ddpg.studies.study import Group
from ddpg.studies.study_folder import CellFolder
from ddpg.studies.study_progress import TuningProgress
from ddpg.studies.trials import Trial, Trials, check_installed
from ddpg.studies.tuning_plan import JOURNAL, TuningPlan, note_plan, places_of

_DIVERGED = "training diverged"  # as the updater says it
_IN_A_ROW = 3  # trials that fail one after the other end the tuning: what fails is then hardly theirs


@dataclasses.dataclass(frozen=True)
class TuningOutcome:
    """How a tuning was left.

    Attributes:
        trials: all that were asked for.
        best: the one with the largest value, if any reached its end.
        compared: the cells of the comparison, of the best and of the preset; none before all trials are over.
        failed: cells of the comparison that failed, and why.
        ground_first: whether the ground is in the space, and was the first trial.
        stopped: why no more trials were tried, where that was not their number.
    """

    trials: list[Trial]
    best: Trial | None
    compared: list[Group]
    failed: dict[str, str]
    ground_first: bool
    stopped: str | None


class Tuner:
    """Proposes trials, follows their evaluations, and notes how they end.

    Attributes:
        stopped: why no more trials are proposed, where that is not their number.
    """

    def __init__(
        self,
        root: Path,
        plan: TuningPlan,
        trials: Trials,
        wanted: int,
        cells: TrialScheduler,
        say: Callable[[str], None],
    ):
        """Prepare; trials that were running when an earlier process ended go on.

        Args:
            root: the tuning's folder.
            plan: of its trials.
            trials: noted so far.
            wanted: how many there shall be.
            cells: trains them.
            say: takes a line for every trial that ends.
        """
        self._root, self._plan, self._trials, self._wanted = root, plan, trials, wanted
        self._cells, self._say = cells, say
        self._under_way: dict[int, _RunningTrial] = {}
        self._failed_in_a_row = 0
        self.stopped: str | None = None
        noted = trials.all()
        self._count = len(noted)
        for trial in noted:
            if trial.state == "running":
                self._begin(trial)

    def look(self, proposing: bool = True) -> None:
        """Note what has been evaluated or has ended, and propose as many trials as there are free jobs."""
        for trial in [*self._under_way.values()]:
            self._follow(trial)
        while proposing and self.stopped is None and self._count < self._wanted and self._cells.free > 0:
            self._count += 1
            self._begin(self._trials.ask())

    def _begin(self, trial: Trial) -> None:
        try:
            group = self._plan.trial(trial.number, trial.changes)
        except UsageError as error:
            self._trials.prune(trial.number, f"refused: {error}")
            self._say(f"trial {trial.number}: refused: {error}")
            return
        places, noted = places_of(self._root, group), max(trial.told, default=0)
        self._under_way[trial.number] = _RunningTrial(trial.number, places, noted, max(0, noted - 1))
        self._cells.add([place for place in places if place.state not in ("finished", "failed")])

    def _follow(self, trial: "_RunningTrial") -> None:
        number = trial.number
        failed = [why for place in trial.places if (why := self._why_failed(place)) is not None]
        if failed and _DIVERGED in failed[0]:
            self._trials.prune(number, failed[0])
            self._leave(trial, f"pruned: {failed[0]}")
        elif failed:
            self._failed_in_a_row += 1
            if self._failed_in_a_row == _IN_A_ROW:
                self.stopped = f"{_IN_A_ROW} trials failed one after the other, the last with: {failed[0]}"
            self._trials.fail(number, failed[0])
            self._leave(trial, f"failed: {failed[0]}")
        else:
            self._evaluations(trial)

    def _evaluations(self, trial: "_RunningTrial") -> None:
        """Note the evaluations that all seeds of a trial have had, one after the other, until one is hopeless.

        Those before the warm-up are not noted: the best so far would be that of a policy that has not learned.
        """
        number, ended = trial.number, not any(map(self._cells.is_busy, trial.places))
        rows = [evaluations(place) for place in trial.places]
        by_seed = [{self._plan.nth(step): value for step, value in of_seed} for of_seed in rows]
        for nth in sorted(set.intersection(*map(set, by_seed))):  # an episode may outlast the interval
            if nth <= trial.judged or nth < self._plan.warmup:
                continue
            mean = float(np.mean([of_seed[nth] for of_seed in by_seed]))
            if nth > trial.noted:
                self._trials.report(number, nth, mean)
                trial.noted = nth
            trial.judged = nth
            if nth < self._plan.nth(self._plan.ground.total_timesteps) and self._trials.is_hopeless(number):
                self._trials.prune(number)
                at = nth * self._plan.ground.evaluation_interval
                self._leave(trial, f"pruned at step {at:,}, evaluation return {format_number(mean)}")
                return
        if ended and all(place.stage is None for place in trial.places):
            value = float(np.mean([of_seed[-1][1] for of_seed in rows]))
            self._failed_in_a_row = 0
            self._trials.complete(number, value)
            self._leave(trial, f"evaluation return {format_number(value)}{self._best()}")

    def _leave(self, trial: "_RunningTrial", text: str) -> None:
        del self._under_way[trial.number]
        for place in trial.places:
            self._cells.end(place)
        self._say(f"trial {trial.number}: {text}")

    def _best(self) -> str:
        best = self._trials.best
        return "" if best is None or best.value is None else f"; best: trial {best.number}, {format_number(best.value)}"

    def _why_failed(self, place: CellFolder) -> str | None:
        if place in self._cells.failed:
            return self._cells.failed[place]
        return place.why_failed if not self._cells.is_busy(place) and place.failed.exists() else None


@dataclasses.dataclass
class _RunningTrial:
    """A trial that is trained: up to which evaluation they are noted, and it was judged whether to go on."""

    number: int
    places: list[CellFolder]
    noted: int
    judged: int


def evaluations(place: CellFolder) -> list[tuple[int, float]]:
    """Return environment step and mean return (env units) of a cell's evaluations so far."""
    run = place.run
    rows = run_directory.read_table(run / "evaluations.csv") if run else []
    return [(int(row["timesteps"]), float(row["mean_return"])) for row in rows]


def run_tuning(
    root: Path,
    plan: TuningPlan,
    wanted: int,
    fresh_seeds: int,
    *,
    again: Sequence[str] = (),
    jobs: int | None = None,
    engine: str = "process",
    ray_address: str | None = None,
    progress_bar: bool = True,
    command: Sequence[str] = COMMAND,
) -> TuningOutcome:
    """Run what is left of a tuning: its trials, then the best of them beside the preset on fresh seeds.

    The first SIGINT or SIGTERM lets the cells under way save and end.

    Args:
        root: the tuning's folder.
        plan: what it is.
        wanted: how many trials there shall be, those of before counted.
        fresh_seeds: of the comparison; 0: none is made.
        again: the words of the command that goes on.
        jobs: cells at a time; ``None``: one for every core that this process may use, or of the cluster.
        engine, ray_address: where they are run: see :func:`ddpg.studies.scheduler.run_study`.
        progress_bar: show a bar over the trials, on a terminal.
        command: the ``ddpg`` command of the processes.

    Raises:
        UsageError: another plan is noted in the folder, another process owns it, or Optuna or Ray is not installed;
            a :class:`FileFault` where a file is damaged, or the disk refuses.
    """
    check_installed()
    check_engine(engine, ray_address)
    root.mkdir(parents=True, exist_ok=True)
    with signals.stop_on_signals() as request, run_lock(root):
        request.answer, request.resumable = ANSWER, lambda: f"go on with: {shlex.join(again)}"
        note_plan(root, plan)
        trials = Trials(root / JOURNAL, plan.fields, plan.tuning_seed, plan.pruning)
        ground_first = trials.enqueue_ground(plan.ground.options)
        cells_failed: dict[str, str] = {}
        compared: list[Group] = []
        with TuningProgress(wanted, progress_bar) as bar, engine_of(engine, jobs, ray_address, command) as where:
            cells = TrialScheduler(where, request, bar.say)
            tuner = Tuner(root, plan, trials, wanted, cells, bar.say)

            def look() -> None:
                tuner.look(proposing=request.number is None)
                bar.move(trials)

            look()
            cells.run(look)
            bar.move(trials, at_once=True)
            over = request.number is None and tuner.stopped is None
            if over and fresh_seeds:
                compared = _groups_compared(plan, trials.best, fresh_seeds)
                places = [place for group in compared for place in places_of(root, group)]
                cells = TrialScheduler(where, request, bar.say)
                cells.add([place for place in _by_seed(places) if place.state != "finished"])
                cells.run()
                cells_failed = {str(place.cell): why for place, why in cells.failed.items()}
                over = all(place.state == "finished" for place in places)
        if request.number is not None and not over:
            request.left = True
            done = sum(trial.state != "running" for trial in trials.all())
            request.say(f"{done} of {wanted} trials are over; {request.resumable()}")
        return TuningOutcome(trials.all(), trials.best, compared, cells_failed, ground_first, tuner.stopped)


def _groups_compared(plan: TuningPlan, best: Trial | None, seeds: int) -> list[Group]:
    """Return the best and the preset; none without a best one, or where it is the preset itself."""
    if best is None:
        return []
    options = plan.trial(best.number, best.changes).options
    if options == plan.preset:
        return []
    return [plan.fresh(f"best-{best.number:04d}", options, seeds), plan.fresh("preset", plan.preset, seeds)]


def _by_seed(places: Sequence[CellFolder]) -> list[CellFolder]:
    return sorted(places, key=lambda place: place.cell.seed)
