"""Write every stage of a compilation as text if ``DDPG_DUMP`` names a folder, to show what the compiler did.

Each kind of update gets its own folder there, ``update-0``, ``update-1``, ...: ``graph.txt`` (TensorFlow's ops),
``ir.txt``, ``schedule.txt`` (kernels), ``memory.txt``, ``llvm.ll``, ``optimized.ll`` and ``assembly.s``.
"""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from ddpg.compiler.ir import Node, Program, Stmt, Write
from ddpg.compiler.memory_plan import MemoryPlan
from ddpg.compiler.schedule import FusedLoop, Kernel, members_of

VARIABLE = "DDPG_DUMP"


def is_asked_for() -> bool:
    """Return whether ``DDPG_DUMP`` names a folder."""
    return bool(os.environ.get(VARIABLE))


def write(stages: Mapping[str, str]) -> None:
    """Write texts, by file name, into a new subfolder of the folder that ``DDPG_DUMP`` names."""
    for number in itertools.count():
        folder = Path(os.environ[VARIABLE]) / f"update-{number}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            if not folder.is_dir():
                raise
        else:
            break
    for name, text in stages.items():
        (folder / name).write_text(f"{text}\n", encoding="utf-8")


def format_graph(ops: Iterable[tf.Operation]) -> str:
    """Return one line per op: its output, its type, its inputs and its control inputs."""
    lines = []
    for op in ops:
        inputs = [tensor.name for tensor in op.inputs] + [f"^{earlier.name}" for earlier in op.control_inputs]
        shape = f" {op.outputs[0].shape}" if op.outputs else ""
        lines.append(f"{op.name}{shape} = {op.type}({', '.join(inputs)})")
    return "\n".join(lines)


class Names:
    """Short names for a program's nodes: ``%0``, ``%1``, ... in order of computation; descriptive names for leaves."""

    def __init__(self, program: Program, variables: Sequence[str]):
        computed = [stmt for stmt in program.stmts if isinstance(stmt, Node)]
        self._numbers = {id(node): number for number, node in enumerate(computed)}
        self._consts = {id(node): number for number, node in enumerate(program.constants)}
        self._variables = variables

    def node(self, node: Node) -> str:
        """Return a node's name as an operand."""
        if node.kind == "reshape":
            return f"reshape({self.node(node.base)}, {_shape(node)})"
        if node.kind == "var_read":
            return self.variable(*node.detail)
        if node.kind == "literal":
            return f"{node.detail:.9g}"
        return {"input": f"input {node.detail}", "const": f"const{self._consts.get(id(node))}"}.get(
            node.kind, f"%{self._numbers.get(id(node))}"
        )

    def variable(self, index: int, version: int) -> str:
        """Return a variable's name with its version, the number of earlier writes to it."""
        return f"{self._variables[index]}@{version}"

    def stmt(self, stmt: Stmt) -> str:
        """Return a statement as one line."""
        if isinstance(stmt, Write):
            return f"{self.variable(stmt.variable, stmt.version + 1)} <- {self.node(stmt.value)}"
        inputs = ", ".join(self.node(source) for source in stmt.inputs)
        operation = stmt.detail if stmt.kind == "elementwise" else stmt.kind
        detail = "" if stmt.kind in ("elementwise", "concat") else f", {stmt.detail}"
        return f"{self.node(stmt)} [{_shape(stmt)}] = {operation}({inputs}{detail})"


def format_program(program: Program, outputs: Sequence[Node], names: Names) -> str:
    """Return one line per statement, then the outputs."""
    return "\n".join([*map(names.stmt, program.stmts), f"return {', '.join(map(names.node, outputs))}"])


def format_schedule(kernels: Sequence[Kernel], plan: MemoryPlan, names: Names) -> str:
    """Return the kernels in order with their statements; ``stored`` marks the values that reach memory."""
    lines = []
    for index, kernel in enumerate(kernels):
        if isinstance(kernel, FusedLoop):
            rows, columns = kernel.space
            lines.append(f"kernel {index}: fused loop over {rows}x{columns}")
        else:
            lines.append(f"kernel {index}: {kernel.kind}")
        for stmt in members_of(kernel):
            stored = isinstance(stmt, Node) and id(stmt) in plan.values
            lines.append(f"  {names.stmt(stmt)}{'  ; stored' * stored}")
    return "\n".join(lines)


def format_memory(program: Program, sizes: Sequence[int], plan: MemoryPlan, names: Names) -> str:
    """Return a table of the block: offset, size in floats, and value; offsets of reused memory occur several times."""
    rows = [
        (offset, size, names.variable(index, 0))
        for index, (offset, size) in enumerate(zip(plan.variables, sizes, strict=True))
    ]
    nodes = [*program.constants, *(stmt for stmt in program.stmts if isinstance(stmt, Node))]
    rows += [(plan.values[id(node)], node.size, names.node(node)) for node in nodes if id(node) in plan.values]
    lines = [f"{offset:>10} {size:>8}  {name}" for offset, size, name in sorted(rows, key=lambda row: row[0])]
    return "\n".join([f"{'offset':>10} {'floats':>8}", *lines, f"{plan.size:>10}  end"])


def _shape(node: Node) -> str:
    return f"{node.shape[0]}x{node.shape[1]}"
