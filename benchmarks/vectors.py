"""Measure the learner's busy share with one environment, and with 4 and 16 environments in processes and in EnvPool.

    python -m benchmarks.vectors [--repeats 3] [--json FILE] [--brief]
    python -m benchmarks.vectors --write    # writes results/vectors.json into docs/performance.md

The task is HalfCheetah-v5 with networks of 256-256, minibatches of 256, one update per transition, and the compiler
that "auto" chooses; vectors are measured with and without `overlap`. After a warm-up of 1,500 transitions, in which the
updates are compiled, 3,000 more are measured, by the wall clock of `agent.learn`. Busy is the share of that time spent
inside `Updater.run`: drawing minibatches, normalising, updating. The rest is stepping, acting, storing and waiting for
the environments. CPU seconds are those of this process, including EnvPool's threads; environments in other processes
use CPU time in addition.

Every configuration is measured once before any is measured again. Medians are reported, with minimum and maximum. If
EnvPool is not installed, it is left out, with a message. Other work on the machine changes the shares, so run this
alone.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import marks

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

RESULTS = Path(__file__).parent / "results" / "vectors.json"
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
ENV, GOAL = "HalfCheetah-v5", 0.9  # GOAL: the busy share to reach
OPTIONS = {"hidden": (256, 256), "batch_size": 256, "updates_per_step": 1.0, "learning_starts": 500}
BESIDE: dict[str, Any] = {"overlap": True}
WAYS: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("sync", 1, {}),
    *(
        (kind, n, more)
        for kind in ("async", "envpool")
        for n in (4, 16)
        for more in ({}, BESIDE, BESIDE | {"threads": 1})
    ),
)
NAMES = {"sync": "in this process", "async": "in processes", "envpool": "in EnvPool"}


class Timed:
    """A call with a clock around it.

    Attributes:
        seconds: spent in the call so far.
        count: calls so far.
    """

    def __init__(self, call: Callable, clock: Callable[[], float] = time.perf_counter):
        self._call, self._clock = call, clock
        self.seconds, self.count = 0.0, 0

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        start = self._clock()
        try:
            return self._call(*arguments, **options)
        finally:
            self.seconds += self._clock() - start
            self.count += 1


class Sample(NamedTuple):
    """The result of one measurement.

    Attributes:
        transitions, updates: their numbers, over all environments.
        seconds: wall time.
        learner_seconds: the part of ``seconds`` that was spent inside ``Updater.run``.
        cpu_seconds: CPU time of this process's threads, without environments in other processes.
    """

    transitions: int
    updates: int
    seconds: float
    learner_seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Transitions per second."""
        return self.transitions / self.seconds

    @property
    def busy(self) -> float:
        """The share of the time in which the learner made updates."""
        return self.learner_seconds / self.seconds


def measure(vectorization: str, n_envs: int, more: dict[str, Any], warm_up: int, transitions: int) -> Sample:
    """Train, and time the calls of the updater."""
    from ddpg import DDPG, DDPGConfig
    from ddpg.runs.env_factory import make_training_env

    env = make_training_env(ENV, n_envs, vectorization)
    try:
        agent = DDPG(env, DDPGConfig(**OPTIONS, **more), seed=0)
        agent.learn(warm_up)
        timed = Timed(agent.updater.run)
        agent.updater.run = timed
        steps, updates = agent.num_timesteps, agent.num_updates
        start, cpu = time.perf_counter(), time.process_time()
        agent.learn(transitions)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        steps, updates = agent.num_timesteps - steps, agent.num_updates - updates
        if not timed.count or timed.seconds > seconds:
            raise RuntimeError(f"{timed.count} calls of Updater.run took {timed.seconds} of {seconds} s: not measured")
        return Sample(steps, updates, seconds, timed.seconds, cpu)
    finally:
        env.close()


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and maximum."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def summary(samples: Sequence[Sample]) -> dict[str, Any]:
    """Return the summary of one configuration's measurements.

    ``left_over`` is the learner's idle time per transition, in milliseconds; ``limit`` is the number of transitions per
    second without idle time.
    """
    return {
        "transitions_per_second": spread([sample.rate for sample in samples]),
        "busy": spread([sample.busy for sample in samples]),
        "updates_per_transition": statistics.median(sample.updates / sample.transitions for sample in samples),
        "cpu_seconds_per_1000": statistics.median(1000 * sample.cpu_seconds / sample.transitions for sample in samples),
        "left_over": statistics.median(
            1000 * (sample.seconds - sample.learner_seconds) / sample.transitions for sample in samples
        ),
        "limit": statistics.median(sample.transitions / sample.learner_seconds for sample in samples),
    }


def table(found: dict[str, dict[str, Any]]) -> str:
    """Return the summaries as a table, a row for each configuration."""
    lines = []
    for way, row in found.items():
        rate, busy = row["transitions_per_second"], row["busy"]
        rates = f"{rate['median']:,.0f} ({rate['low']:,.0f}–{rate['high']:,.0f})"
        share = f"{busy['median']:.1%}{'' if busy['median'] >= GOAL else f' (below {GOAL:.0%})'}"
        lines.append([way, rates, share, f"{row['left_over']:.2f}", f"{row['limit']:,.0f}"])
    heads = ["transitions/s", "learner busy", "idle ms per transition", "transitions/s without idle time"]
    return marks.table(["environments", *heads], lines, len(heads))


def tables() -> dict[str, str]:
    """Return the page's tables of the committed results, by mark."""
    return {"vectors": page_text(json.loads(RESULTS.read_text(encoding="utf-8")))}


def page_text(document: dict[str, Any]) -> str:
    """Return the page's text for a results file."""
    about, repeats = document["machine"], document["command"].partition("--repeats ")[2]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items() if version)
    return f"Medians of {repeats} measurements on {about['cores']} cores. {versions}.\n\n{table(document['ways'])}"


def name_of(vectorization: str, n_envs: int, more: dict[str, Any]) -> str:
    """Return the name of a configuration in the table."""
    late = ", overlapping" if more.get("overlap") else ""
    return f"{n_envs} {NAMES[vectorization]}{late}{', updates on one thread' if more.get('threads') == 1 else ''}"


def machine() -> dict[str, Any]:
    """Return the machine and the versions that the numbers depend on."""
    names = ("ddpg-paths", "tensorflow", "gymnasium", "mujoco", "envpool")
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return {"cores": os.cpu_count(), "python": sys.version.split()[0], "versions": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    parser.add_argument("--brief", action="store_true", help="few transitions, once, to check that all variants work")
    parser.add_argument("--write", action="store_true", help=f"only write {RESULTS.name} into {PAGE.name}")
    options = parser.parse_args()
    if options.write:
        marks.write(PAGE, tables())
        return
    warm_up, transitions, repeats = (600, 200, 1) if options.brief else (1500, 3000, options.repeats)
    ways = WAYS
    if importlib.util.find_spec("envpool") is None:
        print("EnvPool is not installed (extra envpool): left out", file=sys.stderr)
        ways = tuple(way for way in WAYS if way[0] != "envpool")
    samples: dict[str, list[Sample]] = {name_of(*way): [] for way in ways}
    for repeat in range(repeats):
        for way in ways:
            sample = measure(*way, warm_up, transitions)
            samples[name_of(*way)].append(sample)
            print(f"{repeat + 1}/{repeats} {name_of(*way)}: {sample.rate:,.0f}/s, {sample.busy:.1%}", file=sys.stderr)
    found = {name: summary(each) for name, each in samples.items()}
    print(table(found))
    if options.json is not None:
        document = {
            "command": f"python -m benchmarks.vectors --repeats {repeats}{' --brief' if options.brief else ''}",
            "machine": machine(),
            "env": ENV,
            "options": OPTIONS,
            "transitions": {"warm_up": warm_up, "measured": transitions},
            "ways": found,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
