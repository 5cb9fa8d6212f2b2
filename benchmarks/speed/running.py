"""Make one measurement: run a package's script in its virtual environment, in its own process, pinned to cores."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.kinds import KINDS, Kind
from benchmarks.speed.packages import PEERS, SCRIPTS, Peer
from benchmarks.speed.plan import Job

LIMIT = 1_800  # seconds for one process


def interpreter(peer: Peer, folder: Path) -> str:
    """Return the path of a Python that has the package, and install the package under ``folder`` if necessary."""
    if not peer.requirements:
        return sys.executable
    place = folder.absolute() / (peer.script if peer.own_env else "python")
    if not place.exists():
        venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    record, requirements = place / "installed.txt", " ".join(peer.requirements)
    if not record.exists() or requirements not in record.read_text().splitlines():
        print(f"installing {requirements}", file=sys.stderr, flush=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *peer.requirements], check=True)
        with record.open("a") as file:
            print(requirements, file=file)
    return str(python)


def run(job: Job, python: str, cache: Path, brief: bool = False) -> dict:
    """Measure once.

    Args:
        job: the measurement.
        python: the interpreter of an environment where the package is installed.
        cache: directory for our compiler's cache.
        brief: use the short version of the task.

    Returns:
        The numbers that the script printed, or ``failed`` with the reason.
    """
    kind, peer = KINDS[job.kind], PEERS[job.peer]
    task = kind.tasks[job.task].brief() if brief else kind.tasks[job.task]
    available = sorted(os.sched_getaffinity(0))
    pinned = [{core} for core in available[: kind.processes]] if kind.processes > 1 else [set(available[: job.cores])]
    if sum(map(len, pinned)) < job.cores:
        return {"failed": f"only {len(available)} of {job.cores} cores are available"}
    described_task = {**dataclasses.asdict(task), "kind": job.kind, "options": peer.options, "seed": job.repeat}
    with tempfile.TemporaryDirectory(prefix="speed-") as empty:
        kept = Path(empty) if peer.empty_cache else cache
        if kind.warm_cache and peer.keeps:
            run_at_once([described_task], python, peer, pinned[:1], kept)
        return combined(run_at_once([described_task] * len(pinned), python, peer, pinned, kept), kind)


def run_at_once(tasks: Sequence[dict], python: str, peer: Peer, pinned: Sequence[set[int]], cache: Path) -> list[dict]:
    """Run a script once for each of ``tasks`` at the same time, each on its own cores; return their results."""
    settings = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "DDPG_CACHE": str(cache)}
    processes = []
    for number, (one, cores) in enumerate(zip(tasks, pinned, strict=True)):
        described_task = one | {"seed": one["seed"] + 1_000 * number, "began": time.time()}
        processes.append(
            subprocess.Popen(
                [
                    "taskset",
                    "-c",
                    ",".join(map(str, cores)),
                    python,
                    str(SCRIPTS / f"{peer.script}.py"),
                    json.dumps(described_task),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=settings,
            )
        )
    end = time.monotonic() + LIMIT
    return [read_result(process, end) for process in processes]


def read_result(process: subprocess.Popen, end: float) -> dict:
    """Return the JSON in the last line that a process prints, or ``failed`` with the reason."""
    try:
        out, errors = process.communicate(timeout=max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"failed": f"took longer than {LIMIT} s"}
    lines = out.strip().splitlines()
    if process.returncode or not lines:
        return {"failed": (errors.strip().splitlines() or ["no message"])[-1]}
    return json.loads(lines[-1])


def combined(results: Sequence[dict], kind: Kind) -> dict:
    """Combine the results of processes that ran at the same time: add the first quantity, average the others."""
    failed = next((result for result in results if "failed" in result), None)
    if failed or len(results) == 1:
        return failed or results[0]
    first, *others = kind.quantities
    total = dict(results[0])
    total[first.key] = sum(result[first.key] for result in results)
    return total | {each.key: sum(result[each.key] for result in results) / len(results) for each in others}
