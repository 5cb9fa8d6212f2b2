"""A Slurm array job: the files that it reads and writes, and its main program, which runs one cell on a node.

.slurm/N/cells.json      the cells, by their index in the array
.slurm/N/job.sh          the batch script
.slurm/N/I.txt           a link to the log of cell I, to which Slurm writes the script's output and its own messages
.slurm/N/I.json          the exit status of cell I, once it has ended

The job runs the remaining stages of the cell: it trains, or resumes from the newest checkpoint, and then evaluates. So
if Slurm requeues the job, after a preemption or because its node was lost, the job continues the cell without the
command that submitted it. The job handles three signals:

- SIGUSR1, from Slurm before the time limit: the cell saves and ends, and the job requeues itself.
- SIGUSR2, from an interrupted study: the cell saves and ends.
- SIGTERM, from Slurm to all processes of the job before a preemption or a cancellation: the cell gets the signal too,
  so it saves and ends; Slurm decides whether the job runs again.
"""

import hashlib
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ddpg.checkpoints import atomic_write, safe_json
from ddpg.checkpoints.safe_json import convert
from ddpg.checkpoints.target_dir import numbered
from ddpg.errors import FileFault, UsageError
from ddpg.runs.env_factory import check_imports
from ddpg.studies import slurm_commands
from ddpg.studies.cell_process import CellProcess
from ddpg.studies.study import Cell, Group
from ddpg.studies.study_folder import SLURM, CellFolder, read_record

REQUEUE, STOP = "USR1", "USR2"
_WAIT = 1.0  # seconds between two polls of a cell that another process trains
_INTERRUPTED = (128 + signal.SIGTERM, -signal.SIGTERM)  # exit statuses of a process that was asked to end
_NO_PROGRESS = (
    "its time limit came before it had made a step; give its jobs longer (--slurm-time), or more checkpoints with a "
    "smaller evaluation_interval"
)
_CELLS = "cells.json"
# Not ``-m``: it would import from the working directory first (the empty entry of sys.path).
_NODE_MAIN = "import sys;sys.path[:]=filter(None,sys.path);from ddpg.studies.slurm_node import main;sys.exit(main())"
# Until Python has its handlers the signals are ignored: their default action would end the job without a result.
_SCRIPT = "#!/bin/sh\ntrap '' USR1 USR2\nexec {command}\n"


class _BatchRecord(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1]
    groups: list[Group]
    cells: list[tuple[Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=0)]]]  # group's index, seed


class _Ended(msgspec.Struct, forbid_unknown_fields=True):
    status: Annotated[int, msgspec.Meta(ge=-64, le=255)]


class CellBatch:
    """The files of batch ``number`` of a study or tuning.

    Attributes:
        path: the batch's folder.
        name: the name of its jobs, unique among the user's studies.
    """

    def __init__(self, root: Path, number: int):
        self.path = root / SLURM / str(number)
        self.name = f"{job_prefix(root)}{number}"

    @property
    def script(self) -> Path:
        """The batch script."""
        return self.path / "job.sh"

    @property
    def output(self) -> str:
        """The path of the output, as a pattern for ``sbatch --output``."""
        return f"{str(self.path.resolve()).replace('%', '%%')}/%a.txt"

    def write(self, folders: Sequence[CellFolder], command: Sequence[str]) -> None:
        """Write the files of a new batch, whose nodes run the ``ddpg`` command for each cell.

        Raises:
            OSError: if the files cannot be written, or exist already.
        """
        self.path.mkdir(parents=True)
        groups: dict[int, Group] = {id(folder.cell.group): folder.cell.group for folder in folders}
        index = {key: number for number, key in enumerate(groups)}
        cells = [(index[id(folder.cell.group)], folder.cell.seed) for folder in folders]
        record = _BatchRecord(1, [*groups.values()], cells)
        atomic_write.write_text(self.path / _CELLS, json.dumps(msgspec.to_builtins(record)) + "\n")
        for number, folder in enumerate(folders):
            (self.path / f"{number}.txt").symlink_to(os.path.relpath(folder.log.resolve(), self.path.resolve()))
        modules = {name.rpartition(":")[0] for group in groups.values() for name in group.references} - {""}
        cells_file = str((self.path / _CELLS).resolve())
        words = [sys.executable, "-c", _NODE_MAIN, cells_file, ",".join(sorted(modules)), *command]
        atomic_write.write_text(self.script, _SCRIPT.format(command=shlex.join(words)))

    def folders(self) -> list[CellFolder]:
        """Return the folders of its cells, by index.

        Raises:
            FileFault: if the file that lists them is damaged.
        """
        path = self.path / _CELLS
        advice = "remove it, and start the study again"
        found = read_record(path, advice, _BatchRecord)
        if any(group >= len(found.groups) for group, _ in found.cells):
            raise FileFault(f"{path} names a group that it does not have; {advice}")
        root = self.path.parent.parent
        return [CellFolder(root, Cell(found.groups[group], seed)) for group, seed in found.cells]

    def status(self, index: int) -> int | None:
        """Return the exit status of a cell (negative: a signal ended it); ``None`` if its job has not recorded one."""
        try:
            return convert("status", safe_json.read_json(self._status_path(index)), _Ended).status
        except (FileNotFoundError, FileFault):
            return None

    def write_status(self, index: int, status: int | None) -> None:
        """Write the exit status of a cell; with ``None``, remove the status that an earlier start of the job wrote."""
        if status is None:
            self._status_path(index).unlink(missing_ok=True)
        else:
            atomic_write.write_text(self._status_path(index), json.dumps({"status": status}) + "\n")

    def _status_path(self, index: int) -> Path:
        return self.path / f"{index}.json"


def job_prefix(root: Path) -> str:
    """Return the prefix of the names of a study's jobs, which is derived from the path of its folder."""
    return f"ddpg-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]}-"


def batch_numbers(root: Path) -> list[int]:
    """Return the numbers of the existing batches."""
    return [int(path.name) for path in numbered(root / SLURM)]


class NodeJob:
    """Runs the stages of a cell in child processes, until the cell has finished or failed, or is asked to end.

    Args:
        folder: the cell's folder.
        command: the ``ddpg`` command.
        threads: number of threads of the cell.

    Attributes:
        requeues: whether the job should be requeued to go on.
    """

    def __init__(self, folder: CellFolder, command: Sequence[str], threads: int):
        self.requeues = False
        self._folder, self._command, self._threads = folder, command, threads
        self._process: CellProcess | None = None
        self._asked = self._cancelled = False

    def handle_signals(self) -> None:
        """Handle Slurm's signals from now on."""
        for name in (REQUEUE, STOP, "TERM"):
            signal.signal(getattr(signal, f"SIG{name}"), self._handle)

    def run(self) -> int | None:
        """Run the remaining stages of the cell; return its exit status, or ``None`` if Slurm cancels or requeues it.

        Raises:
            UsageError: if the time limit was reached before the cell saved any new step.
        """
        saved, status = self._folder.saved, 0
        while self._folder.state == "running" and not self._asked:
            time.sleep(_WAIT)  # for example, a process on a node that Slurm considers lost but that still runs
        while not self._asked and (stage := self._folder.stage) is not None:
            status = self._run_stage()
            if not self._folder.has_completed(stage) and (status != 0 or self._folder.stage == stage):
                break  # it failed, or ended before its goal, which the study will report
        interrupted = self._asked and self._folder.stage is not None and status in (0, *_INTERRUPTED)
        self.requeues = self.requeues and interrupted and not self._cancelled
        if self.requeues and self._folder.saved <= saved:
            self.requeues = False
            raise UsageError(_NO_PROGRESS)
        return None if interrupted and self._cancelled else _INTERRUPTED[0] if interrupted else status

    def _run_stage(self) -> int:
        self._process = CellProcess(self._folder, self._command, self._threads)
        if self._asked and not self._cancelled:  # the signal arrived before the process existed
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
        words: the path of ``cells.json``; the modules that the cells may import, separated by commas; and the ``ddpg``
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
    if job is not None and job.requeues:  # if Slurm does not requeue it, the study submits it again
        slurm_commands.requeue(f"{os.environ['SLURM_ARRAY_JOB_ID']}_{index}")
        return _INTERRUPTED[0]
    if status is not None:
        batch.write_status(index, status)
        return status if status >= 0 else 128 - status
    return _INTERRUPTED[0]
