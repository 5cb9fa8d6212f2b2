"""Measure the cost of the replay memory: bytes per transition, and the time of drawing minibatches and of updates.

    python -m benchmarks.memory [--transitions 1000000] [--repeats 30] [--json FILE]
    python -m benchmarks.memory --write    # writes results/memory.json into docs/memory.md

The shapes are those of HalfCheetah-v5 (17 observations, 6 actions, episodes of 1000 steps), with 32 minibatches of 256
drawn at once. Everything is measured alternately, and medians are reported: CPU time for single-threaded work, wall
time for updates. The baseline is a plain ring that stores s and s′ of every transition, as Stable-Baselines3's does
(which takes 308 bytes, since its observations are float64).
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import marks

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from gymnasium import spaces

from ddpg import DDPG, DDPGConfig, ReplayBuffer
from ddpg.interaction.transitions import Transitions
from ddpg.replay.priorities import Priorities
from ddpg.replay.sampling import Sampler

RESULTS = Path(__file__).parent / "results" / "memory.json"
PAGE = Path(__file__).parents[1] / "docs" / "memory.md"
OBSERVATIONS, ACTIONS, LENGTH = 17, 6, 1000
K, B = 32, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transitions", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--write", action="store_true", help=f"only write {RESULTS.name} into {PAGE.name}")
    options = parser.parse_args()
    if options.write:
        marks.write(PAGE, tables())
        return
    buffer, plain, step = filled(options.transitions)
    rng = np.random.default_rng(0)
    samplers = {
        kind: Sampler(buffer, 1, 0.99, make_priorities(kind, buffer.capacity)) for kind in ("proportional", "lap")
    }
    rows = rng.integers(0, len(buffer), (K, B))
    errors = rng.exponential(size=(K, B)).astype(np.float32)
    calls = {
        "plain ring, s and s' apart": lambda: [
            field.take(rng.integers(0, len(buffer), (K, B)), axis=0) for field in plain
        ],
        "uniform": lambda: buffer.sample(rng, K, B),
        "uniform, 3-step returns": lambda: buffer.gather(buffer.draw(rng, K, B), 3, 0.99),
        "proportional: draw": lambda: samplers["proportional"].sample(rng, K, B, 0.4),
        "proportional: write": lambda: samplers["proportional"].update(rows, errors),
        "lap: draw": lambda: samplers["lap"].sample(rng, K, B, 0.4),
        "lap: write": lambda: samplers["lap"].update(rows, errors),
        "store one transition": step,
    }
    milliseconds = medians(calls, options.repeats, time.thread_time)
    agents = {name: learning(**chosen) for name, chosen in UPDATES.items()}
    updates = medians({name: lambda agent=agent: agent.update(K) for name, agent in agents.items()}, options.repeats)
    result = {
        "transitions": options.transitions,
        "bytes_per_transition": buffer.nbytes / len(buffer),
        "milliseconds_per_minibatch": {name: value / K for name, value in milliseconds.items()},
        "milliseconds_per_update": {name: value / K for name, value in updates.items()},
    }
    print(markdown(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


def tables() -> dict[str, str]:
    """Return the page's tables of the committed results, by mark."""
    return {"memory": markdown(json.loads(RESULTS.read_text(encoding="utf-8")))}


def markdown(result: dict) -> str:
    """Return the results as Markdown tables."""
    about = f"{result['bytes_per_transition']:.1f} bytes per transition, in a memory of {result['transitions']:,}."
    drawing = [[name, f"{value:.4f}"] for name, value in result["milliseconds_per_minibatch"].items()]
    times = result["milliseconds_per_update"]
    updates = [[name, f"{value:.4f}", f"{value / times['none']:.1%}"] for name, value in times.items()]
    tables = (
        marks.table(["drawing and storing", "ms of CPU time per 256 transitions"], drawing, numbers=1),
        marks.table(["update, including drawing", "ms of wall time", "relative to none"], updates, numbers=2),
    )
    return "\n\n".join([about, *tables])


UPDATES = {
    "none": {},
    "n_steps=3": {"n_steps": 3},
    "prioritised=proportional": {"prioritised": "proportional"},
    "prioritised=lap": {"prioritised": "lap"},
    "normalize_observations": {"normalize_observations": True},
}


def make_priorities(kind: str, capacity: int) -> Priorities:
    priorities = Priorities(kind, None, capacity)
    rows = np.arange(capacity)
    priorities.update(rows, np.random.default_rng(1).exponential(size=capacity))
    return priorities


def filled(count: int) -> tuple[ReplayBuffer, list[np.ndarray], Callable[[], None]]:
    """Return a full memory, the arrays of a plain ring with the same rows, and a function that stores K more rows."""
    path = np.random.default_rng(0).normal(size=(count + 1, OBSERVATIONS)).astype(np.float32)
    actions, column = np.zeros((count, ACTIONS), np.float32), np.zeros((count, 1), np.float32)
    buffer = ReplayBuffer(count, (OBSERVATIONS,), ACTIONS)
    no, cut = np.zeros(count, bool), np.arange(1, count + 1) % LENGTH == 0
    buffer.add(path[:-1], actions, column[:, 0], path[1:], no, cut, [0] * count)
    one = [path[:1], actions[:1], column[:1, 0], path[1:2], no[:1], no[:1]]

    def step() -> None:
        for _ in range(K):
            one[0], one[3] = one[3], one[0]  # s is the last s′
            buffer.store(Transitions(*one, env_indices=[0]))

    return buffer, [path[:-1].copy(), actions, column, path[1:].copy(), column.copy()], step


def learning(**chosen) -> DDPG:
    """Return a 256-256 agent with enough transitions in memory to learn."""
    space = spaces.Box(-np.inf, np.inf, (OBSERVATIONS,), np.float32)
    config = DDPGConfig(batch_size=B, updates_per_call=K, buffer_size=100_000, **chosen)
    agent = DDPG((space, spaces.Box(-1.0, 1.0, (ACTIONS,), np.float32)), config, seed=0)
    rng = np.random.default_rng(0)
    path = rng.normal(size=(20_001, OBSERVATIONS))
    no, actions = np.zeros(20_000, bool), rng.uniform(-1, 1, (20_000, ACTIONS)).astype(np.float32)
    agent.remember(path[:-1], actions, rng.normal(size=20_000), path[1:], no, no)
    agent.update(K)  # compiles
    return agent


def medians(
    calls: dict[str, Callable[[], object]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the median milliseconds of each call, measured alternately."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start = clock()
            call()
            times[name].append(1000 * (clock() - start))
    return {name: statistics.median(values) for name, values in times.items()}


if __name__ == "__main__":
    main()
