"""Helpers of all scripts: start ``ddpg``, compare two runs by digests, and write a table."""

import csv
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
RESULTS = Path(__file__).parents[1] / "results" / "faults"
CLOCKED = ("seconds", "compile_seconds", "fps")  # differ between two runs that are otherwise the same
COMMAND = [sys.executable, "-m", "ddpg.cli.main"]
SMALL = ("--hidden", "8", "--batch-size", "8", "--learning-starts", "50", "--updates-per-call", "10", "--no-jit")


def start(*arguments: str) -> subprocess.Popen:
    """Start ``ddpg`` with these arguments."""
    return subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(*arguments: str) -> tuple[int, str]:
    """Run ``ddpg`` to its end; return its exit status and its stderr."""
    process = start(*arguments)
    errors = process.communicate()[1]
    return process.returncode, errors


def run_in(root: Path) -> Path | None:
    """Return the run directory under a root that has at most one."""
    # rglob would fail here: while a run is written, directories inside it are renamed.
    found = sorted([*root.glob("*/*/config.json"), *root.glob("*/*/*/config.json")])  # of Id and of namespace/Id
    return next((path.parent for path in found if path.parent.name.isdecimal()), None)


def trained(root: Path, *arguments: str) -> Path:
    """Train a run under ``root`` to its end; return its directory."""
    status, output = finish("train", *arguments, "--root", str(root))
    assert status == 0, output
    run = run_in(root)
    assert run is not None
    return run


def rows(run: Path, table: str) -> list[dict[str, str]]:
    """Return a table without the columns that a clock measured."""
    if not (run / f"{table}.csv").exists():
        return []
    with (run / f"{table}.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k not in CLOCKED} for row in csv.DictReader(file)]


def digest(run: Path) -> dict[str, str]:
    """Return shortened SHA-256 digests of everything that must not depend on interruptions of a run."""
    import tensorflow as tf
    from safetensors.numpy import load_file

    numbered = [path for path in (run / "checkpoints").iterdir() if path.name.isdecimal()]
    last = max(numbered, key=lambda path: int(path.name))
    found: dict[str, Any] = {"checkpoints": sorted(path.name for path in (run / "checkpoints").iterdir())}
    for group in ("variables", "replay", "run"):
        arrays = load_file(last / f"{group}.safetensors")
        names = sorted({*arrays} - {*CLOCKED, "tables"})  # checksums of tables, whose rows contain times
        found[group] = {name: hashlib.sha256(arrays[name].tobytes()).hexdigest() for name in names}
    manifest = json.loads((last / "manifest.json").read_text())
    found["random states"] = manifest["random_states"]
    found |= {table: rows(run, table) for table in ("metrics", "episodes", "evaluations")}
    found["events"] = sorted(
        (event.step, value.tag)
        for path in run.glob("events.out.tfevents.*")
        for event in tf.compat.v1.train.summary_iterator(str(path))
        for value in event.summary.value
    )
    return {
        name: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]
        for name, value in found.items()
    }


def differences(run: Path, straight: dict[str, str]) -> str:
    """Return the names of the digests that differ between a run and the uninterrupted one, or ``"nothing"``."""
    found = digest(run)
    return " ".join(name for name in straight if found[name] != straight[name]) or "nothing"


def best_is_right(run: Path) -> bool:
    """Return whether the checkpoint ``best`` comes from the evaluation with the largest mean return."""
    evaluations = rows(run, "evaluations")
    best = run / "checkpoints" / "best" / "manifest.json"
    if not evaluations:
        return not best.exists()
    largest = max(evaluations, key=lambda row: float(row["mean_return"]))
    return json.loads(best.read_text())["num_timesteps"] == int(largest["timesteps"])


def report(name: str, table: Sequence[dict[str, Any]], **about: Any) -> None:
    """Print a table and write it as JSON."""
    columns = list(dict.fromkeys(key for row in table for key in row))
    widths = [max(len(str(row.get(key, ""))) for row in [*table, {key: key}]) for key in columns]
    for cells in [columns, *([str(row.get(key, "")) for key in columns] for row in table)]:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    print(f"wrote {write(name, table, **about)}")


def write(name: str, table: Sequence[dict[str, Any]], **about: Any) -> Path:
    """Write a table as JSON; return its path."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**about, "rows": list(table)}, indent=1) + "\n")
    return path
