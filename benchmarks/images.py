"""Measure an update of DQN on images: compiled, by TensorFlow op by op, and in Stable-Baselines3.

    python -m benchmarks.images --peer PYTHON [--repeats 5] [--seconds 5] [--json FILE]
    python -m benchmarks.images --write    # writes results/images.json into docs/how_to/images.md

PYTHON is the interpreter of a virtual environment with stable-baselines3. The networks are those of DQN's paper (Mnih
et al. 2015), three convolutions and 512 units, on four frames of 84 x 84 or 42 x 42 bytes; a minibatch has 32
transitions, which are drawn from a replay memory of random images as part of the update. Each measurement is a process
of its own, on one core or on all; every one is made once before any is made again. Medians are reported, with minimum
and maximum.
"""

import argparse
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for a measurement, which runs this file by itself

from benchmarks import marks
from benchmarks.speed.processors import processor_name
from benchmarks.speed.results import machine

RESULTS = Path(__file__).parent / "results" / "images.json"
PAGE = Path(__file__).parents[1] / "docs" / "how_to" / "images.md"
SIDES = 84, 42
BATCH, WARM_UP = 32, 3
WAYS = {"compiled": "compiled", "session": "TensorFlow op by op", "stable_baselines": "Stable-Baselines3"}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="interpreter of a virtual environment with stable-baselines3")
    parser.add_argument("--repeats", type=int, default=5, help="number of measurements; the median is reported")
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each measurement")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--write", action="store_true", help="write the committed results into the page")
    parser.add_argument("--measure", nargs=3, metavar=("WAY", "SIDE", "CORES"), help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.measure:
        print(json.dumps(measured(*options.measure, options.seconds)))
        return
    if options.write:
        marks.write(PAGE, tables())
        return
    result = compared(options.peer, options.repeats, options.seconds)
    print(table(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def compared(peer: str | None, repeats: int, seconds: float) -> dict[str, Any]:
    """Return the milliseconds of every measurement, the versions of the packages, and the command."""
    counts = sorted({1, len(os.sched_getaffinity(0))})
    pythons = {"compiled": sys.executable, "session": sys.executable, **({"stable_baselines": peer} if peer else {})}
    cases = [(way, side, cores) for side in SIDES for cores in counts for way in pythons]
    found: dict[str, list[float]] = {}
    versions: dict[str, str] = {}
    for repeat in range(repeats):
        for way, side, cores in cases:
            print(f"{repeat + 1}/{repeats}: {way} {side} {cores}", file=sys.stderr)
            command = [pythons[way], __file__, "--seconds", str(seconds), "--measure", way, str(side), str(cores)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            answer = json.loads(done.stdout.splitlines()[-1])
            found.setdefault(f"{way} {side} {cores}", []).append(answer["ms"])
            versions |= answer["versions"]
    command = f"python -m benchmarks.images --peer PYTHON --repeats {repeats} --seconds {seconds:g}"
    return {"machine": machine(), "command": command, "cores": counts, "versions": versions, "ms": found}


def measured(way: str, side: str, cores: str, seconds: float) -> dict[str, Any]:
    """Return the median milliseconds of an update, in this process, and the versions of its packages."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": cores}
    update = stable_baselines(int(side), int(cores)) if way == "stable_baselines" else ours(int(side), way)
    for _ in range(WARM_UP):
        update()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        update()
        times.append(time.perf_counter() - start)
    names = ("stable-baselines3", "torch") if way == "stable_baselines" else ("tensorflow",)
    versions = {name: importlib.metadata.version(name) for name in names}
    return {"ms": 1e3 * statistics.median(times), "versions": versions}


def ours(side: int, way: str) -> Callable[[], Any]:
    from ddpg import DQN, DQNConfig, conv

    network = conv(filters=((32, 8, 4), (64, 4, 2), (64, 3, 1)), dense=(512,), padding="valid")
    config = DQNConfig(batch_size=BATCH, buffer_size=1_000, learning_starts=200, jit=way == "compiled")
    agent = DQN(screen(side), config, seed=0, q_network=network)
    agent.learn(200)
    return lambda: agent.update(1)


def stable_baselines(side: int, cores: int) -> Callable[[], Any]:
    import torch
    from stable_baselines3 import DQN

    torch.set_num_threads(cores)
    agent = DQN(
        "CnnPolicy", screen(side), buffer_size=1_000, learning_starts=200, train_freq=1_000, device="cpu", seed=0
    )
    agent.learn(201)
    return lambda: agent.train(1, BATCH)


def screen(side: int) -> Any:
    """Return an environment of random images, channels first."""
    import gymnasium as gym
    import numpy as np

    class Screen(gym.Env):
        observation_space = gym.spaces.Box(0, 255, (4, side, side), np.uint8)
        action_space = gym.spaces.Discrete(6)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self._image(), {}

        def step(self, action):
            return self._image(), 1.0, False, False, {}

        def _image(self):
            return self.np_random.integers(0, 256, self.observation_space.shape, dtype=np.uint8)

    return Screen()


def tables() -> dict[str, str]:
    """Return the page's tables of the committed results, by mark."""
    return {"images": table(json.loads(RESULTS.read_text(encoding="utf-8")))}


def table(result: Mapping[str, Any]) -> str:
    """Return the page's table, and a line that names processor and versions."""
    ways = [way for way in WAYS if any(key.startswith(f"{way} ") for key in result["ms"])]
    rows = []
    for side in SIDES:
        for cores in result["cores"]:
            cells = (result["ms"][f"{way} {side} {cores}"] for way in ways)
            texts = [f"{statistics.median(ms):.0f} ({min(ms):.0f} to {max(ms):.0f})" for ms in cells]
            rows.append([f"{side} x {side}, {cores}", *texts])
    versions = ", ".join(f"{name} {version}" for name, version in sorted(result["versions"].items()))
    repeats = max(map(len, result["ms"].values()))
    about = f"Milliseconds an update, {repeats} measurements on {processor_name(result['machine'])}; {versions}."
    return f"{about}\n\n{marks.table(['frames, cores', *(WAYS[way] for way in ways)], rows, len(ways))}"


if __name__ == "__main__":
    main()
