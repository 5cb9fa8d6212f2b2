"""LLVM code of the entry function: all kernels in order, for every update of a call."""

import dataclasses
from collections.abc import Mapping, Sequence

from ddpg.compiler.access_ranges import AccessRanges
from ddpg.compiler.codegen_elementwise import ElementwiseFunction, buffer_name, concat_function
from ddpg.compiler.codegen_gemm import GemmFunctions, RegisterFile
from ddpg.compiler.ir import Node
from ddpg.compiler.llvm_builder import FunctionBuilder, float_literal
from ddpg.compiler.math_codegen import DECLARATIONS
from ddpg.compiler.memory_plan import MemoryPlan, Scratch, plan_scratch, round_to_cache_lines
from ddpg.compiler.parallel import BARRIER, ParallelShards, SerialShards, split_evenly
from ddpg.compiler.schedule import FusedLoop, Kernel

SMALL = 4096  # places: a row of fewer is done sooner than it is shared
FEW = 16  # rows: so are these


def gemm_key(step: Node) -> tuple[tuple[int, int, int], tuple[bool, bool]]:
    """Return what a product's code depends on: its shape, and which of its inputs are transposed."""
    rows, columns = step.shape
    return (rows, columns, step.inputs[0].shape[0 if step.detail[0] else 1]), step.detail


@dataclasses.dataclass(frozen=True)
class CodegenInput:
    """What an entry function is generated from.

    Attributes:
        steps: the kernels of one update, in order.
        layout: the memory plan.
        fields: the minibatch's fields: name, and number of floats per update.
        outputs: scalars, of which ``sums`` gets the sums over the updates, and what is ``kept`` of each update.
        loops: the functions of fused loops, by kernel index.
        products: names of the functions of products, by :func:`gemm_key`.
        workers: number of shards of a kernel.
        scratch: memory for packing and partial sums, behind the plan.
    """

    steps: Sequence[Kernel]
    layout: MemoryPlan
    fields: Sequence[tuple[str, int]]
    outputs: tuple[Sequence[Node], Sequence[Node]]
    loops: Mapping[int, ElementwiseFunction]
    products: Mapping[tuple, str]
    workers: int
    scratch: Scratch


class Entry:
    """``void NAME(count, worker, float* block, float* field..., float* sums, float* kept...)``.

    Args:
        name: as above.
        work: what it does.
        together: each worker calls it and does its parts; otherwise one call does all.

    Attributes:
        text: the function.
    """

    def __init__(self, name: str, work: CodegenInput, together: bool):
        self._work = work
        self._main = main = FunctionBuilder()
        self._touches = AccessRanges(work.layout, work.scratch)
        self._crew = (ParallelShards if together else SerialShards)(main, work.workers, work.scratch.meeting)
        mode = main.add("call i64 @flush()")
        with main.loop(0, "%count") as update:
            self._places = {
                f"input {field}": main.at(f"%input{index}", main.times(update, size))
                for index, (field, size) in enumerate(work.fields)
            }
            for index, step in enumerate(work.steps):
                if isinstance(step, FusedLoop):
                    self._loop(f"loop{index}", work.loops[index])
                elif step.kind == "concat":
                    self._join(f"concat{index}", step)
                else:
                    self._product(step)
            outputs = [output for both in work.outputs for output in both if output.kind != "literal"]
            self._crew.ready([[touch for output in outputs for touch in self._touches.whole(output)]])
            with self._crew.first():
                for index, output in enumerate(work.outputs[0]):
                    self._add_up(output, index)
                for index, output in enumerate(work.outputs[1]):
                    self._keep(output, index, update)
            self._crew.end()
        main.do(f"call void @set_mode(i64 {mode})")
        pointers = ["%block", *(f"%input{index}" for index in range(len(work.fields))), "%sums"]
        pointers += [f"%kept{index}" for index in range(len(work.outputs[1]))]
        head = f"define void @{name}(i64 %count, i64 %worker, {', '.join(f'ptr {pointer}' for pointer in pointers)})"
        self.text = "\n".join([f"{head} nounwind {{", *main.lines, "  ret void", "}"])

    def _loop(self, name: str, loop: ElementwiseFunction) -> None:
        given = {key: self._place(key, value) for key, value in loop.parameters.items()}
        work, crew = self._work, self._crew
        by_rows = loop.multiple == 1
        if work.workers == 1 or (loop.length < FEW if by_rows else loop.length * len(loop.parameters) < SMALL):
            crew.ready([self._touches.loop(loop, 0, loop.length)])
            with crew.first():
                self._call(name, [*given.values()], (0, loop.length * loop.unit))
            return
        # Each worker sums up its part; the first adds the parts.
        offset, sums = 0, {}
        for total in loop.totals:
            sums[buffer_name(total)] = (total, offset)
            offset += round_to_cache_lines(total.size)
        parts = split_evenly(loop.length, work.workers, loop.multiple)
        partial = [self._touches.part_of_sums(worker, offset) for worker in range(len(parts))] if sums else []
        touching = [self._touches.loop(loop, low, high, without=sums) for low, high in parts]
        crew.ready([[*touched, *partial[worker : worker + 1]] for worker, touched in enumerate(touching)])
        for worker, low, high in crew.parts(loop.length, loop.multiple):
            pointers = [self._part(worker, sums[key][1]) if key in sums else pointer for key, pointer in given.items()]
            self._call(name, pointers, [self._main.times(bound, loop.unit) for bound in (low, high)])
        if sums:
            totals = [touch for total in loop.totals for touch in self._touches.whole(total, written=True)]
            crew.ready([[*(touch._replace(written=False) for touch in partial), *totals]])
            with crew.first():
                for key, (total, offset) in sums.items():
                    self._add_parts(given[key], total, offset, len(parts))

    def _add_parts(self, goal: str, total: Node, offset: int, workers: int) -> None:
        main, parts = self._main, [self._part(worker, offset) for worker in range(workers)]
        with main.loop(0, total.size) as index:
            value = main.load(parts[0], index)
            for part in parts[1:]:
                other = main.load(part, index)
                value = main.add(f"fadd float {value}, {other}")  # in this order, whoever does it
            main.store(value, goal, index)

    def _join(self, name: str, step: Node) -> None:
        crew, rows = self._crew, step.shape[0]
        parts = split_evenly(rows, self._work.workers)
        crew.ready([self._touches.rows(step, step.inputs, low, high) for low, high in parts])
        given = self._given(step)
        for _, low, high in crew.parts(rows):
            self._call(name, given, (low, high))

    def _product(self, step: Node) -> None:
        main, crew, (rows, columns) = self._main, self._crew, step.shape
        name = self._work.products[gemm_key(step)]
        one, other = step.inputs
        by_rows = [] if step.detail[0] else [one]
        others = [other] if by_rows else [one, other]
        whole = [touch for argument in others for touch in self._touches.whole(argument)]
        parts = split_evenly(rows, self._work.workers)
        crew.ready([[*self._touches.rows(step, by_rows, low, high), *whole] for low, high in parts])
        a, b, c = self._given(step)
        for worker, low, high in crew.parts(rows):
            first = low if step.detail[0] else main.times(low, one.shape[1])
            given = [main.at(a, first), b, main.at(c, main.times(low, columns)), self._packed(worker)]
            counts = {high - low for low, high in parts}
            if isinstance(low, int) and isinstance(high, int):
                counts = {high - low}
            for count in sorted(counts):
                with main.when(f"icmp eq i64 {main.add(f'sub i64 {high}, {low}')}, {count}"):
                    self._call(f"{name}.{count}", given)

    def _add_up(self, output: Node, index: int) -> None:
        main = self._main
        if output.kind == "literal":
            value = float_literal(output.detail)
        else:
            value = main.load(self._place(buffer_name(output.base), output), 0)
        main.store(main.add(f"fadd float {main.load('%sums', index)}, {value}"), "%sums", index)

    def _keep(self, output: Node, index: int, update: str) -> None:
        main, source = self._main, self._place(buffer_name(output.base), output)
        with main.loop(0, output.size) as place:
            main.store(main.load(source, place), f"%kept{index}", main.times(update, output.size), place)

    # -- calls ----------------------------------------------------------------------------------------

    def _call(self, name: str, pointers: Sequence[str], bounds: Sequence[str | int] = ()) -> None:
        given = ", ".join([*(f"ptr {pointer}" for pointer in pointers), *(f"i64 {bound}" for bound in bounds)])
        self._main.do(f"call void @{name}({given})")

    def _packed(self, worker: str | int) -> str:
        """Return the address of what one worker has packed."""
        scratch = self._work.scratch
        return self._main.at("%block", scratch.packed, self._main.times(worker, scratch.packed_size))

    def _part(self, worker: str | int, offset: int) -> str:
        """Return the address of one worker's part of a sum that is at ``offset`` among all of them."""
        scratch = self._work.scratch
        return self._main.at("%block", scratch.partial + offset, self._main.times(worker, scratch.partial_size))

    # -- where it is ----------------------------------------------------------------------------------

    def _given(self, step: Node) -> list[str]:
        return [self._place(buffer_name(value.base), value) for value in (*step.inputs, step)]

    def _place(self, key: str, value: Node) -> str:
        """Return the address of the memory that is called ``key``, and where ``value`` lives."""
        offset = self._touches.offset(key, value)
        return self._places[key] if offset is None else self._main.at("%block", offset)


ENTRY = "run"
ALONE = "run_alone"


class Module:
    """A program as text, with an :class:`Entry` ``run``, and ``run_alone`` where several workers share ``run``.

    Args:
        steps: the kernels of one update, in order.
        layout: the memory plan.
        fields: the minibatch's fields: name, and number of floats per update.
        outputs: scalars, of which ``sums`` gets the sums over the updates, and what is ``kept`` of each update.
        machine: what its registers hold.
        workers: how many run it at the same time.

    Attributes:
        text: the module.
        size: floats of the block: the layout's, and what steps and workers need besides.
    """

    def __init__(
        self,
        steps: Sequence[Kernel],
        layout: MemoryPlan,
        fields: Sequence[tuple[str, int]],
        outputs: tuple[Sequence[Node], Sequence[Node]],
        machine: RegisterFile,
        workers: int = 1,
    ):
        loops = {
            i: ElementwiseFunction(f"loop{i}", step, layout)
            for i, step in enumerate(steps)
            if isinstance(step, FusedLoop)
        }
        products: dict[tuple, str] = {}
        made, joins = [], []
        for index, step in enumerate(steps):
            if isinstance(step, Node) and step.kind == "concat":
                joins.append(concat_function(f"concat{index}", step))
            elif isinstance(step, Node) and gemm_key(step) not in products:
                name, key = f"matmul{len(products)}", gemm_key(step)
                parts = [high - low for low, high in split_evenly(step.shape[0], workers)]
                products[key] = name
                made.append(GemmFunctions(name, *key, machine, parts))
        scratch = plan_scratch(
            layout,
            workers,
            packed=max((product.packed for product in made), default=0),
            partial=max(
                (sum(round_to_cache_lines(total.size) for total in loop.totals) for loop in loops.values()), default=0
            ),
        )
        self.size = scratch.size
        work = CodegenInput(
            steps=steps,
            layout=layout,
            fields=fields,
            outputs=outputs,
            loops=loops,
            products=products,
            workers=workers,
            scratch=scratch,
        )
        entries = [Entry(ENTRY, work, together=workers > 1).text]
        if workers > 1:
            entries.append(Entry(ALONE, work, together=False).text)
        functions = [*(loop.text for loop in loops.values()), *joins, *(product.text for product in made)]
        self.text = "\n\n".join([DECLARATIONS, BARRIER, *functions, *entries])
