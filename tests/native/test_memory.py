"""What is kept in memory between passes, and what is computed again."""

import pytest

from ddpg.native.layout import lay_out
from ddpg.native.memory import in_memory, sources
from ddpg.native.program import ALL, ROWS, Program
from ddpg.native.schedule import schedule


@pytest.fixture
def program():
    return Program()


def squares_about_the_mean(program, values):
    """Two passes over the same places, the second waits for the first one's sums."""
    mean = program.sums(values, ROWS)
    centred = program.map("sub", values, mean)
    return mean, centred, program.sums(program.map("mul", centred, centred), ALL)


def kept(program, *outputs):
    return in_memory(schedule(program, outputs), outputs)


@pytest.mark.parametrize(("function", "again"), [("relu", True), ("neg", True), ("tanh", False), ("exp", False)])
def test_what_is_cheap_is_computed_again(program, function, again):
    shifted = program.map("add", program.field("x", (4, 3)), program.stored(0, (1, 3)))
    values = program.map(function, shifted)
    mean, _, total = squares_about_the_mean(program, values)
    assert kept(program, total) == ([mean, total] if again else [values, mean, total])


def test_what_is_computed_again_reads_what_it_is_made_of(program):
    """What stands in memory is there as long as that: the product is not overwritten by the next one."""
    x, w = program.field("x", (8, 8)), program.stored(0, (8, 8))
    product = program.product(x, w, False, False)
    values = program.map("relu", product)
    _, centred, total = squares_about_the_mean(program, values)
    between = program.product(program.map("tanh", values), w, False, False)
    steps = schedule(program, [total, between])
    there = {id(value) for value in in_memory(steps, [total, between])}
    assert id(values) not in there
    assert {id(source) for source in sources(centred, there)} == {id(product), id(centred.arguments[1])}
    layout = lay_out(steps, [total, between], [64])
    reads = max(i for i, step in enumerate(steps) if centred in getattr(step, "members", ()))
    made = steps.index(between)
    assert made > reads or layout.values[id(between)] != layout.values[id(product)]


def test_a_variable_that_was_overwritten_gives_nothing_again(program):
    bias = program.stored(0, (1, 3))
    values = program.map("add", program.field("x", (4, 3)), bias)
    mean = program.sums(values, ROWS)
    program.write(0, program.map("add", bias, mean))
    centred = program.map("sub", values, mean)
    total = program.sums(program.map("mul", centred, centred), ALL)
    assert kept(program, total) == [values, mean, total]


def test_what_reads_twice_as_much_is_kept(program):
    values = program.map("add", program.field("x", (4, 3)), program.field("y", (4, 3)))
    mean, _, total = squares_about_the_mean(program, values)
    assert kept(program, total) == [values, mean, total]


@pytest.mark.parametrize(("operations", "again"), [(8, True), (9, False)])
def test_what_takes_many_operations_is_kept(program, operations, again):
    values = program.field("x", (4, 3))
    for number in range(operations):
        values = program.map("add", values, program.stored(number, (1, 3)))
    mean, _, total = squares_about_the_mean(program, values)
    assert kept(program, total) == ([mean, total] if again else [values, mean, total])


def test_what_a_product_reads_is_kept(program):
    values = program.map("neg", program.field("x", (4, 3)))
    _, _, total = squares_about_the_mean(program, values)
    product = program.product(values, program.stored(0, (3, 3)), False, False)
    assert values in kept(program, total, product)
