"""Measure a package's training function; the scripts of all packages share this module.

It imports only the standard library, NumPy and gymnasium, since each script runs in its package's virtual environment.
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
import gymnasium as gym
import shapes

# Modules, and the names of their distributions.
PACKAGES = {"ddpg": "ddpg-paths", "sbx": "sbx-rl", "stable_baselines3": "stable-baselines3", "tf_agents": "tf-agents"}
PACKAGES |= {
    name: name for name in ("gymnasium", "jax", "mujoco", "numpy", "rltools", "tensorflow", "tianshou", "torch")
}
ACTIONS, UPDATES = 2_000, 256  # actions that are timed one by one, and updates per timed call
SECONDS = 3.0  # for which updates are timed

Run = Callable[[Container[int], Callable[[int], None]], None]


class Clock(gym.Wrapper):
    """Calls ``note(number)`` at the beginning of every step whose ``number`` is in ``moments``.

    The environment is the only place that every package's training loop passes through.

    Args:
        env: the environment.
        moments: numbers of steps; the first step has the number 1.
        note: called before the step; its own time counts as training time.
    """

    def __init__(self, env: gym.Env, moments: Container[int], note: Callable[[int], None]):
        super().__init__(env)
        self._taken, self._moments, self._note = 0, moments, note

    def step(self, action):
        """Call ``note`` if the step's number is in ``moments``, then step."""
        self._taken += 1
        if self._taken in self._moments:
            self._note(self._taken)
        return self.env.step(action)


def measure(train: Callable) -> None:
    """Make the measurement that the command line describes, and print its result as JSON.

    Args:
        train: ``train(task, env)`` takes at least ``task.steps`` steps. Where the package supports it, it sets
            ``task.act``, a function from an observation to the policy's action without noise, and ``task.update``, a
            function that makes a given number of updates. If it has an attribute ``takes_factory``, ``env`` is a
            function that makes an environment.
    """
    imported = time.time()
    task = SimpleNamespace(**json.loads(sys.argv[1]), act=None, update=None)

    def run(moments: Container[int] = (), note: Callable[[int], None] = lambda step: None) -> None:
        def clocked() -> Clock:
            return Clock(shapes.make(task.env), moments, note)

        train(task, clocked if getattr(train, "takes_factory", False) else clocked())

    task.imported = imported
    end(MEASUREMENTS[task.kind](task, run))


def end(found: dict) -> None:
    """Print the result and exit at once, without waiting for the package to finish."""
    print(json.dumps({**found, "versions": versions()}), flush=True)
    sys.stderr.flush()
    os._exit(0)


def versions() -> dict[str, str]:
    """Return the versions of the imported packages."""
    found = {}
    for module, name in PACKAGES.items():
        if module in sys.modules:
            with contextlib.suppress(metadata.PackageNotFoundError):
                found[name] = metadata.version(name)
    return found


def peak_megabytes() -> float:
    """Return the peak memory of this process since its program started."""
    with contextlib.suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):  # ru_maxrss also counts the parent's memory, from which Linux forked it
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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
        "megabytes": peak_megabytes(),
    }


def learner(task: SimpleNamespace, run: Run) -> dict:
    """Return the rate of updates without environment steps, after ``task.warm`` steps of training."""
    task.steps = task.warm
    run()
    task.update(UPDATES)  # some packages compile for this number of updates
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
    """Return the bytes by which the process grows per step, without updates."""
    notes = []
    run((task.warm, task.steps), lambda step: notes.append(resident()))
    return {"bytes_per_transition": (notes[1] - notes[0]) / (task.steps - task.warm)}


def start(task: SimpleNamespace, run: Run) -> dict:
    """Return the seconds from the command's start to the step ``task.warm``, which follows the first updates."""
    imported = task.imported - task.began
    run((task.warm,), lambda step: end({"import_seconds": imported, "first_updates_seconds": time.time() - task.began}))
    return {"failed": f"training ended before step {task.warm}"}


def solve(task: SimpleNamespace, run: Run) -> dict:
    """Return the time until an evaluation reached ``task.goal``."""
    evaluation = evaluating.Evaluation(shapes.make(task.env), task)
    run(
        {1, *range(task.evaluation_interval, task.steps + 1, task.evaluation_interval)},
        lambda step: end_if_found(evaluation.at(step)),
    )
    return {"failed": f"a mean return of {evaluation.mean:.0f} after {task.steps} steps"}


def end_if_found(found: dict | None) -> None:
    """Exit with a result, if there is one."""
    if found:
        end(found)


def resident() -> int:
    """Return the process's resident memory in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


MEASUREMENTS = {each.__name__: each for each in (training, learner, acting, memory, start, solve)}
MEASUREMENTS |= {"seeds": training, "stronger": training, "dqn": training}
