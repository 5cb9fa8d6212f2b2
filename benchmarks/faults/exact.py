"""Compare interrupted with uninterrupted runs, by SHA-256 of everything that they leave.

    python -m benchmarks.faults.exact [CASE...] [--steps N] [--signal KILL|INT|TERM] [--root DIR] [--name NAME]

Each case is trained once without interruption, and once interrupted after 30, 50 and 80 % of its steps.
"""

import argparse
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.faults import common

CASES = {
    "pendulum": ("Pendulum-v1", 20_000, ()),
    "cartpole": ("CartPole-v1", 20_000, ()),
    "vector": ("Pendulum-v1", 20_000, ("--n-envs", "4")),
    "processes": ("Pendulum-v1", 20_000, ("--n-envs", "4", "--vectorization", "async")),
    "platform": ("ddpg_envs/Platform-v0", 20_000, ()),
    "halfcheetah": ("HalfCheetah-v5", 20_000, ("--norm", "layer")),
    "plus": ("HalfCheetah-v5", 20_000, ("--recipe", "plus")),
}
SHARES = (0.3, 0.5, 0.8)


def interrupt(process: subprocess.Popen, root: Path, at: int, number: int) -> int | None:
    """Send a signal once a run has passed step ``at``; return the step, or ``None`` if the run had ended."""
    while process.poll() is None:
        time.sleep(0.05)
        run = common.run_in(root)
        rows = common.rows(run, "metrics") if run else []
        if rows and int(rows[-1]["timesteps"] or 0) >= at:
            process.send_signal(number)
            process.communicate()
            return int(rows[-1]["timesteps"])
    return None


def compare(case: str, steps: int, root: Path, number: int) -> dict:
    """Return the differences between the uninterrupted and the interrupted run of a case."""
    env, _, flags = CASES[case]
    training = (env, "--seed", "3", "--total-timesteps", str(steps), "--no-progress-bar", *flags)
    whole = common.trained(root / "straight", *training)
    process, stops, statuses = common.start("train", *training, "--root", str(root / "broken")), [], []
    for share in SHARES:
        stopped = interrupt(process, root / "broken", int(share * steps), number)
        if stopped is None:
            break
        stops.append(stopped)
        statuses.append(process.returncode)
        process = common.start("resume", str(common.run_in(root / "broken")), "--no-progress-bar")
    output = process.communicate()[1]
    run = common.run_in(root / "broken")
    assert run is not None, output
    assert len(stops) == len(SHARES), f"{case} ended before it was interrupted {len(SHARES)} times"
    straight, broken = common.digest(whole), common.digest(run)
    differ = [name for name in straight if straight[name] != broken[name]]
    return {
        "case": case,
        "steps": steps,
        "stopped at": " ".join(map(str, stops)),
        "statuses": " ".join(map(str, [*statuses, process.returncode])),
        "same": len(straight) - len(differ),
        "differ": " ".join(differ) or "nothing",
        "best": common.best_is_right(whole) and common.best_is_right(run),
        "weights": broken["variables"],
        "replay": broken["replay"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; default: all")
    parser.add_argument("--steps", type=int, help="environment steps of every case; default: the case's own number")
    parser.add_argument("--signal", default="KILL", choices=("KILL", "INT", "TERM"))
    parser.add_argument("--root", type=Path, help="folder to keep runs in; default: a temporary one")
    parser.add_argument("--name", help="name of the table's file; default: exact, or exact_int and exact_term")
    options = parser.parse_args()
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # background jobs of a shell, and their children, ignore it
    root = options.root or Path(tempfile.mkdtemp(prefix="exact-"))
    name = options.name or ("exact" if options.signal == "KILL" else f"exact_{options.signal.lower()}")
    table = []
    try:
        for case in options.cases or CASES:
            steps = options.steps or CASES[case][1]
            table.append(compare(case, steps, root / case, getattr(signal, f"SIG{options.signal}")))
            common.report(name, table, signal=options.signal)
    finally:
        if options.root is None:
            shutil.rmtree(root)


if __name__ == "__main__":
    main()
