"""Measure the same updates on this machine's processor, with our compiler on one thread.

python -m benchmarks.gpu.processor [--json FILE]
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.gpu.cases import CASES
from benchmarks.gpu.export import agent_of
from benchmarks.speed.results import machine
from ddpg.replay.minibatch import Batch

RESULTS = Path(__file__).parents[1] / "results" / "gpu_processor.json"
OPERATIONS = 5e10  # per measurement, about half a second


def main() -> None:
    """Measure every case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=5, help="number of measurements; the median is reported")
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    document = {"machine": machine(), "repeats": options.repeats, "cases": {}}
    for case in CASES:
        agent = agent_of(case, compiler="native", threads=1)
        batch = Batch(*case.minibatches())
        weights = sum(variable.shape.num_elements() for variable in agent.actor.variables + agent.critic.variables)
        updates = int(min(32, max(3, OPERATIONS / (10 * case.batch * weights))))
        batch = Batch(*(field[:updates] for field in case.minibatches()))
        times = []
        for _ in range(options.repeats + 1):
            start = time.perf_counter()
            agent.updater.learner.update(agent.session, batch, updates)
            times.append((time.perf_counter() - start) / updates)
        lower, median, upper = statistics.quantiles(times[1:], n=4)
        document["cases"][case.name] = {"update_seconds": [median, lower, upper]}
        print(case.name, f"{1 / median:.1f} updates/s", flush=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        agent.close()


if __name__ == "__main__":
    main()
