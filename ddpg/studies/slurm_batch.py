"""Write and read the files of a batch of cells: what an array of Slurm jobs needs on its nodes, and what comes back.

.slurm/N/cells.json      the cells, by their index in the array
.slurm/N/job.sh          the batch script
.slurm/N/I.txt           a link to the log of cell I, where Slurm writes the script's output and its own messages
.slurm/N/I.json          the exit status of cell I, once it has ended
"""

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ddpg.checkpoints import atomic_write, safe_json
from ddpg.checkpoints.safe_json import convert
from ddpg.errors import FileFault
from ddpg.studies.study import Cell, Group
from ddpg.studies.study_folder import CellFolder

FOLDER = ".slurm"  # no configuration is called so
_CELLS = "cells.json"
# Not ``-m``: it would import from the working directory first (the empty entry of sys.path).
_NODE_MAIN = "import sys;sys.path[:]=filter(None,sys.path);from ddpg.studies.slurm_node import main;sys.exit(main())"
# Ignored until Python has its own handlers: the default action would end the job without a result.
_SCRIPT = "#!/bin/sh\ntrap '' USR1 USR2\nexec {command}\n"


class _BatchRecord(msgspec.Struct, forbid_unknown_fields=True):
    format: Literal[1]
    groups: list[Group]
    cells: list[tuple[Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=0)]]]  # group's index, seed


class _Ended(msgspec.Struct, forbid_unknown_fields=True):
    status: Annotated[int, msgspec.Meta(ge=-64, le=255)]


class CellBatch:
    """The files of the batch of number ``number`` of a study or tuning.

    Attributes:
        path: its folder.
        name: of its jobs: unique among the user's studies.
    """

    def __init__(self, root: Path, number: int):
        self.path = root / FOLDER / str(number)
        self.name = f"{job_prefix(root)}{number}"

    @property
    def script(self) -> Path:
        """The batch script."""
        return self.path / "job.sh"

    @property
    def output(self) -> str:
        """Where Slurm writes the output, as a pattern of ``sbatch --output``."""
        return f"{str(self.path.resolve()).replace('%', '%%')}/%a.txt"

    def write(self, folders: Sequence[CellFolder], command: Sequence[str]) -> None:
        """Write the files of a new batch.

        Args:
            folders: of its cells.
            command: the ``ddpg`` command that the nodes run.

        Raises:
            OSError: if they cannot be written, or there are such files.
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
        found = convert(f"{path}:", safe_json.read_json(path), _BatchRecord)
        if any(group >= len(found.groups) for group, _ in found.cells):
            raise FileFault(f"{path} names a group that it does not have; remove it, and start the study again")
        root = self.path.parent.parent
        return [CellFolder(root, Cell(found.groups[group], seed)) for group, seed in found.cells]

    def status(self, index: int) -> int | None:
        """Return the exit status of a cell, negative if a signal ended it; ``None`` if it has not ended by itself."""
        try:
            return convert("status", safe_json.read_json(self._status_path(index)), _Ended).status
        except (FileNotFoundError, FileFault):
            return None

    def write_status(self, index: int, status: int | None) -> None:
        """Write the exit status of a cell, or remove what an earlier start of its job has written."""
        if status is None:
            self._status_path(index).unlink(missing_ok=True)
        else:
            atomic_write.write_text(self._status_path(index), json.dumps({"status": status}) + "\n")

    def _status_path(self, index: int) -> Path:
        return self.path / f"{index}.json"


def job_prefix(root: Path) -> str:
    """Return how the names of a study's jobs begin, by the folder's place."""
    return f"ddpg-{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:12]}-"


def batch_numbers(root: Path) -> list[int]:
    """Return the numbers of the batches so far."""
    folder = root / FOLDER
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal()) if folder.is_dir() else []
