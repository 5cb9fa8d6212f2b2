"""The fuzzer of the compilers: a fixed sample of it, and that it sees what is wrong."""

import dataclasses

import numpy as np
import pytest

from benchmarks.faults import compilers
from benchmarks.faults.compiler_cases import VALUES, Case, minibatches, sample, simpler
from ddpg.compiler import llvm_builder

# Small networks that bring many of the compiler's parts together.
SAMPLE = [
    (Case({"hidden": [3], "max_gradient_norm": 1.0, "norm": "layer"}, actions=2), ("plain", "mixed magnitudes")),
    (Case({"hidden": [1], "optimizer": "rmsprop", "bounding": "inverting", "policy_delay": 2}, 7, 1), VALUES),
]


@pytest.mark.parametrize(("case", "kinds"), SAMPLE, ids=["adam", "rmsprop"])
def test_a_sample_agrees(case, kinds):
    rivals = compilers.Rivals(case)
    try:
        found = {kind: rivals.compare(dataclasses.replace(case, values=kind))["native"].wrong for kind in kinds}
    finally:
        rivals.close()
    assert {kind: wrong for kind, wrong in found.items() if wrong} == {}


def test_a_fault_is_seen(monkeypatch):
    """The flags that dropped the guard of a gradient's norm, and made an estimate of 1/√0."""
    monkeypatch.setattr(llvm_builder, "ELEMENTWISE", "reassoc nsz arcp contract")
    options = {"hidden": [1], "critic_norm": "layer", "max_gradient_norm": 0.01}
    case = Case(options, batch=1, observations=1, updates=1, values="saturated actor")
    assert compilers.disagreements(case)


def test_numbers_apart_and_nan_elsewhere_are_wrong():
    expected = {"w": np.float32([1, 2, np.nan, np.inf])}
    moved = {"w": np.float32([1.000001, 2, np.nan, np.inf])}
    for ours, wrong in (
        ([1, 2, np.nan, np.inf], False),
        ([1.00001, 2, np.nan, np.inf], False),
        ([1.0001, 2, np.nan, np.inf], True),
        ([1, np.nan, np.nan, np.inf], True),
        ([1, 2, np.nan, -np.inf], True),
        ([1, 2, 3, np.inf], True),
    ):
        assert bool(compilers._compared({"w": np.float32(ours)}, expected, [moved]).wrong) == wrong


def test_infinities_may_be_elsewhere_where_rounding_moves_them():
    expected, other = {"w": np.float32([3e38, 1])}, {"w": np.float32([np.inf, 1])}
    found = compilers._compared(other, expected, [other])
    assert found.at_overflow
    assert not found.wrong


def test_a_number_that_rounding_makes_nan_may_be_any_and_its_neighbours_may_not():
    expected, other = {"w": np.float32([1e20, 1])}, {"w": np.float32([np.nan, 1])}
    found = compilers._compared({"w": np.float32([-1e20, 1])}, expected, [other])
    assert not found.wrong
    assert found.at_overflow
    assert compilers._compared({"w": np.float32([1e20, 1e19])}, expected, [other]).wrong


def test_samples_are_the_same_for_a_seed_and_survive_json():
    one, other = (sample(np.random.default_rng([3, 4])) for _ in range(2))
    assert one == other == Case.from_json(one.to_json())
    for field, again in zip(minibatches(one), minibatches(other), strict=True):
        np.testing.assert_array_equal(field, again)


def test_simpler_cases_end():
    """Taking the first one again and again leads to a case of which there is none simpler."""
    case, steps = sample(np.random.default_rng(0)), 0
    while (other := next(simpler(case), None)) is not None:
        case, steps = other, steps + 1
    assert steps < 100
    assert case.options == {"hidden": [1]}
    assert (case.batch, case.observations, case.actions, case.updates, case.values) == (1, 1, 1, 1, "plain")
