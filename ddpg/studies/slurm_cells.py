"""Run cells as Slurm array jobs.

The nodes share the study's folder and the interpreter with the submitting machine. All cells started in one round of
the scheduler are submitted as one array (:mod:`ddpg.studies.slurm_node`), and one ``squeue`` call every few seconds
lists all jobs. The jobs belong to Slurm: they survive a killed study, and the next one finds them by their names.
"""

import signal
import time
from collections.abc import Sequence
from pathlib import Path

from ddpg.errors import EnvironmentFault
from ddpg.studies import slurm_commands
from ddpg.studies.cell_process import Engine, Process
from ddpg.studies.slurm_commands import JobState, SlurmOptions
from ddpg.studies.slurm_node import REQUEUE, STOP, CellBatch, batch_numbers, job_prefix
from ddpg.studies.study import MAX_CELLS
from ddpg.studies.study_folder import CellFolder

INTERVAL = 5.0  # seconds between two calls of squeue
PATIENCE = 60.0  # seconds to wait until a file written by a node is visible here
_MAX_ARRAY = 1000  # maximum cells in an array; Slurm's default MaxArraySize is 1001
_SECONDS_BEFORE_LIMIT = 120  # time of the signal to save, before the time limit; Slurm can send it a minute earlier


class SlurmProcess(Process):
    """The scheduler's handle of a cell's job.

    Attributes:
        job: the job's id as ``ARRAY_INDEX``; ``None`` if it is not known yet.
    """

    def __init__(self, engine: "SlurmEngine", folder: CellFolder):
        self.job: str | None = None
        self.folder = folder
        self.batch: CellBatch | None = None
        self.index = 0
        self._state: JobState | None = None  # as last listed, before it ended
        self._engine, self._asked, self._ended_at = engine, False, 0.0

    @property
    def waiting(self) -> bool:
        """Whether its job has not begun, as last listed."""
        return self._state is None or self._state.state == "PENDING"

    def poll(self) -> int | None:
        """Return its status, or ``None`` while its job waits or runs."""
        if self.returncode is None:
            self._engine.refresh()
        return self.returncode

    def terminate(self) -> None:
        """Cancel the job if it waits; ask it to save and end if it runs."""
        if self.returncode is not None:
            return
        self._asked = True
        if self.batch is None:
            self._engine.withdraw(self)
            self.returncode = -signal.SIGTERM
        elif self._state is not None:
            slurm_commands.end(self._state, STOP)

    def submitted(self, batch: CellBatch, index: int, job: str | None) -> None:
        """Record the batch of the cell, and its job if that is known."""
        self.batch, self.index, self.job = batch, index, job

    def follow(self, batch: CellBatch, index: int, state: JobState) -> None:
        """Record the batch of the cell, and the state of its job, which an earlier command submitted."""
        self.submitted(batch, index, state.job)
        self._state = state

    def see(self, state: JobState | None) -> None:
        """Process the job's state as listed by Slurm; ``None``: Slurm no longer lists the job."""
        assert self.batch is not None
        if state is not None:
            self.job = state.job
        if state is not None and not state.has_ended:
            self._state, self._ended_at = state, 0.0
            if self._asked:  # repeated, because the job ignores the signal until Python has started
                slurm_commands.end(state, STOP)
            return
        self._ended_at = self._ended_at or time.monotonic()
        status = self.batch.status(self.index)
        if state is not None and state.state == "OUT_OF_MEMORY":
            self._fail(f"{self._named(state)}; give it more with --slurm-memory, then try it again", 1)
        elif status is not None:
            self.returncode = status
        else:
            self._end_without_status(state)

    def _end_without_status(self, state: JobState | None) -> None:
        if state is None and self.job is not None:
            state = slurm_commands.ended_job(self.job)
            if state is None and self._state is not None and self._state.state == "PENDING":
                state = self._state._replace(state="CANCELLED")  # else squeue would list it for a few minutes
        unsure = state is None or state.state in ("COMPLETED", "FAILED")  # its result may not be visible here yet
        if unsure and time.monotonic() - self._ended_at < PATIENCE:
            return
        if state is None or state.state == "COMPLETED":
            lost = f"Slurm job {self.job} has ended without a result"
            self._lose("sbatch did not answer" if self.job is None else lost)
        elif state.state == "CANCELLED":
            if self._asked:
                self.returncode = -signal.SIGTERM
            else:
                self._fail(f"{self._named(state)} there; the same command goes on with it", 128 + signal.SIGTERM)
        elif state.state == "FAILED" and 0 < state.exit_status < 128:
            self.returncode = state.exit_status  # it failed before the cell began, e.g. the node lacks the interpreter
        else:
            self._lose(self._named(state))

    def _named(self, state: JobState) -> str:
        where = f" on {state.node}" if state.node else ""
        ended = f" (signal {-state.exit_status})" if state.exit_status < 0 and state.state == "FAILED" else ""
        return f"Slurm job {state.job}{where} ended as {state.state}{ended}"

    def _lose(self, why: str) -> None:
        self.gone, self.returncode = why, -9

    def _fail(self, why: str, status: int) -> None:
        self.folder.log_error(why)
        self.returncode = status


class SlurmEngine(Engine):
    """Runs cells as Slurm array jobs, which belong to Slurm and go on without the study.

    Args:
        jobs: maximum number of submitted cells; ``None``: all cells are submitted, and Slurm starts them as it has
            room.
        options: the resources that each job requests.
        command: the ``ddpg`` command on the nodes.
    """

    queues = True

    def __init__(self, jobs: int | None, options: SlurmOptions, command: Sequence[str]):
        self._jobs, self._options, self._command = jobs, options, command
        self._waiting: list[SlurmProcess] = []
        self._live: list[SlurmProcess] = []
        # Jobs submitted by earlier commands, by study folder and cell folder.
        self._known: dict[Path, dict[Path, tuple[CellBatch, int, JobState]]] = {}
        self._refreshed_at = self._failed_at = -INTERVAL
        self._failure: slurm_commands.Unavailable | None = None

    def slots(self) -> int:
        """Return ``jobs``, or the maximum number of cells of a study."""
        return MAX_CELLS if self._jobs is None else self._jobs

    def holds(self, folder: CellFolder) -> bool:
        """Return whether a job submitted by an earlier command runs a cell or waits to run it.

        Raises:
            Unavailable: if Slurm does not answer.
        """
        return folder.path in self._earlier_jobs(folder.root)

    def start(self, folder: CellFolder) -> SlurmProcess:
        """Queue a cell for submission at the next poll, or follow its job if an earlier command submitted one."""
        process = SlurmProcess(self, folder)
        if self.holds(folder):
            process.follow(*self._known[folder.root].pop(folder.path))
            self._live.append(process)
        else:
            self._waiting.append(process)
        return process

    def withdraw(self, process: SlurmProcess) -> None:
        """Drop a cell that has not been submitted yet."""
        self._waiting.remove(process)

    def refresh(self) -> None:
        """Submit the waiting cells, and list all jobs if that is due."""
        if time.monotonic() - self._refreshed_at < INTERVAL and not self._waiting:
            return
        self._submit()
        self._refreshed_at = time.monotonic()
        try:
            listed = slurm_commands.jobs()
        except slurm_commands.Unavailable:  # for example, the controller restarts; try again at the next refresh
            return
        for process in [*self._live]:
            assert process.batch is not None
            process.see(listed.get((process.batch.name, process.index)))
            if process.returncode is not None:
                self._live.remove(process)

    def _submit(self) -> None:
        """Submit the waiting cells, with one array for each study folder."""
        while self._waiting:
            root = self._waiting[0].folder.root
            processes = [process for process in self._waiting if process.folder.root == root][:_MAX_ARRAY]
            self._waiting = [process for process in self._waiting if process not in processes]
            batch = CellBatch(root, max(batch_numbers(root), default=-1) + 1)
            try:
                batch.write([process.folder for process in processes], self._command)
                number = self._submit_batch(batch, len(processes))
            except BaseException:
                for process in [*processes, *self._waiting]:
                    process.returncode = -signal.SIGTERM
                self._waiting = []
                raise
            for index, process in enumerate(processes):
                process.submitted(batch, index, None if number is None else f"{number}_{index}")
            self._live += processes

    def _submit_batch(self, batch: CellBatch, cells: int) -> str | None:
        """Submit a batch; return its job's number, or ``None`` if Slurm did not answer.

        Raises:
            EnvironmentFault: if Slurm refuses it.
        """
        options = [
            *self._options.sbatch_words(),
            *(f"--job-name={batch.name}", f"--array=0-{cells - 1}", f"--output={batch.output}"),
            *("--nodes=1", "--ntasks=1", "--requeue", "--open-mode=append"),
            f"--signal=B:{REQUEUE}@{_SECONDS_BEFORE_LIMIT}",
        ]
        try:
            return slurm_commands.submit(str(batch.script), options)
        except slurm_commands.Unavailable:
            return None
        except EnvironmentFault as error:
            raise EnvironmentFault(
                f"{error}; put the options that begin with --slurm right, or if it is a limit on submitted jobs, give "
                "--jobs, how many to submit at a time, and start the study again"
            ) from None

    def _listed_jobs(self) -> dict[tuple[str, int], JobState]:
        """Return Slurm's jobs; after a failure, raise the same error for :data:`INTERVAL` instead of asking again."""
        if self._failure is not None and time.monotonic() - self._failed_at < INTERVAL:
            raise self._failure
        try:
            return slurm_commands.jobs()
        except slurm_commands.Unavailable as error:
            self._failure, self._failed_at = error, time.monotonic()
            raise

    def _earlier_jobs(self, root: Path) -> dict[Path, tuple[CellBatch, int, JobState]]:
        if root not in self._known:
            prefix, found = job_prefix(root), {}
            for (name, index), state in (self._listed_jobs() if batch_numbers(root) else {}).items():
                number = name.removeprefix(prefix)
                if name.startswith(prefix) and number.isdecimal() and not state.has_ended:
                    batch = CellBatch(root, int(number))
                    found[batch.folders()[index].path] = (batch, index, state)
            self._known[root] = found
        return self._known[root]
