"""What a part of a loop touches, by hand: threads meet by it."""

from ddpg.native.layout import lay_out
from ddpg.native.loops import LoopFunction, memory_of
from ddpg.native.program import ALL, COLUMNS, ROWS, Program
from ddpg.native.schedule import schedule


def touched(program, outputs, low, high):
    """Return what rows, or places of one row, from ``low`` up to ``high`` touch in the first step."""
    steps = schedule(program, outputs)
    layout = lay_out(steps, outputs, [12, 12])
    return {name: rest for name, *rest in LoopFunction("loop", steps[0], layout).touching(low, high)}


def test_rows_of_ones_own_and_what_all_share():
    program = Program()
    x, bias = program.stored(0, (4, 3)), program.stored(1, (1, 3))
    values = program.map("tanh", program.map("add", x, bias))
    down, across = program.sums(values, ROWS), program.sums(values, COLUMNS)
    assert touched(program, [values, down, across], 1, 3) == {
        "variable 0": [3, 9, False],
        "variable 1": [0, 3, False],
        memory_of(values): [3, 9, True],
        memory_of(down): [0, 3, True],
        memory_of(across): [1, 3, True],
    }


def test_places_of_one_row():
    program = Program()
    x = program.stored(0, (1, 12))
    values = program.map("tanh", x)
    total = program.sums(values, ALL)
    assert touched(program, [values, total], 4, 8) == {
        "variable 0": [4, 8, False],
        memory_of(values): [4, 8, True],
        memory_of(total): [0, 1, True],
    }


def test_a_row_of_a_matrix_that_is_read_elsewhere_is_all_of_it():
    """One row that is no part of anything: whoever does it touches the whole row, and what it comes from."""
    program = Program()
    row = program.window(program.stored(0, (4, 3)), 2, 0, (1, 3))
    values = program.map("tanh", row)
    assert touched(program, [values], 0, 1) == {"variable 0": [0, 12, False], memory_of(values): [0, 3, True]}


def test_what_is_written_in_place():
    program = Program()
    x = program.stored(0, (4, 3))
    program.write(0, program.map("neg", x))
    assert touched(program, [], 2, 4) == {"variable 0": [6, 12, True]}
