"""Compare the speed of the fused learner with the limit from matrix products and with separate session calls.

    python benchmarks/learner.py [--repeats 5] [--json FILE]

Everything is measured in one process, alternately, and medians are reported: a machine's timings drift, but ratios of
neighbouring measurements drift less.

* Limit: one update of actor and critic at 256-256, batch 256, 17 observations and 6 actions is ten passes
  through a network (six forward, four backward) of 2·B·W operations each, where W is the number of weights: 0.36
  GFLOP of matrix products. The rate at which TensorFlow multiplies float32 matrices on this machine bounds
  the updates per second. Two rates are measured: for the learner's largest product, [256, 256] by [256, 256], and for
  a large square one, [2048, 2048], whose rate no network of this size reaches.
* Session path: the five calls of the usual tutorial (target actor and critic, critic step, ∇ₐQ, actor step,
  target updates) through the numeric methods of the networks.
* Acting: ``DDPG.predict`` against one session call, ``ActorNetwork.predict``, on a 256-256 actor.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
from gymnasium import spaces

from ddpg import DDPG, DDPGConfig
from ddpg.replay.minibatch import Batch

v1 = tf.compat.v1

LARGE = {"hidden": (256, 256), "batch": 256, "observations": 17, "actions": 6, "updates_per_call": 32}
SMALL = {"hidden": (64, 64), "batch": 64, "observations": 3, "actions": 1, "updates_per_call": 32}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7, help="number of measurements; the median is reported")
    parser.add_argument("--seconds", type=float, default=1.0, help="duration of each measurement")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()

    large, small = Contender(LARGE), Contender(SMALL)
    observation = np.random.default_rng(0).normal(size=LARGE["observations"]).astype(np.float32)
    measured = measure(
        {
            "product_learner_shape": (product(LARGE["batch"], 256, 256), gigaflop(LARGE["batch"], 256, 256)),
            "product_2048": (product(2048, 2048, 2048), gigaflop(2048, 2048, 2048)),
            "fused_large": (large.fused, LARGE["updates_per_call"]),
            "fused_small": (small.fused, SMALL["updates_per_call"]),
            "stepped_large": (large.stepped, 1),
            "stepped_small": (small.stepped, 1),
            "predict": (lambda: large.agent.predict(observation), 1),
            "session_call": (lambda: large.actor_call(observation[None]), 1),
        },
        options.repeats,
        options.seconds,
    )
    work = update_gigaflop(LARGE)
    rows = report(measured, work)
    print(render(rows))
    if options.json:
        document = {
            "command": f"python benchmarks/learner.py --repeats {options.repeats} --seconds {options.seconds}",
            "machine": {"cpus": os.cpu_count(), "processor": platform.processor(), "tensorflow": tf.__version__},
            "gigaflop_per_update": work,
            "measured": measured,
            "ratios": {name: ratio for name, _, _, ratio in rows if ratio is not None},
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")


class Contender:
    """An agent of one size that can update with the fused learner or with session calls."""

    def __init__(self, size: dict):
        self.size = size
        pair = spaces.Box(-np.inf, np.inf, (size["observations"],)), spaces.Box(-1, 1, (size["actions"],))
        config = DDPGConfig(
            hidden=size["hidden"], batch_size=size["batch"], updates_per_call=size["updates_per_call"], buffer_size=1000
        )
        self.agent = DDPG(pair, config, seed=0)
        rng = np.random.default_rng(0)
        lead = size["updates_per_call"], size["batch"]
        shapes = Batch((size["observations"],), (size["actions"],), (1,), (size["observations"],), (1,))
        self.batch = Batch(*(rng.uniform(-1, 1, (*lead, *shape)).astype(np.float32) for shape in shapes))
        self.one = Batch(*(field[0] for field in self.batch))
        self.learner = self.agent.updater.learner

    def fused(self) -> None:
        self.learner.update(self.agent.session, self.batch, self.size["updates_per_call"])

    def stepped(self) -> None:
        actor, critic, batch = self.agent.actor, self.agent.critic, self.one
        with self.agent.session.as_default():
            next_q = critic.predict_target(batch.next_observations, actor.predict_target(batch.next_observations))
            y = batch.rewards + 0.99 * (1 - batch.terminated) * next_q
            critic.train(batch.observations, batch.actions, y)
            gradients = critic.action_gradients(batch.observations, actor.predict(batch.observations))
            actor.train(batch.observations, gradients)
            actor.update_target_network()
            critic.update_target_network()

    def actor_call(self, observations: np.ndarray) -> np.ndarray:
        with self.agent.session.as_default():
            return self.agent.actor.predict(observations)


def product(rows: int, inner: int, columns: int) -> Callable[[], None]:
    """Return a function that multiplies float32 matrices of these shapes repeatedly, about 0.5 GFLOP per call."""
    times = max(1, round(0.5 / gigaflop(rows, inner, columns)))
    graph = tf.Graph()
    with graph.as_default():
        x = v1.placeholder(tf.float32, [rows, inner])
        y = v1.placeholder(tf.float32, [inner, columns])

        # A chain, as in a network: each product depends on the previous one, and each uses all cores.
        def chain(x, y):
            return tf.while_loop(lambda i, _: i < times, lambda i, z: (i + 1, tf.matmul(z, y)), [0, x])[1]

        compiled = tf.function(chain, jit_compile=True, autograph=False)(x, y)
        session = v1.Session()
        call = session.make_callable(compiled.op, feed_list=[x, y])
    identity_like = np.eye(inner, columns, dtype=np.float32)
    ones = np.ones((rows, inner), np.float32)

    def run() -> None:
        call(ones, identity_like)

    run.amount = times
    return run


def gigaflop(rows: int, inner: int, columns: int) -> float:
    return 2 * rows * inner * columns / 1e9


def update_gigaflop(size: dict) -> float:
    """Return the minimum GFLOP of matrix products in one update of Algorithm 1.

    Forward: target actor, target critic, critic, actor, critic at μ(s). Backward: the critic's weights and
    hidden layers, ∇ₐQ through the critic, the actor's weights and hidden layers.
    """
    hidden, batch = size["hidden"], size["batch"]

    def layers(inputs: int, outputs: int) -> list[int]:
        widths = [inputs, *hidden, outputs]
        return [a * b for a, b in itertools.pairwise(widths)]

    actor = layers(size["observations"], size["actions"])
    critic = layers(size["observations"] + size["actions"], 1)
    forward = 2 * sum(actor) + 3 * sum(critic)
    weights_backward = sum(actor) + sum(critic)
    inputs_backward = sum(actor[1:]) + sum(critic[1:]) + sum(critic[1:]) + size["actions"] * hidden[0]
    return 2 * batch * (forward + weights_backward + inputs_backward) / 1e9


def measure(calls: dict[str, tuple[Callable, float]], repeats: int, seconds: float) -> dict[str, dict[str, float]]:
    """Run all calls in turn, ``repeats`` times; return median, lowest and highest rate (amount per second)."""
    rates: dict[str, list[float]] = {name: [] for name in calls}
    for call, _ in calls.values():
        call()  # compile, and warm up
    for repeat in range(repeats):
        for name, (call, amount) in calls.items():
            print(f"\r{repeat + 1}/{repeats} {name:<24}", end="", flush=True)
            done, start = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - start) < seconds:
                call()
                done += getattr(call, "amount", 1)
            rates[name].append(done * amount / elapsed)
    print("\r" + " " * 40 + "\r", end="")
    return {
        name: {"median": statistics.median(values), "low": min(values), "high": max(values)}
        for name, values in rates.items()
    }


def report(measured: dict, work: float) -> list[tuple[str, str, str, float | None]]:
    """Return rows of (measurement, rate, compared with, ratio)."""
    rate = {name: values["median"] for name, values in measured.items()}
    limit, large_limit = rate["product_learner_shape"] / work, rate["product_2048"] / work

    def row(text, name, unit, against, ratio):
        values = measured[name]
        return text, f"{rate[name]:,.0f} {unit} ({values['low']:,.0f}-{values['high']:,.0f})", against, ratio

    return [
        row(
            "matrix product 256 x 256 x 256", "product_learner_shape", "GFLOP/s", f"allows {limit:,.0f} updates/s", None
        ),
        row("matrix product 2048 cubed", "product_2048", "GFLOP/s", f"allows {large_limit:,.0f} updates/s", None),
        row(
            "fused, 256-256, batch 256",
            "fused_large",
            "updates/s",
            "limit by products of its shape",
            rate["fused_large"] / limit,
        ),
        row("  ", "fused_large", "updates/s", "limit by the large product", rate["fused_large"] / large_limit),
        row("  ", "fused_large", "updates/s", "session calls", rate["fused_large"] / rate["stepped_large"]),
        row("session calls, 256-256, batch 256", "stepped_large", "updates/s", "", None),
        row(
            "fused, 64-64, batch 64",
            "fused_small",
            "updates/s",
            "session calls",
            rate["fused_small"] / rate["stepped_small"],
        ),
        row("session calls, 64-64, batch 64", "stepped_small", "updates/s", "", None),
        row("predict, 256-256", "predict", "actions/s", "a session call", rate["predict"] / rate["session_call"]),
        row("session call, 256-256", "session_call", "actions/s", "", None),
    ]


def render(rows: list) -> str:
    lines = [f"{'':<34} {'median (lowest-highest)':<42} {'compared with':<28} ratio"]
    for text, rate, against, ratio in rows:
        lines.append(f"{text:<34} {rate:<42} {against:<28} {'' if ratio is None else f'{ratio:.2f}'}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
