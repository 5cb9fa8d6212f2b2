"""Measure how collecting scales with workers, the memory of a worker, and the cost of publishing weights.

    python benchmarks/scaling.py [--collectors process ray] [--workers 1 2 4 8] [--json FILE]
    python benchmarks/scaling.py --taking --json FILE

It measures:

- the steps/s of N workers compared with N times those of one, in an environment that sleeps 5 ms a step; the learner
  updates 64-64 networks only every other step, so that it is not the limit;
- the resident memory of the largest worker after that, in MB;
- the learner's seconds for publishing a 256-256 actor to 8 workers, as a share of its seconds for updates;
- with `--taking`, the rate at which the learner's process takes transitions from workers that are always ready, without
  updates but with the pool's bookkeeping and the pickling that a pipe needs; the rate is added to a results file.

Start-up is not counted. A rollout of 100 steps takes half a second, so steps/s are the slope of a line through the
arrival times.
"""

import argparse
import dataclasses
import functools
import json
import os
import pickle
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gymnasium as gym
import numpy as np

SECONDS = 0.005  # per step


class Sleeping(gym.Env):
    """An environment with HalfCheetah's shapes that sleeps for 5 ms per step; episodes have 1000 steps."""

    def __init__(self, seconds: float = SECONDS):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (17,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (6,), np.float32)
        self.seconds = seconds

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._observation(), {}

    def step(self, action):
        time.sleep(self.seconds)
        self.steps += 1
        return self._observation(), float(-np.square(action).sum()), False, self.steps == 1000, {}

    def _observation(self):
        return self.np_random.uniform(-1, 1, 17).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collectors", nargs="+", default=["process"])
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--rollouts", type=int, default=20, help="rollouts of 100 steps per worker")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument(
        "--taking", action="store_true", help="only measure how fast rollouts are taken, and add it to --json"
    )
    options = parser.parse_args()
    if options.taking:
        before = json.loads(options.json.read_text())
        options.json.write_text(json.dumps(before | {"taking": taking()}, indent=2) + "\n")
        return
    found: dict = {"cores": os.cpu_count(), "seconds_a_step": SECONDS, "collectors": {}}
    for collector in options.collectors:
        rows = [scaling(collector, workers, options.rollouts) for workers in options.workers]
        for row in rows:
            row["of_linear"] = row["steps_per_second"] / (
                row["workers"] * rows[0]["steps_per_second"] / rows[0]["workers"]
            )
            print(collector, row)
        found["collectors"][collector] = {"scaling": rows, "broadcast": broadcast(collector)}
        print(collector, found["collectors"][collector]["broadcast"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def agent_of(hidden: tuple[int, ...], updates_per_step: float, seconds: float):
    from ddpg import DDPG, DDPGConfig

    config = DDPGConfig(hidden=hidden, learning_starts=100, updates_per_step=updates_per_step)
    return DDPG(Sleeping(seconds), config, seed=0)


def scaling(collector: str, workers: int, rollouts: int) -> dict:
    """Return the steps/s of N workers and the memory of the largest worker."""
    from ddpg.workers.remote_loop import learning_from_workers

    with agent_of((64, 64), 0.5, SECONDS) as agent, learning_from_workers(agent, Sleeping, collector, workers) as loop:
        agent.learn(200 * workers)  # starts the workers, compiles the update
        while loop.pool.ready < workers:
            agent.learn(100)
        agent.learn(100 * workers)
        arrived: list[tuple[float, int]] = []
        agent.learn(
            100 * workers * rollouts, lambda agent: arrived.append((time.perf_counter(), loop.pool.counts.steps))
        )
        times, steps = np.array(arrived).T
        return {
            "workers": workers,
            "steps_per_second": float(np.polyfit(times - times[0], steps, 1)[0]),
            "largest_worker_mb": max(map(resident, pids_of(collector, loop))),
            "policy_lag_updates": loop.measured()["policy_lag"],
            "updates_per_step": agent.num_updates / (agent.num_timesteps - 100),
        }


def broadcast(collector: str, workers: int = 8) -> dict:
    """Return the cost of publishing a 256-256 actor: milliseconds per publication, and shares of the time."""
    from ddpg.workers.remote_loop import learning_from_workers

    with (
        agent_of((256, 256), 1.0, 0.0) as agent,
        learning_from_workers(agent, functools.partial(Sleeping, 0.0), collector, workers) as loop,
    ):
        agent.learn(1000)  # starts the workers, compiles the update
        updating, update = [0.0], agent.update

        def timed(n: int) -> dict[str, float]:
            start = time.perf_counter()
            try:
                return update(n)
            finally:
                updating[0] += time.perf_counter() - start

        agent.update = timed
        count, spent, start = loop.broadcasts, loop.broadcast_seconds, time.perf_counter()
        agent.learn(4000)
        spent, count = loop.broadcast_seconds - spent, loop.broadcasts - count
        elapsed = time.perf_counter() - start
        return {
            "workers": workers,
            "milliseconds": 1000 * spent / count,
            "share_of_updates": spent / updating[0],
            "share_of_all": spent / elapsed,
            "policy_lag_updates": loop.measured()["policy_lag"],
        }


class InstantTransport:
    """Workers that answer every request at once, always with the same rollout."""

    def __init__(self, spec):
        from ddpg.workers.worker import RolloutRequest, Worker

        self.rollout = Worker(spec, 0, 0).rollout(RolloutRequest(0, 0, 0, 0))
        self.events = []

    def publish(self, version, arrays):
        pass

    def start(self, worker, epoch):
        from ddpg.workers.worker import WorkerReady

        self.events.append(WorkerReady(worker, epoch))

    def request(self, request):
        self.events.append(pickle.dumps(dataclasses.replace(self.rollout, request=request)))

    def poll(self, timeout):
        events, self.events = self.events, []
        return [pickle.loads(event) if isinstance(event, bytes) else event for event in events]

    def close(self):
        pass


def taking(steps: int = 200_000) -> dict:
    """Return the steps/s at which rollouts of 100 steps are unpickled, stored and counted, and their bytes per step."""
    from ddpg.workers.pool import WorkerPool
    from ddpg.workers.remote_loop import RemoteLoop, worker_spec_of

    with agent_of((64, 64), 1.0, 0.0) as agent:
        spec = worker_spec_of(agent, functools.partial(Sleeping, 0.0), 8, 100, 0)
        transport = InstantTransport(spec)
        agent.config = agent.config.replace(learning_starts=10**9)
        agent.loop = RemoteLoop(agent, WorkerPool(transport, 8, 100))
        agent.learn(10_000)
        rates = []
        for _ in range(5):
            start = time.perf_counter()
            agent.learn(steps // 5)
            rates.append(steps // 5 / (time.perf_counter() - start))
        return {
            "steps_per_second": float(np.median(rates)),
            "low": min(rates),
            "high": max(rates),
            "bytes_per_step": len(pickle.dumps(transport.rollout)) / len(transport.rollout),
        }


def pids_of(collector: str, loop) -> list[int]:
    if collector == "process":
        return loop.pool._transport.pids
    own = [path for path in Path("/proc").glob("[0-9]*/cmdline") if path.read_bytes().startswith(b"ray::Actor")]
    return [int(path.parent.name) for path in own]


def resident(pid: int) -> float:
    """Return the resident memory of a process, in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
