"""How fast training is beside other packages, alternately, on one machine.

    python -m benchmarks.speed [--only KIND...] [--environments FOLDER] [--repeats 5] [--resume]

Kinds of measurements are those of ``kinds.py``; ``--only`` chooses some. Packages live in virtual environments under
``FOLDER``, which are made where they are not there yet. Everything is measured in turn, and again, so that a machine
that drifts does so for all; medians are told, with least and most, and ratios to ours. Results go to
``benchmarks/results/speed.json`` after every measurement: ``--resume`` goes on where it stopped, and tries again what
failed. ``--report`` prints what is there, ``--write`` puts it into README and ``docs/performance.md``. ``--brief``
with ``--results FILE`` tries in minutes whether every package and kind works; its numbers say nothing.
"""

import argparse
import dataclasses
import json
import shutil
import sys
from pathlib import Path

from benchmarks.speed.environments import interpreter
from benchmarks.speed.kinds import KINDS
from benchmarks.speed.packages import PEERS
from benchmarks.speed.pages import write
from benchmarks.speed.plan import jobs, left
from benchmarks.speed.report import report
from benchmarks.speed.results import RESULTS, Results
from benchmarks.speed.running import run
from benchmarks.speed.tasks import TASKS


def parsed() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=Path, default=Path("build/peers"), metavar="FOLDER")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--resume", action="store_true", help="go on with what FILE has")
    parser.add_argument("--brief", action="store_true", help="tasks that end soon, to see whether everything works")
    parser.add_argument("--report", action="store_true", help="print what FILE has")
    parser.add_argument("--write", action="store_true", help="put what FILE has into README and docs/performance.md")
    return parser, parser.parse_args()


def main() -> None:
    """Measure, and report."""
    parser, options = parsed()
    if options.brief and options.results == RESULTS:
        parser.error("--brief gives numbers that say nothing: name another file by --results")
    if options.report or options.write:
        if not options.results.exists():
            parser.error(f"{options.results} is not there: measure first")
        document = json.loads(options.results.read_text())
        print(report(document["rows"]))
        if options.write:
            write(document)
        return
    try:
        results = Results(options.results, options.resume)
    except ValueError as error:
        parser.error(str(error))
    pythons = {}
    for name in options.peers:
        if (program := PEERS[name].needs) and not shutil.which(program):
            print(f"{name} is left out: it needs {program}", file=sys.stderr)
        else:
            pythons[name] = interpreter(PEERS[name], options.environments)
    planned = list(jobs(options.only, options.tasks, options.cores, list(pythons), options.repeats))
    cache = options.environments.absolute() / "cache"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    waiting = left(planned, results.rows)
    results.describe()
    for number, job in enumerate(waiting, start=1):
        row = {**dataclasses.asdict(job), **run(job, pythons[job.peer], cache, options.brief)}
        results.add(row)
        print(f"{number} of {len(waiting)}: {row}", file=sys.stderr, flush=True)
    print(report(results.rows))


if __name__ == "__main__":
    main()
