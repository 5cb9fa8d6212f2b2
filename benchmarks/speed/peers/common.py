"""What the scripts of all packages share: the task, and a clock inside the environment.

Only the standard library, NumPy and gymnasium: each script runs in its package's own virtual environment.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace

import gymnasium as gym


class Clock(gym.Wrapper):
    """Notes the time when the environment's step number ``warm`` begins, and when step number ``steps`` does."""

    def __init__(self, env: gym.Env, warm: int, steps: int):
        super().__init__(env)
        self._taken, self._warm, self._steps = 0, warm, steps
        self.notes: list[tuple[float, float]] = []

    def step(self, action):
        """Step, and count."""
        self._taken += 1
        if self._taken in (self._warm, self._steps):
            used = os.times()
            self.notes.append((time.perf_counter(), used.user + used.system))
        return self.env.step(action)


def measure(train: Callable[[SimpleNamespace, gym.Env], object]) -> None:
    """Let ``train(task, env)`` take ``task.steps`` steps or more, and print what the clock has noted, as JSON."""
    task = SimpleNamespace(**json.loads(sys.argv[1]))
    made = []

    def clocked() -> gym.Env:
        made.append(Clock(gym.make(task.env), task.warm, task.steps))
        return made[-1]

    begun = time.perf_counter()
    train(task, clocked if getattr(train, "makes_its_own", False) else clocked())
    # Some make another one, to look at its spaces.
    (start, used), (end, used_then) = next(clock.notes for clock in made if len(clock.notes) == 2)
    steps = task.steps - task.warm
    print(
        json.dumps(
            {
                "steps_per_second": steps / (end - start),
                "cpu_seconds_per_1000_steps": 1000 * (used_then - used) / steps,
                "seconds_before": start - begun,
                "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )
