"""Run the cells of a study, a bounded number at a time, until all have finished or a stop is requested.

An engine runs them: processes on this machine, a Ray cluster, or Slurm.
"""

import collections
import contextlib
import dataclasses
import json
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ddpg.checkpoints import atomic_write, safe_json
from ddpg.errors import file_faults
from ddpg.progress import format_number
from ddpg.runs import signals
from ddpg.runs.commands import allow_import_flags, as_argument, without_resume_hint
from ddpg.runs.lock import run_lock
from ddpg.studies import slurm_commands
from ddpg.studies.cell_process import Engine, Process
from ddpg.studies.engine_choice import EngineChoice
from ddpg.studies.study import Group
from ddpg.studies.study_folder import CellFolder, folders_of, write_study
from ddpg.studies.study_progress import StudyProgress

STOP_MESSAGE = (
    "the running cells are asked to save and end; a second signal ends this command at once, and the cells with it"
)
_MAX_RESTARTS = 3  # how often a cell is restarted because its machine was lost
_POLL_INTERVAL = 0.1  # seconds between polls of the processes
_SILENCE = 3600.0  # seconds without a row or a line of a running cell, upon which the user is told
_LONGEST_MESSAGE = 20  # lines of an exception's message; more are output that came after it


@dataclasses.dataclass(frozen=True)
class Job:
    """A running process and the cell that it works on."""

    folder: CellFolder
    stage: str
    process: Process
    log_start: int  # size of the log when it started, in bytes


class Scheduler:
    """Runs cells until each has finished or failed, or a stop is requested.

    Cells can be added and ended while it runs. If another process is training a cell, the scheduler waits for that
    process and continues from its last checkpoint.

    Args:
        folders: the folders of the cells to run, in this order.
        engine: runs the cells; the caller closes it.
        request: the stop request, upon which the cells are asked to save and end.
        say: called with a line of text for every cell that starts or ends.

    Attributes:
        failed: the reason of each failure, by cell.
    """

    def __init__(
        self, folders: Sequence[CellFolder], engine: Engine, request: signals.StopRequest, say: Callable[[str], None]
    ):
        self.failed: dict[CellFolder, str] = {}
        self.running: dict[CellFolder, Job] = {}
        self._waiting = collections.deque(folders)
        self._engine, self._request, self._say = engine, request, say
        self._foreign: set[CellFolder] = set()  # waiting cells that another process is training
        self._lost: collections.Counter[CellFolder] = collections.Counter()
        self._ended_early: set[CellFolder] = set()
        self._said_unavailable = False  # whether the user knows that the cluster does not answer
        self._news: dict[CellFolder, tuple[float, float]] = {}  # when its files were written, and when that was seen
        self._checked_at = 0.0

    def run(self, look: Callable[[], None] = lambda: None) -> None:
        """Run the cells; call ``look`` in every round."""
        asked = False
        # Cells have their own sessions, so signals from the terminal do not reach them.
        self._request.before_end = self._terminate_all
        try:
            while self._waiting or self.running:
                if self._request.number is None:
                    self._start_waiting()
                elif not asked:
                    asked = True
                    self._terminate_all()
                for job in [job for job in self.running.values() if job.process.poll() is not None]:
                    self._on_exit(job)
                self._tell_of_silence()
                look()
                if self._request.number is not None and not self.running:
                    return
                time.sleep(_POLL_INTERVAL)
        finally:
            self._terminate_all()
            for job in self.running.values():
                job.process.wait()
            self._request.before_end = signals.ignore

    @property
    def free(self) -> int:
        """The number of additional cells that could start now."""
        return self._engine.slots() - len(self.running) - len(self._waiting)

    def add(self, folders: Sequence[CellFolder]) -> None:
        """Add cells to the queue."""
        self._waiting.extend(folders)

    def is_busy(self, folder: CellFolder) -> bool:
        """Return whether a cell is waiting or running."""
        return folder in self.running or folder in self._waiting

    def end(self, folder: CellFolder) -> None:
        """Ask a cell to save and end, or drop it if it is still waiting; it does not count as failed."""
        self._ended_early.add(folder)
        with contextlib.suppress(ValueError):
            self._waiting.remove(folder)
        job = self.running.get(folder)
        if job is not None and job.process.poll() is None:
            job.process.terminate()

    def _start_waiting(self) -> None:
        """Start waiting cells while there are free slots; a cell that another process trains takes a slot, too."""
        self._foreign &= {*self._waiting}
        for folder in [*self._waiting]:
            try:
                held = self._engine.holds(folder)
            except slurm_commands.Unavailable as error:
                if not self._said_unavailable:
                    self._say(f"waiting for the cluster: {error}")
                self._said_unavailable = True
                return
            if folder.state == "running" and not held:
                if folder not in self._foreign:
                    self._say(f"{folder.cell}: another process is training it, and is waited for")
                self._foreign.add(folder)
                continue
            self._foreign.discard(folder)
            if len(self.running) + len(self._foreign) >= self._engine.slots():
                continue
            self._waiting.remove(folder)
            if folder.stage is not None:  # None: another process has finished it
                self._start(folder)

    def _start(self, folder: CellFolder) -> None:
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.failed.unlink(missing_ok=True)
        stage, log_start = str(folder.stage), folder.log.stat().st_size if folder.log.exists() else 0
        if stage != "evaluate":  # its run or its last checkpoint was removed after the evaluation
            folder.final.unlink(missing_ok=True)
        words = {"train": "started", "resume": f"goes on at step {folder.saved:,}", "evaluate": "is evaluated"}
        if self._engine.queues:
            words["train"] = "queued"
        if self._engine.holds(folder):
            words = dict.fromkeys(words, "its job of before is followed")
        self.running[folder] = Job(folder, stage, self._engine.start(folder), log_start)
        self._say(f"{folder.cell}: {words[stage]}")

    def _tell_of_silence(self) -> None:
        """Say which running cells have written nothing for long; only the user can know whether they hang."""
        now = time.monotonic()
        if now - self._checked_at < _SILENCE / 60:
            return
        self._checked_at = now
        for folder, job in self.running.items():
            written, seen = self._news.get(folder, (0.0, now))
            newest = now if job.process.waiting else folder.written_at
            if newest == written and now - seen < _SILENCE:
                continue
            if newest == written:
                told = f"no news for {_SILENCE / 60:.0f} minutes; its environment may hang"
                self._say(f"{folder.cell}: {told}; its log: {folder.log}")
            self._news[folder] = newest, now

    def _terminate_all(self) -> None:
        # Those in a queue first, so that none of them begins meanwhile.
        for job in sorted(self.running.values(), key=lambda job: not job.process.waiting):
            if job.process.poll() is None:
                job.process.terminate()

    def _on_exit(self, job: Job) -> None:
        folder = job.folder
        del self.running[folder]
        status, stopping = job.process.returncode or 0, self._request.number is not None
        if folder in self._ended_early and status != 0:
            return
        # A job in a queue runs all stages, so its failure is that of the last stage it began.
        if folder.has_completed(job.stage) and not (self._engine.queues and status != 0 and folder.stage is not None):
            if status != 0 and not stopping:
                told = f"its results are complete, but after them its process failed: {_failure_reason(job)}"
                self._say(f"{folder.cell}: {told}; its log: {folder.log}")
            if folder.stage is None:
                self._say(f"{folder.cell}: {_finished(folder)}")
            elif not stopping:
                self._start(folder)
        elif job.process.gone is not None and not stopping and self._lost[folder] < _MAX_RESTARTS:
            self._lost[folder] += 1
            self._say(f"{folder.cell}: lost at step {folder.saved:,} ({job.process.gone}), begins there again")
            self._waiting.appendleft(folder)
        elif status != 0 and stopping:
            self._say(f"{folder.cell}: interrupted at step {folder.saved:,}")
        elif status != 0:
            # A killed cell is not at fault, so no failure is recorded and the next start of the study continues it.
            self._record_failure(folder, _failure_reason(job), record=0 < status < 128)
        else:
            self._record_failure(folder, _shortfall(folder), record=True)

    def _record_failure(self, folder: CellFolder, why: str, record: bool) -> None:
        self.failed[folder] = why
        self._say(f"{folder.cell}: failed: {why}; its log: {folder.log}")
        if record:
            atomic_write.write_text(folder.failed, json.dumps({"why": why}) + "\n")


@dataclasses.dataclass(frozen=True)
class StudyOutcome:
    """The state of a study after a run: the number of cells and of finished ones, and the reason of each failure."""

    cells: int
    finished: int
    failed: dict[str, str]


def run_study(
    study: Path,
    root: Path,
    groups: Sequence[Group],
    engine: EngineChoice,
    *,
    retry: bool = False,
    progress_bar: bool = True,
) -> StudyOutcome:
    """Run the unfinished cells of a study, each as a ``ddpg`` process here or on a cluster.

    The first SIGINT, SIGTERM or SIGHUP lets the running cells save and end; if one came before, nothing is begun.

    Args:
        study: its TOML file, which is copied into the folder.
        root: its folder.
        groups: from :func:`ddpg.studies.study.read_study`.
        engine: runs the cells.
        retry: also retry cells that failed.
        progress_bar: show a bar if stderr is a terminal.

    Raises:
        UsageError: if another process holds the folder, the folder belongs to another study, or Ray or Slurm is not
            installed.
        EnvironmentFault: if no cluster can be reached or started.
        FileFault: if a file cannot be read or written.
        KeyboardInterrupt: if a stop was requested before; nothing is written then.
    """
    engine.check()
    left: list[CellFolder] = []

    def again() -> str:
        """Return the command that goes on, also with the cells that failed meanwhile, as they do on a full disk."""
        return study_resume_hint(study, root, groups, engine, retry or any(folder.failed.exists() for folder in left))

    with locked_folder(root, again) as request:
        write_study(root, study, groups)
        folders = folders_of(root, groups)
        states = {folder: folder.state for folder in folders}
        before = [folder for folder in folders if states[folder] == "failed" and not retry]
        left = [folder for folder in folders if states[folder] != "finished" and folder not in before]
        with StudyProgress(folders, progress_bar) as board:
            for folder in before:
                board.say(f"{folder.cell}: failed before: {folder.failure_reason}; --retry tries it again")
            unfinished = {id(folder.cell.group) for folder in left}
            for group in groups:
                if id(group) in unfinished and (note := group.budget_note(f"{group.name} {group.configuration}")):
                    board.say(note)
            with engine.started() as started:
                scheduler = Scheduler(left, started, request, board.say)
                scheduler.run(board.look)
        finished = sum(folder.state == "finished" for folder in folders)
        if request.number is not None and finished < len(folders):
            request.left = True
            request.say(
                f"{finished} of {len(folders)} cells {'is' if finished == 1 else 'are'} finished; {request.resumable()}"
            )
    failed = {str(folder.cell): folder.failure_reason for folder in before}
    return StudyOutcome(
        len(folders), finished, failed | {str(folder.cell): why for folder, why in scheduler.failed.items()}
    )


@contextlib.contextmanager
def locked_folder(root: Path, again: Callable[[], str]) -> Iterator[signals.StopRequest]:
    """Make and lock the folder of a study or a tuning until the block ends, and yield the stop request.

    Args:
        root: the folder.
        again: returns the command that resumes the study or the tuning.

    Raises:
        KeyboardInterrupt: if a stop was requested before; nothing is made then.
        UsageError: if another process holds the folder.
        FileFault: if a file cannot be read or written; the message says how to go on.
    """
    with signals.stop_on_signals() as request:
        if request.number is not None:
            raise KeyboardInterrupt(request.resumable())
        root.mkdir(parents=True, exist_ok=True)
        go_on = "what has finished is kept; with that put right, go on with: "
        with run_lock(root), file_faults(lambda: go_on + again()):
            request.answer, request.resumable = STOP_MESSAGE, lambda: f"go on with: {again()}"
            yield request


def study_resume_hint(
    study: Path, root: Path, groups: Sequence[Group], engine: EngineChoice, retry: bool = False
) -> str:
    """Return the command that resumes a study, with ``retry`` also its cells that failed."""
    modules = allow_import_flags(*(name for group in groups for name in group.references))
    words = ["ddpg", "study", as_argument(study), "--root", as_argument(root)]
    return shlex.join([*words, *["--retry"] * retry, *engine.command_flags(), *modules])


def _failure_reason(job: Job) -> str:
    """Return the reason why a process failed, in one line.

    This is its last error message, the exception of a traceback at the end of its output, or the last line. How to
    resume the run is left out: the study does that, and under Ray the run's folder was on its node.
    """
    status = job.process.returncode or 0
    if job.process.gone is not None:
        return job.process.gone
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    lines = [line for line in _new_log_lines(job) if line.strip()]
    errors = [line for line in lines if line.startswith("ddpg: error: ")]
    said = errors[-1:] or _exception(lines) or lines[-1:] or ["it said nothing"]
    why = without_resume_hint(" ".join(line.strip() for line in said).removeprefix("ddpg: error: "))
    return safe_json.one_line(why) + f" (status {status})"


def _shortfall(folder: CellFolder) -> str:
    """Return what is missing in a cell whose process has ended without an error."""
    if folder.saved < folder.cell.group.total_timesteps:
        return "ended before its goal without a reason"
    return (
        f"its training has ended, but {folder.run}/evaluations.csv lacks the last evaluation: the file was edited or "
        f"damaged; bring it back, or remove {folder.run}"
    )


def _exception(lines: list[str]) -> list[str]:
    """Return the lines of the exception, if the last lines are those of a traceback: its type and its whole message."""
    starts = [number for number, line in enumerate(lines) if line.startswith("Traceback (most recent call last):")]
    if not starts:
        return []
    below = range(starts[-1] + 1, len(lines))
    first = next((number for number in below if not lines[number][0].isspace()), len(lines))
    return lines[first:] if len(lines) - first <= _LONGEST_MESSAGE else []


def _new_log_lines(job: Job) -> Iterator[str]:
    with job.folder.log.open("rb") as log:
        log.seek(job.log_start)
        yield from log.read().decode(errors="replace").splitlines()


def _finished(folder: CellFolder) -> str:
    """Return the message about a finished cell, with its evaluation return if it was evaluated."""
    told: Mapping[str, float | str] = folder.evaluated or next(reversed(folder.evaluations), {})
    has_return = "mean_return" in told
    return "finished" + (f", evaluation return {format_number(float(told['mean_return']))}" if has_return else "")
