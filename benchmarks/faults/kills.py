"""Kill ``ddpg train`` (SIGKILL) at random moments, and resume it.

    python -m benchmarks.faults.kills [--kills 100] [--seed 0] [--steps 2000]

A run counts as resumed if ``ddpg resume`` ends with status 0 and leaves the same files as an uninterrupted run. Every
tenth kill comes before the run directory exists; then there is nothing to resume, and the next run must work. All
others come later.
"""

import argparse
import json
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.faults import common


def until_begun(process: subprocess.Popen, root: Path) -> float:
    """Wait until a process has made its run directory or ended; return the seconds."""
    begun = time.perf_counter()
    while process.poll() is None and common.run_in(root) is None:
        time.sleep(0.02)
    return time.perf_counter() - begun


def trial(number: int, share: float, times: tuple[float, float], training: tuple, root: Path, straight: dict) -> dict:
    """Kill a run after a ``share`` of its time, or of its start's time, and resume it; return the table's row."""
    process = common.start(*training, "--root", str(root))
    starting = number % 10 == 0
    if not starting:
        until_begun(process, root)
    delay = share * times[not starting]
    time.sleep(delay)
    process.kill()
    process.communicate()
    row = {"kill": number, "after s": round(delay, 2)}
    run = common.run_in(root)
    if run is None:
        status, output = common.finish(*training, "--root", str(root))
        run = common.run_in(root)
        row |= {"kind": "before there was a run"}
    else:
        done = [path.name for path in (run / "checkpoints").iterdir() if path.name.isdecimal()]
        goal = json.loads((run / "config.json").read_text())["total_timesteps"]
        if str(goal) in done and common.digest(run) == straight:
            return row | {"kind": "after its last checkpoint", "status": 0, "differ": "nothing", "best": True}
        status, output = common.finish("resume", str(run), "--no-progress-bar")
        if status == 2 and "has reached its" in output:
            status = 0
        row |= {"kind": f"behind step {max(map(int, done))}"}
    assert run is not None
    rows = [row["timesteps"] for row in common.rows(run, "metrics")]
    row |= {"status": status, "differ": common.differences(run, straight), "best": common.best_is_right(run)}
    return row | {"doubled rows": len(rows) - len(set(rows)), "said": " ".join(output.split()) if status else ""}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--steps", type=int, default=2_000)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    training = ("train", "Pendulum-v1", "--seed", "3", "--no-progress-bar", *common.SMALL)
    training += ("--total-timesteps", str(options.steps), "--evaluation-interval", "200", "--evaluation-episodes", "2")
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        root = Path(folder)
        process = common.start(*training, "--root", str(root / "straight"))
        start, begun = until_begun(process, root / "straight"), time.perf_counter()
        output = process.communicate()[1]
        assert process.returncode == 0, output
        times = start, time.perf_counter() - begun
        run = common.run_in(root / "straight")
        assert run is not None
        straight = common.digest(run)
        table = []
        for number in range(options.kills):
            share = moments.uniform(0, 1.05)
            table.append(trial(number, share, times, training, root / str(number), straight))
            print(table[-1], flush=True)
            common.write("kills", table, kills=number + 1)
            shutil.rmtree(root / str(number))
    good = sum(row["status"] == 0 and row["differ"] == "nothing" and row["best"] for row in table)
    common.report("kills", table, kills=options.kills, resumed_as_if_never_killed=good)
    print(f"{good} of {options.kills} runs ended exactly as if they had not been killed")


if __name__ == "__main__":
    main()
