"""What a part of a loop touches, by hand: threads meet by it."""

from ddpg.compiler.codegen_elementwise import ElementwiseFunction, buffer_name
from ddpg.compiler.ir import ALL, COLUMNS, ROWS, Program
from ddpg.compiler.memory_plan import plan_memory
from ddpg.compiler.schedule import schedule


def touched(program, outputs, low, high):
    """Return what rows, or places of one row, from ``low`` up to ``high`` touch in the first step."""
    steps = schedule(program, outputs)
    layout = plan_memory([(steps, outputs)], [12, 12])
    return {name: rest for name, *rest in ElementwiseFunction("loop", steps[0], layout).accesses(low, high)}


def test_rows_of_ones_own_and_what_all_share():
    program = Program()
    x, bias = program.var_read(0, (4, 3)), program.var_read(1, (1, 3))
    values = program.elementwise("tanh", program.elementwise("add", x, bias))
    down, across = program.reduce_sum(values, ROWS), program.reduce_sum(values, COLUMNS)
    assert touched(program, [values, down, across], 1, 3) == {
        "variable 0": [3, 9, False],
        "variable 1": [0, 3, False],
        buffer_name(values): [3, 9, True],
        buffer_name(down): [0, 3, True],
        buffer_name(across): [1, 3, True],
    }


def test_places_of_one_row():
    program = Program()
    x = program.var_read(0, (1, 12))
    values = program.elementwise("tanh", x)
    total = program.reduce_sum(values, ALL)
    assert touched(program, [values, total], 4, 8) == {
        "variable 0": [4, 8, False],
        buffer_name(values): [4, 8, True],
        buffer_name(total): [0, 1, True],
    }


def test_a_row_of_a_matrix_that_is_read_elsewhere_is_all_of_it():
    """One row that is no part of anything: whoever does it touches the whole row, and what it comes from."""
    program = Program()
    row = program.slice(program.var_read(0, (4, 3)), 2, 0, (1, 3))
    values = program.elementwise("tanh", row)
    assert touched(program, [values], 0, 1) == {"variable 0": [0, 12, False], buffer_name(values): [0, 3, True]}


def test_what_is_written_in_place():
    program = Program()
    x = program.var_read(0, (4, 3))
    program.write(0, program.elementwise("neg", x))
    assert touched(program, [], 2, 4) == {"variable 0": [6, 12, True]}
