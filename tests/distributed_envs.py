"""Environments that inspect or break their worker process; at module level, so that workers can create them."""

import contextlib
import os
import sys
import time
from pathlib import Path

import gymnasium as gym
from environments import Counting


class Alone(Counting):
    """Counting, but it fails in a process with TensorFlow; the reward is the process's memory in MB."""

    def reset(self, *, seed=None, options=None):
        assert "tensorflow" not in sys.modules, "a worker has TensorFlow"
        return super().reset(seed=seed, options=options)

    def step(self, action):
        observation, _, *rest = super().step(action)
        with open("/proc/self/statm") as file:
            megabytes = int(file.read().split()[1]) * 4096 / 1e6
        return observation, megabytes, *rest


class Broken(Counting):
    """Counting, but its constructor raises."""

    def __init__(self):
        raise RuntimeError("no licence")


class Exits(Counting):
    """Counting, but its constructor exits the process."""

    def __init__(self):
        sys.exit("no licence")


class Unloadable:
    """Makes environments, but no other process can unpickle it."""

    def __call__(self):
        return Counting()

    def __setstate__(self, state):
        raise ImportError("no licence")

    def __getstate__(self):
        return {"any": "state"}


class Wide(Counting):
    """Counting, with observations of three numbers."""

    def __init__(self):
        super().__init__(observation_space=gym.spaces.Box(-1.0, 1.0, (3,)))


class Closed(Counting):
    """Counting, with 0.1 s per step after the hundredth; ``close`` makes a file in a folder, and raises."""

    def __init__(self, folder):
        super().__init__()
        self.folder = Path(folder)

    def step(self, action):
        time.sleep(0.1 * (len(self.actions) >= 100))
        return super().step(action)

    def close(self):
        (self.folder / str(os.getpid())).touch()
        raise RuntimeError("no simulator to close")


class Slow(Counting):
    """Counting, with a millisecond per step."""

    def step(self, action):
        time.sleep(0.001)
        return super().step(action)


class Invalid(Counting):
    """Counting, but its second observation is NaN."""

    def __init__(self):
        super().__init__(nan_at=2)


class Hanging(Slow):
    """Slow, but the first worker to reach its fifth step hangs there for ever."""

    def __init__(self, path):
        super().__init__()
        self.path, self.count = path, 0

    def step(self, action):
        self.count += 1
        if self.count == 5:
            with contextlib.suppress(FileExistsError), open(self.path, "x"):
                time.sleep(3600)
        return super().step(action)
