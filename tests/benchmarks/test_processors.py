"""Results say which processor they are of, as far as that is known."""

import os

import pytest

from benchmarks.speed.processors import described, named, rates


def cpuinfo(vendor="AuthenticAMD", family=26, model=2, flags="sse2 avx2 avx512f"):
    numbers = f"cpu family\t: {family}\nmodel\t\t: {model}"
    one = f"vendor_id\t: {vendor}\n{numbers}\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n"
    return f"processor\t: 0\n{one}\nprocessor\t: 1\n{one}"


@pytest.mark.parametrize(
    ("family", "model", "generation"),
    [
        (26, 2, "Zen 5"),
        (25, 0x11, "Zen 4"),
        (25, 0xA0, "Zen 4"),
        (25, 0x01, None),
        (25, 0x50, None),
        (26, 0x50, None),
        (23, 0x31, None),
    ],
)
def test_generations_are_named_where_they_are_certain(family, model, generation):
    found = described(cpuinfo(family=family, model=model))
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
