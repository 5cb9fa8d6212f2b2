"""Measure the speedup by bfloat16 products: updates in each precision, alternately, on one core.

    python -m benchmarks.precision [--repeats 200] [--json FILE]
    python -m benchmarks.precision --write    # writes results/precision*.json into docs/performance/update.md

Put another machine's results into a separate file: ``--json benchmarks/results/precision_NAME.json``.

Needs a processor with AVX512-BF16; ``bfloat16x3`` is measured where there is AMX. The kinds of update run alternately,
32 at a time, in one process that is pinned to one core. Times are the thread's CPU time, and ratios are of neighbouring
measurements, so that other work on the machine slows all.
"""

import argparse
import json
import os
import statistics
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from benchmarks import marks
from benchmarks.speed.processors import processor_name
from benchmarks.speed.results import machine
from benchmarks.speed.roofline.measure import Subject
from benchmarks.speed.tasks import TASKS
from ddpg.compiler import jit

RESULTS = Path(__file__).parent / "results" / "precision.json"
PAGE = Path(__file__).parents[1] / "docs" / "performance" / "update.md"
PARTS = {"whole": "an update", "products": "its products alone"}
PRECISIONS = "float32", "bfloat16", "bfloat16x3"


def main() -> None:
    """Measure the precisions, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--json", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--write", action="store_true", help=f"only write the results into {PAGE.name}")
    options = parser.parse_args()
    if not options.write:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        found = {name: measured(name, options.repeats) for name in TASKS}
        instructions = "AMX" if jit.host_registers().amx else "AVX512-BF16"
        document = {"machine": machine(), "instructions": instructions, "repeats": options.repeats, "tasks": found}
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(table(document))
    else:
        marks.write(PAGE, tables())
        print(*tables().values())


def tables() -> dict[str, str]:
    """Return the page's tables by mark: one for each machine with committed results."""
    paths = sorted(RESULTS.parent.glob(f"{RESULTS.stem}*.json"))
    return {"precision": "\n\n".join(table(json.loads(path.read_text(encoding="utf-8"))) for path in paths)}


def measured(name: str, repeats: int) -> dict[str, dict[str, list[float]]]:
    """Return each part's microseconds per update, by precision, as median, lower and upper quartile.

    ``PRECISION speedup`` is the median (and quartiles) of float32's microseconds divided by that precision's.
    """
    plain, *narrow = PRECISIONS if jit.host_registers().amx else PRECISIONS[:2]
    subjects = {
        (part, precision): Subject(TASKS[name], part, precision=precision)
        for part in PARTS
        for precision in (plain, *narrow)
    }
    times: dict[tuple[str, str], list[float]] = {key: [] for key in subjects}
    for subject in subjects.values():
        subject.run()
    for _ in range(repeats):
        for key, subject in subjects.items():
            start = time.thread_time()
            subject.run()
            times[key].append(1e6 * (time.thread_time() - start) / subject.updates)
    found: dict[str, dict[str, list[float]]] = {}
    for part in PARTS:
        found[part] = {precision: _quartiles(times[part, precision]) for precision in (plain, *narrow)}
        for precision in narrow:
            pairs = zip(times[part, plain], times[part, precision], strict=True)
            found[part][f"{precision} speedup"] = _quartiles([one / other for one, other in pairs])
    return found


def table(document: dict) -> str:
    """Return the results as a table."""
    rows = [(task, part, numbers) for task, parts in document["tasks"].items() for part, numbers in parts.items()]
    narrow = [precision for precision in PRECISIONS[1:] if precision in rows[0][2]]
    used = f", with {document['instructions']}" if "instructions" in document else ""
    about = (
        f"Medians (quartiles) of {document['repeats']} measurements in turn on one core of "
        f"{processor_name(document['machine'])}{used}."
    )
    heads = ["task", "µs of CPU time of", "float32", *(head for name in narrow for head in (name, "speedup"))]
    lines = []
    for task, part, numbers in rows:
        cells = [_spread(numbers["float32"], 0)]
        for precision in narrow:
            cells += [_spread(numbers[precision], 0), _spread(numbers[f"{precision} speedup"], 2)]
        lines.append([task, PARTS[part], *cells])
    return f"{about}\n\n{marks.table(heads, lines, len(heads) - 2)}"


def _quartiles(values: list[float]) -> list[float]:
    lower, middle, upper = statistics.quantiles(values, n=4)
    return [middle, lower, upper]


def _spread(quartiles: list[float], digits: int) -> str:
    middle, lower, upper = (f"{value:,.{digits}f}" for value in quartiles)
    return f"{middle} ({lower} to {upper})"


if __name__ == "__main__":
    main()
