"""A scheduled program as LLVM's text: its steps one after the other, for every update, by one worker or several."""

from collections.abc import Sequence

from ddpg.native.functions import DECLARATIONS
from ddpg.native.layout import ALIGNMENT, Layout, rounded
from ddpg.native.loops import LoopFunction, join_function, memory_of
from ddpg.native.product import ProductFunctions, Registers
from ddpg.native.program import Value
from ddpg.native.schedule import Loop, Step
from ddpg.native.text import Lines, number

ENTRY = "run"
SPINS = 2000  # looks at the others before a worker offers its core to them
SMALL = 4096  # places: a loop of fewer is done sooner than it is shared

# Everyone waits here for everyone: the last one to come lets all go on. Two counters, a cache line each.
_MEETING = f"""
declare i32 @sched_yield()

define internal void @meet(ptr %place, i32 %others) noinline nounwind {{
entry:
  %count = getelementptr i32, ptr %place, i64 {ALIGNMENT}
  %round = load atomic i32, ptr %place acquire, align 4
  %here = atomicrmw add ptr %count, i32 1 acq_rel
  %last = icmp eq i32 %here, %others
  br i1 %last, label %open, label %wait
open:
  store atomic i32 0, ptr %count monotonic, align 4
  %opened = atomicrmw add ptr %place, i32 1 acq_rel
  ret void
wait:
  %spins = phi i32 [0, %entry], [%more, %still]
  %now = load atomic i32, ptr %place acquire, align 4
  %same = icmp eq i32 %now, %round
  br i1 %same, label %still, label %go
still:
  %more = add i32 %spins, 1
  %tired = icmp ugt i32 %spins, {SPINS}
  br i1 %tired, label %yield, label %wait
yield:
  %given = call i32 @sched_yield()
  br label %again
again:
  %later = load atomic i32, ptr %place acquire, align 4
  %unchanged = icmp eq i32 %later, %round
  br i1 %unchanged, label %yield, label %go
go:
  ret void
}}"""


class Module:
    """A program as text: ``void run(count, worker, float* block, float* field..., float* sums, float* kept...)``.

    Args:
        steps: of one update.
        layout: of the block.
        fields: names of the minibatch's parts, and how many numbers of each an update reads.
        outputs: scalars, of which ``sums`` gets the sums over the updates, and what is ``kept`` of each update.
        machine: what its registers hold.
        workers: how many run it at the same time.

    Attributes:
        text: the module.
        size: floats of the block: the layout's, and what steps and workers need besides.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        layout: Layout,
        fields: Sequence[tuple[str, int]],
        outputs: tuple[Sequence[Value], Sequence[Value]],
        machine: Registers,
        workers: int = 1,
    ):
        self._layout, self._machine, self._workers = layout, machine, workers
        self._functions: list[str] = []
        self._products: dict[tuple, ProductFunctions] = {}
        loops = {i: LoopFunction(f"loop{i}", step, layout) for i, step in enumerate(steps) if isinstance(step, Loop)}
        for step in steps:
            if isinstance(step, Value) and step.kind == "product":
                self._product(step)
        # Behind the layout's block: the meeting place, what products need, and each worker's part of a sum.
        self._meeting = layout.size
        self._turned = self._meeting + 2 * ALIGNMENT
        self._packed = self._turned + max((rounded(p.turned) for p in self._products.values()), default=0)
        self._packed_size = max((rounded(p.packed) for p in self._products.values()), default=0)
        self._partial = self._packed + workers * self._packed_size
        self._partial_size = max((sum(rounded(t.size) for t in loop.totals) for loop in loops.values()), default=0)
        self.size = self._partial + workers * self._partial_size
        self._main = main = Lines()
        self._packed_here = main.at("%block", self._packed, main.times("%worker", self._packed_size))
        self._partial_here = main.at("%block", self._partial, main.times("%worker", self._partial_size))
        with main.loop(0, "%count") as update:
            self._places = {
                f"field {field}": main.at(f"%field{index}", main.times(update, size))
                for index, (field, size) in enumerate(fields)
            }
            for index, step in enumerate(steps):
                if isinstance(step, Loop):
                    self._functions.append(loops[index].text)
                    self._loop(f"loop{index}", loops[index])
                else:
                    self._matrix(step, index)
            with main.when("icmp eq i64 %worker, 0"):
                for index, output in enumerate(outputs[0]):
                    self._add_up(output, index)
                for index, output in enumerate(outputs[1]):
                    self._keep(output, index, update)
        pointers = ["%block", *(f"%field{index}" for index in range(len(fields))), "%sums"]
        pointers += [f"%kept{index}" for index in range(len(outputs[1]))]
        head = f"define void @{ENTRY}(i64 %count, i64 %worker, {', '.join(f'ptr {pointer}' for pointer in pointers)})"
        entry = "\n".join([f"{head} nounwind {{", *main.lines, "  ret void", "}"])
        products = [functions.text for functions in self._products.values()]
        self.text = "\n\n".join([DECLARATIONS, _MEETING, *self._functions, *products, entry])

    def _loop(self, name: str, loop: LoopFunction) -> None:
        given = {key: self._place(key, value) for key, value in loop.parameters.items()}
        if self._workers == 1 or loop.length * len(loop.parameters) < SMALL:
            self._call(name, given.values(), (0, loop.length), alone=True)
            return
        # Each worker sums up its part; the first adds the parts.
        offset, parts = 0, {}
        for total in loop.totals:
            parts[memory_of(total)] = (total, offset)
            offset += rounded(total.size)
        pointers = [
            self._main.at(self._partial_here, parts[key][1]) if key in parts else pointer
            for key, pointer in given.items()
        ]
        workers = self._call_parts(name, pointers, loop.length, ALIGNMENT)
        if parts:
            with self._main.when("icmp eq i64 %worker, 0"):
                for key, (total, offset) in parts.items():
                    self._add_parts(given[key], total, offset, workers)
            self._meet()

    def _add_parts(self, goal: str, total: Value, offset: int, workers: int) -> None:
        main = self._main
        with main.loop(0, total.size) as index:
            value = main.load("%block", index, self._partial + offset)
            for worker in range(1, workers):
                other = main.load("%block", index, self._partial + worker * self._partial_size + offset)
                value = main.binary("fadd", value, other)
            main.store(value, goal, index)

    def _matrix(self, step: Value, index: int) -> None:
        given = [self._place(memory_of(value.base), value) for value in (*step.arguments, step)]
        if step.kind == "join":
            self._functions.append(join_function(f"join{index}", step))
            self._call(f"join{index}", given, alone=True)
            return
        name, product = self._product(step)
        a, b, c = given
        if product.blocks:
            turned = self._main.at("%block", self._turned)
            self._call_parts(f"{name}.turn", [a, turned], product.blocks, 1)
            a = turned
        pointers = [a, b, c, self._packed_here]
        if product.rest:
            with self._main.when(f"icmp eq i64 %worker, {self._workers - 1}"):
                self._call(f"{name}.rest", pointers)
        self._call_parts(f"{name}.panels", pointers, product.panels, 1)

    def _product(self, step: Value) -> tuple[str, ProductFunctions]:
        shape = *step.shape, step.arguments[0].shape[0 if step.detail[0] else 1]
        key = shape, step.detail
        if key not in self._products:
            self._products[key] = ProductFunctions(f"product{len(self._products)}", shape, step.detail, self._machine)
        return f"product{list(self._products).index(key)}", self._products[key]

    def _add_up(self, output: Value, index: int) -> None:
        main = self._main
        if output.kind == "literal":
            value = number(output.detail)
        else:
            value = main.load(self._place(memory_of(output.base), output), 0)
        main.store(main.add(f"fadd float {main.load('%sums', index)}, {value}"), "%sums", index)

    def _keep(self, output: Value, index: int, update: str) -> None:
        main, source = self._main, self._place(memory_of(output.base), output)
        with main.loop(0, output.size) as place:
            main.store(main.load(source, place), f"%kept{index}", main.times(update, output.size), place)

    # -- calls ----------------------------------------------------------------------------------------

    def _call_parts(self, name: str, pointers: Sequence[str], length: int, multiple: int) -> int:
        """Let every worker do a part of ``length``, in multiples; return how many have one."""
        part = -(-length // (self._workers * multiple)) * multiple
        if self._workers == 1:
            self._call(name, pointers, (0, length), alone=True)
            return 1
        main = self._main
        low = main.times("%worker", part)
        high = main.add(f"call i64 @llvm.smin.i64(i64 {main.add(f'add i64 {low}, {part}')}, i64 {length})")
        with main.when(f"icmp slt i64 {low}, {length}"):
            self._call(name, pointers, (low, high))
        self._meet()
        return -(-length // part) if part else 0

    def _call(self, name: str, pointers, bounds: Sequence[str | int] = (), alone: bool = False) -> None:
        """Call a function; ``alone``: by the first worker, for whom the others wait."""
        given = ", ".join([*(f"ptr {pointer}" for pointer in pointers), *(f"i64 {bound}" for bound in bounds)])
        if alone and self._workers > 1:
            with self._main.when("icmp eq i64 %worker, 0"):
                self._main.do(f"call void @{name}({given})")
            self._meet()
        else:
            self._main.do(f"call void @{name}({given})")

    def _meet(self) -> None:
        place = self._main.at("%block", self._meeting)
        self._main.do(f"call void @meet(ptr {place}, i32 {self._workers - 1})")

    def _place(self, key: str, value: Value) -> str:
        """Return the address of the memory that is called ``key``, and where ``value`` lives."""
        if key in self._places:
            return self._places[key]
        kind, _, rest = key.partition(" ")
        layout = self._layout
        offset = layout.variables[int(rest)] if kind == "variable" else layout.values[id(value.base)]
        return self._main.at("%block", offset)
