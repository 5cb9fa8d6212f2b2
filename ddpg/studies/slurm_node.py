"""Run one cell on a node of Slurm: the main program of an array job.

The job runs the stages that are left of the cell: it trains, or resumes from the newest checkpoint, then evaluates. So
a job that Slurm requeues, after a preemption or because its node was lost, goes on by itself, whether or not the
command that submitted it still runs. Three signals reach it:

- SIGUSR1, from Slurm before the time limit: the cell saves and ends, and the job requeues itself.
- SIGUSR2, from the study that is interrupted: the cell saves and ends.
- SIGTERM, from Slurm to all processes of the job before a preemption or a cancellation: the cell saves and ends, since
  the signal reaches it, too; Slurm decides what becomes of the job.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ddpg.errors import UsageError
from ddpg.runs.env_factory import check_imports
from ddpg.studies import slurm_commands
from ddpg.studies.cell_process import CellProcess, cell_environment
from ddpg.studies.slurm_batch import CellBatch
from ddpg.studies.study_folder import CellFolder

REQUEUE, STOP = "USR1", "USR2"
_WAIT = 1.0  # seconds between two looks at a cell that another process trains
_INTERRUPTED = (128 + signal.SIGTERM, -signal.SIGTERM)  # exit statuses of a process that was asked to end
_NO_PROGRESS = (
    "its time limit came before it had made a step; give its jobs longer (--slurm-time), or more checkpoints with a "
    "smaller evaluation_interval"
)


class NodeJob:
    """The stages of a cell in this process's children, until it has finished, failed, or is asked to end.

    Args:
        folder: the cell's.
        command: the ``ddpg`` command.
        threads: of the cell.

    Attributes:
        requeues: whether the job should be requeued to go on.
    """

    def __init__(self, folder: CellFolder, command: Sequence[str], threads: int):
        self.requeues = False
        self._folder, self._command, self._environment = folder, command, cell_environment(threads)
        self._process: CellProcess | None = None
        self._asked = self._cancelled = False

    def handle_signals(self) -> None:
        """Handle Slurm's signals from now on."""
        for name in (REQUEUE, STOP, "TERM"):
            signal.signal(getattr(signal, f"SIG{name}"), self._handle)

    def run(self) -> int | None:
        """Run what is left of the cell; return its exit status, or ``None`` if Slurm decides how it goes on.

        Raises:
            UsageError: if the time limit came before the cell had made a step.
        """
        saved, status = self._folder.saved, 0
        while self._folder.state == "running" and not self._asked:
            time.sleep(_WAIT)  # such as the process of a node that Slurm has given up, but that still lives
        while status == 0 and not self._asked and (stage := self._folder.stage) is not None:
            status = self._run_stage()
            if status == 0 and self._folder.stage == stage:
                break  # ended before its goal: the study says so
        interrupted = self._asked and self._folder.stage is not None and status in (0, *_INTERRUPTED)
        self.requeues = self.requeues and interrupted and not self._cancelled
        if self.requeues and self._folder.saved <= saved:
            self.requeues = False
            raise UsageError(_NO_PROGRESS)
        return None if interrupted and self._cancelled else _INTERRUPTED[0] if interrupted else status

    def _run_stage(self) -> int:
        self._process = CellProcess(self._folder, self._command, self._environment)
        if self._asked and not self._cancelled:  # since the last look
            self._process.terminate()
        while (status := self._process.poll()) is None:
            self._process.wait()
        return status

    def _handle(self, number: int, frame: object) -> None:
        self.requeues = number == signal.SIGUSR1 and (self.requeues or not self._asked)
        if number == signal.SIGTERM:
            self._cancelled = True
        elif not self._asked and self._process is not None:
            self._process.terminate()
        self._asked = True


def main(words: Sequence[str] | None = None) -> int:
    """Run the cell of this array task.

    Args:
        words: the file of the batch's cells; the modules, separated by commas, that they may import; and the ``ddpg``
            command. By default this process's arguments.
    """
    file, modules, *command = sys.argv[1:] if words is None else words
    index = int(os.environ["SLURM_ARRAY_TASK_ID"])
    path = Path(file).parent
    batch = CellBatch(path.parent.parent, int(path.name))
    batch.write_status(index, None)
    try:
        folder = batch.folders()[index]
        check_imports(folder.cell.group.references, file, modules.split(","))
        job = NodeJob(folder, command, int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
        job.handle_signals()
        status = job.run()
    except UsageError as error:
        print(f"ddpg: error: {error}", file=sys.stderr, flush=True)
        job, status = None, 1
    if job is not None and job.requeues:
        return _requeue()
    if status is not None:
        batch.write_status(index, status)
        return status if status >= 0 else 128 - status
    return _INTERRUPTED[0]


def _requeue() -> int:
    """Requeue this job; if Slurm does not, it ends as one that the study submits again."""
    job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    slurm_commands.requeue(job)
    return _INTERRUPTED[0]
