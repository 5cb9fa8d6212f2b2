"""A compiled update equals the same ops in a session: functions, reductions, products, optimizers, order of ops."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from conftest import assert_close
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refuses

from ddpg.compiler import compiled_update
from ddpg.compiler.compiled_update import CompiledUpdate
from ddpg.compiler.ir import Unsupported

v1 = tf.compat.v1


def compiled_and_session(session, metrics, fields, arrays, updates=1):
    """Run ``updates`` updates on equal minibatches, compiled and in the session.

    Returns:
        For each of the two, the means of the metrics, and the variables afterwards.
    """
    variables = v1.global_variables()
    session.run(v1.global_variables_initializer())
    kernel = CompiledUpdate(metrics, fields, variables, 1)
    for value, start in zip(kernel.values, session.run(variables), strict=True):
        value[...] = start
    means, _ = kernel.run(updates, [np.stack([array] * updates) for array in arrays])
    feeds = dict(zip(fields.values(), arrays, strict=True))
    expected = np.mean([session.run(metrics, feeds) for _ in range(updates)], axis=0)
    return (means, [value.copy() for value in kernel.values]), (expected, session.run(variables))


FUNCTIONS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / (tf.abs(y) + 0.5),
    "max": tf.maximum,
    "min": tf.minimum,
    "neg": lambda x, y: -x,
    "abs": lambda x, y: tf.abs(x),
    "sign": lambda x, y: tf.sign(x) + tf.sign(tf.maximum(x, 0.0)),
    "square": lambda x, y: tf.square(x),
    "sqrt": lambda x, y: tf.sqrt(tf.abs(x)),
    "rsqrt": lambda x, y: tf.math.rsqrt(tf.abs(x) + 0.1),
    "exp": lambda x, y: tf.exp(x),
    "tanh": lambda x, y: tf.tanh(x),
    "relu": lambda x, y: tf.nn.relu(x),
    "elu": lambda x, y: tf.nn.elu(x),
    "selu": lambda x, y: tf.nn.selu(x),
    "sigmoid": lambda x, y: tf.nn.sigmoid(x),
    "softplus": lambda x, y: tf.nn.softplus(x),
    "softsign": lambda x, y: tf.nn.softsign(x),
    "l2_loss": lambda x, y: tf.nn.l2_loss(x),
    "compare": lambda x, y: tf.cast(x > y, tf.float32) - 2.0 * tf.cast(x <= 0.1, tf.float32),
    "equal": lambda x, y: tf.cast(tf.equal(x, tf.nn.relu(x)), tf.float32),
    "row's maximum": lambda x, y: tf.reduce_max(x, axis=1, keepdims=True),
    "gradient of a row's maximum": lambda x, y: tf.gradients(tf.reduce_max(tf.minimum(x, 1.0), axis=1), x)[0],
    "place of a row's maximum": lambda x, y: tf.cast(tf.expand_dims(tf.argmax(x, axis=1), 1), tf.float32),
    "the first of several": lambda x, y: tf.cast(tf.expand_dims(tf.argmax(tf.minimum(x, 0.0), 1), 1), tf.float32),
    "row's minimum": lambda x, y: tf.reduce_min(x, axis=1, keepdims=True),
    "gradient of a row's minimum": lambda x, y: tf.gradients(tf.reduce_min(tf.maximum(x, -1.0), axis=1), x)[0],
    "powers": lambda x, y: x**2 - x**3 + tf.pow(x, 1.0) + x**0,
    "gradient of a power": lambda x, y: tf.gradients(x**3, x, y)[0],
    "gelu": lambda x, y: tf.nn.gelu(x),
    "gradient of gelu": lambda x, y: tf.gradients(tf.nn.gelu(x), x, y)[0],
    "erf": lambda x, y: tf.math.erf(x) + tf.gradients(tf.math.erf(x), x, y)[0],
    "silu": lambda x, y: tf.nn.silu(x) + tf.gradients(tf.nn.silu(x), x, y)[0],
    "leaky relu": lambda x, y: tf.nn.leaky_relu(x, 0.3),
    "gradient of leaky relu": lambda x, y: tf.gradients(tf.nn.leaky_relu(x, 0.3), x, y)[0],
    "or": lambda x, y: tf.cast(tf.logical_or(x >= 1.0, y < 0.0), tf.float32),
    "both": lambda x, y: tf.cast(tf.logical_and(x >= 0.0, y < 0.0), tf.float32),
    "where": lambda x, y: tf.where(x > 0.0, y, 3.0 * x),
    "zeros and ones": lambda x, y: x * tf.ones_like(y) + tf.zeros_like(x) + 2.0 * tf.ones_like(x),
    "squared_difference": tf.math.squared_difference,
    "tanh_gradient": lambda x, y: tf.gradients(tf.tanh(x), x, y)[0],
    "rsqrt_gradient": lambda x, y: tf.gradients(tf.math.rsqrt(tf.abs(x) + 0.1), x, y)[0],
    "sqrt_gradient": lambda x, y: tf.gradients(tf.sqrt(tf.abs(x) + 0.1), x, y)[0],
    "elu_gradient": lambda x, y: tf.gradients(tf.nn.elu(x), x, y)[0],
    "selu_gradient": lambda x, y: tf.gradients(tf.nn.selu(x), x, y)[0],
    "sigmoid_gradient": lambda x, y: tf.gradients(tf.nn.sigmoid(x), x, y)[0],
    "softplus_gradient": lambda x, y: tf.gradients(tf.nn.softplus(x), x, y)[0],
    "softsign_gradient": lambda x, y: tf.gradients(tf.nn.softsign(x), x, y)[0],
    "relu_gradient": lambda x, y: tf.gradients(tf.nn.relu(x), x, y)[0],
}


@pytest.fixture(scope="module")
def values():
    rng = np.random.default_rng(0)
    return rng.normal(0, 3, (5, 7)).astype(np.float32), rng.normal(0, 3, (5, 7)).astype(np.float32)


SLICES = {
    "columns": lambda x: x[:, 1:4],
    "the last columns": lambda x: x[..., -2:],
    "a column": lambda x: x[:, 3],
    "a row": lambda x: x[2],
    "a block": lambda x: x[1:3, 2:],
    "a new axis": lambda x: x[:, None, 1:],
    "every column": lambda x: x[:, :],
    "images": lambda x: tf.reshape(x, [5, 7, 1])[:, 2:4],
    "a number": lambda x: x[4, 6],
    "a part of a split": lambda x: tf.split(x, [2, 4, 1], axis=1)[1],
    "rows of a split": lambda x: tf.split(x, [2, 3])[1],
}


def test_slices_and_their_gradients(session, values):
    x, y = (v1.placeholder(tf.float32, [5, 7]) for _ in range(2))
    parts = [function(x * y) for function in SLICES.values()]
    numbers = tf.constant(np.random.default_rng(1).normal(size=35), tf.float32)
    sums = [tf.reduce_sum(part * tf.reshape(numbers[: part.shape.num_elements()], part.shape)) for part in parts]
    gradients = [tf.reduce_sum(tf.square(tf.gradients(total, x)[0]) * tf.reshape(numbers, x.shape)) for total in sums]
    ours, theirs = compiled_and_session(session, [*sums, *gradients], {"x": x, "y": y}, values)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
    assert np.abs(theirs[0]).min() > 1e-3


def test_elementwise_functions(session, values):
    x, y = (v1.placeholder(tf.float32, [5, 7]) for _ in range(2))
    weights = tf.constant(np.random.default_rng(1).normal(size=(5, 7)), tf.float32)  # all different
    metrics = [tf.reduce_sum(weights * function(x, y)) for function in FUNCTIONS.values()]
    ours, theirs = compiled_and_session(session, metrics, {"x": x, "y": y}, values)
    scale = np.abs(theirs[0]) + 1
    worst = {name: gap for name, gap in zip(FUNCTIONS, np.abs(ours[0] - theirs[0]) / scale, strict=True) if gap > 3e-6}
    assert worst == {}


@settings(max_examples=30)
@example(x=3.9)
@example(x=1e-30)
@given(x=st.floats(-87, 88, width=32) | st.floats(-4, 4, width=32))
def test_exp_tanh_and_erf_to_float_precision(functions_of_one, x):
    """The square in erfc's exponent is rounded, so that its relative error grows with x²."""
    (*ours, erfc), _ = functions_of_one.run(1, [np.full((1, 1), x, np.float32)])
    expected = [np.exp(np.float64(x)), np.tanh(np.float64(x)), math.erf(x)]
    np.testing.assert_allclose(ours, expected, rtol=5e-7, atol=1.2e-38)
    np.testing.assert_allclose(erfc, math.erfc(x), rtol=1.5e-6 if x < 3 else 1e-5, atol=1.2e-38)
    assert abs(ours[2]) <= 1


@pytest.mark.parametrize("x", [88.0, 88.1, 88.3, 88.5, 88.7, 88.8, 100.0, 3e38, np.inf, -np.inf])
def test_exp_is_infinite_only_on_overflow(functions_of_one, x):
    ours, _ = functions_of_one.run(1, [np.full((1, 1), x, np.float32)])
    with np.errstate(over="ignore"):
        expected = np.float32(np.exp(np.float64(np.float32(x))))
    np.testing.assert_allclose(ours[0], expected, rtol=6e-7, atol=1.2e-38)  # the smallest normal number


def test_underflow_is_exactly_zero(functions_of_one, activations_of_one):
    """Not the smallest normal number: times a gradient of 1e30 it would not be negligible."""
    for x in (-88, -104, -1e30, -np.inf):
        given = [np.full((1, 1), x, np.float32)]
        assert functions_of_one.run(1, given)[0][0] == 0  # exp
        assert activations_of_one.run(1, given)[0][1:].tolist() == [0, 0]  # sigmoid, softplus


@settings(max_examples=30)
@example(x=-1e-3)
@example(x=-1e-6)
@given(x=st.floats(-80, 80, width=32))
def test_activations_to_float_precision(activations_of_one, x):
    """Relative to the result, however small it is, such as elu of −1e-6 and softplus of −80."""
    ours, _ = activations_of_one.run(1, [np.full((1, 1), x, np.float32)])
    x = np.float64(x)
    expected = [x if x > 0 else np.expm1(x), 1 / (1 + np.exp(-x)), np.maximum(x, 0) + np.log1p(np.exp(-abs(x)))]
    np.testing.assert_allclose(ours, expected, rtol=6e-7, atol=1.2e-38)


@pytest.fixture(scope="module")
def activations_of_one():
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [1])
        return CompiledUpdate([tf.reduce_sum(f(x)) for f in (tf.nn.elu, tf.sigmoid, tf.nn.softplus)], {"x": x}, [], 1)


@pytest.fixture(scope="module")
def functions_of_one():
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, [1])
        functions = (tf.exp, tf.tanh, tf.math.erf, tf.math.erfc)
        return CompiledUpdate([tf.reduce_sum(function(x)) for function in functions], {"x": x}, [], 1)


def test_functions_propagate_nan(graph):
    """Training that diverges must be noticed; no function may turn NaN into a number."""
    x = v1.placeholder(tf.float32, [2])
    outputs = [
        tf.nn.relu(x),
        tf.clip_by_value(x, -1.0, 1.0),
        tf.tanh(x),
        tf.math.erf(x),
        tf.math.erfc(x),
        tf.exp(x),
        tf.sqrt(x),
        x * 0.0,
        tf.nn.elu(x),
        tf.nn.sigmoid(x),
        tf.nn.softplus(x),
        tf.nn.softsign(x),
        tf.clip_by_global_norm([x], 1.0)[0][0],
    ]
    kernel = CompiledUpdate([tf.reduce_sum(output) for output in outputs], {"x": x}, [], 1)
    assert np.isnan(kernel.run(1, [np.array([[np.nan, 1.0]], np.float32)])[0]).all()


def test_max_and_min_propagate_nan_of_either_argument(graph):
    """If max or min dropped NaN, the label of a NaN target would be all zeros, and the loss 0."""
    x, y = (v1.placeholder(tf.float32, [2]) for _ in range(2))
    pairs = [(x, y), (y, x), (0.5, x), (x, 0.5)]
    outputs = [function(*pair) for function in (tf.maximum, tf.minimum) for pair in pairs]
    kernel = CompiledUpdate([tf.reduce_sum(output) for output in outputs], {"x": x, "y": y}, [], 1)
    arrays = np.array([[np.nan, 1.0]], np.float32), np.array([[0.0, 0.0]], np.float32)
    assert np.isnan(kernel.run(1, list(arrays))[0]).all()


@pytest.mark.parametrize("longest", [1.0, 100.0])
def test_clip_by_global_norm(session, values, longest):
    """The norm is above or below the limit; if an element is infinite, all become NaN, as in TensorFlow."""
    x, y = (v1.placeholder(tf.float32, [5, 7]) for _ in range(2))
    clipped, norm = tf.clip_by_global_norm([x, y], longest)
    metrics = [*(tf.reduce_sum(gradient * tf.range(7.0)) for gradient in clipped), norm]
    ours, theirs = compiled_and_session(session, metrics, {"x": x, "y": y}, values)
    assert_close(ours, theirs, rtol=5e-6, atol=5e-6)
    assert 1 < theirs[0][2] < 100
    ours, _ = compiled_and_session(session, metrics, {"x": x, "y": y}, (values[0], np.full((5, 7), np.inf, np.float32)))
    assert np.isnan(ours[0][:2]).all()


def test_reductions_and_broadcasts(session, values):
    x, y = (v1.placeholder(tf.float32, [5, 7]) for _ in range(2))
    rows, columns = tf.reduce_sum(x, axis=0), tf.reduce_mean(x, axis=1, keepdims=True)
    metrics = [
        tf.reduce_sum(tf.square(y + rows)),
        tf.reduce_sum(tf.square(y * columns)),
        tf.reduce_mean(tf.square(x - tf.reduce_mean(x))),
        tf.reduce_sum(tf.norm(x, axis=1)),
        tf.reduce_sum(tf.square(tf.concat([x, y, columns], 1) * tf.range(15.0))),
        tf.reduce_sum(tf.square(tf.slice(x, [1, 2], [3, 4]) - 1.0)),
        tf.reduce_sum(tf.square(tf.reshape(x, [7, 5]) - tf.reshape(y, [7, 5]) * tf.range(5.0))),
        tf.reduce_sum(tf.tile(columns, [1, 3]) * tf.range(3.0)),
        tf.add_n([tf.reduce_sum(x), tf.reduce_sum(y), tf.constant(2.0)]),
        tf.reduce_sum(tf.square(tf.concat([x, y], 0)) * tf.reshape(tf.range(10.0), [10, 1])),
        tf.unstack(tf.stack([tf.reduce_sum(x), tf.reduce_max(tf.constant([1.0, 3.0])), tf.reduce_sum(y)]))[2],
        tf.reduce_sum(tf.square(tf.unstack(x)[3]) * tf.range(7.0)),
        tf.reduce_sum(tf.square(tf.split(tf.concat([x, y], 0), 2)[1]) * tf.range(7.0)),
        tf.reduce_sum(tf.split(tf.concat([x, y], 1), 2, axis=1)[1] * tf.range(7.0)),
    ]
    ours, theirs = compiled_and_session(session, metrics, {"x": x, "y": y}, values)
    assert_close(ours, theirs, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("shape", [[], [1], [5, 1, 1], [1, 4, 3], [1, 1, 1], [5, 4, 3]])
def test_broadcasting_in_three_dimensions(session, rng, shape):
    x, y = v1.placeholder(tf.float32, [5, 4, 3]), v1.placeholder(tf.float32, shape)
    metrics = [tf.reduce_sum(tf.square(x * y)), tf.reduce_sum(tf.math.squared_difference(y, x))]
    arrays = [rng.standard_normal(given).astype(np.float32) for given in ((5, 4, 3), shape)]
    ours, theirs = compiled_and_session(session, metrics, {"x": x, "y": y}, arrays)
    assert_close(ours, theirs, rtol=5e-6, atol=5e-6)


@pytest.mark.parametrize("level", [0.0, 300.0, -300.0])
def test_softmax_and_cross_entropy(session, values, level):
    """Also with logits whose exponentials are out of range."""
    x, y = (v1.placeholder(tf.float32, [5, 7]) for _ in range(2))
    labels, logits, weights = tf.nn.softmax(y), 30.0 * x + level, tf.reshape(tf.range(35.0), [5, 7])
    losses = tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    metrics = [
        tf.reduce_sum(weights * tf.nn.softmax(logits)),
        tf.reduce_mean(weights * tf.nn.log_softmax(logits)),
        tf.reduce_sum(losses * tf.range(5.0)),
        *(tf.reduce_sum(weights * gradient) for gradient in tf.gradients(losses, [x, y])),
    ]
    ours, theirs = compiled_and_session(session, metrics, {"x": x, "y": y}, values)
    assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_softmax_propagates_nan(graph):
    x = v1.placeholder(tf.float32, [2, 3])
    kernel = CompiledUpdate([tf.reduce_sum(tf.square(tf.nn.softmax(x)))], {"x": x}, [], 1)
    assert np.isnan(kernel.run(1, [np.array([[[0, np.nan, 1], [0, 0, 0]]], np.float32)])[0]).all()


TRANSPOSED = [(False, False), (True, False), (False, True), (True, True)]


PRODUCTS = [
    *(((5, 3, 7), 1), ((64, 40, 9), 2), ((13, 37, 20), 1), ((7, 1, 8), 1), ((33, 17, 1), 1), ((70, 64, 65), 3)),
    ((1, 41, 9), 1),
]
LONG_ROWS = [((1, 300, 40), 1), ((3, 70, 20), 2)]  # compiled for a second if the first factor is transposed


@pytest.mark.parametrize(
    ("transposed", "shape", "workers"),
    [
        *((TRANSPOSED[0], *case) for case in [*PRODUCTS, *LONG_ROWS]),
        *((layout, *case) for layout in TRANSPOSED[1:] for case in PRODUCTS[1:6:2]),
        *(
            pytest.param(layout, *case, marks=pytest.mark.slow)
            for layout in TRANSPOSED[1:]
            for case in [*PRODUCTS[::2], *LONG_ROWS]
        ),
    ],
)
def test_products(compiled_products, transposed, shape, workers):
    """Sizes that leave every remainder of tiles, panels and blocks, on one to three threads."""
    rows, columns, inner = shape
    rng = np.random.default_rng(0)
    one, other = (rng.normal(size=size).astype(np.float32) for size in ((rows, inner), (inner, columns)))
    turned = [np.ascontiguousarray(a.T if flip else a) for a, flip in zip((one, other), transposed, strict=True)]
    (product,) = compiled_products([turned], transposed, workers)
    np.testing.assert_allclose(product, one.astype(float) @ other, atol=3e-6 * inner**0.5)


COLUMNS = 2, 3, 6, 7, 12, 17, 23, 39, 47, 48  # for vectors of 16 in panels of two, and of 8 and 4


@pytest.mark.parametrize(
    "transposed", [TRANSPOSED[0], *(pytest.param(one, marks=pytest.mark.slow) for one in TRANSPOSED[1:])]
)
def test_a_columns_bits_do_not_depend_on_the_number_of_columns(compiled_products, transposed, rng):
    """31 rows are several tiles; writing past the last column would overwrite the next row."""
    one, other = rng.normal(size=(31, 19)).astype(np.float32), rng.normal(size=(19, COLUMNS[-1])).astype(np.float32)
    left = np.ascontiguousarray(one.T if transposed[0] else one)
    parts = (other[:, :columns] for columns in COLUMNS)
    pairs = [(left, np.ascontiguousarray(part.T if transposed[1] else part)) for part in parts]
    *narrow, widest = compiled_products(pairs, transposed, 2)
    np.testing.assert_allclose(widest, one.astype(np.float64) @ other, rtol=0, atol=1e-5)
    for product in narrow:
        np.testing.assert_array_equal(product, widest[:, : product.shape[1]])


OPTIMIZERS = {
    "adam": lambda: v1.train.AdamOptimizer(0.01, beta1=0.8, epsilon=1e-5),
    "rmsprop": lambda: v1.train.RMSPropOptimizer(0.01, momentum=0.3),
    "sgd": lambda: v1.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: v1.train.MomentumOptimizer(0.1, 0.9),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_and_averages(session, values, name):
    """Three updates: a step, a moving average of the stepped weights, and a metric read before the step."""
    x = v1.placeholder(tf.float32, [5, 7])
    w = v1.get_variable("w", [7, 2], use_resource=True, initializer=v1.glorot_uniform_initializer(seed=0))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) - 1.0))
    step = OPTIMIZERS[name]().minimize(loss)
    average = tf.train.ExponentialMovingAverage(0.9)
    with tf.control_dependencies([loss]), tf.control_dependencies([step]):
        move = average.apply([w])
    with tf.control_dependencies([move]):
        metrics = [tf.identity(loss)]
    ours, theirs = compiled_and_session(session, metrics, {"x": x}, values[:1], updates=3)
    assert_close(ours, theirs, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("shape", [(2, 2, 1), (3, 2, 2), (3, 1, 1)])
def test_too_few_or_misshapen_minibatches_are_refused(graph, shape):
    x = v1.placeholder(tf.float32, [2, 1])
    kernel = CompiledUpdate([tf.reduce_sum(x)], {"x": x}, [])
    with refuses(ValueError, "2 3"):
        kernel.run(3, [np.zeros(shape, np.float32)])


def test_every_update_has_its_own_minibatch(session):
    x = v1.placeholder(tf.float32, [2, 1])
    total = v1.get_variable("total", [], use_resource=True, initializer=v1.zeros_initializer())
    with tf.control_dependencies([total.assign_add(tf.reduce_sum(x))]):
        metric = total.read_value()
    kernel = CompiledUpdate([metric], {"x": x}, [total], 1, kept=[x])
    kernel.values[0][...] = 0
    means, (kept,) = kernel.run(2, [np.array([[[1.0], [2.0]], [[3.0], [4.0]], [[9.0], [9.0]]], np.float32)])
    assert kernel.values[0] == 10
    assert means == (3 + 10) / 2
    np.testing.assert_array_equal(kept, [[[1], [2]], [[3], [4]]])


def test_alternating_updates_share_their_variables(session):
    """One update multiplies the total, the other adds x to it; their constants differ."""
    x = v1.placeholder(tf.float32, [1, 2])
    total = v1.get_variable("total", [2], use_resource=True, initializer=v1.zeros_initializer())
    updates = []
    for write in (
        lambda: total.assign(total * [2.0, 3.0], read_value=False),
        lambda: total.assign_add(tf.squeeze(x), read_value=False),
    ):
        with tf.control_dependencies([write()]):
            updates.append(([tf.reduce_sum(total.read_value())], [x]))
    (metrics, kept), other = updates
    kernel = CompiledUpdate(metrics, {"x": x}, [total], 1, kept, [other])
    kernel.values[0][...] = 0
    minibatches = np.arange(8, dtype=np.float32).reshape(4, 1, 2)
    means, (rows,) = kernel.run(4, [minibatches], [1, 1, 0, 1])
    # [0, 1], + [2, 3] = [2, 4], * [2, 3] = [4, 12], + [6, 7] = [10, 19]
    np.testing.assert_array_equal(kernel.values[0], [10, 19])
    assert means == (1 + 6 + 16 + 29) / 4
    np.testing.assert_array_equal(rows, minibatches)


def test_updates_of_several_kinds_are_one_call_of_the_thread_pool(session, monkeypatch):
    """Waking a thread takes as long as a small update, so a thread that has finished one update begins the next."""
    x = v1.placeholder(tf.float32, [1, 2])
    kinds = [([tf.reduce_sum(x) * scale], []) for scale in (1.0, 10.0, 100.0)]
    kernel = CompiledUpdate(*kinds[0][:1], {"x": x}, [], 2, (), kinds[1:])
    calls, run = [], kernel._run  # it wakes the threads; kernels for another processor have another one
    monkeypatch.setattr(
        kernel, "_run", lambda serial, count, at: calls.append((serial, count)) or run(serial, count, at)
    )
    kernel._autotuner = SimpleNamespace(split=lambda count: [(0, count)])
    means, _ = kernel.run(5, [np.ones((5, 1, 2), np.float32)], [2, 0, 1, 1, 2])
    assert calls == [(False, 5)]
    assert means == 2 * (100 + 1 + 10 + 10 + 100) / 5


def cube_of(x):
    return tf.reshape(x, [4, 2, 3])


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda x: tf.reduce_sum(tf.sin(x)), "Sin"),
        (lambda x: tf.reduce_sum(tf.cast(tf.cast(x, tf.int32), tf.float32)), "float32 int32"),
        (lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x[0, 0], lambda: x[1, 1]), "StatelessIf"),
        (lambda x: tf.reduce_sum(tf.stack([x, x], 1)), "axis 1"),
        (lambda x: tf.reduce_sum(tf.unstack(x, axis=1)[0]), "axis 1"),
        (lambda x: tf.reduce_sum(cube_of(x) * [1.0, 2.0, 3.0]), "(3,) (4, 2, 3)"),
        (lambda x: tf.reduce_sum(tf.tile(cube_of(x), [1, 2, 1])), "repeated"),
        (lambda x: tf.reduce_sum(cube_of(x) * np.float32([[1, 2, 3], [4, 5, 6]])), "(2, 3)"),
        (lambda x: tf.reduce_sum(cube_of(x) * np.float32([[1], [2]])), "(2, 1)"),
        (lambda x: tf.reduce_sum(tf.broadcast_to(tf.slice(x, [0, 0], [4, 1]), [4, 4, 3])), "3"),
        (lambda x: tf.reduce_sum(tf.math.squared_difference(cube_of(x), [1.0, 2.0, 3.0])), "repeated"),
        (lambda x: tf.reduce_sum(tf.nn.bias_add(cube_of(x), [1.0, 2.0, 3.0])), "repeated"),
        (lambda x: tf.reduce_sum(tf.reduce_sum(cube_of(x), 1)), "Sum 3 [1]"),
        (lambda x: tf.reduce_sum(tf.reduce_max(x, 0)), "Max row"),
        (lambda x: tf.reduce_sum(tf.reduce_min(x)), "Min row"),
        (lambda x: tf.reduce_sum(x[:, ::2]), "strided_slice block"),
        (lambda x: tf.reduce_sum(x[:, 1:1]), "strided_slice nothing"),
        (lambda x: tf.reduce_sum(cube_of(x)[:, :, 1]), "strided_slice block"),
        (lambda x: tf.reduce_sum(x**0.5), "power"),
        (lambda x: tf.reduce_sum(2.0**x), "constant"),
        (lambda x: tf.reduce_sum(tf.cast(tf.argmax(x, 0), tf.float32)), "ArgMax row"),
        (lambda x: tf.reduce_sum(v1.where(np.array([True, False] * 2), x, -x)), "rows vector"),
        (lambda x: tf.reduce_sum(x + tf.random.truncated_normal([4, 6])), "TruncatedNormal"),
        (lambda x: tf.reduce_sum(x) * tf.cond(tf.constant(1.0) > 0, lambda: 2.0, lambda: 3.0), "StatelessIf"),
        (lambda x: tf.reduce_sum(tf.TensorArray(tf.float32, 1).write(0, x).read(0)), "TensorListReserve"),
    ],
)
def test_an_unsupported_op_is_named(graph, make, named):
    x = v1.placeholder(tf.float32, [4, 6])
    with refuses(Unsupported, named):
        CompiledUpdate([make(x)], {"x": x}, [], 1)


def test_nesterov_momentum_is_refused(graph):
    weight = v1.get_variable("weight", [2])
    step = v1.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True).minimize(tf.reduce_sum(weight))
    with tf.control_dependencies([step]), refuses(Unsupported, "ResourceApplyMomentum Nesterov"):
        CompiledUpdate([tf.identity(1.0)], {}, v1.global_variables(), 1)


def test_only_floats_are_supported(graph):
    x = v1.placeholder(tf.uint8, [2, 3])
    with refuses(Unsupported, "uint8"):
        CompiledUpdate([tf.reduce_sum(tf.cast(x, tf.float32))], {"x": x}, [], 1)


def test_a_metric_is_the_variable_at_the_time_of_its_read(session):
    """The variable is later written in place."""
    x = v1.placeholder(tf.float32, [2, 1])
    total = v1.get_variable("total", [], use_resource=True, initializer=v1.zeros_initializer())
    before = total.read_value()
    with tf.control_dependencies([before]), tf.control_dependencies([total.assign_add(tf.reduce_sum(x))]):
        after = total.read_value()
    ours, theirs = compiled_and_session(session, [before, after], {"x": x}, [np.ones((2, 1), np.float32)], updates=3)
    assert_close(ours, theirs, rtol=2e-6, atol=2e-6)
    assert list(ours[0]) == [2, 4]


def test_the_program_does_not_depend_on_the_order_of_control_inputs(graph, monkeypatch):
    """TensorFlow's order differs between processes, and another order of sums changes their rounding."""
    x = v1.placeholder(tf.float32, [2, 3])
    variables = [v1.get_variable(name, [3], use_resource=True) for name in "cab"]
    written = [v.assign_sub(tf.reduce_sum(x * scale, 0)) for scale, v in enumerate(variables, 2)]
    with tf.control_dependencies(written):
        metric = tf.reduce_sum(x)
    texts = []
    compiled = compiled_update.compile_module
    monkeypatch.setattr(
        compiled_update, "compile_module", lambda text, pointers: texts.append(text) or compiled(text, pointers)
    )
    listed = tf.Operation.control_inputs.fget
    for backwards in (False, True):
        order = (lambda op: listed(op)[::-1]) if backwards else listed
        monkeypatch.setattr(tf.Operation, "control_inputs", property(order))
        CompiledUpdate([metric], {"x": x}, variables, 1)
    assert texts[0] == texts[1]


@pytest.fixture
def graph_with_large_products(graph):
    x = v1.placeholder(tf.float32, [256, 256])
    return tf.reduce_sum(tf.matmul(tf.matmul(x, x), x)), {"x": x}


def test_threads_are_as_many_as_pay_or_as_requested(graph_with_large_products, monkeypatch):
    """2 products of 256 x 256 x 256 are 67 million operations, enough for 4 threads if there are as many cores."""
    metric, fields = graph_with_large_products
    for cores, expected in ((16, 4), (3, 3), (1, 1)):
        monkeypatch.setattr(compiled_update, "available_cores", lambda cores=cores: cores)
        assert CompiledUpdate([metric], fields, []).workers == expected
    assert CompiledUpdate([metric], fields, [], 2).workers == 2
    monkeypatch.setattr(compiled_update, "available_cores", lambda: 16)
    small = v1.placeholder(tf.float32, [8, 8])
    assert CompiledUpdate([tf.reduce_sum(tf.matmul(small, small))], {"x": small}, []).workers == 1


def test_one_thread_if_the_processor_has_no_barriers(graph_with_large_products, monkeypatch):
    metric, fields = graph_with_large_products
    monkeypatch.setattr(compiled_update, "_HAS_BARRIER", False)
    monkeypatch.setattr(compiled_update, "available_cores", lambda: 16)
    assert CompiledUpdate([metric], fields, []).workers == 1
    with refuses(Unsupported, "threads 2"):
        CompiledUpdate([metric], fields, [], 2)


def test_one_thread_computes_the_same_bits_as_several(session, rng):
    """Sums, products with and without remaining columns, transposed products, and loops too short to be shared."""
    x = v1.placeholder(tf.float32, [70, 90])
    weights = v1.get_variable("weights", [90, 77], use_resource=True)
    hidden = tf.tanh(tf.matmul(x, weights))
    loss = tf.reduce_sum(tf.square(tf.matmul(hidden, hidden, transpose_b=True)))
    gradient = tf.gradients(loss, weights)[0]
    with tf.control_dependencies([weights.assign_sub(1e-6 * gradient)]):
        metrics = [tf.identity(loss), tf.reduce_mean(tf.reduce_sum(hidden, 0))]
    kernel = CompiledUpdate(metrics, {"x": x}, [weights], 3)
    start = rng.normal(size=weights.shape).astype(np.float32)
    batch = [rng.normal(size=(4, 70, 90)).astype(np.float32)]
    ends = []
    for way in (0, 1, 0):
        kernel._autotuner = SimpleNamespace(split=lambda count, way=way: [(way, 1), (way, count - 1)])
        kernel.values[0][...] = start
        ends.append((kernel.run(4, batch)[0], kernel.values[0].copy()))
    assert (ends[0][1] != start).all()
    for one, other in itertools.pairwise(ends):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])
