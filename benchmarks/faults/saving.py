"""Measure the cost of saving a large replay memory: extra memory, and time in terms of training steps.

    python benchmarks/faults/saving.py [--transitions 1000000] [--json benchmarks/results/faults/saving.json]

An agent with HalfCheetah's shapes (17 observations, 6 actions, 256-256, batch 256) and a replay memory full of random
numbers is saved and loaded. Meanwhile the process's resident memory is read every two milliseconds; its growth is given
as a share of the replay memory's bytes. The rate of training is measured in the same process, on HalfCheetah-v5 with
one update per step.
"""

import argparse
import gc
import json
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import gymnasium as gym
import numpy as np

from ddpg import DDPG, DDPGConfig

CONFIG = DDPGConfig(learning_starts=300)


def resident() -> int:
    """Return the bytes of private memory of this process, without mapped files."""
    _, pages, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (pages - shared) * os.sysconf("SC_PAGE_SIZE")


def watched(function: Callable[[], Any]) -> tuple[Any, float, int]:
    """Call ``function``; return its result, its seconds, and the bytes by which memory grew while it ran."""
    gc.collect()
    before, peak, done = resident(), [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    try:
        result = function()
    finally:
        seconds = time.perf_counter() - start
        done.set()
        watcher.join()
    return result, seconds, max(0, peak[0] - before)


def filled(agent: DDPG, transitions: int) -> int:
    """Fill the replay memory of ``agent`` with random numbers; return its size in bytes."""
    rng = np.random.default_rng(0)
    while len(agent.replay) < transitions:
        count = min(10_000, transitions - len(agent.replay))
        observations, following = rng.random((2, count, 17), np.float32)
        actions, rewards = rng.random((count, 6), np.float32), rng.random(count, np.float32)
        agent.replay.add(observations, actions, rewards, following, np.zeros(count), np.zeros(count))
    return sum(array.nbytes for array in agent.replay.arrays().values())


def steps_per_second() -> float:
    """Return the rate of training with one update per step, after compilation."""
    env = gym.make("HalfCheetah-v5")
    agent = DDPG(env, CONFIG, seed=0).learn(600)  # compiles
    start = time.perf_counter()
    agent.learn(1500)
    rate = 1500 / (time.perf_counter() - start)
    env.close()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument(
        "--repeats", type=int, default=3, help="saves; the median of seconds and most bytes are reported"
    )
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    rate = steps_per_second()
    spaces = gym.spaces.Box(-np.inf, np.inf, (17,), np.float64), gym.spaces.Box(-1.0, 1.0, (6,), np.float32)
    agent = DDPG(spaces, CONFIG.replace(buffer_size=options.transitions), seed=0)
    size = filled(agent, options.transitions)
    folder = Path(tempfile.mkdtemp(dir="."))
    try:
        saves = [watched(lambda number=number: agent.save(folder / str(number))) for number in range(options.repeats)]
        loaded, load_seconds, load_bytes = watched(lambda: DDPG.load(folder / "0"))
        expected, found = agent.replay.arrays(), loaded.replay.arrays()
        assert all(np.array_equal(found[name], expected[name]) for name in expected)
    finally:
        shutil.rmtree(folder)
    seconds = statistics.median(seconds for _, seconds, _ in saves)
    figures = {
        "transitions": options.transitions,
        "replay_megabytes": round(size / 1e6, 1),
        "save_extra_share": round(max(extra for _, _, extra in saves) / size, 4),
        "save_seconds": round(seconds, 3),
        "training_steps_per_second": round(rate, 1),
        "save_in_steps": round(seconds * rate, 1),
        # Loading makes an agent with the replay memory itself, which is not extra.
        "load_extra_share": round(load_bytes / size - 1, 4),
        "load_seconds": round(load_seconds, 3),
    }
    print(json.dumps(figures, indent=2))
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
