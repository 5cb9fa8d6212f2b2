"""Run a study's cells in processes, a bounded number at a time, until finished or asked to stop."""

import collections
import contextlib
import dataclasses
import json
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ddpg.checkpoints import atomic_write, safe_json
from ddpg.progress import format_number
from ddpg.runs import run_directory, signals
from ddpg.runs.lock import run_lock
from ddpg.runs.report import allow_import_flags
from ddpg.studies.cell_process import COMMAND, Engine, Process
from ddpg.studies.engines import check_engine, engine_of
from ddpg.studies.study import Group, cells_of
from ddpg.studies.study_folder import CellFolder, note_study
from ddpg.studies.study_progress import StudyProgress

ANSWER = "the cells under way are asked to save and to end; a second signal ends this command at once, and they follow"
_LOST_AT_MOST = 3  # times that a cell is begun again whose machine went away
_POLL = 0.1  # seconds between looks at the processes


@dataclasses.dataclass(frozen=True)
class Job:
    """A process at work on a cell, here or elsewhere."""

    place: CellFolder
    stage: str
    process: Process
    begun_at: int  # bytes of the log before it


class Scheduler:
    """Runs cells until all are finished or failed, or until ``request``.

    A cell that another process is training is waited for, and goes on where that one left it.

    Attributes:
        failed: the cells that failed, and why.
    """

    def __init__(
        self, places: Sequence[CellFolder], engine: Engine, request: signals.StopRequest, say: Callable[[str], None]
    ):
        """Prepare.

        Args:
            places: of the cells to run, in their order.
            engine: where they are run, and how many at a time; it stays the caller's to close.
            request: to end earlier: the cells are asked to save and end.
            say: takes a line for every cell that begins or ends.
        """
        self.failed: dict[CellFolder, str] = {}
        self.running: dict[CellFolder, Job] = {}
        self._waiting = collections.deque(places)
        self._engine, self._request, self._say = engine, request, say
        self._others: set[CellFolder] = set()  # waiting, while another process trains them
        self._lost: collections.Counter[CellFolder] = collections.Counter()

    def run(self, look: Callable[[], None] = lambda: None) -> None:
        """Run them; ``look`` is called again and again meanwhile."""
        asked = False
        self._request.before_end = self._ask  # they are sessions of their own: nobody else would
        try:
            while self._waiting or self.running:
                if self._request.number is None:
                    self._fill()
                elif not asked:
                    asked = True
                    self._ask()
                for job in [job for job in self.running.values() if job.process.poll() is not None]:
                    self._ended(job)
                look()
                if self._request.number is not None and not self.running:
                    return
                time.sleep(_POLL)
        finally:
            self._ask()
            for job in self.running.values():
                job.process.wait()
            self._request.before_end = signals.ignore

    def _fill(self) -> None:
        """Start cells as there are jobs for them; those that other processes train are waited for, and count."""
        self._others &= {*self._waiting}
        for place in [*self._waiting]:
            if place.state == "running":
                if place not in self._others:
                    self._say(f"{place.cell}: another process is training it, and is waited for")
                self._others.add(place)
                continue
            self._others.discard(place)
            if len(self.running) + len(self._others) >= self._engine.slots():
                continue
            self._waiting.remove(place)
            if place.stage is not None:  # or somebody else has finished it meanwhile
                self._start(place)

    def _start(self, place: CellFolder) -> None:
        place.folder.mkdir(parents=True, exist_ok=True)
        place.failed.unlink(missing_ok=True)
        stage, begun_at = str(place.stage), place.log.stat().st_size if place.log.exists() else 0
        words = {"train": "started", "resume": f"goes on at step {place.saved:,}", "evaluate": "is evaluated"}
        self.running[place] = Job(place, stage, self._engine.start(place), begun_at)
        self._say(f"{place.cell}: {words[stage]}")

    def _ask(self) -> None:
        for job in [*self.running.values()]:
            if job.process.poll() is None:
                job.process.terminate()

    def _ended(self, job: Job) -> None:
        place = job.place
        del self.running[place]
        status = job.process.returncode or 0
        if job.process.gone is not None and self._request.number is None and self._lost[place] < _LOST_AT_MOST:
            self._lost[place] += 1
            self._say(f"{place.cell}: lost at step {place.saved:,} ({job.process.gone}), begins there again")
            self._waiting.appendleft(place)
        elif status != 0 and self._request.number is not None:
            self._say(f"{place.cell}: interrupted at step {place.saved:,}")
        elif status != 0:
            # One that was killed did nothing wrong: the next time it goes on.
            self._fails(place, _why(job), record=0 < status < 128)
        else:
            stage = place.stage
            if stage is None:
                self._say(f"{place.cell}: finished{_told(place)}")
            elif stage != "evaluate" or job.stage == "evaluate":
                self._fails(place, "ended before its goal without a reason", record=True)
            elif self._request.number is None:
                self._start(place)

    def _fails(self, place: CellFolder, why: str, record: bool) -> None:
        self.failed[place] = why
        if record:
            atomic_write.write_text(place.failed, json.dumps({"why": why}) + "\n")
        self._say(f"{place.cell}: failed: {why}; its log: {place.log}")


@dataclasses.dataclass(frozen=True)
class StudyOutcome:
    """How a study was left: how many cells it has, how many are finished, which failed and why."""

    cells: int
    finished: int
    failed: dict[str, str]


def run_study(
    study: Path,
    root: Path,
    groups: Sequence[Group],
    *,
    jobs: int | None = None,
    retry: bool = False,
    engine: str = "process",
    ray_address: str | None = None,
    progress_bar: bool = True,
    command: Sequence[str] = COMMAND,
) -> StudyOutcome:
    """Run what is left of a study's cells, each by the ``ddpg`` command in a process of its own, here or on a cluster.

    The first SIGINT or SIGTERM lets the cells under way save and end.

    Args:
        study: its file, which is copied to the folder.
        root: its folder.
        groups: of :func:`ddpg.studies.study.read_study`.
        jobs: cells at a time; one for every core by default, of the cluster if there is one.
        retry: go on with cells that failed, too.
        engine: ``"process"``: cells are processes of this machine, which share its cores; ``"ray"``: on a Ray cluster,
            of one CPU each.
        ray_address: of that cluster; none: one of this machine, which ends with the study.
        progress_bar: show one on stderr, where that is a terminal.
        command: of the processes.

    Raises:
        UsageError: another process owns the folder, it has another study, or there is no Ray.
        EnvironmentFault: no cluster can be reached or started.
        FileFault: the disk refused.
    """
    check_engine(engine, ray_address)
    again = study_resume_hint(study, root, groups, engine, ray_address)
    root.mkdir(parents=True, exist_ok=True)
    with signals.stop_on_signals() as request, run_lock(root):
        request.answer, request.resumable = ANSWER, lambda: f"go on with: {again}"
        note_study(root, study, groups)
        places = [CellFolder(root, cell) for cell in cells_of(groups)]
        states = {place: place.state for place in places}
        before = [place for place in places if states[place] == "failed" and not retry]
        left = [place for place in places if states[place] != "finished" and place not in before]
        with StudyProgress(places, progress_bar) as board:
            for place in before:
                board.say(f"{place.cell}: failed before: {place.why_failed}; --retry tries it again")
            with engine_of(engine, jobs, ray_address, command) as cells:
                scheduler = Scheduler(left, cells, request, board.say)
                scheduler.run(board.look)
        finished = sum(place.state == "finished" for place in places)
        if request.number is not None and finished < len(places):
            request.left = True
            request.say(f"{finished} of {len(places)} cells are finished; {request.resumable()}")
    failed = {str(place.cell): place.why_failed for place in before}
    return StudyOutcome(
        len(places), finished, failed | {str(place.cell): why for place, why in scheduler.failed.items()}
    )


def study_resume_hint(
    study: Path, root: Path, groups: Sequence[Group], engine: str = "process", ray_address: str | None = None
) -> str:
    """Return the command that goes on with a study."""
    where = [] if engine == "process" else ["--engine", engine]
    address = [] if ray_address is None else ["--ray-address", ray_address]
    modules = allow_import_flags(*(group.env_id for group in groups))
    return shlex.join(["ddpg", "study", str(study), "--root", str(root), *where, *address, *modules])


def _why(job: Job) -> str:
    """Return in one line why a process failed: what it said last."""
    status = job.process.returncode or 0
    if job.process.gone is not None:
        return job.process.gone
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    lines = [line for line in _said(job) if line.strip()]
    errors = [line for line in lines if line.startswith("ddpg: error: ")]
    last = (errors or lines or ["it said nothing"])[-1]
    return safe_json.one_line(last.removeprefix("ddpg: error: ").strip()) + f" (status {status})"


def _said(job: Job) -> Iterator[str]:
    with job.place.log.open("rb") as log:
        log.seek(job.begun_at)
        yield from log.read().decode(errors="replace").splitlines()


def _told(place: CellFolder) -> str:
    """Return what a finished cell returned."""
    run = place.run
    rows = run_directory.read_table(run / "evaluations.csv") if run else []
    told = place.evaluated or (rows[-1] if rows else {})
    return f", evaluation return {format_number(float(told['mean_return']))}" if "mean_return" in told else ""


class TrialScheduler(Scheduler):
    """A scheduler that is given cells, and told to end some, while it runs."""

    def __init__(self, engine: Engine, request: signals.StopRequest, say: Callable[[str], None]):
        """Prepare; see :class:`~ddpg.studies.scheduler.Scheduler`."""
        super().__init__([], engine, request, say)
        self._ended_early: set[CellFolder] = set()

    @property
    def free(self) -> int:
        """How many more cells could be trained at once."""
        return self._engine.slots() - len(self.running) - len(self._waiting)

    def add(self, places: Sequence[CellFolder]) -> None:
        """Take more cells."""
        self._waiting.extend(places)

    def is_busy(self, place: CellFolder) -> bool:
        """Return whether a cell waits or is trained."""
        return place in self.running or place in self._waiting

    def end(self, place: CellFolder) -> None:
        """Let a cell save and end, or never begin. It has not failed."""
        self._ended_early.add(place)
        with contextlib.suppress(ValueError):
            self._waiting.remove(place)
        job = self.running.get(place)
        if job is not None and job.process.poll() is None:
            job.process.terminate()

    def _ended(self, job: Job) -> None:
        if job.place in self._ended_early and job.process.returncode != 0:
            del self.running[job.place]
        else:
            super()._ended(job)
