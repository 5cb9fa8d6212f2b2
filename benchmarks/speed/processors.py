"""Identify the processor of a measurement: a name such as "AMD EPYC" covers generations with different vector units."""

import functools
import os
import subprocess
import sys
from typing import Any

# Core generations by vendor and CPUID family, with their ranges of models; only those that are certain.
GENERATIONS: dict[tuple[str, int], dict[str, tuple[range, ...]]] = {
    ("AuthenticAMD", 25): {
        "Zen 3": (range(0x00, 0x10), range(0x20, 0x30), range(0x50, 0x60)),
        "Zen 4": (range(0x10, 0x20), range(0x60, 0x80), range(0xA0, 0xB0)),
    },
    ("AuthenticAMD", 26): {"Zen 5": (range(0x00, 0x30), range(0x40, 0x50), range(0x60, 0x80))},
    ("GenuineIntel", 6): {
        "Ice Lake": (range(0x6A, 0x6B), range(0x6C, 0x6D)),
        "Sapphire Rapids": (range(0x8F, 0x90),),
        "Emerald Rapids": (range(0xCF, 0xD0),),
        "Granite Rapids": (range(0xAD, 0xAF),),
    },
}
# The median rate at which NumPy's BLAS multiplies two 256 by 256 matrices, in GFLOP/s. It runs in its own process,
# since BLAS reads the number of threads when it is loaded.
_BLAS = """
import statistics, time
import numpy as np
one, other, out = (np.ones((256, 256), np.float32) for _ in range(3))
times, end = [], time.perf_counter() + 1
while time.perf_counter() < end:
    start = time.perf_counter()
    for _ in range(10):
        np.matmul(one, other, out=out)
    times.append((time.perf_counter() - start) / 10)
print(2 * 256**3 / statistics.median(times) / 1e9)
"""
WIDTHS = (("avx512f", 512), ("avx2", 256), ("asimd", 128), ("sse2", 128))


def parse_cpuinfo(cpuinfo: str) -> dict[str, Any]:
    """Return what the text of ``/proc/cpuinfo`` says about the first processor.

    Returns:
        Those that are known: ``vendor``, ``family``, ``model``, ``generation`` (where it is certain), ``clock_mhz`` (at
        this moment) and ``vector_bits`` (of the widest registers; a core's execution units may be half as wide).
    """
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    found: dict[str, Any] = {"vendor": fields["vendor_id"]} if fields.get("vendor_id") else {}
    found |= {key: int(fields[name]) for key, name in (("family", "cpu family"), ("model", "model")) if name in fields}
    for generation, models in GENERATIONS.get((found.get("vendor", ""), found.get("family", -1)), {}).items():
        if any(found.get("model") in numbers for numbers in models):
            found["generation"] = generation
    if clock := fields.get("cpu MHz"):
        found["clock_mhz"] = round(float(clock))
    flags = {*fields.get("flags", fields.get("Features", "")).split()}
    width = next((bits for flag, bits in WIDTHS if flag in flags), None)
    return found | ({"vector_bits": width} if width else {})


@functools.cache
def rates() -> dict[str, Any]:
    """Measure the rate of NumPy's BLAS with float32 matrices of 256 by 256, in about two seconds.

    Returns:
        ``blas_gflops``: the rate by the number of cores (one, and two where available).
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    found = {}
    for count in range(1, len(cores) + 1):
        pinned = ["taskset", "-c", ",".join(map(str, cores[:count])), sys.executable, "-c", _BLAS]
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"), str(count))
        done = subprocess.run(pinned, env=os.environ | threads, capture_output=True, text=True, check=True)
        found[str(count)] = round(float(done.stdout), 1)
    return {"blas_gflops": found}


def processor_name(machine: dict[str, Any]) -> str:
    """Return a results file's processor with its generation (or family and model) and vector width."""
    about = [machine["generation"]] if "generation" in machine else []
    if not about and "family" in machine:
        about = [f"family {machine['family']}, model {machine.get('model', 'unknown')}"]
    if "vector_bits" in machine:
        about.append(f"{machine['vector_bits']}-bit vectors")
    return f"{machine['processor']} ({', '.join(about)})" if about else machine["processor"]


def short_name(machine: dict[str, Any]) -> str:
    """Return a machine's name for tables: its processor's generation, where that is known."""
    return machine.get("generation") or processor_name(machine)


def describe_rates(machine: dict[str, Any]) -> str:
    """Return the machine's clock frequency and BLAS rate, as far as they were measured."""
    rates_by_cores = machine.get("blas_gflops", {})
    products = " and ".join(f"{rate} GFLOP/s on {_cores(int(count))}" for count, rate in rates_by_cores.items())
    clock = f"{machine['clock_mhz'] / 1000:.1f} GHz" if "clock_mhz" in machine else ""
    return ", ".join(filter(None, (clock, products)))


def _cores(count: int) -> str:
    return "one core" if count == 1 else f"{count} cores"
