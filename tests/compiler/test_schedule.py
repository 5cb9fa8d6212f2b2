"""Which values are kept in memory between kernels, and which are computed again (rematerialised)."""

import pytest

from ddpg.compiler.ir import ALL, ROWS
from ddpg.compiler.memory_plan import plan_memory
from ddpg.compiler.schedule import materialized, schedule, sources


def squares_about_the_mean(program, values):
    """Return nodes of two loops over the same elements, of which the second needs the first one's sum."""
    mean = program.reduce_sum(values, ROWS)
    centred = program.elementwise("sub", values, mean)
    return mean, centred, program.reduce_sum(program.elementwise("mul", centred, centred), ALL)


def kept(program, *outputs):
    return materialized(schedule(program, outputs), outputs)


@pytest.mark.parametrize(("function", "again"), [("relu", True), ("neg", True), ("tanh", False), ("exp", False)])
def test_cheap_values_are_computed_again(program, function, again):
    shifted = program.elementwise("add", program.input("x", (4, 3)), program.var_read(0, (1, 3)))
    values = program.elementwise(function, shifted)
    mean, _, total = squares_about_the_mean(program, values)
    assert kept(program, total) == ([mean, total] if again else [values, mean, total])


def test_values_that_are_computed_again_keep_their_inputs_in_memory(program):
    """The memory of these inputs is not reused before: here the next product does not overwrite the first one."""
    x, w = program.input("x", (8, 8)), program.var_read(0, (8, 8))
    product = program.matmul(x, w, False, False)
    values = program.elementwise("relu", product)
    _, centred, total = squares_about_the_mean(program, values)
    between = program.matmul(program.elementwise("tanh", values), w, False, False)
    steps = schedule(program, [total, between])
    there = {id(value) for value in materialized(steps, [total, between])}
    assert id(values) not in there
    assert {id(source) for source in sources(centred, there)} == {id(product), id(centred.inputs[1])}
    layout = plan_memory([(steps, [total, between])], [64])
    reads = max(i for i, step in enumerate(steps) if centred in getattr(step, "members", ()))
    made = steps.index(between)
    assert made > reads or layout.values[id(between)] != layout.values[id(product)]


def test_values_of_an_overwritten_variable_are_not_computed_again(program):
    bias = program.var_read(0, (1, 3))
    values = program.elementwise("add", program.input("x", (4, 3)), bias)
    mean = program.reduce_sum(values, ROWS)
    program.write(0, program.elementwise("add", bias, mean))
    centred = program.elementwise("sub", values, mean)
    total = program.reduce_sum(program.elementwise("mul", centred, centred), ALL)
    assert kept(program, total) == [values, mean, total]


def test_a_value_with_twice_as_much_to_read_is_kept(program):
    values = program.elementwise("add", program.input("x", (4, 3)), program.input("y", (4, 3)))
    mean, _, total = squares_about_the_mean(program, values)
    assert kept(program, total) == [values, mean, total]


@pytest.mark.parametrize(("operations", "again"), [(8, True), (9, False)])
def test_a_value_of_many_operations_is_kept(program, operations, again):
    values = program.input("x", (4, 3))
    for number in range(operations):
        values = program.elementwise("add", values, program.var_read(number, (1, 3)))
    mean, _, total = squares_about_the_mean(program, values)
    assert kept(program, total) == ([mean, total] if again else [values, mean, total])


def test_a_value_that_a_product_reads_is_kept(program):
    values = program.elementwise("neg", program.input("x", (4, 3)))
    _, _, total = squares_about_the_mean(program, values)
    product = program.matmul(values, program.var_read(0, (3, 3)), False, False)
    assert values in kept(program, total, product)
