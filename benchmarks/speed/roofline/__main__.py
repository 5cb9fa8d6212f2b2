"""Compare an update's time with the limits of this machine, and find where the rest of the time goes.

    python -m benchmarks.speed.roofline [--repeats 7] [--seconds 0.5] [--tasks NAME...] [--json FILE]
    python -m benchmarks.speed.roofline --count    # every recipe's operations and their minimum; takes seconds
    python -m benchmarks.speed.roofline --profile    # the times of an update's kernels on one thread and on two

The operations of an update are counted in the program of our compiler and in XLA's program for the same graph. One run
measures in turn: a large matrix product and a copy, whose rates give the bound; the update's matrix products, each at
its own shape, by NumPy's BLAS and by XLA; and our update: complete, with its products alone, with its passes alone, and
with neither, which leaves the call. ``python -m benchmarks.speed --write`` writes the tables into the page.
"""

import argparse
import collections
import json
import os
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from benchmarks.speed.results import machine
from benchmarks.speed.roofline import profile
from benchmarks.speed.roofline.count import Cost, Product, cost
from benchmarks.speed.roofline.hlo import kernels_of_xla
from benchmarks.speed.roofline.measure import Subject, blas_product, copy_call, medians, xla_product
from benchmarks.speed.roofline.profile import PROFILE, profile_table
from benchmarks.speed.roofline.recipes import COUNTS, count_recipes, counts_table
from benchmarks.speed.roofline.report import ROOFLINE, roofline_tables
from benchmarks.speed.tasks import TASKS

LARGE = Product(1_024, 1_024, 1_024, (False, False))  # its rate is taken as the machine's
COPIED = 256 * 1_024  # bytes; they fit into a core's cache, as the memory of an update's passes does


def main() -> None:
    """Count or measure as the command line says, print tables, and write the results file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="duration of each measurement")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--count", action="store_true", help=f"only count the recipes' operations, into {COUNTS.name}")
    parser.add_argument("--profile", action="store_true", help=f"only time kernels on two threads, into {PROFILE.name}")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.count:
        counts = count_recipes()
        (options.json or COUNTS).write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
        print(counts_table(counts))
        return
    if options.profile:
        profiles = {"machine": machine(), "recipes": profile.profile_recipes()}
        (options.json or PROFILE).write_text(json.dumps(profiles, indent=1) + "\n", encoding="utf-8")
        print(profile_table(profiles))
        return
    found = {name: measure_task(name, options.repeats, options.seconds) for name in options.tasks}
    document = {"machine": machine(), "tasks": found}
    (options.json or ROOFLINE).write_text(json.dumps(document, indent=1) + "\n")
    print(roofline_tables(document))


def measure_task(name: str, repeats: int, seconds: float) -> dict:
    """Return the counts of one task's update, and the seconds that it and its parts take."""
    task = TASKS[name]
    subjects = {part: Subject(task, part) for part in ("whole", "products", "passes", "nothing")}
    whole = subjects["whole"]
    counted = cost(whole.steps, whole.outputs)
    calls = {f"native: {part}": (subject.run, subject.updates) for part, subject in subjects.items()}
    xla = Subject(task, "whole", compiler="xla")
    calls["xla: whole"] = (xla.run, xla.updates)
    calls["machine: product"], calls["machine: copy"] = (blas_product(LARGE), 1), (copy_call(COPIED), 1)
    shapes = collections.Counter(counted.products)
    for index, product in enumerate(shapes):
        calls[f"blas: {index}"], calls[f"xla: {index}"] = (blas_product(product), 1), xla_product(product)
    took = medians(calls, repeats, seconds)
    times = {label: each for label, each in took.items() if not label.rpartition(" ")[2].isdigit()}
    for source in ("blas", "xla"):
        times[f"{source}: products"] = [
            sum(took[f"{source}: {index}"][column] * count for index, count in enumerate(shapes.values()))
            for column in range(3)
        ]
    return {
        "cost": summary(counted),
        "updates_per_call": whole.updates,
        "threads": whole.workers,
        "xla_kernels": kernels_of_xla(name),
        "seconds": times,
        "machine": {"flop": LARGE.flop, "bytes": 2 * COPIED},
    }


def summary(counted: Cost) -> dict:
    """Return the counts as numbers."""
    return {
        "products": len(counted.products),
        "passes": counted.passes,
        "product_flop": counted.product_flop,
        "product_bytes": counted.product_bytes,
        "pass_flop": counted.pass_flop,
        "pass_bytes": counted.pass_bytes,
    }


if __name__ == "__main__":
    main()
