"""Train algorithms of Stable-Baselines3 and SBX for comparison, into ``benchmarks/results/learning_peers.csv``.

    python -m benchmarks.learning.peer_runs [--environments FOLDER] [--jobs N]
    python -m benchmarks.learning.peer_runs --peer "SBX TQC" --env HalfCheetah-v5 --seed 0

``peer_algorithms.py`` lists the runs. The packages are installed in the virtual environments of ``benchmarks.speed``
under ``FOLDER``. Finished runs in the file are not repeated, so after an interruption the same command continues with
the missing ones. A run's rows are added together when it has ended; several commands can add to one file.
"""

import argparse
import concurrent.futures
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from benchmarks.learning import long_form
from benchmarks.learning.peer_algorithms import ALGORITHMS, INTERVAL, RUNS
from benchmarks.speed.running import interpreter
from ddpg.compiler.thread_pool import INTRAOP
from ddpg.progress import format_number

RESULTS = Path(__file__).parents[1] / "results" / "learning_peers.csv"
SCRIPT = Path(__file__).parent / "peers" / "stable_baselines.py"
LIBRARIES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", INTRAOP, "NPROC")  # the last one is XLA's
Run = tuple[str, str, int]  # algorithm, environment, seed


def cell_of(run: Run, steps: int | None, evaluations: Iterable[Sequence[float]]) -> long_form.Cell:
    """Return the run in long form.

    Args:
        run: the run.
        steps: its planned steps; ``None``: those of its algorithm.
        evaluations: each ``(step, mean return, seconds of training)``.
    """
    label, env_id, seed = run
    values = [(0, long_form.ASKED, str(steps or ALGORITHMS[label].steps))]
    for step, mean_return, seconds in evaluations:
        values += [(int(step), long_form.RETURN, repr(mean_return)), (int(step), long_form.SECONDS, f"{seconds:.6g}")]
    return long_form.make_cell((ALGORITHMS[label].study, env_id, label, seed), values)


def chosen(peers: Sequence[str], envs: Sequence[str], seeds: Sequence[int]) -> list[Run]:
    """Return the runs of these algorithms, environments and seeds; an empty argument selects all."""
    return [
        (label, env_id, seed)
        for label, env_id, seed in RUNS
        if (not peers or label in peers) and (not envs or env_id in envs) and (not seeds or seed in seeds)
    ]


def missing(path: Path, runs: Sequence[Run]) -> list[Run]:
    """Return the runs that are missing or unfinished in the file."""
    there = {(cell.recipe, cell.env_id, cell.seed) for cell in long_form.read(path) if cell.finished}
    return [run for run in runs if run not in there]


def add(path: Path, cell: long_form.Cell, runs: Sequence[Run], steps: int | None = None) -> None:
    """Add a run to the file; missing runs are listed with only their planned steps, as in :func:`cell_of`."""
    with locked(path.parent):
        kept = {one.key: one for one in long_form.read(path)} | {cell.key: cell}
        asked = [cell_of(run, steps, ()) for run in runs]
        known = {one.key for one in asked}
        order = [kept.get(one.key, one) for one in asked]
        long_form.write(path, [*order, *(one for key, one in kept.items() if key not in known)])


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other commands from writing results into a folder until the block ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def train(python: str, task: dict, under_way: set[subprocess.Popen], note: Callable[[Sequence[float]], None]) -> list:
    """Train once in one thread; return its evaluations.

    Args:
        python: the interpreter of an environment where the package is installed.
        task: the task for the script.
        under_way: the set that holds the process while it runs.
        note: called with every evaluation, ``(step, mean return, seconds of training)``.

    Raises:
        RuntimeError: if the script failed (with the last line of its output) or ended before its last step.
    """
    evaluations: list = []
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(
            [python, str(SCRIPT), json.dumps(task)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | dict.fromkeys(LIBRARIES, "1"),
        )
        under_way.add(process)
        with process:
            for line in process.stdout or ():
                if line.startswith('{"evaluation"'):
                    evaluations.append(json.loads(line)["evaluation"])
                    note(evaluations[-1])
        under_way.discard(process)
        errors.seek(0)
        output = errors.read().strip().splitlines()
    if process.returncode:
        raise RuntimeError((output or [f"it ended with status {process.returncode}"])[-1])
    reached = evaluations[-1][0] if evaluations else 0
    if reached < task["steps"]:
        raise RuntimeError(f"its last evaluation is at step {reached:,} of {task['steps']:,}")
    return evaluations


def end(under_way: set[subprocess.Popen], number: int) -> None:
    """Handle a signal: kill the running processes and exit."""
    for process in [*under_way]:
        process.kill()
    os._exit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the missing runs; return 1 if a run failed."""
    options = parse_arguments(arguments)
    runs = missing(options.out, chosen(options.peer, options.env, options.seed))
    if not runs:
        print_now(f"{options.out} has all of these runs")
    pythons = {label: interpreter(ALGORITHMS[label].peer, options.environments) for label, *_ in runs}

    under_way: set[subprocess.Popen] = set()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: end(under_way, number))

    def one(run: Run) -> list:
        label, env_id, seed = run
        task = ALGORITHMS[label].task(env_id, seed, options.steps)
        return train(
            pythons[label], task, under_way, lambda evaluation: print_now(progress(run, task["steps"], evaluation))
        )

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(one, run): run for run in runs}
        for ended in concurrent.futures.as_completed(waiting):
            run = waiting[ended]
            try:
                cell = cell_of(run, options.steps, ended.result())
            except RuntimeError as error:
                failed += 1
                print_now(f"{name_of(run)} failed: {error}")
            else:
                add(options.out, cell, RUNS, options.steps)
                print_now(f"{name_of(run)}: final return {format_number(cell.final)}, added to {options.out}")
    return 1 if failed else 0


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options; invalid ones end the process with a message."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.peer_runs", description=__doc__)
    parser.add_argument("--peer", nargs="+", default=[], choices=[*ALGORITHMS], help="only these algorithms")
    envs, seeds = (sorted({run[place] for run in RUNS}) for place in (1, 2))
    parser.add_argument("--env", nargs="+", default=[], choices=envs, help="only in these environments")
    parser.add_argument("--seed", nargs="+", default=[], type=int, choices=seeds, help="only these seeds")
    parser.add_argument("--environments", type=Path, default=Path("build/peers"), metavar="FOLDER")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="simultaneous runs, one thread each"
    )
    parser.add_argument("--steps", type=int, help="other steps than planned, for a trial; needs another --out")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args(arguments)
    if options.steps is not None:
        if options.out == RESULTS:
            parser.error(f"--steps is for trials, and {RESULTS.name} has runs of the planned steps; give another --out")
        if options.steps > INTERVAL and options.steps % INTERVAL:
            parser.error(
                f"--steps {options.steps} ends between two evaluations; give a multiple of {INTERVAL}, or fewer"
            )
    if not options.out.absolute().parent.is_dir():
        parser.error(f"--out {options.out} is in a folder that does not exist; create it first")
    if not chosen(options.peer, options.env, options.seed):
        parser.error(f"no such run; the runs of these algorithms are {listed(options.peer)}")
    return options


def listed(peers: Sequence[str]) -> str:
    """Return a list of the algorithms' runs, as text."""
    return ", ".join(map(name_of, chosen(peers, (), ())))


def name_of(run: Run) -> str:
    """Return a run's name for messages."""
    label, env_id, seed = run
    return f"{label} {env_id} seed {seed}"


def progress(run: Run, steps: int, evaluation: Sequence[float]) -> str:
    """Return a progress line about an evaluation."""
    step, mean_return, seconds = evaluation
    text = f"step {int(step):,} of {steps:,}, return {format_number(mean_return)}, {seconds:,.0f} s of training"
    return f"{name_of(run)}: {text}"


def print_now(line: str) -> None:
    """Print a line to stderr without buffering."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
