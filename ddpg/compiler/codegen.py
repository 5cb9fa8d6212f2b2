"""Write the LLVM module of an update: a function for each kernel and each kind of update, and the entry function."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ddpg.compiler import codegen_gemm_amx, codegen_gemm_bfloat16
from ddpg.compiler.codegen_convolution import ConvolutionFunctions, transpose_function
from ddpg.compiler.codegen_elementwise import DECLARATIONS, ElementwiseFunction, buffer_name, concat_function
from ddpg.compiler.codegen_gemm import Float32GemmFunctions, GemmFunctions, RegisterFile
from ddpg.compiler.codegen_gemm_amx import AMXGemmFunctions, SplitAMXGemmFunctions
from ddpg.compiler.codegen_gemm_bfloat16 import BFloat16GemmFunctions
from ddpg.compiler.ir import CONVOLUTIONS, Node
from ddpg.compiler.llvm_builder import FunctionBuilder, float_literal
from ddpg.compiler.memory_plan import MemoryPlan, plan_scratch, round_to_cache_lines
from ddpg.compiler.parallel import BARRIER, AccessRanges, Shards, split_evenly
from ddpg.compiler.schedule import FusedLoop, Kernel

ENTRY, SERIAL_ENTRY = "run", "run_serial"
MIN_SHARED = 4096  # elements times buffers: a smaller flat loop is faster on one thread
MIN_SHARED_ROWS = 16  # a loop over fewer rows is faster on one thread
MOVES = {"concat": concat_function, "transpose": transpose_function}


def gemm_key(matmul: Node) -> tuple[tuple[int, int, int], tuple[bool, bool]]:
    """Return a product's properties that determine its code: rows, columns, inner size, and transposed inputs."""
    rows, columns = matmul.shape
    return (rows, columns, matmul.inputs[0].shape[0 if matmul.detail[0] else 1]), matmul.detail


def shared_parts(kernel: Node) -> int:
    """Return the number of equal parts of a kernel's result that are split among workers: its rows, or its images."""
    if kernel.kind == "transpose":
        return kernel.detail[0][0]
    return kernel.detail.images[0] if kernel.kind in ("convolution", "image_gradient") else kernel.shape[0]


class UpdateKind(NamedTuple):
    """One kind of update.

    Attributes:
        kernels: in order of execution.
        sums: scalars whose sums over the updates are returned.
        kept: nodes whose values are returned for each update.
    """

    kernels: Sequence[Kernel]
    sums: Sequence[Node] = ()
    kept: Sequence[Node] = ()


class Module:
    """An LLVM module with the function ``run``, and also ``run_serial`` if several workers share ``run``.

    Args:
        kinds: the kinds of update; all have the same number of sums and kept values.
        plan: the memory plan for all kinds.
        fields: the minibatch's fields: name, and number of floats per update.
        machine: this machine's registers.
        workers: number of shards of a kernel, and of threads that run ``run`` at the same time.
        precision: of the arguments of matrix products, see :data:`ddpg.compiler.ir.PRECISIONS`.

    Attributes:
        loops: the functions of fused loops, by ``id`` of the kernel.
        moves, matmuls, convolutions: names of functions, by ``id`` of the kernel, :func:`gemm_key`, or kind and sizes.
        scratch: memory for packing and partial sums, after the plan's memory.
        size: of the block in floats, including the plan's and the scratch memory.
        text: the module as LLVM text.
    """

    def __init__(
        self,
        kinds: Sequence[UpdateKind],
        plan: MemoryPlan,
        fields: Sequence[tuple[str, int]],
        machine: RegisterFile,
        workers: int = 1,
        precision: str = "float32",
    ):
        self.kinds, self.plan, self.fields, self.workers = kinds, plan, fields, workers
        self.loops: dict[int, ElementwiseFunction] = {}
        self.moves: dict[int, str] = {}
        self.matmuls: dict[tuple, str] = {}
        self.convolutions: dict[tuple, str] = {}
        declarations = [DECLARATIONS]
        gemm_functions: type[GemmFunctions] = Float32GemmFunctions
        if precision != "float32":
            declarations.append(codegen_gemm_bfloat16.DECLARATIONS)
            gemm_functions = BFloat16GemmFunctions
            if machine.amx:
                declarations.append(codegen_gemm_amx.DECLARATIONS)
                gemm_functions = AMXGemmFunctions if precision == "bfloat16" else SplitAMXGemmFunctions
        gemms: list[GemmFunctions | ConvolutionFunctions] = []
        moves = []
        for index, kernel in enumerate(kernel for kind in kinds for kernel in kind.kernels):
            if isinstance(kernel, FusedLoop):
                self.loops[id(kernel)] = ElementwiseFunction(f"loop{index}", kernel, plan)
            elif kernel.kind in MOVES:
                self.moves[id(kernel)] = name = f"{kernel.kind}{index}"
                moves.append(MOVES[kernel.kind](name, kernel))
            elif kernel.kind in CONVOLUTIONS:
                if (sizes := (kernel.kind, kernel.detail)) not in self.convolutions:
                    self.convolutions[sizes] = name = f"{kernel.kind}{len(self.convolutions)}"
                    parts = [high - low for low, high in split_evenly(shared_parts(kernel), workers)]
                    gemms.append(ConvolutionFunctions(name, *sizes, machine, parts))
            elif (key := gemm_key(kernel)) not in self.matmuls:
                self.matmuls[key] = name = f"matmul{len(self.matmuls)}"
                rows = [high - low for low, high in split_evenly(kernel.shape[0], workers)]
                gemms.append(gemm_functions(name, *key, machine, rows))
        partial = [sum(round_to_cache_lines(total.size) for total in loop.totals) for loop in self.loops.values()]
        packed = [gemm.packed for gemm in gemms]
        self.scratch = plan_scratch(plan, workers, packed=max(packed, default=0), partial=max(partial, default=0))
        self.size = self.scratch.size
        entries = entry_functions(ENTRY, self, parallel=workers > 1)
        if workers > 1:
            entries += entry_functions(SERIAL_ENTRY, self, parallel=False)
        functions = [*(loop.text for loop in self.loops.values()), *moves, *(gemm.text for gemm in gemms)]
        self.text = "\n\n".join([*declarations, BARRIER, *functions, *entries])


def entry_functions(name: str, module: Module, parallel: bool) -> list[str]:
    """Return the LLVM text of the entry function, and of the functions of each kind of update that it calls.

    The entry function, ``void NAME(count, worker, i32* kinds, float* block, float* field..., float* sums, float*
    kept...)``, runs ``count`` updates of the given ``kinds``, which it does not read if the module has one kind.
    """
    functions = [UpdateFunction(f"{name}.{index}", module, kind, parallel) for index, kind in enumerate(module.kinds)]
    main = FunctionBuilder()
    mode = main.add("call i64 @flush()")
    with main.loop(0, "%count") as update:
        if len(functions) == 1:
            main.do(functions[0].call(update))
        else:
            kind = main.load("%kinds", update, type_="i32")
            for index, function in enumerate(functions):
                with main.when(f"icmp eq i32 {kind}, {index}"):
                    main.do(function.call(update))
    main.do(f"call void @set_mode(i64 {mode})")
    head = f"define void @{name}(i64 %count, i64 %worker, ptr %kinds, {functions[0].pointers})"
    entry = "\n".join([f"{head} nounwind {{", *main.lines, "  ret void", "}"])
    return [*(function.text for function in functions), entry]


class UpdateFunction:
    """One update, ``void NAME(update, worker, float* block, float* field..., float* sums, float* kept...)``.

    Args:
        name: the function's name.
        module: the module whose kernels it calls.
        kind: the kind of update.
        parallel: each worker calls the function and runs its shards; otherwise one call runs all shards.

    Attributes:
        pointers: the pointer arguments, as LLVM declares and passes them.
        text: the function as LLVM text.
    """

    def __init__(self, name: str, module: Module, kind: UpdateKind, parallel: bool):
        self.name, self._module = name, module
        self._main = main = FunctionBuilder()
        self._ranges = AccessRanges(module.plan, module.scratch)
        self._shards = Shards(main, module.workers, module.scratch.barrier, parallel)
        self._inputs = {
            f"input {field}": main.at(f"%input{index}", main.times("%update", size))
            for index, (field, size) in enumerate(module.fields)
        }
        for kernel in kind.kernels:
            if isinstance(kernel, FusedLoop):
                self._loop(kernel)
            elif kernel.kind == "matmul":
                self._matmul(kernel)
            elif kernel.kind in CONVOLUTIONS:
                self._convolution(kernel)
            else:
                self._move(kernel)
        outputs = [output for output in (*kind.sums, *kind.kept) if output.kind != "literal"]
        self._shards.synchronize([[access for output in outputs for access in self._ranges.whole(output)]])
        with self._shards.only_first():
            for index, output in enumerate(kind.sums):
                self._add_to_sum(output, index)
            for index, output in enumerate(kind.kept):
                self._copy_to_kept(output, index)
        self._shards.barrier()
        names = ["%block", *(f"%input{index}" for index in range(len(module.fields))), "%sums"]
        names += [f"%kept{index}" for index in range(len(kind.kept))]
        self.pointers = ", ".join(f"ptr {name}" for name in names)
        head = f"define internal void @{name}(i64 %update, i64 %worker, {self.pointers})"
        self.text = "\n".join([f"{head} nounwind {{", *main.lines, "  ret void", "}"])

    def call(self, update: str) -> str:
        """Return the instruction that runs an update, in a function with the same pointer arguments."""
        return f"call void @{self.name}(i64 {update}, i64 %worker, {self.pointers})"

    def _loop(self, kernel: FusedLoop) -> None:
        loop = self._module.loops[id(kernel)]
        addresses = {buffer: self._address(buffer, value) for buffer, value in loop.parameters.items()}
        shards, workers = self._shards, self._module.workers
        by_rows = loop.multiple == 1
        small = loop.length < MIN_SHARED_ROWS if by_rows else loop.length * len(loop.parameters) < MIN_SHARED
        if workers == 1 or small:
            shards.synchronize([self._ranges.loop(loop, 0, loop.length)])
            with shards.only_first():
                self._call(loop.name, [*addresses.values()], (0, loop.length * loop.unit))
            return
        # Each worker sums its shard into scratch memory; then the first one adds the partial sums.
        offset, partial_sums = 0, {}
        for total in loop.totals:
            partial_sums[buffer_name(total)] = (total, offset)
            offset += round_to_cache_lines(total.size)
        bounds = split_evenly(loop.length, workers, loop.multiple)
        partial = [self._ranges.partial_sums(worker, offset) for worker in range(len(bounds))] if loop.totals else []
        accesses = [self._ranges.loop(loop, low, high, without=partial_sums) for low, high in bounds]
        shards.synchronize([[*own, *partial[worker : worker + 1]] for worker, own in enumerate(accesses)])
        for worker, low, high in shards.each(loop.length, loop.multiple):
            pointers = [
                self._partial_sum(worker, partial_sums[buffer][1]) if buffer in partial_sums else address
                for buffer, address in addresses.items()
            ]
            self._call(loop.name, pointers, [self._main.times(bound, loop.unit) for bound in (low, high)])
        if loop.totals:
            totals = [access for total in loop.totals for access in self._ranges.whole(total, written=True)]
            shards.synchronize([[*(access._replace(written=False) for access in partial), *totals]])
            with shards.only_first():
                for buffer, (total, offset) in partial_sums.items():
                    self._add_partial_sums(addresses[buffer], total, offset, len(bounds))

    def _add_partial_sums(self, result: str, total: Node, offset: int, workers: int) -> None:
        main, (first, *others) = self._main, [self._partial_sum(worker, offset) for worker in range(workers)]
        with main.loop(0, total.size) as index:
            value = main.load(first, index)
            for other in others:  # always in this order, so that any number of threads gives the same bits
                value = main.add(f"fadd float {value}, {main.load(other, index)}")
            main.store(value, result, index)

    def _bounds(self, kernel: Node, by_parts: Collection[int]) -> list[tuple[int, int]]:
        """Let shards wait until they may read their parts of the inputs at ``by_parts`` and the others; return them."""
        count, ranges, parts, whole = shared_parts(kernel), self._ranges, [], []
        for place, source in enumerate(kernel.inputs):
            if place in by_parts:
                parts.append(source)
            else:
                whole += ranges.whole(source)
        bounds = split_evenly(count, self._module.workers)
        self._shards.synchronize([[*ranges.parts(kernel, parts, count, *bound), *whole] for bound in bounds])
        return bounds

    def _move(self, kernel: Node) -> None:
        self._bounds(kernel, range(len(kernel.inputs)))
        addresses = self._addresses(kernel)
        for _, low, high in self._shards.each(shared_parts(kernel)):
            self._call(self._module.moves[id(kernel)], addresses, (low, high))

    def _matmul(self, kernel: Node) -> None:
        main, transposed = self._main, kernel.detail[0]
        bounds = self._bounds(kernel, () if transposed else (0,))  # a transposed input is read by columns: whole
        name, (a, b, c) = self._module.matmuls[gemm_key(kernel)], self._addresses(kernel)
        for worker, low, high in self._shards.each(shared_parts(kernel)):
            first = low if transposed else main.times(low, kernel.inputs[0].shape[1])
            pointers = [main.at(a, first), b, main.at(c, main.times(low, kernel.shape[1])), self._packed(worker)]
            self._call_for_size(name, bounds, (low, high), pointers)

    def _convolution(self, kernel: Node) -> None:
        bounds = self._bounds(kernel, {"convolution": (0,), "image_gradient": (1,)}.get(kernel.kind, ()))
        name, addresses = self._module.convolutions[kernel.kind, kernel.detail], self._addresses(kernel)
        for worker, low, high in self._shards.each(shared_parts(kernel)):
            self._call_for_size(name, bounds, (low, high), [*addresses, self._packed(worker)], (low,))

    def _call_for_size(
        self,
        name: str,
        bounds: Sequence[tuple[int, int]],
        shard: tuple[str | int, str | int],
        pointers: Sequence[str],
        numbers: Sequence[str | int] = (),
    ) -> None:
        """Call the function for a shard of this size; ``bounds`` are those of all shards."""
        low, high = shard
        counts = {high - low for low, high in bounds}
        if isinstance(low, int) and isinstance(high, int):
            counts = {high - low}
        for count in sorted(counts):
            with self._main.when(f"icmp eq i64 {self._main.add(f'sub i64 {high}, {low}')}, {count}"):
                self._call(f"{name}.{count}", pointers, numbers)

    def _add_to_sum(self, output: Node, index: int) -> None:
        """Add a scalar output to its sum over the updates."""
        main = self._main
        if output.kind == "literal":
            value = float_literal(output.detail)
        else:
            value = main.load(self._address(buffer_name(output.base), output), 0)
        main.store(main.add(f"fadd float {main.load('%sums', index)}, {value}"), "%sums", index)

    def _copy_to_kept(self, output: Node, index: int) -> None:
        """Copy an output to this update's row of the array that the caller gets."""
        main, source = self._main, self._address(buffer_name(output.base), output)
        with main.loop(0, output.size) as element:
            main.store(main.load(source, element), f"%kept{index}", main.times("%update", output.size), element)

    def _call(self, name: str, pointers: Sequence[str], bounds: Sequence[str | int] = ()) -> None:
        arguments = ", ".join([*(f"ptr {pointer}" for pointer in pointers), *(f"i64 {bound}" for bound in bounds)])
        self._main.do(f"call void @{name}({arguments})")

    # -- addresses ------------------------------------------------------------------------------------

    def _packed(self, worker: str | int) -> str:
        """Return the address at which a worker packs columns of a product's second input."""
        scratch = self._module.scratch
        return self._main.at("%block", scratch.packed, self._main.times(worker, scratch.packed_size))

    def _partial_sum(self, worker: str | int, offset: int) -> str:
        """Return the address of a worker's partial sum at ``offset`` in its scratch memory."""
        scratch = self._module.scratch
        return self._main.at("%block", scratch.partial + offset, self._main.times(worker, scratch.partial_size))

    def _addresses(self, kernel: Node) -> list[str]:
        """Return the addresses of a kernel's inputs, and of its result."""
        return [self._address(buffer_name(value.base), value) for value in (*kernel.inputs, kernel)]

    def _address(self, buffer: str, value: Node) -> str:
        """Return the address of a buffer, which holds ``value``."""
        offset = self._ranges.offset(buffer, value)
        return self._inputs[buffer] if offset is None else self._main.at("%block", offset)
