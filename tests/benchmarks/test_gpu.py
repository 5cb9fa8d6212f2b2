"""Programs for a GPU: changes of an exported program, arguments and results, and the page's tables."""

import json

import numpy as np
import pytest

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import training
from benchmarks.gpu.cases import CASES, UPDATES, Case
from benchmarks.gpu.export import argument, simplified
from benchmarks.gpu.run import VARIANTS, differences, loaded, varied

DUMPED = """#loc1 = loc("a.b")
module @one attributes {alias = [{alias = {parameter_number = 2 : i64}, output_index = array<i64: 1>}]} {
  func.func @main(%arg0: tensor<i32> loc("a"), %arg1: tensor<2xf32> loc("b"), %arg2: tensor<2xf32> loc("c(d)")) {
    %1 = mhlo.copy %arg2 : tensor<2xf32> loc(#loc1)
    %2 = stablehlo.dot %1, %arg1, precision = [HIGHEST, HIGHEST] : (tensor<2xf32>, tensor<2xf32>) -> tensor<f32>
    %3 = stablehlo.add %arg0, %arg0 : tensor<i32>
  }
}
"""


def test_the_output_that_replaces_an_argument_is_attached_to_it():
    text, places = simplified(DUMPED)
    assert places == {"1": 2}
    assert text.startswith("module @updates {\n")
    assert "%arg2: tensor<2xf32> {tf.aliasing_output = 1 : i32})" in text
    assert "%arg1: tensor<2xf32>, " in text
    assert "stablehlo.reshape %arg2 : (tensor<2xf32>) -> tensor<2xf32>\n" in text
    assert not any(word in text for word in ("loc", "mhlo"))


def test_the_variants_of_a_program():
    text, _ = simplified(DUMPED)
    found = {variant: varied(text, variant) for variant in VARIANTS}
    assert found["float32"] == text
    assert found["tf32"] == text.replace("HIGHEST", "DEFAULT")
    constant = f"%counted = stablehlo.constant dense<{UPDATES}> : tensor<i32>\n"
    assert constant in found["counted"]
    assert "stablehlo.add %counted, %counted" in found["counted"]
    assert "@main(%arg0: tensor<i32>" in found["counted"]


def test_arguments_are_read_from_the_file_or_are_zeros(tmp_path):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "weights.npz", **{argument(values)["array"]: values})
    np.testing.assert_array_equal(loaded(argument(values), tmp_path), values)
    np.testing.assert_array_equal(loaded(argument(np.zeros((2, 1), np.int64)), tmp_path), np.zeros((2, 1), np.int64))


def test_the_differences_of_results():
    counter = np.array(3)
    expected = [1.0, 2.0], [np.array([3.0, 0.0], np.float32), np.array([4.0], np.float32), counter]
    found = [1.0, 2.5], [np.array([3.0, 0.3], np.float32), np.array([4.4], np.float32), counter]
    row = differences(found, expected)
    np.testing.assert_allclose([row["metrics"], row["variables"], row["relative"]], [0.5, 0.4, 0.1], rtol=1e-5)


def test_a_case_always_has_the_same_minibatches():
    observations, actions, rewards, after, terminated = Case(None, (8,), 4, observations=3, actions=2).minibatches()
    assert [field.shape[1:] for field in (observations, actions, rewards)] == [(4, 3), (4, 2), (4, 1)]
    assert not terminated.any()
    assert (observations != after).all()
    np.testing.assert_allclose(observations[0, 0], [0.273923, -0.460427, -0.918053], rtol=1e-5)


def test_every_case_has_results():
    for name, cases in (("gpu.json", CASES), ("gpu_processor.json", CASES), ("gpu_training.json", training.CASES)):
        found = json.loads((gpu.RESULTS / name).read_text(encoding="utf-8"))["cases"]
        assert found.keys() == {case.name for case in cases}


@pytest.mark.slow
def test_training_is_measured_without_a_gpu():
    case = Case(None, (8, 8), 16, observations=17, actions=6)
    row = training.measured(case, 0.1)
    assert row["steps_per_second"] == pytest.approx(row["updates_per_second"], rel=0.5)
    assert row["learner"] == "NativeLearner"
    found = training.updated(case)
    assert {name.partition("/")[0] for name in found} == {"1", str(UPDATES)}
    first, last = (found[f"{updates}/actor/output/W:0"] for updates in (1, UPDATES))
    assert np.isfinite(last).all()
    assert not np.array_equal(first, last)
