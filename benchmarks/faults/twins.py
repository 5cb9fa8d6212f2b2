"""Start two processes on one run, and many runs at the same time in one folder.

python -m benchmarks.faults.twins [--runs 20]
"""

import argparse
import re
import tempfile
import time
from pathlib import Path

from benchmarks.faults import common

TRAINING = ("train", "Pendulum-v1", "--seed", "3", "--no-progress-bar", *common.SMALL)


def two_on_one_run(root: Path) -> list[dict]:
    """Try to resume a run while it is running, and again after it was killed."""
    first = common.start(*TRAINING, "--total-timesteps", "1000000", "--root", str(root))
    run = None
    while run is None or not (run / ".owner.json").exists():
        assert first.poll() is None, first.communicate()
        time.sleep(0.1)
        run = common.run_in(root)
    status, output = common.finish("resume", str(run), "--total-timesteps", "2000000", "--no-progress-bar")
    names_owner = f"process {first.pid} " in output
    first.kill()
    first.communicate()
    newest = max(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdecimal())
    after, _ = common.finish("resume", str(run), "--total-timesteps", str(newest + 500), "--no-progress-bar")
    row = {
        "trial": "resume of a run under way",
        "status": status,
        "names its owner": names_owner,
        "said": re.sub(r"\S*/ddpg/cli\.py", "ddpg", output.strip().replace(str(root), "ROOT")),
    }
    return [row, {"trial": "resume after its owner was killed", "status": after}]


def many_at_once(root: Path, count: int) -> dict:
    """Start runs at the same time; each must have its own directory and the same results."""
    processes = [common.start(*TRAINING, "--total-timesteps", "400", "--root", str(root)) for _ in range(count)]
    statuses = [(process.communicate(), process.returncode)[1] for process in processes]
    runs = sorted(int(path.name) for path in (root / "Pendulum-v1").iterdir() if path.name.isdecimal())
    digests = {str(common.digest(root / "Pendulum-v1" / str(number))) for number in runs}
    return {
        "trial": f"{count} runs at once",
        "status": max(statuses),
        "directories": "one each" if runs == list(range(1, count + 1)) else str(runs),
        "different results": len(digests) - 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="number of runs that start at the same time")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twins-") as name:
        table = [*two_on_one_run(Path(name) / "one"), many_at_once(Path(name) / "many", options.runs)]
    common.report("twins", table)


if __name__ == "__main__":
    main()
