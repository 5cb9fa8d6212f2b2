"""Write the GPU's results into docs/performance/gpu.md: ``python -m benchmarks.gpu --write``."""

import argparse
import json
from pathlib import Path

from benchmarks import marks
from benchmarks.gpu import training
from benchmarks.gpu.cases import CASES, CELLS, UPDATES, Case

RESULTS = Path(__file__).parents[1] / "results"
PAGE = Path(__file__).parents[2] / "docs" / "performance" / "gpu.md"


def main() -> None:
    """Print the tables, and write them into the page with ``--write``."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE.name}")
    options = parser.parse_args()
    found = tables()
    if options.write:
        marks.write(PAGE, found)
    print("\n\n".join(found.values()))


def tables() -> dict[str, str]:
    """Return the page's tables of the committed results, by mark."""
    return {"gpu": table(), "gpu training": training_table()}


def table() -> str:
    """Return the table of updates/s, the cheapest update first."""
    gpu, processor = (json.loads((RESULTS / name).read_text()) for name in ("gpu.json", "gpu_processor.json"))
    found = sorted((case for case in CASES if case.name in gpu["cases"]), key=lambda case: _seconds(processor, case))
    device, cores = gpu["machine"], processor["machine"]
    about = (
        f"Updates/s in calls of {UPDATES} updates: medians of {gpu['repeats']} calls on an {device['device']} (JAX "
        f"{device['jax']}) and of {processor['repeats']} calls on one thread of our compiler ({cores['processor']})."
    )
    lines = []
    for case in found:
        row, own = gpu["cases"][case.name], 1 / _seconds(processor, case)
        exact, rounded = row["float32"], row["tf32"]
        rates = [_rate(exact["updates_per_second"]), f"x{_rate(exact['updates_per_second'] / own)}"]
        rates += [_rate(rounded["updates_per_second"])]
        times = [f"{1e3 * exact['single_seconds'][0]:.1f}", f"{exact['compile_seconds']:.0f}"]
        lines.append([*case.cells, _rate(own), *rates, *times])
    heads = ["processor", "GPU, float32", "ratio", "GPU, TF32", "single call, ms", "compilation, s"]
    return f"{about}\n\n{marks.table([*CELLS, *heads], lines)}"


def training_table() -> str:
    """Return the table of training with TensorFlow in an environment."""
    document = json.loads((RESULTS / "gpu_training.json").read_text())
    machine = document["machine"]
    about = (
        f"HalfCheetah-v5 on an {machine['device']} and on {machine['cores']} cores ({machine['processor']}) "
        f"of the same machine ({machine['generation']}), TensorFlow {machine['tensorflow']}; one measurement each."
    )
    lines = []
    for case in training.CASES:
        row = document["cases"][case.name]
        gpu, processor = row["gpu"], row["processor"]
        rates = [_rate(one["steps_per_second"]) for one in (gpu, row[training.DETERMINISTIC], processor)]
        ratio = f"x{gpu['steps_per_second'] / processor['steps_per_second']:.2g}"
        differences = [f"{row['after_1']:.1e}", f"{row[f'after_{UPDATES}']:.1e}"]
        lines.append([*case.cells, *rates, ratio, f"{gpu['first_updates_seconds']:.0f}", *differences])
    heads = ["GPU, steps/s", "deterministic", "processor, steps/s", "ratio", "first updates on the GPU, s"]
    heads += ["largest difference after 1 update", f"after {UPDATES}"]
    return f"{about}\n\n{marks.table([*CELLS, *heads], lines)}"


def _seconds(processor: dict, case: Case) -> float:
    return processor["cases"][case.name]["update_seconds"][0]


def _rate(number: float) -> str:
    return f"{number:,.0f}" if number >= 10 else f"{number:.2g}"


if __name__ == "__main__":
    main()
