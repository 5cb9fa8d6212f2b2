"""The memory ranges that a shard of an elementwise kernel accesses, by hand (barriers are placed by them); assembly."""

import inspect
import re

import pytest
from llvmlite import binding as llvm

from ddpg.compiler.codegen_elementwise import DECLARATIONS, FUNCTIONS, ElementwiseFunction, buffer_name
from ddpg.compiler.ir import ALL, COLUMNS, ROWS, Program
from ddpg.compiler.jit import optimised
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


ARITY = {"log": 1} | {name: len(inspect.signature(function).parameters) - 1 for name, function in FUNCTIONS.items()}
TARGETS = {
    "x86_64-unknown-linux-gnu": ("haswell", r"\t(?!v?(?:mov|broadcast))\w+ss(?:2si)?\t.*"),
    "aarch64-unknown-linux-gnu": ("neoverse-n1", r"\tf\w+\t[sw]\d.*"),
}


@pytest.mark.parametrize("triple", TARGETS)
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"log"}))  # a library computes log, of a number per row
def test_every_function_computes_whole_vectors(name, triple):
    program = Program()
    inputs = [program.var_read(index, (2, 512)) for index in range(ARITY[name])]
    values = program.elementwise(
        name, program.elementwise("add", inputs[0], program.var_read(3, (1, 512))), *inputs[1:]
    )
    (loop,) = steps = schedule(program, [values])
    layout = plan_memory([(steps, [values])], [1024, 1024, 1024, 512])
    function = ElementwiseFunction("loop", loop, layout)
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    processor, scalar = TARGETS[triple]
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, opt=3)
    text = f"{DECLARATIONS}\n\n{function.text}".replace("define internal", "define")
    assert re.findall(scalar, machine.emit_assembly(optimised(text, machine, triple))) == []
