"""Slurm's commands for tests, as executables on the PATH; each call of ``squeue`` runs the next waiting job.

``plan.json`` determines what happens to jobs: for an index in the array, a list of words, one per call of ``squeue``.
``run`` runs the script, and a state's name puts the job into that state; without a word left the job runs.
"""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("sbatch", "squeue", "scancel", "scontrol", "sacct")


class FakeSlurm:
    """The commands in a folder, controlled by a test."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder / "fake-slurm"
        self.folder.mkdir()
        for name in NAMES:
            path = self.folder / name
            path.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {__file__} {name} {self.folder} "$@"\n')
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{self.folder}{os.pathsep}{os.environ['PATH']}")
        self.plan({})

    def plan(self, plan):
        """Determine what happens to jobs, by their index in the array."""
        (self.folder / "plan.json").write_text(json.dumps({str(index): steps for index, steps in plan.items()}))

    def fails(self, name, said):
        """Make a command fail with a message, or work again (``None``)."""
        path = self.folder / f"{name}.fails"
        path.write_text(said) if said is not None else path.unlink()

    def calls(self, name):
        """Return the arguments of each call of a command."""
        return [words for called, words in _lines(self.folder / "calls") if called == name]

    @property
    def jobs(self):
        return {path.stem: json.loads(path.read_text()) for path in sorted(self.folder.glob("*_*.json"))}


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _record(folder, name, words):
    with open(folder / "calls", "a") as file:
        file.write(json.dumps([name, words]) + "\n")


def sbatch(folder, words):
    given = dict(word.lstrip("-").split("=", 1) for word in words if "=" in word)
    number = len({path.stem.split("_")[0] for path in folder.glob("*_*.json")}) + 1
    for index in range(int(given["array"].split("-")[1]) + 1):
        job = {
            "name": given["job-name"],
            "index": index,
            "state": "PENDING",
            "exit": 0,
            "node": "",
            "listed": True,
            "script": words[-1],
        }
        job["cpus"], job["output"] = (
            given["cpus-per-task"],
            given["output"].replace("%a", str(index)).replace("%%", "%"),
        )
        (folder / f"{number}_{index}.json").write_text(json.dumps(job))
    print(number)


def squeue(folder, words):
    plan = json.loads((folder / "plan.json").read_text())
    for path in sorted(folder.glob("*_*.json")):
        job = json.loads(path.read_text())
        steps = plan.get(str(job["index"]), [])
        step = steps.pop(0) if steps and job["state"] in ("PENDING", "RUNNING") else "run"
        if job["state"] in ("PENDING", "RUNNING") and step == "run":
            job |= _run(path.stem, job)
        elif job["state"] in ("PENDING", "RUNNING"):
            job |= {"state": step, "node": "" if step == "PENDING" else "node7"}
        path.write_text(json.dumps(job))
        if (
            job["listed"]
            and "SQUEUE_PARTITION" not in os.environ
            and (not (folder / "forgets").exists() or job["state"] == "PENDING")
        ):
            print(path.stem, job["name"], job["state"], job["exit"], job["node"])
    (folder / "plan.json").write_text(json.dumps(plan))


def _run(job, values):
    environment = {"SLURM_ARRAY_TASK_ID": str(values["index"]), "SLURM_ARRAY_JOB_ID": job.split("_")[0]}
    environment["SLURM_CPUS_PER_TASK"] = values["cpus"]
    with open(values["output"], "ab") as output:
        status = subprocess.run(
            ["/bin/sh", values["script"]], stdout=output, stderr=output, env=os.environ | environment, check=False
        ).returncode
    return {
        "state": "FAILED" if status else "COMPLETED",
        "exit": -status if status < 0 else status << 8,
        "node": "node7",
    }


def scancel(folder, words):
    """Cancel as Slurm does: a filter on states reaches the whole array, and a job that had not begun is not listed."""
    if "--batch" in words:
        array = [json.loads(path.read_text()) for path in folder.glob(f"{words[-1].split('_')[0]}_*.json")]
        if any(job["state"] == "PENDING" for job in array):
            time.sleep(5)  # the signal is sent, but scancel learns otherwise, and repeats it
            _record(folder, "scancel", words)
            raise SystemExit("scancel: error: Kill job error: Job can not be altered now, try again later")
        return
    whole = "--state=PENDING" in words
    for path in folder.glob(f"{words[-1].split('_')[0]}_*.json" if whole else f"{words[-1]}.json"):
        job = json.loads(path.read_text())
        if job["state"] in ("PENDING", "RUNNING")[: 1 if whole else 2]:
            ended = {"state": "CANCELLED", "exit": signal.SIGTERM, "listed": job["state"] != "PENDING"}
            path.write_text(json.dumps(job | ended))


def sacct(folder, words):
    job = json.loads((folder / f"{words[words.index('-j') + 1]}.json").read_text())
    print(f"{job['state']}|{job['exit'] >> 8}:{job['exit'] & 127}|{job['node']}")


def scontrol(folder, words):
    """Do nothing; the call is recorded."""


if __name__ == "__main__":
    name, at, *rest = sys.argv[1:]
    _record(Path(at), name, rest)
    failing = Path(at, f"{name}.fails")
    if failing.exists():
        sys.exit(failing.read_text())
    {"sbatch": sbatch, "squeue": squeue, "scancel": scancel, "sacct": sacct, "scontrol": scontrol}[name](Path(at), rest)
