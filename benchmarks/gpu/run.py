"""Measure the exported programs through JAX, on a GPU if there is one, or else on the processor.

    python -m benchmarks.gpu.run FOLDER --json FILE     # needs only JAX and NumPy

A call of 32 updates is timed from minibatches in NumPy to metrics in NumPy, with the weights on the device, as in
training, but without TensorFlow's overhead per call. Each program is compiled in three variants: ``float32``; ``tf32``,
whose products round to 10 bits of mantissa (TensorFlow's default on GPUs that support it); and ``counted``, float32
with a constant number of updates, so that the host need not ask the device after each update whether another follows.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.cases import CASES, UPDATES, Case

VARIANTS = "float32", "tf32", "counted"


def main() -> None:
    """Measure every exported case; write the results file after each measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=15, help="number of calls; the median is reported")
    parser.add_argument("--seconds", type=float, default=480, help="time limit for starting another measurement")
    options = parser.parse_args()

    import jax

    jax.config.update("jax_enable_x64", True)  # counters are int64
    device, cpu = jax.devices()[0], jax.devices("cpu")[0]
    document: dict[str, Any] = {"machine": machine(device), "repeats": options.repeats, "cases": {}}
    begin = time.monotonic()
    for case in CASES:
        path = options.folder / f"{case.name}.json"
        if not path.exists():
            continue
        exported = json.loads(path.read_text(encoding="utf-8"))
        weights = [loaded(one, options.folder) for one in exported["arguments"]]
        text = (options.folder / f"{case.name}.mlir").read_text(encoding="utf-8")
        rows = document["cases"][case.name] = {"parameters": exported["parameters"]}
        reference = None
        for variant in VARIANTS:
            if time.monotonic() - begin > options.seconds:
                print("stopped at the time limit", flush=True)
                return
            if reference is None:
                program = Program(text, exported["places"], len(weights), cpu, "float32")
                reference = {updates: program.updated(weights, case, updates) for updates in (1, UPDATES)}
                metrics = np.array(reference[1][0])
                rows["processor_against_tensorflow"] = float(np.max(np.abs(metrics - exported["one_update"])))
            start = time.monotonic()
            program = Program(text, exported["places"], len(weights), device, variant)
            row = rows[variant] = {"compile_seconds": time.monotonic() - start}
            for updates in (1, UPDATES):
                if variant != "counted" or updates == UPDATES:
                    row[f"after_{updates}"] = differences(program.updated(weights, case, updates), reference[updates])
            row["call_seconds"] = program.seconds(weights, case, UPDATES, options.repeats)
            if variant != "counted":
                row["single_seconds"] = program.seconds(weights, case, 1, options.repeats)
            row["updates_per_second"] = UPDATES / row["call_seconds"][0]
            print(case.name, variant, json.dumps(row), flush=True)
            options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


class Program:
    """An exported program, compiled for a device.

    Args:
        text: a StableHLO program; its arguments are the number of updates, the minibatches and the variables.
        places: the index of the argument that an output replaces, by the output's index.
        variables: number of variables.
        device: a JAX device.
        variant: one of :data:`VARIANTS`.
    """

    def __init__(self, text: str, places: dict[str, int], variables: int, device: Any, variant: str):
        from jax._src.interpreters import mlir
        from jax._src.lib import xla_client
        from jax._src.lib.mlir import ir

        self._places = {int(output): argument for output, argument in places.items()}
        self._device = device
        with mlir.make_ir_context():
            module = ir.Module.parse(varied(text, variant))
            options = xla_client.CompileOptions()
            options.num_replicas = options.num_partitions = 1
            self._executable = device.client.compile_and_load(
                module, executable_devices=xla_client.DeviceList((device,)), compile_options=options
            )

    def updated(self, weights: list[np.ndarray], case: Case, updates: int) -> tuple[list[float], list[np.ndarray]]:
        """Return the metrics and the variables after updates that start from ``weights``."""
        variables = self._put(weights)
        metrics = self._call(np.int32(updates), case.minibatches(), variables)
        return metrics, [np.asarray(variable) for variable in variables]

    def seconds(self, weights: list[np.ndarray], case: Case, updates: int, repeats: int) -> tuple[float, float, float]:
        """Return the seconds of a call: median, lower and upper quartile."""
        variables, batch = self._put(weights), case.minibatches()
        times = []
        for _ in range(repeats + 2):
            start = time.perf_counter()
            self._call(np.int32(updates), batch, variables)
            times.append(time.perf_counter() - start)
        lower, median, upper = statistics.quantiles(times[2:], n=4)
        return median, lower, upper

    def _put(self, arrays: Iterable[np.ndarray]) -> list:
        import jax

        return [jax.device_put(array, self._device) for array in arrays]

    def _call(self, updates: np.int32, batch: list[np.ndarray], variables: list) -> list[float]:
        arguments = [*self._put([updates, *batch]), *variables]
        first = len(arguments) - len(variables)
        results = self._executable.execute_sharded(arguments)
        outputs = [shards[0] for shards in results.disassemble_into_single_device_arrays()]
        for output, argument in self._places.items():
            variables[argument - first] = outputs[output]
        # The last variable is computed after the metrics, so waiting for it is enough.
        variables[-1].block_until_ready()
        return [float(one) for index, one in enumerate(outputs) if index not in self._places and one.ndim == 0]


def varied(text: str, variant: str) -> str:
    """Return the text of a program's variant."""
    exact, rounded = "precision = [HIGHEST, HIGHEST]", "precision = [DEFAULT, DEFAULT]"
    text = text.replace(exact, rounded) if variant == "tf32" else text.replace(rounded, exact)
    if variant == "counted":
        before, name, main = re.split(r"(func\.func (?:public )?@main)", text, maxsplit=1)
        signature, body = main.split("\n", 1)
        constant = f"    %counted = stablehlo.constant dense<{UPDATES}> : tensor<i32>\n"
        text = before + name + signature + "\n" + constant + re.sub(r"%arg0\b", "%counted", body)
    return text


def differences(found: tuple, expected: tuple) -> dict[str, float]:
    """Return the largest differences of metrics and variables, and the norm of the variables' relative difference."""
    pairs = [(a, b) for a, b in zip(found[1], expected[1], strict=True) if a.dtype == np.float32]
    apart = np.sqrt(sum(np.sum((a - b).astype(np.float64) ** 2) for a, b in pairs))
    return {
        "metrics": float(np.max(np.abs(np.array(found[0]) - expected[0]))),
        "variables": float(max(np.max(np.abs(a - b)) for a, b in pairs)),
        "relative": float(apart / np.sqrt(sum(np.sum(b.astype(np.float64) ** 2) for _, b in pairs))),
    }


def loaded(argument: dict, folder: Path) -> np.ndarray:
    """Return an argument's array."""
    if not argument["array"]:
        return np.zeros(argument["shape"], argument["dtype"])
    with np.load(folder / "weights.npz") as arrays:
        return arrays[argument["array"]]


def machine(device: Any) -> dict[str, Any]:
    """Return the device, the processor and the versions."""
    import jax

    found = {"device": device.device_kind, "jax": jax.__version__, "cores": os.cpu_count()}
    lines = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    found["processor"] = lines[0].partition(":")[2].strip() if lines else ""
    if device.platform == "gpu":
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        found["driver"] = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    return found


if __name__ == "__main__":
    main()
