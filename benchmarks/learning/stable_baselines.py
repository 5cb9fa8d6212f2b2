"""Stable-Baselines3's TD3 on the table's tasks, a run a core, into ``benchmarks/results/learning_sb3.csv``.

    python -m benchmarks.learning.stable_baselines [--environments FOLDER] [--jobs N]

The package lives in a virtual environment of its own under ``FOLDER``, the one of ``benchmarks.speed``. Runs that are
in the file are not made again: interrupted, the command goes on with those that are left. A run's rows are added when
it has ended, all at once.
"""

import argparse
import concurrent.futures
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.learning import long_form
from benchmarks.learning.tables import PEER, PEER_STUDY
from benchmarks.speed.environments import interpreter
from benchmarks.speed.packages import PEERS
from ddpg.compiler.thread_pool import INTRAOP
from ddpg.progress import format_number

RESULTS = Path(__file__).parents[1] / "results" / "learning_sb3.csv"
SCRIPT = Path(__file__).parent / "peers" / "stable_baselines_td3.py"
# Two seeds of each; four more on Hopper, where one run's end says least, for the comparison with our td3 (beside.toml).
RUNS = [(env_id, seed) for seed in range(2) for env_id in ("HalfCheetah-v5", "Hopper-v5")]
RUNS += [("Hopper-v5", seed) for seed in range(2, 6)]
STEPS, STARTS, INTERVAL, EPISODES = 100_000, 10_000, 5_000, 10
LIBRARIES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", INTRAOP)


def task_of(env_id: str, seed: int, steps: int = STEPS) -> dict:
    """Return what the script is asked for; fewer ``steps`` begin to learn earlier."""
    asked = {"env": env_id, "seed": seed, "steps": steps, "learning_starts": min(STARTS, steps // 10)}
    return asked | {"evaluation_interval": min(INTERVAL, steps), "evaluation_episodes": EPISODES}


def cell_of(env_id: str, seed: int, steps: int, evaluations: Iterable[Sequence[float]]) -> long_form.Cell:
    """Return the run in long form; evaluations are ``(step, mean return, seconds of training)``."""
    values = [(0, long_form.ASKED, str(steps))]
    for step, mean_return, seconds in evaluations:
        values += [(int(step), long_form.RETURN, repr(mean_return)), (int(step), long_form.SECONDS, f"{seconds:.6g}")]
    return long_form.make_cell((PEER_STUDY, env_id, PEER, seed), values)


def left(path: Path, runs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the runs that the file does not have, whole."""
    there = {(cell.env_id, cell.seed) for cell in long_form.read(path) if cell.finished}
    return [run for run in runs if run not in there]


def add(path: Path, cell: long_form.Cell, runs: Sequence[tuple[str, int]], steps: int) -> None:
    """Add a run to the file; those that are still to be made are there by what they are asked for."""
    kept = {one.key: one for one in long_form.read(path)} | {cell.key: cell}
    asked = [cell_of(env_id, seed, steps, ()) for env_id, seed in runs]
    known = {one.key for one in asked}
    order = [kept.get(one.key, one) for one in asked]
    long_form.write(path, [*order, *(one for key, one in kept.items() if key not in known)])


def train(python: str, task: dict, under_way: set[subprocess.Popen]) -> list:
    """Train once in one thread; return its evaluations. The process is in ``under_way`` as long as it lives.

    Raises:
        RuntimeError: the script failed; says its last line.
    """
    process = subprocess.Popen(
        [python, str(SCRIPT), json.dumps(task)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | dict.fromkeys(LIBRARIES, "1"),
    )
    under_way.add(process)
    out, said = process.communicate()
    under_way.discard(process)
    if process.returncode:
        raise RuntimeError((said.strip().splitlines() or [f"it ended with status {process.returncode}"])[-1])
    return json.loads(out.strip().splitlines()[-1])["evaluations"]


def end(under_way: set[subprocess.Popen], number: int) -> None:
    """End at a signal, and the runs under way with it."""
    for process in [*under_way]:
        process.kill()
    os._exit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make what is left; return 1 where a run failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning.stable_baselines", description=__doc__)
    parser.add_argument("--environments", type=Path, default=Path("build/peers"), metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="runs at a time, a thread each")
    parser.add_argument("--steps", type=int, default=STEPS, help="fewer, to try it out; with another --out")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FILE")
    options = parser.parse_args(arguments)
    if options.steps != STEPS and options.out == RESULTS:
        parser.error(f"--steps {options.steps} is not what {RESULTS.name} has, {STEPS}; give another --out")
    runs = left(options.out, RUNS)
    python = interpreter(PEERS["Stable-Baselines3"], options.environments) if runs else ""

    under_way: set[subprocess.Popen] = set()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: end(under_way, number))

    def one(run: tuple[str, int]) -> list:
        return train(python, task_of(*run, options.steps), under_way)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(one, run): run for run in runs}
        for ended in concurrent.futures.as_completed(waiting):
            env_id, seed = waiting[ended]
            try:
                cell = cell_of(env_id, seed, options.steps, ended.result())
            except RuntimeError as error:
                failed += 1
                print(f"{env_id} seed {seed} failed: {error}", file=sys.stderr, flush=True)
            else:
                add(options.out, cell, RUNS, options.steps)
                print(f"{env_id} seed {seed}: final return {format_number(cell.final)}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
