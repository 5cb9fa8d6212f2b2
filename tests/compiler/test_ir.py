"""The IR: equal expressions are one node, operations without effect are left out, and writes are ordered."""

import itertools

import numpy as np
from refusals import refuses

from ddpg.compiler.ir import ALL, COLUMNS, ROWS, Unsupported, Write, fold_elementwise, shape_of
from ddpg.compiler.memory_plan import ALIGNMENT, plan_memory
from ddpg.compiler.schedule import materialized, members_of, schedule


def test_shapes():
    assert [shape_of(shape) for shape in [(), (3,), (2, 3), (2, 3, 4)]] == [(1, 1), (1, 3), (2, 3), (2, 12)]


def test_equal_expressions_are_one_node(program):
    x = program.input("x", (2, 3))
    assert program.elementwise("tanh", x) is program.elementwise("tanh", program.input("x", (2, 3)))
    assert program.const(np.arange(3.0)) is program.const(np.arange(3.0))
    assert program.const(np.full((4, 2), 0.5)) is program.literal(0.5)


def test_reading_a_variable_after_a_write_is_another_node(program):
    before = program.var_read(0, (1, 2))
    program.write(0, program.elementwise("neg", before))
    after = program.var_read(0, (1, 2))
    assert after is not before
    assert program.var_read(0, (1, 2)) is after


def test_operations_without_effect_are_left_out(program):
    x, one, zero = program.input("x", (2, 3)), program.literal(1), program.literal(0)
    assert [program.elementwise("mul", x, one), program.elementwise("mul", one, x)] == [x, x]
    assert [
        program.elementwise("add", x, zero),
        program.elementwise("sub", x, zero),
        program.elementwise("div", x, one),
    ] == [x] * 3
    assert program.elementwise("sub", zero, x) is not x
    assert fold_elementwise(program, "sub", one, program.literal(0.25)).detail == 0.75


def test_a_sum_over_a_vector_is_a_sum_of_all_elements(program):
    column, row = program.input("x", (5, 1)), program.input("y", (1, 5))
    assert program.reduce_sum(column, COLUMNS) is column
    assert program.reduce_sum(row, ROWS) is row
    assert program.reduce_sum(column, ROWS).detail == ALL
    assert program.reduce_sum(row, COLUMNS).detail == ALL


def test_products_with_vectors_are_loops(program):
    x, v, w = program.input("x", (4, 3)), program.input("v", (3, 1)), program.input("w", (4, 1))
    assert program.matmul(x, v, False, False).kind == "reduce_sum"
    turned = program.matmul(x, w, True, False)
    assert (turned.shape, turned.base.detail) == ((3, 1), ROWS)
    assert program.matmul(w, v, False, True).kind == "elementwise"
    assert program.matmul(x, x, True, False).kind == "matmul"


def test_operations_are_fused_into_one_loop(program):
    x, w = program.input("x", (4, 3)), program.var_read(0, (1, 3))
    hidden = program.elementwise("relu", program.elementwise("add", x, w))
    total = program.reduce_sum(hidden, ROWS)
    steps = schedule(program, [total])
    assert [len(step.members) for step in steps] == [3]
    assert materialized(steps, [total]) == [total]


def test_a_sum_is_used_in_a_later_loop(program):
    x = program.input("x", (4, 3))
    centred = program.elementwise("sub", x, program.reduce_sum(x, ROWS))
    steps = schedule(program, [program.reduce_sum(centred, ALL)])
    assert len(steps) == 2


def test_unused_values_are_not_computed(program):
    x = program.input("x", (4, 3))
    program.elementwise("tanh", x)
    assert schedule(program, []) == []


def test_a_write_follows_the_reads_of_the_old_value(program):
    """A product that follows another product reads W; the op that overwrites W could otherwise run before both."""
    x, w, v = program.input("x", (4, 3)), program.var_read(0, (3, 3)), program.var_read(1, (3, 3))
    program.write(0, program.elementwise("neg", w))
    inner = program.elementwise("tanh", program.matmul(x, v, False, False))
    product = program.matmul(inner, w, False, False)
    steps = schedule(program, [product])
    (written,) = (i for i, step in enumerate(steps) if any(isinstance(member, Write) for member in members_of(step)))
    assert steps.index(product) < written


def test_a_broadcast_variable_is_not_written_in_the_loop_that_reads_it(program):
    """Each row of x reads the row again; a write in the same loop would change it between these reads."""
    x, row = program.input("x", (4, 3)), program.var_read(0, (1, 3))
    spread = program.elementwise("add", x, row)
    program.write(0, program.elementwise("neg", row))
    program.write(1, spread)
    steps = schedule(program, [])
    places = {id(member): place for place, step in enumerate(steps) for member in step.members}
    assert places[id(spread)] < places[id(next(i for i in program.stmts if isinstance(i, Write) and i.variable == 0))]


def test_a_cyclic_order_is_refused(program):
    """Each variable's new value is a product that needs the other's old value."""
    a, b = program.var_read(0, (3, 3)), program.var_read(1, (3, 3))
    program.write(0, program.matmul(b, b, False, False))
    program.write(1, program.matmul(a, program.var_read(0, (3, 3)), False, False))
    with refuses(Unsupported, "old value"):
        schedule(program, [])


def test_memory_is_reused_but_not_within_a_kernel(program):
    value = program.input("x", (8, 8))
    values = []
    for _ in range(6):
        value = program.matmul(value, program.var_read(0, (8, 8)), False, False)
        values.append(value)
    layout = plan_memory([(schedule(program, [value]), [value])], [64])
    offsets = [layout.values[id(value)] for value in values]
    assert all(one != other for one, other in itertools.pairwise(offsets))
    assert layout.size == 64 * 3
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
