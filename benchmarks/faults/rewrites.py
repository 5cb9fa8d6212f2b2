"""Kill a run at each call that changes a file, during training and while it is resumed.

    python -m benchmarks.faults.rewrites [--every N] [--phase train|resume]

For the k-th call, a process is forked that exits at its k-th call of one of :data:`CALLS`. Then another fork resumes
the run, which must leave the same files as an uninterrupted one.
"""

import argparse
import builtins
import io
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.faults import common

CALLS = ("replace", "rename", "fsync", "unlink", "remove", "rmdir", "mkdir", "open", "ftruncate")
OVER = 77  # the exit status of a process that was ended at its k-th call
RUN = {"seed": 5, "total_timesteps": 60, "evaluation_interval": 20, "evaluation_episodes": 1, "progress_bar": False}


def in_a_fork(work: Callable[[], object]) -> int:
    """Call ``work`` in a forked process; return its exit status."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die_at(k: int, root: Path, noted: Path | None = None) -> None:
    """Make this process exit at its k-th call that changes a file under ``root``; list the calls in ``noted``."""
    from ddpg.runs.tables import CSVTable

    seen = 0

    def met(name: str, about: object) -> bool:
        nonlocal seen
        if isinstance(about, (str, os.PathLike)) and not Path(os.fspath(about)).resolve().is_relative_to(root):
            return False
        seen += 1
        if noted is not None:
            with original_open(noted, "a") as file:
                file.write(f"{name} {os.path.basename(str(about))}\n")
        return seen == k

    def wrapped(name: str, function: Callable) -> Callable:
        def call(*args, **options):
            writes = name != "open" or (len(args) > 1 and args[1] not in ("r", "rb", os.O_RDONLY))
            if writes and not (name == "open" and isinstance(args[0], int)) and met(name, args[0]):
                os._exit(OVER)
            return function(*args, **options)

        return call

    original_open = builtins.open
    for name in CALLS:
        setattr(os, name, wrapped(name, getattr(os, name)))
    builtins.open = io.open = wrapped("open", original_open)
    add = CSVTable.add

    def torn(table, row):
        if met("half a row of", table.path):
            table._file.write(b"12,3")
            os._exit(OVER)
        add(table, row)

    CSVTable.add = torn


def train(root: Path) -> None:
    from ddpg import DDPGConfig
    from ddpg import train as train_run

    options = {"hidden": (4,), "batch_size": 4, "learning_starts": 5, "updates_per_call": 3, "buffer_size": 40}
    train_run("ddpg_envs/Platform-v0", DDPGConfig(**options, bounding="inverting", jit=False), root=root, **RUN)


def resume(root: Path) -> None:
    from ddpg import resume as resume_run
    from ddpg.errors import UsageError

    run = common.run_in(root)
    if run is None:
        train(root)
        return
    try:
        resume_run(run, progress_bar=False)
    except UsageError as error:
        if "has reached its" not in str(error):
            raise


def killed_at_each_call(phase: str, folder: Path, every: int) -> list[dict]:
    """Return a row for every ``every``-th call during training, or while a killed run is resumed."""
    work = train if phase == "train" else resume
    begun, noted, counted, trial = (folder / f"{phase}-{name}" for name in ("begun", "calls", "counted", "trial"))
    begun.mkdir()
    if phase == "resume":  # begin with a run that was killed while it saved after its second evaluation
        in_a_fork(lambda: (die_at(150, begun), train(begun)))
    shutil.copytree(begun, counted)
    assert in_a_fork(lambda: (die_at(0, counted, noted), work(counted))) == 0
    calls = noted.read_text().splitlines()
    table = []
    for k in range(1, len(calls) + 1, every):
        shutil.copytree(begun, trial)
        killed = in_a_fork(lambda k=k: (die_at(k, trial), work(trial))) == OVER
        resumed = in_a_fork(lambda: resume(trial)) == 0
        same = in_a_fork(lambda: check_same(folder / "straight", trial)) == 0
        run = common.run_in(trial)
        row = {"phase": phase, "call": k, "killed at": calls[k - 1], "killed": killed, "resumed": resumed, "same": same}
        table.append(row | {"best": run is not None and common.best_is_right(run)})
        shutil.rmtree(trial)
    return table


def check_same(straight: Path, root: Path) -> None:
    """Raise if the run under ``root`` differs from the uninterrupted one."""
    one, other = common.run_in(straight), common.run_in(root)
    assert one is not None
    assert other is not None
    assert common.differences(other, common.digest(one)) == "nothing"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th call")
    parser.add_argument("--phase", choices=("train", "resume"), help="default: both")
    options = parser.parse_args()
    import ddpg.runs.training  # noqa: F401  once, for all forked processes

    table = []
    with tempfile.TemporaryDirectory(prefix="rewrites-") as name:
        folder = Path(name).resolve()
        assert in_a_fork(lambda: train(folder / "straight")) == 0
        for phase in [options.phase] if options.phase else ["train", "resume"]:
            table += killed_at_each_call(phase, folder, options.every)
    good = sum(row["killed"] and row["resumed"] and row["same"] and row["best"] for row in table)
    common.report("rewrites", table, calls=len(table), resumed_as_if_never_killed=good)
    print(f"{good} of {len(table)} killed runs ended exactly as if they had not been killed")


if __name__ == "__main__":
    main()
