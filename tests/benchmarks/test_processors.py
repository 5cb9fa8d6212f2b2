"""Identification of the processor on which results were measured."""

import os

import pytest

from benchmarks.speed.processors import parse_cpuinfo, processor_name, rates


def cpuinfo(vendor="AuthenticAMD", family=26, model=2, flags="sse2 avx2 avx512f"):
    numbers = f"cpu family\t: {family}\nmodel\t\t: {model}"
    one = f"vendor_id\t: {vendor}\n{numbers}\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n"
    return f"processor\t: 0\n{one}\nprocessor\t: 1\n{one}"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "generation"),
    [
        ("AuthenticAMD", 26, 2, "Zen 5"),
        ("AuthenticAMD", 25, 1, "Zen 3"),
        ("AuthenticAMD", 25, 0x11, "Zen 4"),
        ("AuthenticAMD", 25, 0xA0, "Zen 4"),
        ("AuthenticAMD", 25, 0x50, "Zen 3"),
        ("AuthenticAMD", 25, 0x61, "Zen 4"),
        ("AuthenticAMD", 25, 0x44, None),  # Zen 3+
        ("AuthenticAMD", 26, 0x50, None),
        ("AuthenticAMD", 23, 0x31, None),
        ("GenuineIntel", 6, 207, "Emerald Rapids"),
        ("GenuineIntel", 6, 143, "Sapphire Rapids"),
        ("GenuineIntel", 6, 173, "Granite Rapids"),
        ("GenuineIntel", 6, 106, "Ice Lake"),
        ("GenuineIntel", 6, 85, None),  # Skylake or Cascade Lake
    ],
)
def test_only_certain_generations_are_named(vendor, family, model, generation):
    found = parse_cpuinfo(cpuinfo(vendor, family, model))
    assert found.get("generation") == generation
    assert (found["family"], found["model"], found["vector_bits"]) == (family, model, 512)


def test_without_a_generation_family_and_model_are_named():
    unknown = {"processor": "AMD EPYC"} | parse_cpuinfo(cpuinfo(family=23, model=49, flags="sse2 avx2"))
    assert processor_name(unknown) == "AMD EPYC (family 23, model 49, 256-bit vectors)"
    assert "generation" not in parse_cpuinfo(cpuinfo(vendor="GenuineIntel"))
    assert processor_name({"processor": "AMD EPYC"} | parse_cpuinfo(cpuinfo())) == "AMD EPYC (Zen 5, 512-bit vectors)"


def test_missing_fields_are_left_out():
    """ARM's cpuinfo has no family; older results files have only the processor's name."""
    assert parse_cpuinfo("processor\t: 0\nFeatures\t: fp asimd\nCPU architecture: 8\n") == {"vector_bits": 128}
    assert parse_cpuinfo("") == {}
    assert processor_name({"processor": "Abacus", "cores": 2}) == "Abacus"


@pytest.mark.slow
def test_blas_is_timed_on_one_core_and_on_two():
    found = rates()["blas_gflops"]
    assert list(found) == [str(count + 1) for count in range(min(2, len(os.sched_getaffinity(0))))]
    assert all(rate > 0.1 for rate in found.values())
