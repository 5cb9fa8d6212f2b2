"""Measure compiled updates on several threads and in both precisions, also on a machine without TensorFlow.

    python -m benchmarks.many_cores export FOLDER               # needs TensorFlow: writes the updates' LLVM code
    python -m benchmarks.many_cores measure FOLDER [--json FILE]  # on any machine: compiles and times this code
    python -m benchmarks.many_cores write                       # writes the tables into docs/performance/update.md

The second command needs only NumPy, llvmlite and platformdirs. The code is for processors with AVX-512; bfloat16
products also need AVX512-BF16 or AMX, and are left out on other processors. All variants of an update take turns.
"""

import argparse
import dataclasses
import gzip
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import marks
from benchmarks.gpu.cases import CASES, CELLS, UPDATES, Case
from benchmarks.speed.processors import processor_name

RESULTS = Path(__file__).parent / "results" / "many_cores.json"
PAGE = Path(__file__).parents[1] / "docs" / "performance" / "update.md"
THREADS = 1, 2, 4, 6, 8, 12, 16
FLOAT32, AVX512, AMX = "float32", "bfloat16 with AVX-512", "bfloat16 with AMX"
MEASURED = (
    Case(None, (64, 64), 64),
    Case("plus", (256, 256), 96),
    Case(None, (256, 256), 256),
    Case(None, (256, 256), 1024),
    Case(None, (1024, 1024), 1024),
)
assert set(MEASURED) <= set(CASES)
ROWS = 16  # the smallest number of a minibatch's rows per thread
STORED = 1024  # variables with more numbers are replaced by normal numbers of the same standard deviation
SECONDS = 0.15  # minimum duration of one timing
WHOLE, ALONE = "an update", "its products alone"
LEAST = 3  # minimum updates per call, so that one of three includes the actor's step of `plus`


class Way(NamedTuple):
    """A variant of an update: the instructions of its products, the number of threads, and the part that runs."""

    products: str
    threads: int
    part: str = WHOLE


def main() -> None:
    """Export, measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("export", "measure", "write"))
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build", "many_cores"))
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=11)
    options = parser.parse_args()
    if options.repeats < 2:
        parser.error("--repeats must be at least 2, for quartiles")
    if options.command == "export":
        options.folder.mkdir(parents=True, exist_ok=True)
        for case in MEASURED:
            export(case, options.folder)
    elif options.command == "measure":
        measure(options.folder, options.json, options.repeats)
    else:
        marks.write(PAGE, tables(options.json))


def _file_of(folder: Path, case: Case, way: Way) -> Path:
    return folder / f"{case.name}_{'_'.join(map(str, way)).replace(' ', '_')}.json.gz"


def _read(path: Path) -> dict[str, Any]:
    return json.loads(gzip.decompress(path.read_bytes()))


# -- export ---------------------------------------------------------------------------------------


def ways_of(case: Case) -> list[Way]:
    """Return the measured variants of a case's update."""
    threads = [count for count in THREADS if count <= case.batch // ROWS]
    ways = [Way(products, count) for products in (FLOAT32, AMX) for count in threads]
    return [*ways, Way(AVX512, 1), *(Way(products, 1, ALONE) for products in (FLOAT32, AVX512, AMX))]


def export(case: Case, folder: Path) -> None:
    """Write a file for each variant of a case's update, with the initial contents of its memory."""
    for way in ways_of(case):
        description = exported(case, way)
        path = _file_of(folder, case, way)
        path.write_bytes(gzip.compress(json.dumps(description).encode()))
        print(path.name, flush=True)


def exported(case: Case, way: Way) -> dict[str, Any]:
    """Return an update's LLVM code, and what is needed to run it."""
    from unittest import mock

    from benchmarks.gpu.export import agent_of
    from benchmarks.speed.roofline.measure import is_product
    from ddpg.compiler import compiled_update
    from ddpg.compiler.codegen import Module
    from ddpg.compiler.codegen_gemm import RegisterFile
    from ddpg.compiler.memory_plan import plan_memory
    from ddpg.learners import native

    made: dict[str, Any] = {}

    class Recorded(compiled_update.CompiledUpdate):
        def __init__(self, metrics, fields, variables, workers, kept, *others):
            super().__init__(metrics, fields, variables, workers, kept, *others)
            made["update"] = self

    def compiled(text: str, pointers: int) -> None:
        made["text"], made["pointers"] = text, pointers

    def planned(kinds, sizes):
        made["plan"] = plan_memory(kinds, sizes)
        return made["plan"]

    def of_part(kinds, *others):
        if way.part == ALONE:
            kinds = [kind._replace(kernels=[step for step in kind.kernels if is_product(step)]) for kind in kinds]
        return Module(kinds, *others)

    registers = RegisterFile(16, 14, bfloat16=True, amx=way.products == AMX)
    patches = {"compile_module": compiled, "host_registers": lambda: registers}
    patches |= {"plan_memory": planned, "Module": of_part}
    precision = "float32" if way.products == FLOAT32 else "bfloat16"
    with mock.patch.multiple(compiled_update, **patches), mock.patch.object(native, "CompiledUpdate", Recorded):
        agent = agent_of(case, compiler="native", threads=way.threads, precision=precision)
        learner, update = agent.updater.learner, made["update"]
    agent.session.lock(learner._borrow, agent.session)
    variables = [
        {"at": at, "size": value.size}
        | ({"values": value.ravel().tolist()} if value.size <= STORED else {"deviation": float(value.std())})
        for at, value in zip(made["plan"].variables, update.values, strict=True)
    ]
    constants = [
        {"at": int(at), "size": 1, "values": [float(update._block[at])]}
        for at in np.flatnonzero(update._block)
        if not any(one["at"] <= at < one["at"] + one["size"] for one in variables)
    ]
    description = {
        "case": dataclasses.asdict(case),
        "way": way._asdict(),
        "text": made["text"],
        "pointers": made["pointers"],
        "size": update._block.size,
        "variables": variables,
        "constants": constants,
        "fields": update._fields,
        "kept": [list(shape) for shape in update._kept],
        "metrics": len(update._sums),
        "kinds": [learner._which(index) for index in range(UPDATES)],
    }
    agent.close()
    return description


# -- measure --------------------------------------------------------------------------------------


class BareUpdate:
    """An exported update, compiled, with its memory.

    Args:
        description: the result of :func:`exported`.
    """

    def __init__(self, description: dict[str, Any]):
        from ddpg.compiler.jit import compile_module
        from ddpg.compiler.memory_plan import aligned_block
        from ddpg.compiler.thread_pool import ThreadPool

        self._description, self._compiled = description, compile_module(description["text"], description["pointers"])
        self._workers = description["way"]["threads"]
        self._threads = ThreadPool(self._workers - 1, "update") if self._workers > 1 else None
        self._block = aligned_block(description["size"])
        rng = np.random.default_rng(0)
        for one in (*description["variables"], *description["constants"]):
            some = self._block[one["at"] : one["at"] + one["size"]]
            some[:] = one["values"] if "values" in one else rng.normal(0, one["deviation"], one["size"])
        self._first = self._block.copy()
        fields = [rng.uniform(-1, 1, (UPDATES, size)).astype(np.float32) for _, size in description["fields"]]
        for (name, _), field in zip(description["fields"], fields, strict=True):
            if name == "terminated":
                field.fill(0)
        self._sums = np.zeros(description["metrics"], np.float32)
        kept = [np.empty((UPDATES, *shape), np.float32) for shape in description["kept"]]
        self._arrays = [np.array(description["kinds"], np.int32), self._block, *fields, self._sums, *kept]

    def run(self, updates: int = UPDATES) -> None:
        """Make up to 32 updates."""
        addresses = [array.ctypes.data for array in self._arrays]
        if self._threads is None:
            self._compiled.run_serial(updates, 0, *addresses)
        else:
            calls = [(updates, worker, *addresses) for worker in range(self._workers)]
            self._threads.run_all(self._compiled.run, calls)

    def steps(self) -> np.ndarray:
        """Return the changes of the variables by the first update."""
        self._block[:] = self._first
        self.run(1)
        changed = self._block - self._first
        return np.concatenate([changed[one["at"] : one["at"] + one["size"]] for one in self._description["variables"]])


def measure(folder: Path, results: Path, repeats: int) -> None:
    """Compile all files, then time the variants of each case in turn."""
    from benchmarks.speed.results import machine
    from ddpg.compiler.jit import host_registers

    registers, cores = host_registers(), len(os.sched_getaffinity(0))
    if registers.width != 16:
        sys.exit("The exported code needs a processor with AVX-512.")
    supported = {FLOAT32: True, AVX512: registers.bfloat16, AMX: registers.amx}
    found: dict[str, Any] = {"machine": machine(), "repeats": repeats, "cases": {}}
    ways = {
        case: [way for way in ways_of(case) if supported[way.products] and way.threads <= cores] for case in MEASURED
    }
    files = [_file_of(folder, case, way) for case, some in ways.items() for way in some]
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_compile_one, sorted(files, key=lambda path: -path.stat().st_size)))
    for case, some in ways.items():
        updates = {way: BareUpdate(_read(_file_of(folder, case, way))) for way in some}
        steps = {way: update.steps() for way, update in updates.items() if way.part == WHOLE}
        times = alternating({way: update.run for way, update in updates.items()}, repeats)
        found["cases"][case.name] = [
            way._asdict() | {"seconds": times[way]} | _compared(steps.get(way), steps) for way in some
        ]
        print(case.name, flush=True)
        results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def alternating(calls: dict[Way, Callable[[int], None]], repeats: int) -> dict[Way, list[float]]:
    """Run all calls in turn; return the seconds per update: median, lower and upper quartile."""
    counts: dict[Way, tuple[int, int]] = {}
    for way, call in calls.items():
        call(LEAST)
        start = time.perf_counter()
        call(LEAST)
        wanted = SECONDS * LEAST / (time.perf_counter() - start)
        updates = min(UPDATES, math.ceil(wanted / LEAST) * LEAST) // LEAST * LEAST
        counts[way] = updates, max(1, round(wanted / updates))
    times: dict[Way, list[float]] = {way: [] for way in calls}
    for _ in range(repeats):
        for way, call in calls.items():
            updates, number = counts[way]
            start = time.perf_counter()
            for _ in range(number):
                call(updates)
            times[way].append((time.perf_counter() - start) / number / updates)
    return {way: [statistics.median(some), *statistics.quantiles(some, n=4)[::2]] for way, some in times.items()}


def _compile_one(path: Path) -> None:
    from ddpg.compiler.jit import compile_module

    description = _read(path)
    compile_module(description["text"], description["pointers"])


def _compared(step: np.ndarray | None, steps: dict[Way, np.ndarray]) -> dict[str, float]:
    """Return the relative distance of an update's first step from those of float32 and AVX-512 on one thread."""
    found = {}
    for label, other in (("from float32", steps[Way(FLOAT32, 1)]), ("from AVX-512", steps.get(Way(AVX512, 1)))):
        if step is not None and other is not None:
            found[label] = float(np.linalg.norm(step - other) / np.linalg.norm(other))
    return found


# -- write ----------------------------------------------------------------------------------------


def tables(results: Path = RESULTS) -> dict[str, str]:
    """Return the tables by mark: time by the products' instructions, and time by the number of threads."""
    document = json.loads(results.read_text(encoding="utf-8"))
    cases = [(case, document["cases"][case.name]) for case in MEASURED]
    head = (
        f"µs per update, medians (quartiles) of {document['repeats']} measurements in turn, on "
        f"{{}} of {processor_name(document['machine'])}."
    )
    return {
        "amx": f"{head.format('one core')}\n\n{_by_products(cases)}",
        "many cores": f"{head.format(str(document['machine']['cores']) + ' cores')}\n\n{_by_threads(cases)}",
    }


def _by_products(cases: list[tuple[Case, list[dict]]]) -> str:
    lines = []
    for case, rows in cases:
        for part in (WHOLE, ALONE):
            times = {row["products"]: row["seconds"] for row in rows if row["part"] == part and row["threads"] == 1}
            cells = [_spread(times[products]) if products in times else "" for products in (FLOAT32, AVX512, AMX)]
            ratio = f"{times[FLOAT32][0] / times[AMX][0]:.1f}" if AMX in times else ""
            lines.append([*case.cells, part, *cells, ratio])
    return marks.table([*CELLS, "µs of", FLOAT32, AVX512, AMX, "speedup by AMX"], lines, numbers=4)


def _by_threads(cases: list[tuple[Case, list[dict]]]) -> str:
    lines = []
    for case, rows in cases:
        for products in (FLOAT32, AMX):
            times = {
                row["threads"]: row["seconds"][0] for row in rows if (row["products"], row["part"]) == (products, WHOLE)
            }
            if not times:
                continue
            cells = [f"{1e6 * times[count]:,.0f}" if count in times else "" for count in THREADS]
            most = times[1] / times[max(times)] if max(times) == max(THREADS) else None
            lines.append([*case.cells, products, *cells, "" if most is None else f"× {most:.1f}"])
    threads = ["1 thread" if count == 1 else str(count) for count in THREADS]
    return marks.table([*CELLS, "products", *threads, f"speedup by {max(THREADS)}"], lines, len(THREADS) + 1)


def _spread(quartiles: list[float]) -> str:
    middle, lower, upper = (f"{1e6 * seconds:,.0f}" for seconds in quartiles)
    return f"{middle} ({lower} to {upper})"


if __name__ == "__main__":
    main()
