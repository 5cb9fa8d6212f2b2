"""What the scripts of all packages share: the task, and what is measured of it.

Only the standard library, NumPy and gymnasium: each script runs in its package's own virtual environment.
"""

import contextlib
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable, Container
from importlib import metadata
from types import SimpleNamespace

import evaluating
import shapes
from clock import Clock

# Modules, and what they are installed as.
PACKAGES = {"ddpg": "ddpg-paths", "sbx": "sbx-rl", "stable_baselines3": "stable-baselines3", "tf_agents": "tf-agents"}
PACKAGES |= {
    name: name for name in ("gymnasium", "jax", "mujoco", "numpy", "rltools", "tensorflow", "tianshou", "torch")
}
ACTIONS, UPDATES = 2_000, 256  # timed by themselves; made in one call
SECONDS = 3.0  # of updates

Run = Callable[[Container[int], Callable[[int], None]], None]


def measure(train: Callable) -> None:
    """Measure the kind that was asked for, and print what it gives, as JSON.

    Args:
        train: ``train(task, env)`` takes ``task.steps`` steps or more, and sets ``task.act``, a function from an
            observation to the action of the policy without noise, and ``task.update``, a function that makes so many
            updates, where the package has them. With an attribute ``makes_its_own`` it is given a function that makes
            environments.
    """
    imported = time.time()
    task = SimpleNamespace(**json.loads(sys.argv[1]), act=None, update=None)

    def run(moments: Container[int] = (), note: Callable[[int], None] = lambda step: None) -> None:
        def clocked() -> Clock:
            return Clock(shapes.make(task.env), moments, note)

        train(task, clocked if getattr(train, "makes_its_own", False) else clocked())

    task.imported = imported
    end(MEASURED[task.kind](task, run))


def end(found: dict) -> None:
    """Print what was found, and be done: whatever the package still wanted to do."""
    print(json.dumps({**found, "versions": versions()}), flush=True)
    sys.stderr.flush()
    os._exit(0)


def versions() -> dict[str, str]:
    """Return the versions of those packages that were imported."""
    found = {}
    for module, name in PACKAGES.items():
        if module in sys.modules:
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
    return found


def training(task: SimpleNamespace, run: Run) -> dict:
    """Return the rate of the steps from ``task.warm`` to ``task.steps``."""
    notes = []

    def note(step: int) -> None:
        used = os.times()
        notes.append((time.perf_counter(), used.user + used.system))

    run((task.warm, task.steps), note)
    (start, used), (over, used_then) = notes
    steps = task.steps - task.warm
    return {
        "steps_per_second": steps / (over - start),
        "cpu_seconds_per_1000_steps": 1000 * (used_then - used) / steps,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def learner(task: SimpleNamespace, run: Run) -> dict:
    """Return the rate of updates by themselves, after ``task.warm`` steps."""
    task.steps = task.warm
    run()
    task.update(UPDATES)  # compiles for so many, where that is done
    done, start = 0, time.perf_counter()
    while (took := time.perf_counter() - start) < SECONDS:
        task.update(UPDATES)
        done += UPDATES
    return {"updates_per_second": done / took}


def acting(task: SimpleNamespace, run: Run) -> dict:
    """Return the median time of an action, after some steps with updates."""
    task.steps = task.starts + 100
    run()
    space = shapes.make(task.env).observation_space
    observations = [space.sample().clip(-1, 1) for _ in range(ACTIONS)]
    times = []
    for observation in [*observations[:200], *observations]:
        start = time.perf_counter()
        task.act(observation)
        times.append(time.perf_counter() - start)
    return {"microseconds": 1e6 * statistics.median(times[200:])}


def memory(task: SimpleNamespace, run: Run) -> dict:
    """Return the bytes by which the process grows with each step, where nothing is learned."""
    notes = []
    run((task.warm, task.steps), lambda step: notes.append(resident()))
    return {"bytes_per_transition": (notes[1] - notes[0]) / (task.steps - task.warm)}


def start(task: SimpleNamespace, run: Run) -> dict:
    """Return the seconds from the command's start to the step ``task.warm``; the updates before have been made."""
    imported = task.imported - task.began
    run((task.warm,), lambda step: end({"import_seconds": imported, "first_updates_seconds": time.time() - task.began}))
    return {"failed": f"no step {task.warm}"}


def solve(task: SimpleNamespace, run: Run) -> dict:
    """Return how long it took until an evaluation reached ``task.goal``."""
    evaluation = evaluating.Evaluation(shapes.make(task.env), task)
    run({1, *range(task.apart, task.steps + 1, task.apart)}, lambda step: tell(evaluation.at(step)))
    return {"failed": f"a mean return of {evaluation.mean:.0f} after {task.steps} steps"}


def tell(found: dict | None) -> None:
    """End where something was found."""
    if found:
        end(found)


def resident() -> int:
    """Return the bytes of memory that the process has now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


MEASURED = {each.__name__: each for each in (training, learner, acting, memory, start, solve)}
MEASURED |= {"seeds": training, "stronger": training}
