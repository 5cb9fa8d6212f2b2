"""Profile an update with a clock in its machine code: the time of each thread's matrix products and passes.

    python -m benchmarks.speed.roofline --profile    # then python -m benchmarks.speed --write

Each thread reads the processor's time-stamp counter after every kernel, and before and after every barrier. The median
over calls is taken for each thread and kernel, so that calls in which a thread lost its core do not matter. Time within
barriers is left out, since it depends on how busy the machine is.
"""

import collections
import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from gymnasium import spaces

from benchmarks import marks
from benchmarks.speed.roofline.recipes import SIZES
from ddpg import DDPG, DDPGConfig
from ddpg.compiler import codegen, compiled_update, parallel
from ddpg.compiler.ir import Node
from ddpg.config.presets import read_recipe
from ddpg.replay.minibatch import Batch

PROFILE = Path(__file__).parents[2] / "results" / "profile.json"
RECIPES = "ddpg", "plus"
KERNELS = 512  # the largest number of kernels in all kinds of update together
BARRIER = 0.4  # µs that a barrier of two threads on two cores takes at least, measured separately


class Clocks:
    """Counts the ticks that each worker spends in each kernel.

    Attributes:
        ticks: ``[workers, 2 + KERNELS]``: the last reading of the clock, ticks in barriers, and ticks in each kernel.
        kinds: the kernels of each kind of update, in order.
        barriers: their number in each kind of update.
    """

    def __init__(self, workers: int):
        self.ticks = np.zeros((workers, 2 + KERNELS), np.int64)
        self.kinds: list[list] = []
        self.barriers: list[int] = []
        self._next: dict[Any, int] = {}

    def read(self, main: Any, column: int) -> None:
        """Emit code that reads the clock and adds the ticks since the last reading to a column of ``ticks``."""
        now = main.add("call i64 @llvm.readcyclecounter()")
        row = main.add(f"mul i64 %worker, {self.ticks.strides[0]}")
        address = main.add(f"add i64 {row}, {self.ticks.ctypes.data}")
        start = main.add(f"inttoptr i64 {address} to ptr")
        passed = main.add(f"sub i64 {now}, {main.add(f'load volatile i64, ptr {start}')}")
        place = main.add(f"getelementptr i64, ptr {start}, i64 {column}")
        total = main.add(f"add i64 {main.add(f'load volatile i64, ptr {place}')}, {passed}")
        main.do(f"store volatile i64 {total}, ptr {place}")
        main.do(f"store volatile i64 {now}, ptr {start}")

    @contextlib.contextmanager
    def built_in(self) -> Iterator[None]:
        """Make updates that are compiled inside read the clock."""
        module, update, barrier = codegen.Module, codegen.UpdateFunction, parallel.Shards.barrier
        clocks, first = self, {}

        class Clocked(module):  # type: ignore[misc, valid-type]
            def __init__(self, kinds: list, *arguments: Any):
                clocks.kinds = [kind.kernels for kind in kinds]
                clocks.barriers = [0] * len(kinds)
                super().__init__(kinds, *arguments)
                self.text += "\ndeclare i64 @llvm.readcyclecounter()\n"

        class ClockedUpdate(update):  # type: ignore[misc, valid-type]
            def __init__(self, name: str, module: Any, kind: Any, parallel: bool):
                first["kind"] = index = [*map(id, module.kinds)].index(id(kind))
                first["column"] = 2 + sum(map(len, clocks.kinds[:index]))
                super().__init__(name, module, kind, parallel)

        def column(main: Any) -> int:
            return clocks._next.setdefault(main, first["column"])

        def after(method: Any) -> Any:
            def kernel(entry: Any, *arguments: Any) -> None:
                place = column(entry._main)
                method(entry, *arguments)
                clocks.read(entry._main, place)
                clocks._next[entry._main] = place + 1

            return kernel

        def clocked_barrier(shards: Any) -> None:
            if not shards._parallel:
                return
            clocks.barriers[first["kind"]] += 1
            clocks.read(shards._main, column(shards._main))
            barrier(shards)
            clocks.read(shards._main, 1)

        kinds = {name: after(getattr(update, name)) for name in ("_loop", "_move", "_matmul", "_convolution")}
        with (
            mock.patch.multiple(update, **kinds),
            mock.patch.object(codegen, "UpdateFunction", ClockedUpdate),
            mock.patch.object(parallel.Shards, "barrier", clocked_barrier),
            mock.patch.object(compiled_update, "Module", Clocked),
            mock.patch.dict(os.environ, {"DDPG_CACHE": "off"}),  # the code holds this process's addresses
        ):
            yield


def profile_update(config: DDPGConfig, workers: int, calls: int) -> list[dict[str, float]]:
    """Return the µs of each kind of update: products, passes (both of all threads), and every kernel's longer share."""
    clocks = Clocks(workers)
    observations, actions = SIZES
    pair = spaces.Box(-np.inf, np.inf, (observations,)), spaces.Box(-1, 1, (actions,))
    with clocks.built_in():
        agent = DDPG(pair, config, seed=0)
        learner: Any = agent.updater.learner
    learner._compiled._autotuner = None  # always use all workers
    rng, count = np.random.default_rng(0), config.updates_per_call
    shapes = (observations,), (actions,), (1,), (observations,), (1,)
    batch = Batch(*(rng.uniform(-1, 1, (count, config.batch_size, *shape)).astype(np.float32) for shape in shapes))
    samples, start = [], (time.perf_counter_ns(), 0)
    for _ in range(calls):
        which = collections.Counter(learner._which(learner._made + update) for update in range(count))
        clocks.ticks[:] = 0
        learner.update(agent.session, batch, count)
        start = start if start[1] else (time.perf_counter_ns(), int(clocks.ticks[0, 0]))
        samples.append((which, clocks.ticks.copy()))
    rate = (int(clocks.ticks[0, 0]) - start[1]) / (time.perf_counter_ns() - start[0]) * 1e3  # ticks a µs
    found, first = [], 2
    for kind, kernels in enumerate(clocks.kinds):
        work = np.array(
            [
                [statistics.median(ticks[worker, first + k] / which[kind] for which, ticks in samples) / rate]
                for worker in range(workers)
                for k in range(len(kernels))
            ]
        ).reshape(workers, len(kernels))
        work[:, 0] = 0.0  # its ticks began in an earlier call, where the clock was last read
        products = np.array([isinstance(kernel, Node) and kernel.kind == "matmul" for kernel in kernels])
        found.append(
            {
                "products": float(work[:, products].sum()),
                "passes": float(work[:, ~products].sum()),
                "longest": float(work.max(axis=0).sum()),
                "meetings": clocks.barriers[kind] if workers > 1 else 0,
            }
        )
        first += len(kernels)
    return found


def profile_recipes(calls: int = 80) -> dict[str, dict[str, list[dict[str, float]]]]:
    """Profile the recipes at HalfCheetah's sizes, on one thread and on two."""
    found = {}
    for name in RECIPES:
        config = DDPGConfig(**{**read_recipe(name), "buffer_size": 1_000, "updates_per_call": 3, "compiler": "native"})
        found[name] = {
            str(workers): profile_update(config.replace(threads=workers), workers, calls) for workers in (1, 2)
        }
    return found


def profile_table(document: Mapping[str, Any]) -> str:
    """Return a table of the profiles, with the largest speedup that a second core can give."""
    kinds = [
        (name, kind, one, two)
        for name, threads in document["recipes"].items()
        for kind, (one, two) in enumerate(zip(threads["1"], threads["2"], strict=True))
    ]
    last = {name: kind for name, kind, *_ in kinds}
    titles = [
        name + ("" if not last[name] else (", with" if kind else ", without") + " the actor's step")
        for name, kind, *_ in kinds
    ]
    rows: dict[str, list[str]] = {
        "one thread: products": [f"{one['products']:,.0f}" for *_, one, _ in kinds],
        "... passes": [f"{one['passes']:,.0f}" for *_, one, _ in kinds],
        "two threads, both together: products": [f"{two['products']:,.0f}" for *_, two in kinds],
        "... passes ": [f"{two['passes']:,.0f}" for *_, two in kinds],
        "... sum of every kernel's longer share": [f"{two['longest']:,.0f}" for *_, two in kinds],
        "barriers": [f"{two['meetings']}" for *_, two in kinds],
        "speedup by the second core if barriers took no time": [
            f"{_speedup(one, two, 0):.2f}" for *_, one, two in kinds
        ],
        f"... if a barrier takes {BARRIER} µs": [f"{_speedup(one, two, BARRIER):.2f}" for *_, one, two in kinds],
    }
    return marks.table(["µs per update", *titles], [[title, *cells] for title, cells in rows.items()])


def _speedup(one: Mapping[str, float], two: Mapping[str, float], barrier: float) -> float:
    return (one["products"] + one["passes"]) / (two["longest"] + barrier * two["meetings"])
