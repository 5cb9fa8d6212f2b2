"""The results file: rewritten after every measurement, so that an interrupted run can be resumed from it."""

import json
import os
import platform
from pathlib import Path

from benchmarks.speed.processors import parse_cpuinfo, rates

RESULTS = Path(__file__).parents[1] / "results" / "speed.json"
VARYING = {"clock_mhz", "blas_gflops"}  # these differ between two runs on the same machine


def machine() -> dict:
    """Return the processor, the number of usable cores and the Python version."""
    text = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2] for line in text.splitlines() if "model name" in line]
    model = models[0].strip() if models else platform.processor()
    cores = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    return {"processor": model, **parse_cpuinfo(text), **cores}


class Results:
    """All measurements, and the file that holds them.

    Args:
        path: of the file.
        resume: read an existing file and add to it.

    Attributes:
        rows: one for each measurement, with the fields of a :class:`~benchmarks.speed.plan.Job`.
        versions: of the packages that each peer's process imported.

    Raises:
        ValueError: if the file exists and ``resume`` is false, or if the file comes from another machine.
    """

    def __init__(self, path: Path, resume: bool):
        self._path, self._machine = path, machine()
        self.rows: list[dict] = []
        self.versions: dict[str, dict[str, str]] = {}
        if not path.exists():
            return
        if not resume:
            raise ValueError(f"{path} exists: continue it with --resume, or write another file with --results FILE")
        document = json.loads(path.read_text())
        shared = (document["machine"].keys() & self._machine.keys()) - VARYING  # older files have fewer keys
        if any(document["machine"][name] != self._machine[name] for name in shared):
            raise ValueError(f"{path} was measured on {document['machine']}, not on {self._machine}: use a new FILE")
        self.rows, self.versions = document["rows"], document["versions"]
        self._machine |= {name: document["machine"][name] for name in VARYING & document["machine"].keys()}

    def measure_rates(self) -> None:
        """Measure the rate of BLAS, unless the file has it already."""
        self._machine = rates() | self._machine

    def add(self, row: dict) -> None:
        """Add a row, or replace an earlier row of the same measurement, and write the file."""
        versions = row.pop("versions", None)
        if versions:
            self.versions[row["peer"]] = versions
        same = ("kind", "task", "cores", "peer", "repeat")
        self.rows = [other for other in self.rows if any(other[key] != row[key] for key in same)] + [row]
        document = {"machine": self._machine, "versions": self.versions, "rows": self.rows}
        aside = self._path.with_suffix(".part")
        aside.write_text(json.dumps(document, indent=1) + "\n")
        aside.replace(self._path)
