"""Where threads wait for each other: by hand, and in updates whose threads are delayed at every barrier."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from ddpg import DDPG, DDPGConfig
from ddpg.compiler import codegen
from ddpg.compiler.llvm_builder import FunctionBuilder
from ddpg.compiler.parallel import AccessRange, Shards, split_evenly

HALF, OTHER = AccessRange(0, 8, True), AccessRange(8, 16, True)


def read(access):
    return access._replace(written=False)


def barriers(*kernels):
    """Return for each kernel, given by the ranges that its two shards access, whether a barrier precedes it."""
    lines, found = FunctionBuilder(), []
    shards = Shards(lines, 2, 0, parallel=True)
    for kernel in kernels:
        before = len(lines.lines)
        shards.synchronize(kernel)
        found.append(len(lines.lines) > before)
    return found


def test_barriers_separate_conflicting_accesses():
    own, crossed, whole = [[HALF], [OTHER]], [[read(OTHER)], [read(HALF)]], [[read(AccessRange(0, 16, True))]] * 2
    assert barriers(own, own, own) == [False] * 3  # each shard has its own rows
    assert barriers(own, whole) == [False, True]  # reads what the other shard wrote
    assert barriers(own, crossed, crossed) == [False, True, False]  # both only read
    assert barriers(whole, own) == [False, True]  # writes what the other shard may still read
    assert barriers([[HALF], []], [[read(HALF)]]) == [False, False]  # the first shard alone
    assert barriers([[HALF], []], [[], [read(HALF)]], [[HALF], []]) == [False, True, True]
    assert barriers([[AccessRange(0, 8, True)], [AccessRange(8, 9, False)]], [[read(OTHER)], []]) == [False, False]


@pytest.mark.parametrize(("length", "workers", "multiple"), [(7, 3, 1), (2, 3, 1), (100, 3, 16), (0, 2, 1), (8, 1, 16)])
def test_shards_cover_the_range_once(length, workers, multiple):
    parts = split_evenly(length, workers, multiple)
    assert [place for low, high in parts for place in range(low, high)] == list(range(length))
    assert len(parts) <= workers
    assert all(low < high and low % multiple == 0 for low, high in parts)


PLAIN = {"hidden": (40, 24), "batch_size": 35, "updates_per_call": 3, "learning_starts": 35}
JOINT = {"target": "none", "norm": "renorm_soft", "n_critics": 2, "target_policy_noise": 0.2}
CONFIGS = {
    "ddpg": {"critic_l2": 1e-2},
    "td3": {"n_critics": 2, "policy_delay": 2, "target_policy_noise": 0.2, "critic_norm": "layer"},
    "plus": {**JOINT, "critic": "categorical", "atoms": 20, "adam_beta1": 0.5},
    "joint pass": {"target": "none", "critic_norm": "renorm_soft", "hidden": (24,)},
}


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        ("ddpg", 3),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("ddpg", 2), ("joint pass", 2), *itertools.product(("td3", "plus"), (2, 3)))
        ),
    ],
)
def test_delayed_threads_change_no_result(name, workers, monkeypatch):
    """Each thread that had to wait sleeps first, so that the others run ahead. The results equal one thread's."""
    late = codegen.BARRIER.replace("\ngo:\n", "\ngo:\n  %slept = call i32 @usleep(i32 3000)\n")
    assert late != codegen.BARRIER
    monkeypatch.setattr(codegen, "BARRIER", f"declare i32 @usleep(i32)\n{late}")
    pair = spaces.Box(-np.inf, np.inf, (5,)), spaces.Box(-1, 1, (2,))
    ends = []
    for serial in (True, False):
        agent = DDPG(pair, DDPGConfig(**PLAIN | CONFIGS[name], threads=workers), seed=0)
        rng = np.random.default_rng(0)
        for _ in range(200):
            ended = rng.uniform() < 0.1
            action = rng.uniform(-1, 1, 2)
            agent.observe(rng.normal(size=5), action, rng.normal(), rng.normal(size=5), ended, False)
        compiled = agent.updater.learner._compiled
        compiled._autotuner = SimpleNamespace(split=lambda count, serial=serial: [(serial, count)])
        metrics = agent.update(6)
        ends.append([*metrics.values(), *(array for array in compiled.values)])
    assert compiled.workers == workers
    np.testing.assert_equal(*ends)
