"""Train and resume runs on full and read-only disks (tmpfs mounts, so this needs root and Linux).

    python -m benchmarks.faults.disks

Each command must print one line with the path and the errno and exit with status 4, and saved checkpoints must stay
readable. With free space again, the resumed run must leave the same files as a run without interruption.
"""

import argparse
import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.faults import common

TRAINING = ("Pendulum-v1", "--seed", "3", "--no-progress-bar", *common.SMALL, "--total-timesteps", "6000")
TRAINING += ("--evaluation-interval", "1000", "--evaluation-episodes", "2")


@contextlib.contextmanager
def disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a tmpfs of this size."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave: int = 0) -> Path:
    """Fill a disk until ``leave`` bytes are free; return the file that fills it."""
    status = os.statvfs(folder)
    filler = folder / "filler"
    with filler.open("wb") as file, contextlib.suppress(OSError):
        file.write(b"\0" * max(0, status.f_bavail * status.f_frsize - leave))
    return filler


def wait_for(root: Path, table: str, count: int) -> Path:
    """Wait until a run's table has ``count`` rows; return the run directory."""
    for _ in range(6000):
        run = common.run_in(root)
        if run is not None and len(common.rows(run, table)) >= count:
            return run
        time.sleep(0.02)
    raise TimeoutError(f"no {count} rows of {table} in {root}")


def under_way(folder: Path, straight: dict[str, str], leave: int) -> dict:
    """Fill the disk of a run after its first evaluation; then free the space and resume."""
    process = common.start("train", *TRAINING, "--root", str(folder / "runs"))
    run = wait_for(folder / "runs", "evaluations", 1)
    filler = fill(folder, leave)
    output = process.communicate()[1].strip()
    kept = sorted(path.name for path in (run / "checkpoints").iterdir())
    filler.unlink()
    status, _ = common.finish("resume", str(run), "--no-progress-bar")
    row = {"status": process.returncode, "kept": " ".join(kept), "resumed": status}
    return row | {"differ": common.differences(run, straight), **message_row(output, folder)}


def message_row(output: str, folder: Path) -> dict:
    """Return the number of lines and the text of a message, with the mount point replaced."""
    return {"lines": output.strip().count("\n") + 1, "said": output.strip().replace(str(folder), "DISK")}


def read_only(folder: Path, straight: dict[str, str]) -> list[dict]:
    """Kill a run, make its disk read-only, try to train and resume there; then make it writable and resume."""
    process = common.start("train", *TRAINING, "--root", str(folder / "runs"))
    run = wait_for(folder / "runs", "evaluations", 1)
    process.kill()
    process.communicate()
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    begun, said_begun = common.finish("train", *TRAINING, "--root", str(folder / "runs"))
    resumed, said_resumed = common.finish("resume", str(run), "--no-progress-bar")
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
    status, _ = common.finish("resume", str(run), "--no-progress-bar")
    return [
        {"moment": "train on a read-only disk", "status": begun, **message_row(said_begun, folder)},
        {
            **{"moment": "resume on a read-only disk", "status": resumed, "resumed": status},
            **{"differ": common.differences(run, straight), **message_row(said_resumed, folder)},
        },
    ]


def at_the_beginning(folder: Path) -> dict:
    """Start a run on a full disk."""
    fill(folder)
    status, output = common.finish("train", *TRAINING, "--root", str(folder / "runs"))
    left = [path.name for path in (folder / "runs").rglob("*") if path.is_file()]
    return {"status": status, "kept": " ".join(left), **message_row(output, folder)}


def a_row_and_events(folder: Path) -> list[dict]:
    """Write CSV rows, then TensorBoard events, to a full disk."""
    from ddpg.runs.log_writers import TensorBoardLogWriter
    from ddpg.runs.tables import CSVTable

    found = []
    for name, make in (
        ("a CSV row", lambda: CSVTable(folder / "metrics.csv", ["timesteps", "value"], 0)),
        ("TensorBoard events", lambda: TensorBoardLogWriter(folder, {"a": "a"}, lambda step, tag: True)),
    ):
        file = make()
        filler = fill(folder)
        try:
            for step in range(1, 10_000):
                if isinstance(file, CSVTable):
                    file.add({"timesteps": step, "value": 0.5})
                else:
                    file.add_metrics(step, {"a": 0.5})
                    file.flush()
            found.append({"moment": name, "said": "nothing"})
        except OSError as error:
            found.append({"moment": name, **message_row(str(error), folder)})
        if isinstance(file, CSVTable):
            found[-1]["differ"] = "nothing" if (folder / "metrics.csv").read_bytes().endswith(b"\n") else "a torn row"
        with contextlib.suppress(OSError):
            file.close()
        filler.unlink()
    return found


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    if os.geteuid() != 0:
        raise SystemExit("this mounts disks and needs root")
    with tempfile.TemporaryDirectory(prefix="disks-") as name:
        root = Path(name)
        straight = common.digest(common.trained(root / "straight", *TRAINING))
        table = []
        with disk(root / "a", "1m") as folder:
            table.append({"moment": "making the run directory", **at_the_beginning(folder)})
        with disk(root / "b", "20m") as folder:
            table.append({"moment": "no room at all", **under_way(folder, straight, 0)})
        with disk(root / "c", "20m") as folder:
            table.append({"moment": "a checkpoint", **under_way(folder, straight, 200_000)})
        with disk(root / "d", "1m") as folder:
            table += a_row_and_events(folder)
        with disk(root / "e", "20m") as folder:
            table += read_only(folder, straight)
    common.report("disks", table)


if __name__ == "__main__":
    main()
