"""Programs: what is equal is one value, what changes nothing is left out, writes are in order."""

import itertools

import numpy as np
import pytest

from ddpg.native.layout import ALIGNMENT, lay_out
from ddpg.native.memory import in_memory
from ddpg.native.program import ALL, COLUMNS, ROWS, NoTranslation, Program, Write, folded, shape_of
from ddpg.native.schedule import members_of, schedule


@pytest.fixture
def program():
    return Program()


def test_shapes():
    assert [shape_of(shape) for shape in [(), (3,), (2, 3), (2, 3, 4)]] == [(1, 1), (1, 3), (2, 3), (2, 12)]


def test_equal_values_are_one(program):
    x = program.field("x", (2, 3))
    assert program.map("tanh", x) is program.map("tanh", program.field("x", (2, 3)))
    assert program.constant(np.arange(3.0)) is program.constant(np.arange(3.0))
    assert program.constant(np.full((4, 2), 0.5)) is program.literal(0.5)


def test_a_variable_is_another_value_after_a_write(program):
    before = program.stored(0, (1, 2))
    program.write(0, program.map("neg", before))
    after = program.stored(0, (1, 2))
    assert after is not before
    assert program.stored(0, (1, 2)) is after


def test_what_changes_nothing_is_left_out(program):
    x, one, zero = program.field("x", (2, 3)), program.literal(1), program.literal(0)
    assert [program.map("mul", x, one), program.map("mul", one, x)] == [x, x]
    assert [program.map("add", x, zero), program.map("sub", x, zero), program.map("div", x, one)] == [x] * 3
    assert program.map("sub", zero, x) is not x
    assert folded(program, "sub", one, program.literal(0.25)).detail == 0.75


def test_sums_of_one_row_or_column_are_of_everything(program):
    column, row = program.field("x", (5, 1)), program.field("y", (1, 5))
    assert program.sums(column, COLUMNS) is column
    assert program.sums(row, ROWS) is row
    assert program.sums(column, ROWS).detail == ALL
    assert program.sums(row, COLUMNS).detail == ALL


def test_products_with_vectors_are_loops(program):
    x, v, w = program.field("x", (4, 3)), program.field("v", (3, 1)), program.field("w", (4, 1))
    assert program.product(x, v, False, False).kind == "sums"
    turned = program.product(x, w, True, False)
    assert (turned.shape, turned.base.detail) == ((3, 1), ROWS)
    assert program.product(w, v, False, True).kind == "map"
    assert program.product(x, x, True, False).kind == "product"


def test_one_pass_computes_what_may_be_computed_in_one(program):
    x, w = program.field("x", (4, 3)), program.stored(0, (1, 3))
    hidden = program.map("relu", program.map("add", x, w))
    total = program.sums(hidden, ROWS)
    steps = schedule(program, [total])
    assert [len(step.members) for step in steps] == [3]
    assert in_memory(steps, [total]) == [total]


def test_a_sum_is_read_after_its_loop(program):
    x = program.field("x", (4, 3))
    centred = program.map("sub", x, program.sums(x, ROWS))
    steps = schedule(program, [program.sums(centred, ALL)])
    assert len(steps) == 2


def test_what_nobody_needs_is_not_computed(program):
    x = program.field("x", (4, 3))
    program.map("tanh", x)
    assert schedule(program, []) == []


def test_a_write_waits_for_the_readers_of_what_was_there(program):
    """W is read by a product that another product precedes; the op that writes W in place could come before both."""
    x, w, v = program.field("x", (4, 3)), program.stored(0, (3, 3)), program.stored(1, (3, 3))
    program.write(0, program.map("neg", w))
    inner = program.map("tanh", program.product(x, v, False, False))
    product = program.product(inner, w, False, False)
    steps = schedule(program, [product])
    (written,) = (i for i, step in enumerate(steps) if any(isinstance(member, Write) for member in members_of(step)))
    assert steps.index(product) < written


def test_a_write_that_repeats_a_variable_elsewhere_is_not_in_its_own_pass(program):
    """The row is read again for each row of x: written in that pass it would change under its readers."""
    x, row = program.field("x", (4, 3)), program.stored(0, (1, 3))
    spread = program.map("add", x, row)
    program.write(0, program.map("neg", row))
    program.write(1, spread)
    steps = schedule(program, [])
    places = {id(member): place for place, step in enumerate(steps) for member in step.members}
    assert places[id(spread)] < places[id(next(i for i in program.items if isinstance(i, Write) and i.variable == 0))]


def test_an_order_that_is_none(program):
    """Old and new of one variable, each needed by the other's reader through a product."""
    a, b = program.stored(0, (3, 3)), program.stored(1, (3, 3))
    program.write(0, program.product(b, b, False, False))
    program.write(1, program.product(a, program.stored(0, (3, 3)), False, False))
    with pytest.raises(NoTranslation, match="old value"):
        schedule(program, [])


def test_memory_is_used_again_but_never_within_a_step(program):
    value = program.field("x", (8, 8))
    values = []
    for _ in range(6):
        value = program.product(value, program.stored(0, (8, 8)), False, False)
        values.append(value)
    layout = lay_out(schedule(program, [value]), [value], [64])
    offsets = [layout.values[id(value)] for value in values]
    assert all(one != other for one, other in itertools.pairwise(offsets))
    assert layout.size == 64 * 3
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
