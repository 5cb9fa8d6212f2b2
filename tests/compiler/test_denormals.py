"""Subnormal numbers (below 1.2e-38) are flushed to 0 during an update, but not in Python or in other threads."""

import ctypes

import numpy as np
import pytest
import tensorflow as tf

from ddpg.compiler.compiled_update import CompiledUpdate
from ddpg.compiler.jit import compile_module, denormal_mode_functions

v1 = tf.compat.v1
TINY = np.finfo(np.float32).tiny  # the smallest normal number


@pytest.mark.parametrize("workers", [1, 2])
def test_a_dead_units_average_decays_to_zero(session, workers):
    """It shrinks by a tenth in each update. Without flushing it would stay at a subnormal number for ever."""
    average = v1.get_variable("average", initializer=tf.fill([64, 64], 1.2 * float(TINY)))
    here = v1.placeholder(tf.float32, [64, 64])
    moved = average.assign(0.9 * average)
    with tf.control_dependencies([moved]):
        metric = tf.reduce_sum(moved + here)
    session.run(v1.global_variables_initializer())
    kernel = CompiledUpdate([metric], {"here": here}, [average], workers)
    kernel.values[0][...] = session.run(average)
    zeros = np.zeros((1, 64, 64), np.float32)
    for factor in (1.08, 0.0):
        kernel.run(1, [zeros])
        session.run(metric, {here: zeros[0]})
        np.testing.assert_allclose(kernel.values[0], np.full((64, 64), factor * TINY), rtol=1e-6, atol=0)
        np.testing.assert_array_equal(kernel.values[0], session.run(average))
    assert np.float32(TINY) * np.float32(0.5) > 0  # Python's arithmetic still has subnormals


def test_subnormal_arguments_are_flushed(session):
    x = v1.placeholder(tf.float32, [4])
    kernel = CompiledUpdate([tf.reduce_sum(tf.maximum(x * 1e38, -1.0))], {"x": x}, [], 1)
    assert kernel.run(1, [np.full((1, 4), TINY / 4, np.float32)])[0][0] == 0
    np.testing.assert_allclose(kernel.run(1, [np.full((1, 4), TINY, np.float32)])[0][0], 4 * TINY * 1e38, rtol=1e-6)


CALL = """
define void @run(i64 %count, i64 %worker, ptr %place) nounwind {
  %before = call i64 @flush()
  %there = getelementptr i64, ptr %place, i64 1
  %during = call i64 @mode()
  call void @set_mode(i64 %before)
  %after = call i64 @mode()
  %last = getelementptr i64, ptr %place, i64 2
  store i64 %before, ptr %place
  store i64 %during, ptr %there
  store i64 %after, ptr %last
  ret void
}
"""


def test_the_mode_is_restored():
    seen = np.zeros(3, np.int64)
    compile_module(CALL, 1).run(1, 0, seen.ctypes.data_as(ctypes.c_void_p))
    assert seen[0] == seen[2] != seen[1]
    assert seen[1] | seen[0] == seen[1]


@pytest.mark.parametrize(
    ("triple", "what"),
    [
        ("x86_64-unknown-linux-gnu", "llvm.x86.sse.ldmxcsr"),
        ("aarch64-unknown-linux-gnu", "llvm.aarch64.set.fpcr"),
        ("arm64-apple-darwin", "llvm.aarch64.set.fpcr"),
        ("riscv64-unknown-linux-gnu", "ret i64 0"),
    ],
)
def test_code_for_other_machines(triple, what):
    """LLVM compiles each and knows its intrinsics: none remains as a call to a function of that name."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    text = denormal_mode_functions(triple)
    assert what in text
    module = binding.parse_assembly(CALL + text)
    module.verify()
    module.triple = triple
    machine = binding.Target.from_triple(triple).create_target_machine()
    assert "llvm." not in machine.emit_assembly(module)
