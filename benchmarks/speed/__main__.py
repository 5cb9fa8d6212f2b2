"""Compare the speed of training with other packages, in turn, on one machine.

    python -m benchmarks.speed [--only KIND...] [--environments FOLDER] [--repeats 5] [--resume]

``kinds.py`` lists the kinds of measurements; ``--only`` chooses some. Packages are installed into virtual environments
under ``FOLDER``. Everything is measured once before anything is measured again, so that changes in the machine's speed
affect all packages; reports give medians, minima, maxima, and ratios to ours. The results file
(``benchmarks/results/speed.json``) is written after every measurement; ``--resume`` continues it and retries failures.
``--report`` prints it, and ``--write`` updates README and ``docs/performance.md`` from it. ``--brief`` with ``--results
FILE`` checks within minutes that every package and kind works; its numbers are meaningless.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from benchmarks.speed.kinds import KINDS
from benchmarks.speed.packages import PEERS
from benchmarks.speed.pages import write
from benchmarks.speed.plan import jobs, remaining
from benchmarks.speed.report import report
from benchmarks.speed.results import RESULTS, Results
from benchmarks.speed.running import interpreter, run
from benchmarks.speed.tasks import TASKS


def parse_arguments() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--environments", type=Path, default=Path("build/peers"), metavar="FOLDER")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--resume", action="store_true", help="continue FILE: measure what is missing or failed")
    parser.add_argument("--brief", action="store_true", help="short tasks, to check that everything works")
    parser.add_argument("--report", action="store_true", help="print the results in FILE")
    parser.add_argument("--write", action="store_true", help="update README and docs/performance.md from FILE")
    return parser, parser.parse_args()


def main() -> None:
    """Measure and print a report, or report or write earlier results."""
    parser, options = parse_arguments()
    if options.brief and options.results == RESULTS:
        parser.error("--brief gives meaningless numbers: name another file with --results")
    if options.report or options.write:
        if not options.results.exists():
            parser.error(f"{options.results} does not exist: measure first")
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
        if obstacle := PEERS[name].obstacle():
            print(f"{name} is skipped: {obstacle}", file=sys.stderr)
        else:
            pythons[name] = interpreter(PEERS[name], options.environments)
    planned = list(jobs(options.only, options.tasks, options.cores, list(pythons), options.repeats))
    cache = options.environments.absolute() / "cache"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    waiting = remaining(planned, results.rows)
    results.measure_rates()
    for number, job in enumerate(waiting, start=1):
        row = {**dataclasses.asdict(job), **run(job, pythons[job.peer], cache, options.brief)}
        results.add(row)
        print(f"{number} of {len(waiting)}: {row}", file=sys.stderr, flush=True)
    print(report(results.rows))


if __name__ == "__main__":
    main()
