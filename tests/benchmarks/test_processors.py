"""Results say which processor they are of, as far as that is known."""

import os

import pytest

from benchmarks.speed.processors import described, named, rates


def cpuinfo(vendor="AuthenticAMD", family=26, model=2, flags="sse2 avx2 avx512f"):
    numbers = f"cpu family\t: {family}\nmodel\t\t: {model}"
    one = f"vendor_id\t: {vendor}\n{numbers}\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n"
    return f"processor\t: 0\n{one}\nprocessor\t: 1\n{one}"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "generation"),
    [
        ("AuthenticAMD", 26, 2, "Zen 5"),
        ("AuthenticAMD", 25, 0x11, "Zen 4"),
        ("AuthenticAMD", 25, 0xA0, "Zen 4"),
        ("AuthenticAMD", 25, 0x01, None),
        ("AuthenticAMD", 25, 0x50, None),
        ("AuthenticAMD", 26, 0x50, None),
        ("AuthenticAMD", 23, 0x31, None),
        ("GenuineIntel", 6, 207, "Emerald Rapids"),
        ("GenuineIntel", 6, 143, "Sapphire Rapids"),
        ("GenuineIntel", 6, 173, "Granite Rapids"),
        ("GenuineIntel", 6, 106, "Ice Lake"),
        ("GenuineIntel", 6, 85, None),  # of Skylake and of Cascade Lake
    ],
)
def test_generations_are_named_where_they_are_certain(vendor, family, model, generation):
    found = described(cpuinfo(vendor, family, model))
    assert found.get("generation") == generation
    assert (found["family"], found["model"], found["vector_bits"]) == (family, model, 512)


def test_numbers_stand_where_the_generation_is_not_known():
    unknown = {"processor": "AMD EPYC"} | described(cpuinfo(family=25, model=1, flags="sse2 avx2"))
    assert named(unknown) == "AMD EPYC (family 25, model 1, 256-bit vectors)"
    assert "generation" not in described(cpuinfo(vendor="GenuineIntel"))
    assert named({"processor": "AMD EPYC"} | described(cpuinfo())) == "AMD EPYC (Zen 5, 512-bit vectors)"


def test_other_processors_say_what_they_say():
    """ARM's file has no family; a file of before has a name alone."""
    assert described("processor\t: 0\nFeatures\t: fp asimd\nCPU architecture: 8\n") == {"vector_bits": 128}
    assert described("") == {}
    assert named({"processor": "Abacus", "cores": 2}) == "Abacus"


def test_blas_is_timed_on_one_core_and_on_two():
    found = rates()["blas_gflops"]
    assert list(found) == [str(count + 1) for count in range(min(2, len(os.sched_getaffinity(0))))]
    assert all(rate > 0.1 for rate in found.values())
