"""Many training runs, a process each, that can be interrupted: what is done is kept, what was cut goes on.

Each job is what ``ddpg train`` (or, the next time, ``ddpg resume``) and ``ddpg evaluate`` do. Jobs at the same time
share the cores, so that none waits for another's threads.
"""

import argparse
import csv
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tqdm import tqdm

COMMAND = [sys.executable, "-m", "ddpg.cli"]


@dataclasses.dataclass(frozen=True)
class Job:
    """One training run and its evaluation over 100 episodes without noise.

    ``label`` tells jobs in the same environment apart; ``flags`` are those of ``ddpg train``.
    """

    env_id: str
    label: str
    seed: int
    total_timesteps: int
    flags: tuple[str, ...] = ()
    episodes: int = 100

    def folder(self, root: Path) -> Path:
        return root / self.label / str(self.seed)

    def run_directory(self, root: Path) -> Path:
        return self.folder(root) / self.env_id / "1"


def run_job(job: Job, root: Path, threads: int | None = None) -> dict[str, Any]:
    """Return the job's result, doing what is left of it, with at most ``threads`` threads to an operation."""
    run = job.run_directory(root)
    result = run / "result.json"
    if result.exists():
        return json.loads(result.read_text())
    if any(entry.name.isdigit() for entry in (run / "checkpoints").glob("*")):
        trained = _ddpg("resume", str(run), threads=threads)
    else:
        # Cut before its first checkpoint: nothing to go on from.
        if run.exists():
            run.rename(run.with_name(f"cut-{sum(1 for _ in run.parent.iterdir())}"))
        goal = ("--seed", str(job.seed), "--total-timesteps", str(job.total_timesteps))
        trained = _ddpg("train", job.env_id, *goal, "--root", str(job.folder(root)), *job.flags, threads=threads)
    evaluated = _ddpg("evaluate", str(run), "--episodes", str(job.episodes), bar=False)
    row = {**trained, **evaluated, "seed": job.seed, "label": job.label, "flags": " ".join(job.flags)}
    row.pop("run")
    result.write_text(json.dumps(row) + "\n")
    return row


def threads_each(workers: int, cores: int) -> int | None:
    """Return how many threads each of ``workers`` jobs may use; one alone is not limited."""
    return max(1, cores // workers) if workers > 1 else None


def run_jobs(jobs: Iterable[Job], root: Path, workers: int) -> list[dict[str, Any]]:
    """Run jobs, ``workers`` at a time; return their results, in order."""
    jobs = list(jobs)
    threads = threads_each(workers, os.cpu_count() or 1)
    with ThreadPoolExecutor(workers) as pool, tqdm(total=len(jobs), unit="run") as bar:
        futures = {pool.submit(run_job, job, root, threads): job for job in jobs}
        try:
            for future in as_completed(futures):
                row = future.result()
                bar.write(f"{row['label']} {row['env_id']} seed {row['seed']}: {row['mean_return']:.4g}")
                bar.update()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    results = {job: future.result() for future, job in futures.items()}
    return [results[job] for job in jobs]


def add_flags(parser: argparse.ArgumentParser, root: str) -> None:
    """Add what every collection of jobs lets one choose."""
    parser.add_argument("--root", type=Path, default=Path(root), help=f"where runs are kept (default: {root})")
    parser.add_argument(
        "--workers", type=int, default=1, help="runs at the same time (default: 1; small networks leave cores idle)"
    )


def write_csv(path: Path, rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> None:
    """Write rows, numbers to six digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items()})
    print(f"wrote {len(rows)} rows to {path}")


def _ddpg(*arguments: str, bar: bool = True, threads: int | None = None) -> dict[str, Any]:
    command = [*COMMAND, *arguments, "--json", *(["--no-progress-bar"] if bar else [])]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if threads is not None:
        environment.setdefault("TF_NUM_INTRAOP_THREADS", str(threads))
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode in (130, 143):  # the terminal interrupts all of them
        raise KeyboardInterrupt
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with status {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)
