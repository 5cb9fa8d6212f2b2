"""Compiled convolutions and their gradients equal a session's, whatever their sizes, blocks and threads."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refuses

from ddpg.compiler import codegen, codegen_convolution, codegen_gemm, compiled_update
from ddpg.compiler.codegen_convolution import images_and_rows
from ddpg.compiler.compiled_update import CompiledUpdate
from ddpg.compiler.interpreter import interpret
from ddpg.compiler.ir import Convolution, Unsupported
from ddpg.compiler.lowering import lower

v1 = tf.compat.v1


class Case:
    """The result of a convolution, and the gradients of a sum of its squares, weighted so that none are equal.

    Args:
        images, filters: shapes, [B, height, width, channels] and [height, width, channels, number].
        strides: (vertical, horizontal).
        padding: SAME or VALID.
    """

    def __init__(self, images, filters, strides, padding):
        rng = np.random.default_rng(0)
        self.arrays = [rng.normal(size=shape).astype(np.float32) for shape in (images, filters)]
        with tf.Graph().as_default() as self.graph:
            x, w = (v1.placeholder(tf.float32, shape) for shape in (images, filters))
            self.fields = {"x": x, "w": w}
            result = tf.nn.conv2d(x, w, [1, *strides, 1], padding)
            weights = rng.normal(size=result.shape).astype(np.float32)
            loss = tf.reduce_sum(tf.square(result) * weights)
            self.kept = [result, *tf.gradients(loss, [x, w])]

    def session(self):
        with v1.Session(graph=self.graph) as session:
            return session.run(self.kept, dict(zip(self.fields.values(), self.arrays, strict=True)))

    def interpreted(self):
        with self.graph.as_default():
            program, outputs = lower(self.kept, self.fields, [])
        found = interpret(program, outputs, dict(zip(self.fields, self.arrays, strict=True)), [])
        return [value.reshape(tensor.shape) for value, tensor in zip(found, self.kept, strict=True)]

    def compiled(self, workers=1):
        with self.graph.as_default():
            update = CompiledUpdate([], self.fields, [], workers, self.kept)
        update._autotuner = None  # so that several threads share the update
        _, kept = update.run(1, [array[None] for array in self.arrays])
        return [value[0] for value in kept]


sizes = st.integers(1, 4)


@given(
    count=sizes,
    size=st.tuples(st.integers(4, 9), st.integers(4, 9)),
    channels=sizes,
    reach=st.tuples(sizes, sizes),
    number=sizes,
    strides=st.tuples(sizes, sizes),
    padding=st.sampled_from(["SAME", "VALID"]),
)
@example(2, (7, 9), 3, (4, 2), 5, (3, 2), "SAME")  # more zeros below and to the right than above and to the left
@example(2, (9, 8), 1, (1, 1), 1, (4, 3), "VALID")  # rows and columns that no filter reaches
@example(1, (4, 4), 2, (4, 4), 1, (1, 1), "VALID")  # one position
@settings(max_examples=6)
def test_a_convolution_and_its_gradients_equal_a_sessions(count, size, channels, reach, number, strides, padding):
    case = Case((count, *size, channels), (*reach, channels, number), strides, padding)
    expected, interpreted = case.session(), case.interpreted()
    for name, found in (("interpreted", interpreted), ("compiled", case.compiled())):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5 * np.abs(theirs).max(), err_msg=name)


@pytest.mark.parametrize("padding", ["SAME", pytest.param("VALID", marks=pytest.mark.slow)])
def test_blocks_and_threads_change_no_bit(padding, monkeypatch):
    """Sums keep the order of their terms, and each thread computes its own images, or its own rows of filters."""
    case = Case((6, 8, 8, 3), (3, 3, 3, 5), (2, 2), padding)
    whole = case.compiled()
    for at_once, workers in ((1, 1), (200, 1), (1000, 1), (1000, 2), (2**20, 3)):
        monkeypatch.setattr(codegen_convolution, "PATCHES_AT_ONCE", at_once)
        np.testing.assert_equal(case.compiled(workers), whole)


@pytest.mark.parametrize("workers", [3, pytest.param(2, marks=pytest.mark.slow)])
def test_delayed_threads_change_no_result(workers, monkeypatch):
    """Each thread that had to wait sleeps first, so that the others run ahead. The results equal one thread's."""
    late = codegen.BARRIER.replace("\ngo:\n", "\ngo:\n  %slept = call i32 @usleep(i32 3000)\n")
    assert late != codegen.BARRIER
    monkeypatch.setattr(codegen, "BARRIER", f"declare i32 @usleep(i32)\n{late}")
    rng = np.random.default_rng(0)
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [7, 3, 9, 8])
        with v1.variable_scope("net", use_resource=True):
            first, second = (v1.get_variable(name, (3, 3, size, 4)) for name, size in (("first", 3), ("second", 4)))
        hidden = tf.nn.relu(tf.nn.conv2d(tf.transpose(x, [0, 2, 3, 1]), first, 2, "SAME"))
        result = tf.nn.conv2d(hidden, second, 1, "SAME")
        gradients = tf.gradients(tf.reduce_sum(tf.square(result)), [first, second, x])
        step = v1.train.GradientDescentOptimizer(1e-3).apply_gradients(zip(gradients, [first, second], strict=False))
        with tf.control_dependencies([step]):
            metric = tf.reduce_sum(first.read_value()) + tf.reduce_sum(second.read_value())
        update = CompiledUpdate([metric], {"x": x}, [first, second], workers, [result, gradients[2]])
    start = [rng.normal(size=value.shape).astype(np.float32) / 10 for value in update.values]
    images = rng.normal(size=(4, 7, 3, 9, 8)).astype(np.float32)
    ends = []
    for serial in (True, False):
        update._autotuner = SimpleNamespace(split=lambda count, serial=serial: [(serial, count)])
        for value, first_value in zip(update.values, start, strict=True):
            value[...] = first_value
        means, kept = update.run(4, [images])
        ends.append([means, *kept, *(value.copy() for value in update.values)])
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.isfinite(one).all()


def test_how_much_is_computed_at_once():
    """Patches of 2 · 2 · 3 numbers at 6 x 4 positions: 288 numbers for an image, 48 for a row of positions."""
    sizes = Convolution((8, 7, 5, 3), (2, 2, 3, 1), (6, 4), (1, 1), (0, 0))
    found = []
    for at_once in (1, 100, 160, 250, 300, 1200, 10**6):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(codegen_convolution, "PATCHES_AT_ONCE", at_once)
            found.append(images_and_rows(sizes, 8))
    assert found == [(1, 1), (1, 2), (1, 3), (1, 6), (1, 6), (4, 6), (8, 6)]


@pytest.mark.parametrize(
    "transposed",
    [
        *(pytest.param(one, marks=pytest.mark.slow) for one in ((False, False), (True, False))),
        (False, True),
        (True, True),
    ],
)
@pytest.mark.parametrize("shape", [(21, 19, 23), pytest.param((16, 40, 33), marks=pytest.mark.slow)])
def test_blocks_of_a_large_product_change_no_bit(transposed, shape, monkeypatch):
    rows, columns, inner = shape
    one, other = ((inner, rows)[:: 1 if transposed[0] else -1], (columns, inner)[:: 1 if transposed[1] else -1])
    arrays = [np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in (one, other)]
    with tf.Graph().as_default():
        a, b = (v1.placeholder(tf.float32, array.shape) for array in arrays)
        product = tf.matmul(a, b, *transposed)
        found = []
        for large, block_rows, block_inner in ((1024, 1, 1), (8, 7, 5), (8, 8, 8), (18, 4, 23)):
            monkeypatch.setattr(codegen_gemm, "LARGE", large)
            monkeypatch.setattr(codegen_gemm, "BLOCK_ROWS", block_rows)
            monkeypatch.setattr(codegen_gemm, "BLOCK_INNER", block_inner)
            update = CompiledUpdate([], {"a": a, "b": b}, [], 1, [product])
            found.append(update.run(1, [array[None] for array in arrays])[1][0][0])
    expected = np.matmul(*(array.T if turned else array for array, turned in zip(arrays, transposed, strict=True)))
    np.testing.assert_allclose(found[0], expected, atol=1e-5)
    for each in found[1:]:
        np.testing.assert_array_equal(each, found[0])


def of_images(x):
    """The 24 numbers as two images [2, 3, 2, 2]."""
    return tf.reshape(x, [2, 3, 2, 2])


def _one_image(x):
    """12 numbers as one image [1, 3, 2, 2]."""
    return tf.reshape(x[:, 1], [1, 3, 2, 2])


REDUCTIONS = {
    "bias": lambda x: tf.nn.bias_add(of_images(x), [1.0, 2.0]),
    "gradient of a bias": lambda x: _gradient(lambda bias: tf.nn.bias_add(of_images(x), bias) ** 2, [2]),
    "gradient of a gain": lambda x: _gradient(lambda gain: tf.square(of_images(x) * gain), [2]),
    "moments of channels": lambda x: of_images(x) - tf.reduce_mean(tf.square(of_images(x)), [0, 1, 2]),
    "moments of images": lambda x: of_images(x) / tf.reduce_sum(tf.square(of_images(x)), [1, 2, 3], keepdims=True),
    "gradient of a mean": lambda x: tf.gradients(tf.reduce_mean(of_images(x), [1, 2, 3]) ** 2, x)[0],
    "gradient of channels' means": lambda x: tf.gradients(tf.reduce_mean(of_images(x), [0, 1, 2]) ** 2, x)[0],
    "channels repeated": lambda x: tf.tile(tf.reshape(x[3], [1, 1, 1, 2]), [2, 3, 2, 1]) * of_images(x),
    "one channel for all": lambda x: of_images(x) * tf.reshape(tf.reduce_sum(x, 1), [2, 3, 2, 1]),
    "axes of one element": lambda x: tf.reduce_sum(tf.reshape(x, [12, 1, 1, 2]), [0]),
    "squared difference": lambda x: tf.math.squared_difference(of_images(x), [1.0, 2.0]),
    "numbers of each pixel of one image": lambda x: _one_image(x) + tf.reshape(x[:, 0], [3, 2, 2]),
    "channels last": lambda x: tf.transpose(of_images(x), [0, 2, 3, 1]),
    "stacked frames": lambda x: tf.transpose(tf.reshape(x, [2, 3, 2, 1, 2]), [0, 2, 3, 1, 4]),
    "gradient of a cube's bias": lambda x: tf.raw_ops.BiasAddGrad(out_backprop=tf.reshape(x, [2, 6, 2])),
}


def _gradient(function, shape):
    variable = v1.get_variable("v", shape, initializer=v1.ones_initializer(), use_resource=True)
    return tf.gradients(tf.reduce_sum(function(variable)), variable)[0]


@pytest.mark.parametrize("name", REDUCTIONS)
def test_functions_and_sums_of_images_equal_a_sessions(name):
    array = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [12, 2])
        result = REDUCTIONS[name](x)
        session.run(v1.global_variables_initializer())
        update = CompiledUpdate([], {"x": x}, v1.global_variables(), 1, [result])
        for value in update.values:
            value[...] = 1
        (found,) = update.run(1, [array[None]])[1]
        np.testing.assert_allclose(found[0], session.run(result, {x: array}), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda x: tf.nn.conv2d(x, tf.ones([1, 1, 1, 2]), 1, "SAME"), "groups"),
        (lambda x: tf.nn.conv2d(x, tf.ones([2, 2, 2, 1]), 1, "SAME", dilations=2), "dilated"),
        (lambda x: tf.nn.conv2d(x, tf.ones([1, 1, 2, 1]), 1, [[0, 0], [1, 1], [1, 1], [0, 0]]), "EXPLICIT"),
        (lambda x: tf.nn.conv2d(x, tf.ones([1, 1, 3, 1]), 1, "SAME", "NCHW"), "first"),
        (lambda x: tf.nn.bias_add(x, [1.0, 2.0, 3.0], "NCHW"), "channels first"),
        (lambda x: tf.transpose(x, [1, 0, 2, 3]), "transposition"),
        (lambda x: tf.transpose(tf.reshape(x, [12, 2])), "transposition"),
        (lambda x: x * np.float32(np.arange(6).reshape(1, 3, 1, 2)), "repeated"),
        (lambda x: tf.tile(tf.reshape(x[0, 0, 0], [1, 1, 1, 2]), [2, 3, 2, 3]), "repeated"),
        (lambda x: tf.reduce_sum(x, [1, 2]), "Sum 4 [1, 2]"),
        (lambda x: tf.nn.max_pool2d(x, 2, 1, "SAME"), "MaxPool"),
    ],
)
def test_what_is_unsupported_is_named(make, named):
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [2, 3, 2, 2])
        with refuses(Unsupported, named):
            CompiledUpdate([tf.reduce_sum(make(x))], {"x": x}, [], 1)


def test_threads_are_worth_their_barriers_for_convolutions_too(monkeypatch):
    """64 images of 16 x 16 positions, with 27 numbers under each of 32 filters: 28 million operations, and the same
    for the filters' gradient."""
    monkeypatch.setattr(compiled_update, "available_cores", lambda: 8)
    case = Case((64, 16, 16, 3), (3, 3, 3, 32), (1, 1), "SAME")
    with case.graph.as_default():
        update = CompiledUpdate([], case.fields, [], None, [case.kept[0], case.kept[2]])
    assert update.workers == 2 * 2 * 64 * 16 * 16 * 27 * 32 // compiled_update.WORK_PER_THREAD == 3
