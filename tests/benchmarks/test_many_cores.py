"""Updates that are exported and run without TensorFlow: they compute the same, and the page has the results."""

import json

import numpy as np
import pytest

from benchmarks import many_cores
from benchmarks.gpu.cases import CASES, Case
from benchmarks.many_cores import ALONE, AMX, AVX512, FLOAT32, BareUpdate, Way

SMALL = Case("ddpg", (40, 24), 32, observations=3, actions=2)


def test_a_machine_without_amx_has_its_columns_empty(tmp_path):
    document = json.loads(many_cores.RESULTS.read_text(encoding="utf-8"))
    for rows in document["cases"].values():
        rows[:] = [row for row in rows if row["products"] == FLOAT32]
    (tmp_path / "without.json").write_text(json.dumps(document))
    products, threads = (table.splitlines()[4:] for table in many_cores.tables(tmp_path / "without.json").values())
    assert all(line.endswith(" |  |  |  |") for line in products)
    assert len(threads) == len(many_cores.MEASURED)
    assert not any(AMX in line for line in threads)


def test_all_variants_were_measured():
    document = json.loads(many_cores.RESULTS.read_text(encoding="utf-8"))
    assert {*many_cores.MEASURED} <= {*CASES}
    for case in many_cores.MEASURED:
        found = {Way(row["products"], row["threads"], row["part"]) for row in document["cases"][case.name]}
        assert found == {*many_cores.ways_of(case)}, case.name


@pytest.fixture(scope="module")
def exported():
    ways = [Way(FLOAT32, 1), Way(FLOAT32, 2), Way(FLOAT32, 1, ALONE)]
    return {way: json.loads(json.dumps(many_cores.exported(SMALL, way))) for way in ways}


@pytest.mark.slow
def test_an_exported_update_computes_the_same_on_two_threads(exported):
    """The update changes weights, Adam's moments and targets; products alone change nothing."""
    one, shared, alone = (BareUpdate(description) for description in exported.values())
    step = one.steps()
    assert np.isfinite(step).all()
    assert np.count_nonzero(step) > step.size / 2
    assert np.linalg.norm(shared.steps() - step) < 1e-3 * np.linalg.norm(step)
    assert not alone.steps().any()
    np.testing.assert_array_equal(one.steps(), step)  # starts from the initial values again


@pytest.mark.slow
def test_bfloat16_variants_use_their_instructions():
    for products, instruction in ((AVX512, "dpbf16ps.512"), (AMX, "tdpbf16ps")):
        text = many_cores.exported(SMALL, Way(products, 1))["text"]
        assert f"{instruction}(" in text


@pytest.mark.slow
def test_a_large_variable_is_replaced_by_one_with_the_same_deviation(exported, monkeypatch):
    monkeypatch.setattr(many_cores, "STORED", 10)
    description = many_cores.exported(SMALL, Way(FLOAT32, 1))
    drawn, stored = BareUpdate(description), BareUpdate(exported[Way(FLOAT32, 1)])
    place = next(one for one in description["variables"] if one.get("deviation"))
    first, second = (update._block[place["at"] :][: place["size"]] for update in (drawn, stored))
    assert not np.array_equal(first, second)
    assert first.std() == pytest.approx(second.std(), rel=0.3)


def test_all_variants_take_turns():
    made = []
    calls = {Way(FLOAT32, count): lambda updates, count=count: made.append((count, updates)) for count in (1, 2)}
    found = many_cores.alternating(calls, 3)
    assert {count for count, _ in made} == {1, 2}
    assert all(0 < updates <= many_cores.UPDATES and updates % many_cores.LEAST == 0 for _, updates in made)
    assert [len(times) for times in found.values()] == [3, 3]
