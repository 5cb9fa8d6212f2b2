"""Runs that end as by a kill, and the contents of a run directory that must not depend on whether that happened."""

import numpy as np
import tensorflow as tf

from ddpg.checkpoints import checkpoint
from ddpg.interaction import env_calls, env_runner
from ddpg.runs.tables import read_table

v1 = tf.compat.v1


class Killed(BaseException):
    """Stands for a kill: nothing catches it, and nothing is saved."""


def let_kills_pass(monkeypatch):
    """Let ``Killed`` pass the error boundary around environments, which would otherwise save the run."""
    guarded = env_calls.call

    def call(function, *arguments, fault, **options):
        passing = {"fault": lambda error: error if isinstance(error, Killed) else fault(error)}
        return guarded(function, *arguments, **passing, **options)

    for module in (env_runner, env_calls):
        monkeypatch.setattr(module, "call", call)


def saved(run, which="latest"):
    """Return the manifest and the groups of arrays of a run's checkpoint."""
    return checkpoint.read(checkpoint.find(run, which))


def what_is_left(run):
    """Return everything in a run directory that must not depend on whether the run was interrupted."""
    manifest, groups = saved(run)
    left = {f"{group}/{name}": array for group, arrays in groups.items() for name, array in arrays.items()}
    for clocked in ("seconds", "compile_seconds", "tables"):  # times, and the checksums of tables that contain times
        del left[f"run/{clocked}"]
    left |= {name: manifest[name] for name in ("num_timesteps", "num_updates", "owed_updates", "random_states")}
    for name in ("metrics", "episodes", "evaluations"):
        rows = read_table(run / f"{name}.csv")
        left[name] = [
            {key: cell for key, cell in row.items() if key not in ("seconds", "compile_seconds", "fps")} for row in rows
        ]
    left["events"] = sorted(
        (event.step, value.tag)
        for path in run.glob("events.out.tfevents.*")
        for event in v1.train.summary_iterator(str(path))
        for value in event.summary.value
    )
    left["best"] = saved(run, "best")[0]["num_timesteps"]
    left["files"] = sorted(path.name for path in (run / "checkpoints").iterdir())
    return left


def assert_same(run, other):
    np.testing.assert_equal(what_is_left(run), what_is_left(other))
