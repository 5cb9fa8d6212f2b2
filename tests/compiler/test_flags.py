"""The floating-point flags passed to LLVM: checks for NaN and infinity survive optimisation on every target."""

import re

import numpy as np
import pytest
import tensorflow as tf
from llvmlite import binding as llvm

from ddpg.compiler import compiled_update
from ddpg.compiler.codegen_gemm import RegisterFile
from ddpg.compiler.compiled_update import CompiledUpdate
from ddpg.compiler.jit import denormal_mode_functions, optimised

v1 = tf.compat.v1
TARGETS = {
    "x86_64-unknown-linux-gnu": "skylake-avx512",
    "aarch64-unknown-linux-gnu": "neoverse-n1",
    "arm64-apple-macosx": "apple-m1",
    "x86_64-pc-windows-msvc-elf": "haswell",
}


@pytest.fixture(scope="module")
def text():
    """The LLVM module of ``clip_by_global_norm`` of two gradients."""
    texts = []
    compiled = compiled_update.compile_module
    with pytest.MonkeyPatch.context() as patch, tf.Graph().as_default():
        patch.setattr(
            compiled_update, "compile_module", lambda text, count: texts.append(text) or compiled(text, count)
        )
        patch.setattr(compiled_update, "host_registers", lambda: RegisterFile(4, 6))
        x, y = (v1.placeholder(tf.float32, [3]) for _ in range(2))
        clipped, _ = tf.clip_by_global_norm([x, y], 1.0)
        CompiledUpdate([*map(tf.reduce_sum, clipped)], {"x": x, "y": y}, [], 1)
    return texts[0]


@pytest.mark.parametrize("triple", TARGETS)
def test_the_check_for_an_infinite_norm_survives_optimisation(text, triple):
    """TensorFlow adds norm − norm to the scale: 0, or NaN if the norm is not finite."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine(cpu=TARGETS[triple], opt=3)
    module = optimised(f"{text}\n\n{denormal_mode_functions(triple)}", target, triple)
    assert re.search(r"= fsub contract float (%\S+), \1\b", str(module))
    assert "rsqrt" not in target.emit_assembly(module)  # its estimate of 1/√0 is NaN


@pytest.fixture(scope="module")
def guarded():
    with tf.Graph().as_default():
        x, y = (v1.placeholder(tf.float32, [5]) for _ in range(2))
        clipped, norm = tf.clip_by_global_norm([x, y], 1.0)
        outputs = [clipped[0], clipped[1], norm, x - x, x * 0.0, x / x, (x + y) - y, tf.math.rsqrt(x * x), x / y]
        yield CompiledUpdate([tf.reduce_sum(output) for output in outputs], {"x": x, "y": y}, [], 1)


def results(kernel, x, y):
    return kernel.run(1, [np.full((1, 5), x, np.float32), np.full((1, 5), y, np.float32)])[0].tolist()


def test_zero_gradients_stay_zero(guarded):
    assert results(guarded, 0, 0)[:3] == [0, 0, 0]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_nan_or_infinite_gradient_makes_all_of_them_nan(guarded, value):
    ours = results(guarded, 1, value)
    np.testing.assert_array_equal(ours[:3], [np.nan, np.nan, abs(value)])
    np.testing.assert_array_equal(results(guarded, value, 1)[3:6], [np.nan] * 3)


def test_expressions_are_not_simplified_algebraically(guarded):
    """(x + y) − y is not simplified to x; 1/√0 is infinite; x/y is right though 1/y is not a normal float."""
    assert results(guarded, 1, 1e30)[6] == 0
    assert results(guarded, 0, 1)[7] == np.inf
    assert results(guarded, 1e38, 2e38)[8] == pytest.approx(2.5)


def test_the_maximum_of_numbers_with_a_nan_is_nan(graph):
    x = v1.placeholder(tf.float32, [1, 40])
    kernel = CompiledUpdate([tf.reduce_sum(tf.nn.softmax(x), name="total")], {"x": x}, [], 1)
    values = np.linspace(-1, 1, 40, dtype=np.float32)
    assert kernel.run(1, [values[None, None]])[0] == pytest.approx(1)
    values[17] = np.nan
    assert np.isnan(kernel.run(1, [values[None, None]])[0]).all()
