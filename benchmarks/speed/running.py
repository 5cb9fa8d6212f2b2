"""One measurement: scripts as processes of their own, pinned to cores."""

import dataclasses
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.speed.kinds import KINDS, Kind
from benchmarks.speed.packages import PEERS, SCRIPTS, Peer
from benchmarks.speed.plan import Job

LIMIT = 1_800  # seconds for one training


def run(job: Job, python: str, cache: Path, brief: bool = False) -> dict:
    """Measure once.

    Args:
        job: what.
        python: the interpreter that has the package.
        cache: a directory for what our compiler keeps.
        brief: with a task that ends soon.

    Returns:
        What the script printed, or why there is nothing, ``failed``.
    """
    kind, peer = KINDS[job.kind], PEERS[job.peer]
    task = kind.tasks[job.task].brief() if brief else kind.tasks[job.task]
    there = sorted(os.sched_getaffinity(0))
    pinned = [{core} for core in there[: kind.at_once]] if kind.at_once > 1 else [set(there[: job.cores])]
    if sum(map(len, pinned)) < job.cores:
        return {"failed": f"this machine lets us use {len(there)} cores, not {job.cores}"}
    asked = {**dataclasses.asdict(task), "kind": job.kind, "options": peer.options, "seed": job.repeat}
    with tempfile.TemporaryDirectory(prefix="speed-") as empty:
        kept = Path(empty) if peer.empty_cache else cache
        if kind.warmed and peer.keeps:
            together([asked], python, peer, pinned[:1], kept)
        return joined(together([asked] * len(pinned), python, peer, pinned, kept), kind)


def together(asked: Sequence[dict], python: str, peer: Peer, pinned: Sequence[set[int]], cache: Path) -> list[dict]:
    """Run a script once for each of ``asked``, side by side, each on its cores; return what they say."""
    settings = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "DDPG_CACHE": str(cache)}
    processes = []
    for number, (one, cores) in enumerate(zip(asked, pinned, strict=True)):
        told = one | {"seed": one["seed"] + 1_000 * number, "began": time.time()}
        processes.append(
            subprocess.Popen(
                [
                    "taskset",
                    "-c",
                    ",".join(map(str, cores)),
                    python,
                    str(SCRIPTS / f"{peer.script}.py"),
                    json.dumps(told),
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=settings,
            )
        )
    end = time.monotonic() + LIMIT
    return [said(process, end) for process in processes]


def said(process: subprocess.Popen, end: float) -> dict:
    """Return the JSON in the last line of what a process prints, or why there is none, ``failed``."""
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


def joined(results: Sequence[dict], kind: Kind) -> dict:
    """Return what processes side by side did together: rates are added, of other numbers the mean is told."""
    failed = next((result for result in results if "failed" in result), None)
    if failed or len(results) == 1:
        return failed or results[0]
    first, *others = kind.quantities
    whole = dict(results[0])
    whole[first.key] = sum(result[first.key] for result in results)
    return whole | {each.key: sum(result[each.key] for result in results) / len(results) for each in others}
