"""The simplified program leaves out needless computations and has the results of the original."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import assert_close

from ddpg.compiler import compiled_update
from ddpg.compiler.compiled_update import CompiledUpdate
from ddpg.compiler.interpreter import interpret
from ddpg.compiler.ir import COLUMNS, ROWS
from ddpg.compiler.schedule import members_of, schedule
from ddpg.compiler.simplify import simplified

v1 = tf.compat.v1


def computed(program, outputs, kind):
    """Return the shapes of the scheduled nodes of a kind."""
    kernels = schedule(program, outputs)
    return [stmt.shape for kernel in kernels for stmt in members_of(kernel) if getattr(stmt, "kind", None) == kind]


def assert_same(program, outputs, fields, variables=()):
    """Check that the simplified program has the same bits in the interpreter; return it and its outputs."""
    new, news = simplified(program, outputs)
    before, after = ([np.array(value) for value in variables] for _ in range(2))
    expected, found = interpret(program, outputs, fields, before), interpret(new, news, fields, after)
    np.testing.assert_equal([*expected, *before], [*found, *after])
    return new, news


def test_functions_of_a_repeated_row_are_computed_once(program, rng):
    """(v repeated)/4·x: the quotient has 3 numbers, not 5 × 3."""
    x, v = program.input("x", (5, 3)), program.input("v", (1, 3))
    quotient = program.elementwise("div", program.broadcast(v, (5, 3)), program.literal(4))
    product = program.elementwise("mul", quotient, x)
    fields = {"x": rng.normal(size=(5, 3)), "v": rng.normal(size=(1, 3))}
    new, news = assert_same(program, [product], fields)
    assert computed(program, [product], "elementwise") == [(5, 3)] * 3
    assert computed(new, news, "elementwise") == [(1, 3), (5, 3)]


@pytest.mark.parametrize(("first", "count", "made"), [(3, 2, (3, 2)), (0, 4, (0, 4)), (4, 1, (3, 2)), (0, 1, (0, 2))])
@pytest.mark.parametrize("transposed", [True, False])
def test_only_the_columns_of_a_product_that_are_read_are_computed(program, rng, first, count, made, transposed):
    """Also through a multiplication by a row. At least two columns: a product with a vector sums in another order."""
    x, w = program.input("x", (6, 4)), program.var_read(0, (5, 4) if transposed else (4, 5))
    scaled = program.elementwise("mul", program.matmul(x, w, False, transposed), program.input("v", (1, 5)))
    part = program.slice(scaled, 0, first, (6, count))
    fields = {"x": rng.normal(size=(6, 4)), "v": rng.normal(size=(1, 5))}
    new, news = simplified(program, [part])
    variable = rng.normal(size=w.shape).astype(np.float32)
    expected, found = (interpret(p, o, fields, [variable]) for p, o in ((program, [part]), (new, news)))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-6)
    assert computed(new, news, "matmul") == [(6, made[1])]


def test_columns_of_several_readers_are_all_computed(program):
    x, w = program.input("x", (6, 4)), program.var_read(0, (5, 4))
    product = program.matmul(x, w, False, True)
    parts = [program.slice(product, 0, first, (6, 2)) for first in (0, 2)]
    assert computed(*simplified(program, parts), "matmul") == [(6, 4)]
    assert computed(*simplified(program, [*parts, product]), "matmul") == [(6, 5)]


def stacked(program, upper, rows):
    """Return ``upper`` with rows of zeros below it, like the gradient of a split."""
    count, columns = upper.shape
    zeros = program.broadcast(program.literal(0), (rows - count, columns))
    parts = [program.reshape(part, (1, part.size)) for part in (upper, zeros)]
    return program.reshape(program.concat(tuple(parts)), (rows, columns))


def test_rows_of_zeros_are_neither_multiplied_nor_summed(program, rng):
    """Of 7 rows, 4 are zero: G·Wᵀ, Hᵀ·G and sums use 3 rows; what needs all 7 rows is padded with zeros."""
    gradient = stacked(program, program.input("g", (3, 2)), 7)
    w, h = program.var_read(0, (5, 2)), program.input("h", (7, 5))
    back = program.matmul(gradient, w, False, True)
    weights = program.matmul(h, gradient, True, False)
    scaled = program.elementwise("mul", back, program.input("v", (1, 5)))
    moved = program.elementwise("add", scaled, h)
    total = program.reduce_sum(program.elementwise("mul", program.elementwise("neg", h), back), ROWS)
    outputs = [weights, moved, total, program.reduce_sum(gradient, ROWS)]
    fields = {"g": rng.normal(size=(3, 2)), "h": rng.normal(size=(7, 5)), "v": rng.normal(size=(1, 5))}
    new, news = simplified(program, outputs)
    variable = rng.normal(size=(5, 2)).astype(np.float32)
    assert_close(
        interpret(new, news, fields, [variable]), interpret(program, outputs, fields, [variable]), rtol=1e-6, atol=1e-6
    )
    assert computed(new, news, "matmul") == [(3, 5), (5, 2)]
    assert computed(new, news, "concat") == []
    assert computed(new, news, "pad") == [(7, 5)]
    assert (3, 5) in computed(new, news, "elementwise")


def test_other_rows_are_all_computed(program):
    """With rows of ones below, or rows of zeros above, nothing is left out."""
    x, w = program.input("x", (3, 2)), program.var_read(0, (2, 5))
    ones = program.broadcast(program.literal(1), (4, 2))
    zeros = program.broadcast(program.literal(0), (4, 2))
    for parts in ((x, ones), (zeros, x)):
        rows = [program.reshape(part, (1, part.size)) for part in parts]
        product = program.matmul(program.reshape(program.concat(tuple(rows)), (7, 2)), w, False, False)
        assert computed(*simplified(program, [product]), "matmul") == [(7, 5)]


def scale_and_shift_gradients(program):
    """Return the gradients by s, t and W of a layer (X·s + t)·W with the gradient G, and G·Wᵀ, X ⊙ (G·Wᵀ)."""
    x, g, w = program.input("x", (9, 4)), program.input("g", (9, 6)), program.var_read(0, (4, 6))
    scaled = program.elementwise(
        "add", program.elementwise("mul", x, program.input("s", (1, 4))), program.input("t", (1, 4))
    )
    back = program.matmul(g, w, False, True)
    weighted = program.elementwise("mul", x, back)
    sums = [program.reduce_sum(value, ROWS) for value in (weighted, back)]
    return [*sums, program.matmul(scaled, g, True, False)], back, weighted


def test_a_product_of_which_only_sums_are_read_is_not_computed(program, rng):
    """The gradients of a scale and a shift before a layer follow from XᵀG."""
    outputs, _, _ = scale_and_shift_gradients(program)
    fields = {
        name: rng.normal(size=shape) for name, shape in {"x": (9, 4), "g": (9, 6), "s": (1, 4), "t": (1, 4)}.items()
    }
    new, news = simplified(program, outputs)
    variable = rng.normal(size=(4, 6)).astype(np.float32)
    expected, found = (interpret(p, o, fields, [variable]) for p, o in ((program, outputs), (new, news)))
    assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert sorted(computed(program, outputs, "matmul")) == [(4, 6), (9, 4)]
    assert computed(new, news, "matmul") == [(4, 6)]


@pytest.mark.parametrize("read", ["product", "weighted", "sum of columns", "without the weights' gradient"])
def test_a_product_that_is_also_read_otherwise_is_computed(program, read):
    """Nothing else changes either: its sums cost less where another pass reads it."""
    outputs, back, weighted = scale_and_shift_gradients(program)
    if read == "without the weights' gradient":  # XᵀG would be no cheaper than G·Wᵀ
        assert computed(*simplified(program, outputs[:2]), "matmul") == [(9, 4)]
        return
    others = {"product": back, "weighted": weighted, "sum of columns": program.reduce_sum(weighted, COLUMNS)}
    outputs.append(others[read])
    for kind in ("matmul", "elementwise", "reduce_sum"):
        assert computed(*simplified(program, outputs), kind) == computed(program, outputs, kind)


def joint_update():
    """Return the metrics and fields of an update whose loss reads half the rows of a batch-normalised forward pass.

    Its first layer's input has a learned scale and shift.
    """
    fields = {"x": v1.placeholder(tf.float32, (12, 5)), "y": v1.placeholder(tf.float32, (12, 3))}
    draw = np.random.default_rng(0)
    sizes = {"w1": (5, 20), "w2": (20, 3), "gain": (20,), "scale": (5,), "shift": (5,)}
    weights = [
        v1.get_variable(name, initializer=draw.normal(size=size).astype(np.float32), use_resource=True)
        for name, size in sizes.items()
    ]
    inputs = tf.concat([fields["x"], fields["x"] * 2 - 1], 0) * weights[3] + weights[4]
    hidden = tf.nn.relu(inputs @ weights[0])
    mean, variance = tf.nn.moments(hidden, axes=[0])
    normal = (hidden - mean) * (weights[2] / tf.sqrt(variance + 1e-3))
    first, second = tf.split(normal @ weights[1], 2)
    loss = tf.reduce_mean(tf.square(first - fields["y"] - tf.stop_gradient(second)))
    step = v1.train.AdamOptimizer(0.01).minimize(loss, var_list=weights)
    with tf.control_dependencies([step]):
        return [tf.identity(loss)], fields


def run(workers, arrays):
    """Run three updates, compiled and in a session; return the mean loss and the variables of each."""
    with tf.Graph().as_default(), v1.Session() as session:
        metrics, fields = joint_update()
        variables = v1.global_variables()
        session.run(v1.global_variables_initializer())
        update = CompiledUpdate(metrics, fields, variables, workers)
        for value, start in zip(update.values, session.run(variables), strict=True):
            value[...] = start
        (loss,), _ = update.run(3, [np.stack([array] * 3) for array in arrays])
        losses = [session.run(metrics, dict(zip(fields.values(), arrays, strict=True)))[0] for _ in range(3)]
        return [loss, *map(np.array, update.values)], [np.mean(losses), *session.run(variables)]


@pytest.mark.slow  # the next test has one thread
@pytest.mark.parametrize("workers", [2, 3])
def test_a_compiled_joint_pass_equals_a_sessions(workers, rng):
    arrays = [rng.normal(size=(12, size)).astype(np.float32) for size in (5, 3)]
    found, expected = run(workers, arrays)
    assert_close(found, expected, rtol=2e-5, atol=2e-5)


def test_compiled_the_original_program_differs_by_rounding_alone(rng, monkeypatch):
    """Fusing rounds a product and a sum once instead of twice, and some sums have another order."""
    arrays = [rng.normal(size=(12, size)).astype(np.float32) for size in (5, 3)]
    found, expected = run(1, arrays)
    monkeypatch.setattr(compiled_update, "simplified", lambda program, outputs: (program, outputs))
    unsimplified, _ = run(1, arrays)
    for one, other, of_session in zip(found, unsimplified, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(one, of_session, rtol=2e-5, atol=2e-5)
