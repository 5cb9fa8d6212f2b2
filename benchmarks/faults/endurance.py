"""Look for leaks in ten million steps of `ddpg train`: memory, open files, threads and bytes on disk.

    python -m benchmarks.faults.endurance [one|vector] [--steps 10000000] [--root DIR]
    python -m benchmarks.faults.endurance one --root DIR    # after an interruption: continues with `ddpg resume`
    python -m benchmarks.faults.endurance --summary         # only summarises the CSV files

`one` steps a single environment; its replay memory of 100,000 transitions is overwritten a hundred times. `vector`
steps 64 environments, with 3-step returns, priorities and a memory of a million, which is overwritten ten times. Both
evaluate and save a checkpoint every 100,000 steps. The process is watched from outside, through /proc: for every row of
its `metrics.csv`, a row is written to `benchmarks/results/faults/endurance_<case>.csv`, with the largest resident
memory since the row before.

Rows count once the replay memory is full and two checkpoints exist. From then on, the private memory (`RssAnon`) of
rows between two checkpoints may be at most 2 % above that of the first one, and the numbers of open files, of threads
and of files in the run directory may not grow. Memory that is used only while a checkpoint is saved is reported
separately.
"""

import argparse
import csv
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.faults import common

ENV = "ddpg_envs:ddpg_envs/AsymmetricLQR-v0"
STEPS = 10_000_000
EVERY = 100_000  # steps between evaluations, hence between checkpoints
SMALL = ("--hidden", "8", "--batch-size", "16", "--updates-per-step", "0.02", "--evaluation-episodes", "2")
RINGS = {"one": 100_000, "vector": 1_000_000}
CASES = {
    "one": (*SMALL, "--buffer-size", str(RINGS["one"])),
    "vector": (
        *(*SMALL, "--buffer-size", str(RINGS["vector"])),
        *("--n-envs", "64", "--n-steps", "3", "--prioritised", "lap"),
    ),
}
COLUMNS = ("timesteps", "private_mb", "peak_mb", "open_files", "threads", "files", "checkpoints", "tables", "events")
POLL = 0.2  # s


def process_of(number: int) -> dict[str, Any] | None:
    """Return a process's private and resident memory (MB), open files and threads; ``None`` if it has ended."""
    folder = Path("/proc") / str(number)
    try:
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        return {
            "private_mb": round(int(status["RssAnon"].split()[0]) / 1024, 2),
            "peak_mb": round(int(status["VmRSS"].split()[0]) / 1024, 2),
            "open_files": len(list((folder / "fd").iterdir())),
            "threads": int(status["Threads"]),
        }
    except (OSError, KeyError):
        return None


def disk_of(run: Path) -> dict[str, int]:
    """Return the number of files of a run, and the bytes of its checkpoints, tables and events."""
    sizes: dict[str, int] = {"files": 0, "checkpoints": 0, "tables": 0, "events": 0}
    for path in run.rglob("*"):
        try:
            size = path.stat().st_size
        except OSError:  # renamed or removed meanwhile
            continue
        if path.is_dir() or "ddpg-writing" in str(path):
            continue
        sizes["files"] += 1
        kind = "checkpoints" if "checkpoints" in path.parts else "tables" if path.suffix == ".csv" else "events"
        if kind != "events" or "tfevents" in path.name:
            sizes[kind] += size
    return sizes


def last_step(table: Path) -> int | None:
    """Return the step of the last complete row of ``metrics.csv``, without reading the whole file."""
    try:
        with table.open("rb") as file:
            file.seek(max(0, table.stat().st_size - 4096))
            lines = file.read().split(b"\n")[:-1]
        return int(lines[-1].split(b",")[0])
    except (OSError, ValueError, IndexError):
        return None


def samples(process: subprocess.Popen, root: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for every new row of the run's ``metrics.csv``, until the process ends."""
    run, seen, peak = None, None, 0.0
    while process.poll() is None:
        time.sleep(POLL)
        found = process_of(process.pid)
        if found is None:
            continue
        peak = max(peak, found["peak_mb"])
        run = run or common.run_in(root)
        step = last_step(run / "metrics.csv") if run else None
        if run is None or step is None or step == seen:
            continue
        if seen is not None:  # the first row after resuming has no peak
            yield {"timesteps": step, **found, "peak_mb": peak, **disk_of(run)}
        seen, peak = step, 0.0


def read(case: str) -> list[dict[str, float]]:
    """Return the rows of a case's file."""
    with path_of(case).open(newline="") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def path_of(case: str) -> Path:
    """Return the path of a case's file."""
    return common.RESULTS / f"endurance_{case}.csv"


def summary(case: str) -> dict[str, Any]:
    """Return how much memory, files and threads changed after the replay memory was full."""
    rows = read(case)
    flat = [row for row in rows if row["timesteps"] >= RINGS[case] + 2 * EVERY]
    between = [row for row in flat if row["timesteps"] % EVERY >= EVERY // 4]  # no checkpoint is being saved
    first, last = between[0], between[-1]

    def span(name: str) -> str:
        low, high = (int(choose(row[name] for row in flat)) for choose in (min, max))
        return str(low) if low == high else f"{low} to {high}"

    return {
        "case": case,
        "steps": int(rows[-1]["timesteps"]),
        "rows": len(flat),
        "private MB": f"{first['private_mb']:.1f} to {last['private_mb']:.1f}",
        "largest above first": f"{max(row['private_mb'] for row in between) / first['private_mb'] - 1:.2%}",
        "while saving": f"{max(row['private_mb'] for row in flat) / first['private_mb'] - 1:.2%}",
        "largest peak MB": max(row["peak_mb"] for row in flat),
        "open files": span("open_files"),
        "threads": span("threads"),
        "files": span("files"),
        "checkpoints MB": f"{last['checkpoints'] / 1e6:.1f}",
        "tables, bytes a step": f"{last['tables'] / last['timesteps']:.3f}",
        "events MB": f"{last['events'] / 1e6:.2f}",
    }


def measure(case: str, steps: int, root: Path) -> None:
    """Train, or resume the run in ``root``, and write a row for every row of its metrics."""
    run = common.run_in(root)
    if run is None:
        flags = ("--total-timesteps", str(steps), "--evaluation-interval", str(EVERY), "--root", str(root))
        arguments = ("train", ENV, "--seed", "0", *flags, *CASES[case])
    else:
        arguments = ("resume", str(run), "--allow-import", ENV.partition(":")[0])
    path = path_of(case)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w" if run is None else "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if run is None:
            writer.writeheader()
        process = subprocess.Popen([*common.COMMAND, *arguments, "--no-progress-bar"])
        try:
            for row in samples(process, root):
                writer.writerow(row)
                file.flush()
        except BaseException:
            process.send_signal(signal.SIGTERM)
            raise
        finally:
            status = process.wait()
    if status:
        raise SystemExit(f"ddpg ended with status {status}; to continue, repeat the command with --root {root}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{' or '.join(CASES)}; default: all")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument(
        "--root", type=Path, help="folder to keep runs in and resume them from; default: a temporary one"
    )
    parser.add_argument("--summary", action="store_true", help="summarise earlier measurements without new ones")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cases = options.cases or list(CASES)
    for case in [] if options.summary else cases:
        with tempfile.TemporaryDirectory(prefix="endurance-") as nowhere:
            measure(case, options.steps, (options.root or Path(nowhere)) / case)
    common.report("endurance", [summary(case) for case in cases], steps=options.steps)


if __name__ == "__main__":
    main()
