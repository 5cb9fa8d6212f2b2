"""The IR's NumPy interpreter: each node by hand, and compiled updates against it; ``DDPG_DUMP`` writes every stage."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import assert_close

from ddpg.compiler import codegen_elementwise
from ddpg.compiler.compiled_update import CompiledUpdate
from ddpg.compiler.interpreter import FUNCTIONS, interpret
from ddpg.compiler.ir import ALL, COLUMNS, ROWS, Program
from ddpg.compiler.lowering import lower

v1 = tf.compat.v1
BATCH, OBSERVATIONS = 5, 3


def test_the_interpreter_has_every_function_of_the_compiler():
    assert set(FUNCTIONS) == set(codegen_elementwise.FUNCTIONS)


def test_every_kind_of_node_by_hand():
    program = Program()
    x = program.input("x", (2, 3))
    w = program.var_read(0, (3, 2))
    outputs = [
        program.matmul(x, w, False, False),
        program.reduce_sum(x, ROWS),
        program.reduce_sum(x, COLUMNS),
        program.reduce_sum(x, ALL),
        program.reduce_max(x),
        program.concat((x, program.slice(x, 0, 1, (2, 2)))),
        program.reshape(x, (3, 2)),
        program.elementwise("add", x, program.const(np.float32([1, 0, 0]))),
        program.broadcast(program.literal(7), (1, 2)),
    ]
    program.write(0, program.elementwise("neg", w))
    outputs.append(program.elementwise("mul", program.var_read(0, (3, 2)), w))
    variable = np.float32([[1, 0], [0, 1], [0, 0]])
    found = interpret(program, outputs, {"x": np.float32([[1, 2, 3], [4, 5, 6]])}, [variable])
    expected = [
        [[1, 2], [4, 5]],
        [[5, 7, 9]],
        [[6], [15]],
        [[21]],
        [[3], [6]],
        [[1, 2, 3, 2, 3], [4, 5, 6, 5, 6]],
        [[1, 2], [3, 4], [5, 6]],
        [[2, 2, 3], [5, 5, 6]],
        [[7, 7]],
        [[-1, 0], [0, -1], [0, 0]],
    ]
    for ours, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, np.float32(wanted))
    np.testing.assert_array_equal(variable, -np.float32([[1, 0], [0, 1], [0, 0]]))


def dense(x, size, name):
    with v1.variable_scope(name, use_resource=True):
        width = int(x.shape[1])
        start = np.random.default_rng(width).normal(size=(width, size)).astype(np.float32)
        w = v1.get_variable("W", initializer=tf.constant(start / 2))
        b = v1.get_variable("b", initializer=tf.constant(np.full(size, 0.1, np.float32)))
    return tf.matmul(x, w) + b


def layer_norm(x):
    mean = tf.reduce_mean(x, axis=1, keepdims=True)
    return (x - mean) * tf.math.rsqrt(tf.reduce_mean(tf.square(x - mean), axis=1, keepdims=True) + 1e-3)


def critic_update(activation, optimizer, loss, normalize=tf.identity):
    """Return the metrics and the input fields of one update of a critic with two layers."""
    fields = {"x": v1.placeholder(tf.float32, (BATCH, OBSERVATIONS)), "y": v1.placeholder(tf.float32, (BATCH, 1))}
    q = dense(activation(normalize(dense(fields["x"], 4, "hidden"))), 1, "output")
    error = loss(fields["y"], q)
    step = optimizer.minimize(error)
    with tf.control_dependencies([step]):
        metrics = [tf.identity(error), tf.reduce_mean(tf.abs(q))]
    return metrics, fields


def squared(y, q):
    return tf.reduce_mean(tf.square(y - q))


def cross_entropy(y, q):
    logits = tf.concat([q, -q, q * 0.5], axis=1)
    labels = tf.nn.softmax(tf.concat([y, tf.zeros_like(y), -y], axis=1))
    return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels, logits))


@pytest.mark.parametrize(
    ("activation", "make_optimizer", "loss", "normalize"),
    [
        (tf.nn.relu, lambda: v1.train.AdamOptimizer(1e-2), squared, tf.identity),
        pytest.param(*(tf.tanh, lambda: v1.train.RMSPropOptimizer(1e-2), squared, layer_norm), marks=pytest.mark.slow),
        pytest.param(
            *(tf.nn.elu, lambda: v1.train.MomentumOptimizer(1e-2, 0.9), cross_entropy, tf.identity),
            marks=pytest.mark.slow,
        ),
        (tf.nn.softplus, lambda: v1.train.GradientDescentOptimizer(1e-2), cross_entropy, layer_norm),
    ],
    ids=["relu-adam", "tanh-rmsprop-norm", "elu-momentum-softmax", "softplus-sgd-norm-softmax"],
)
def test_compiled_updates_equal_the_interpreter(
    session, rng, activation, make_optimizer, loss, normalize, monkeypatch, tmp_path
):
    metrics, fields = critic_update(activation, make_optimizer(), loss, normalize)
    variables = v1.global_variables()
    session.run(v1.global_variables_initializer())
    monkeypatch.setenv("DDPG_DUMP", str(tmp_path))
    compiled = CompiledUpdate(metrics, fields, variables, 1)
    program, outputs = lower(metrics, fields, variables)
    expected = [np.array(value) for value in session.run(variables)]
    for value, start in zip(compiled.values, expected, strict=True):
        value[...] = start
    for _ in range(3):
        minibatch = {name: rng.normal(size=field.shape).astype(np.float32) for name, field in fields.items()}
        means, _ = compiled.run(1, [array[None] for array in minibatch.values()])
        results = interpret(program, outputs, minibatch, expected)
        np.testing.assert_allclose(means, [float(result[0, 0]) for result in results], rtol=1e-5, atol=1e-6)
        assert_close(compiled.values, expected, rtol=1e-4, atol=1e-5)
    assert_dump_shows_every_stage(tmp_path / "update-0")


def assert_dump_shows_every_stage(folder):
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    marks = {
        "graph.txt": "= MatMul(",
        "ir.txt": "output/W:0@1 <- %",
        "schedule.txt": "kernel 0: ",
        "memory.txt": "hidden/W:0@0",
        "llvm.ll": "define void @run(",
        "optimized.ll": "@run(",
        "assembly.s": "run:",
    }
    assert set(texts) == set(marks)
    for name, mark in marks.items():
        assert mark in texts[name], name


def test_each_compiled_update_is_dumped_to_its_own_folder(graph, monkeypatch, tmp_path):
    x = v1.placeholder(tf.float32, (2, 2))
    monkeypatch.setenv("DDPG_DUMP", str(tmp_path / "new"))
    for _ in range(2):
        CompiledUpdate([tf.reduce_sum(x)], {"x": x}, [], 1)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["update-0", "update-1"]


def test_without_the_setting_nothing_is_dumped(graph, monkeypatch, tmp_path):
    monkeypatch.delenv("DDPG_DUMP", raising=False)
    monkeypatch.chdir(tmp_path)
    x = v1.placeholder(tf.float32, (2, 2))
    CompiledUpdate([tf.reduce_sum(x)], {"x": x}, [], 1)
    assert not [*tmp_path.iterdir()]
