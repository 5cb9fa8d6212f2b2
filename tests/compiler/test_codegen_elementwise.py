"""The memory ranges that a shard of an elementwise kernel accesses, by hand; barriers are placed by them."""

from ddpg.compiler.codegen_elementwise import ElementwiseFunction, buffer_name
from ddpg.compiler.ir import ALL, COLUMNS, ROWS, Program
from ddpg.compiler.memory_plan import plan_memory
from ddpg.compiler.schedule import schedule


def accessed(program, outputs, low, high):
    """Return the ranges that the first kernel accesses for the rows (or elements of a single row) from low to high."""
    steps = schedule(program, outputs)
    layout = plan_memory([(steps, outputs)], [12, 12])
    return {name: rest for name, *rest in ElementwiseFunction("loop", steps[0], layout).accesses(low, high)}


def test_a_shards_rows_and_a_row_shared_by_all():
    program = Program()
    x, bias = program.var_read(0, (4, 3)), program.var_read(1, (1, 3))
    values = program.elementwise("tanh", program.elementwise("add", x, bias))
    down, across = program.reduce_sum(values, ROWS), program.reduce_sum(values, COLUMNS)
    assert accessed(program, [values, down, across], 1, 3) == {
        "variable 0": [3, 9, False],
        "variable 1": [0, 3, False],
        buffer_name(values): [3, 9, True],
        buffer_name(down): [0, 3, True],
        buffer_name(across): [1, 3, True],
    }


def test_elements_of_one_row():
    program = Program()
    x = program.var_read(0, (1, 12))
    values = program.elementwise("tanh", x)
    total = program.reduce_sum(values, ALL)
    assert accessed(program, [values, total], 4, 8) == {
        "variable 0": [4, 8, False],
        buffer_name(values): [4, 8, True],
        buffer_name(total): [0, 1, True],
    }


def test_a_sliced_row_accesses_its_whole_matrix():
    """A slice of one row counts as an access to the whole matrix."""
    program = Program()
    row = program.slice(program.var_read(0, (4, 3)), 2, 0, (1, 3))
    values = program.elementwise("tanh", row)
    assert accessed(program, [values], 0, 1) == {"variable 0": [0, 12, False], buffer_name(values): [0, 3, True]}


def test_in_place_writes():
    program = Program()
    x = program.var_read(0, (4, 3))
    program.write(0, program.elementwise("neg", x))
    assert accessed(program, [], 2, 4) == {"variable 0": [6, 12, True]}
