"""Environment steps per second of whole training, beside other packages, alternately, on one machine.

    python -m benchmarks.speed [--environments FOLDER] [--repeats 5] [--cores 1 2] [--tasks NAME...] [--peers NAME...]

Packages live in virtual environments under ``FOLDER``, which are made where they are not there yet. Everything is
measured in turn, and again, so that a machine that drifts does so for all; medians are told, and ratios to ours.
Results go to ``benchmarks/results/speed.json`` after every round; ``--report`` only prints what is there.
"""

import argparse
import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.speed.summary import report
from benchmarks.speed.tasks import PEERS, PEERS_BY_NAME, TASKS, Peer, Task

RESULTS = Path(__file__).parents[1] / "results" / "speed.json"
LIMIT = 900  # seconds for one training


def interpreter(peer: Peer, folder: Path) -> str:
    """Return the Python that has a package; install it where it does not."""
    if not peer.requirements:
        return sys.executable
    place = folder / (peer.script if peer.own or peer.needs else "python")
    if not place.exists():
        venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    done, wanted = place / "installed.txt", " ".join(peer.requirements)
    if not done.exists() or wanted not in done.read_text().splitlines():
        print(f"installing {wanted}", file=sys.stderr, flush=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *peer.requirements], check=True)
        with done.open("a") as file:
            print(wanted, file=file)
    return str(python)


def timed(python: str, peer: Peer, task: Task, cores: set[int], seed: int) -> dict:
    """Train once, on these cores; return what the script says, or why there is nothing."""
    asked = json.dumps({**dataclasses.asdict(task), "options": peer.options, "seed": seed})
    try:
        done = subprocess.run(
            [python, str(PEERS / f"{peer.script}.py"), asked],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"took longer than {LIMIT} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def machine() -> dict:
    """Return what the numbers are of."""
    told = [line.partition(":")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    model = told[0].strip() if told else platform.processor()
    return {"processor": model, "cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}


def main() -> None:
    """Measure, and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=Path, default=Path("build/peers"), metavar="FOLDER")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--peers", nargs="+", choices=PEERS_BY_NAME, default=list(PEERS_BY_NAME))
    parser.add_argument("--report", action="store_true", help="of what was measured before")
    options = parser.parse_args()
    if options.report:
        print(report(json.loads(RESULTS.read_text())["rows"]))
        return
    there = sorted(os.sched_getaffinity(0))
    peers = {}
    for name in options.peers:
        peer = PEERS_BY_NAME[name]
        if peer.needs and not shutil.which(peer.needs):
            print(f"{name} is left out: it needs {peer.needs}", file=sys.stderr)
        else:
            peers[name] = interpreter(peer, options.environments)
    rows: list[dict] = []
    for repeat in range(options.repeats):
        for task in options.tasks:
            for cores in options.cores:
                for name, python in peers.items():
                    found = timed(python, PEERS_BY_NAME[name], TASKS[task], set(there[:cores]), repeat)
                    rows.append({"task": task, "cores": cores, "peer": name, "repeat": repeat, **found})
                    print(rows[-1], file=sys.stderr, flush=True)
        RESULTS.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")
    print(report(rows))


if __name__ == "__main__":
    main()
