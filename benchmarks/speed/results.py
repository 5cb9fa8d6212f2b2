"""The file of results: written whole after every measurement, read where measuring goes on."""

import json
import os
import platform
from pathlib import Path

from benchmarks.speed.processors import described, rates

RESULTS = Path(__file__).parents[1] / "results" / "speed.json"
CHANGES = {"clock_mhz", "blas_gflops"}  # of a machine, from one moment to the next


def machine() -> dict:
    """Return what the numbers are of."""
    text = Path("/proc/cpuinfo").read_text()
    told = [line.partition(":")[2] for line in text.splitlines() if "model name" in line]
    model = told[0].strip() if told else platform.processor()
    cores = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    return {"processor": model, **described(text), **cores}


class Results:
    """What was measured.

    Args:
        path: of the file.
        resume: go on with what is there.

    Attributes:
        rows: one for each measurement, with the fields of a :class:`~benchmarks.speed.plan.Job`.
        versions: of what each peer's process had imported.

    Raises:
        ValueError: the file is there and is not to be gone on with, or is of another machine.
    """

    def __init__(self, path: Path, resume: bool):
        self._path, self._machine = path, machine()
        self.rows: list[dict] = []
        self.versions: dict[str, dict[str, str]] = {}
        if not path.exists():
            return
        if not resume:
            raise ValueError(f"{path} is there: --resume goes on with it, --results FILE writes another one")
        document = json.loads(path.read_text())
        shared = (document["machine"].keys() & self._machine.keys()) - CHANGES  # a file of before has fewer
        if any(document["machine"][name] != self._machine[name] for name in shared):
            raise ValueError(f"{path} is of {document['machine']}, and this is {self._machine}: measure in a new FILE")
        self.rows, self.versions = document["rows"], document["versions"]
        self._machine |= {name: document["machine"][name] for name in CHANGES & document["machine"].keys()}

    def describe(self) -> None:
        """Measure how fast the machine multiplies, where the file does not have that yet."""
        self._machine = rates() | self._machine

    def add(self, row: dict) -> None:
        """Put a row in the place of an earlier one of the same measurement, and write everything."""
        versions = row.pop("versions", None)
        if versions:
            self.versions[row["peer"]] = versions
        same = ("kind", "task", "cores", "peer", "repeat")
        self.rows = [other for other in self.rows if any(other[key] != row[key] for key in same)] + [row]
        document = {"machine": self._machine, "versions": self.versions, "rows": self.rows}
        aside = self._path.with_suffix(".part")
        aside.write_text(json.dumps(document, indent=1) + "\n")
        aside.replace(self._path)
