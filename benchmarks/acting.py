"""Measure `agent.predict` for one observation: compiled code and NumPy (`jit=False`), alternately.

    taskset -c 0 python -m benchmarks.acting --json benchmarks/results/acting.json

Each number is from 300 batches of 200 calls. On a busy machine, the minimum and the lowest tenth show the speed of the
code; the median also shows the other load.
"""

import argparse
import json
import time
from pathlib import Path

import gymnasium as gym
import numpy as np

from benchmarks.speed.processors import parse_cpuinfo
from ddpg import DDPG, DDPGConfig

CASES = {  # hidden layers, observations, actions, type of the observation, options
    "64-64, 3 numbers": ((64, 64), 3, 1, "float32", {}),
    "256-256, 17 numbers": ((256, 256), 17, 6, "float64", {}),
    "256-256, 17 numbers, normalised": ((256, 256), 17, 6, "float64", {"normalize_observations": True}),
}


def microseconds(agent: DDPG, observation: np.ndarray, batches: int = 300, calls: int = 200) -> list[float]:
    """Return the time of one call of ``predict``, in microseconds, for each batch."""
    for _ in range(calls):
        agent.predict(observation)
    found = []
    for _ in range(batches):
        start = time.perf_counter()
        for _ in range(calls):
            agent.predict(observation)
        found.append((time.perf_counter() - start) / calls * 1e6)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    path = parser.parse_args().json
    rows = []
    for name, (hidden, observations, actions, dtype, options) in CASES.items():
        spaces = gym.spaces.Box(-np.inf, np.inf, (observations,), dtype), gym.spaces.Box(-2, 2, (actions,))
        agents = {jit: DDPG(spaces, DDPGConfig(hidden=hidden, jit=jit, **options), seed=0) for jit in (True, False)}
        observation = np.random.default_rng(0).normal(size=observations).astype(dtype)
        for turn in range(2):
            for jit, agent in agents.items():
                times = microseconds(agent, observation)
                least, tenth, median = np.quantile(times, [0, 0.1, 0.5]).round(2).tolist()
                row = {"case": name, "compiled": jit, "turn": turn, "least": least, "tenth": tenth, "median": median}
                print(row, flush=True)
                rows.append(row)
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if path is not None:
        path.write_text(
            json.dumps({"processor": parse_cpuinfo(cpuinfo), "rows": rows}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
