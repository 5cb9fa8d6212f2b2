"""Run ``ddpg train`` with faulty environments and invalid inputs, and check its message, exit code and checkpoints.

    python benchmarks/faults/environments.py [--only NAME...] [--json benchmarks/results/faults/environments.json]

The environments are those of ``tests/faulty_envs.py``. Each case runs in its own process. It passes if the process ends
by itself with the expected exit code and one expected line on stderr, and if it leaves the expected files.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ["--hidden", "8", "--batch-size", "8", "--learning-starts", "50", "--updates-per-call", "10", "--no-jit"]
RUN = ["--seed", "0", "--total-timesteps", "400", "--evaluation-interval", "100", "--evaluation-episodes", "1"]


class Case(NamedTuple):
    """A run's arguments, its exit code, a pattern of its message, and whether it must leave a checkpoint."""

    arguments: list[str]
    code: int
    pattern: str
    kept: bool = False


def vector(name: str, pattern: str) -> Case:
    more = ("--n-envs", "2", "--vectorization", "async", "--step-timeout", "5")
    return fault(name, f"environment [01] of 2 .* {pattern}", more=more)


def fault(name: str, pattern: str, kept: bool = True, more: tuple[str, ...] = ()) -> Case:
    return Case([f"faulty_envs:faulty/{name}-v0", *OPTIONS, *RUN, *more], 3 if pattern else 0, pattern, kept)


def usage(pattern: str, *more: str, env_id: str = "Pendulum-v1") -> Case:
    return Case([env_id, *OPTIONS, *RUN, *more], 2, pattern)


PLACE = r"environment faulty/{}-v0 failed in step 10 of episode \d+ since its reset with seed \d+: "
CASES = {
    "observation NaN": fault("NaN", PLACE.format("NaN") + "observation holds nan"),
    "reward infinite": fault("Infinity", PLACE.format("Infinity") + "reward holds inf"),
    "wrong shape": fault("Shape", PLACE.format("Shape") + r"observation has shape \(4,\); expected \(3,\)"),
    "wrong dtype": fault("Kind", PLACE.format("Kind") + "observation is an array of strings"),
    "no flag": fault("Flag", PLACE.format("Flag") + "terminated='no' is not a flag"),
    "exception in step": fault("Raises", PLACE.format("Raises") + "RuntimeError: the simulator lost its state"),
    "exception in reset": fault("Reset", "failed in the reset to episode .*OSError: no connection to the simulator"),
    "constructor raises": fault("Constructor", "could not be made: KeyError", kept=False),
    "NaN once, dropped": fault("NaNOnce", "", more=("--on-bad-transition", "drop")),
    "NaN for ever, dropped": fault("NaN", "fault 100 in a row", more=("--on-bad-transition", "drop")),
    "vector: hangs": vector("Hangs", r"no answer within 5\.0 s \(step_timeout\)"),
    "vector: process dies": vector("Dies", "its process ended with exit code 7"),
    "vector: exception": vector("Raises", "RuntimeError: the simulator lost its state"),
    "step_timeout, one process": usage("step_timeout=5.0 needs environments in processes", "--step-timeout", "5"),
    "no such environment": usage("Pendulum-v1", env_id="Pendulun-v1"),
    "seed": usage("seed=-1 must be a whole number, at least 0", "--seed", "-1"),
    "total timesteps": usage("total_timesteps=0 must be", "--total-timesteps", "0"),
    "evaluation episodes": usage("evaluation_episodes=0 must be", "--evaluation-episodes", "0"),
    "evaluation interval": usage("evaluation_interval=-5 must be", "--evaluation-interval", "-5"),
    "noise dt": usage("noise_dt=-1.0 must be", "--noise-dt", "-1"),
    "noise theta": usage("noise_theta=nan must be", "--noise-theta", "nan"),
    "buffer size": usage("buffer_size=1000000000000 needs at least .* GB", "--buffer-size", str(10**12)),
    "hidden": usage(r"hidden=\(10000000,\) needs at least .* GB", "--hidden", str(10**7), "--batch-size", "4096"),
    "hidden, two layers": usage("hidden=.* needs at least .* GB", "--hidden", str(10**7), str(10**7)),
    "root is a file": usage("is not a directory; name another one", "--root", "file")._replace(code=4),
    "config is a directory": usage("cannot be read .Is a directory.", "--config", "."),
    "config is not UTF-8": usage("is not a TOML file", "--config", "latin.toml"),
    "config is not there": usage("no configuration file", "--config", "none.toml"),
}


def outcome(name: str, case: Case) -> dict:
    """Run a case in its own folder and return its row of the table."""
    environment = os.environ | {"PYTHONPATH": str(ROOT / "tests"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "file").write_text("")
        (Path(folder) / "latin.toml").write_bytes(b"activation = '\xe9'")
        command = ["-m", "ddpg.cli.main", "train", *case.arguments, "--no-progress-bar"]
        start = time.perf_counter()
        process = subprocess.run(
            [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        seconds = time.perf_counter() - start
        kept = sorted(str(path.parent.relative_to(folder)) for path in Path(folder).rglob("manifest.json"))
        runs = list(Path(folder).rglob("config.json"))
    lines = process.stderr.splitlines()
    reported = len(lines) == 1 and re.search(case.pattern, lines[0]) if case.pattern else not lines
    # If no checkpoint is expected, there must not be a run directory either.
    complete = bool(kept) if case.kept else not kept and not runs
    return {
        "case": name,
        "exit_code": process.returncode,
        "lines": len(lines),
        "says": lines[-1] if lines else "",
        "kept": [path.rpartition("checkpoints/")[2] for path in kept],
        "seconds": round(seconds, 1),
        "as_it_should_be": bool(process.returncode == case.code and reported and complete),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only cases whose names begin with NAME")
    parser.add_argument("--json", type=Path, help="also write the table to this file")
    options = parser.parse_args()
    rows = []
    for name, case in CASES.items():
        if options.only and not name.startswith(tuple(options.only)):
            continue
        rows.append(row := outcome(name, case))
        mark = "" if row["as_it_should_be"] else "  <-- FAILED"
        print(f"{name:26} {row['exit_code']:4} {','.join(row['kept']) or '-':16} {row['says'][:150]}{mark}", flush=True)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(rows, indent=2) + "\n")
    good = sum(row["as_it_should_be"] for row in rows)
    print(f"{good} of {len(rows)} cases passed")
    return 0 if good == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
