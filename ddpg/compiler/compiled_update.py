"""Compile an update to a function of NumPy arrays that holds the weights in its own memory between calls."""

import math
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from ddpg.compiler import dump
from ddpg.compiler.codegen import Module, UpdateKind
from ddpg.compiler.ir import CONVOLUTIONS, Node, Unsupported
from ddpg.compiler.jit import compile_module, host_registers, listings
from ddpg.compiler.lowering import lower, ops_in_order, sizes_of
from ddpg.compiler.memory_plan import aligned_block, constants_of, plan_memory
from ddpg.compiler.schedule import Kernel, schedule
from ddpg.compiler.simplify import simplified
from ddpg.compiler.thread_pool import Autotuner, ThreadPool, available_cores

_HAS_BARRIER = sys.platform != "win32"  # Windows has no sched_yield
WORK_PER_THREAD = 15_000_000  # floating-point operations of an update that make one more thread worth its barriers


Fetches = tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]  # metrics, and tensors whose values are kept


class CompiledUpdate:
    """One or more compiled kinds of update that share their variables.

    Args:
        metrics: scalars; fetching them in a session runs one update.
        fields: the placeholders of the minibatch, by name.
        variables: all variables that the update reads or writes.
        workers: number of threads that share an update; ``None``: decided by its size and the cores available.
        kept: tensors whose values are returned for each update, instead of their mean.
        others: the metrics and kept tensors of further kinds of update: as many as those of the first kind, and with
            the same shapes.
        precision: of the arguments of matrix products, see :data:`ddpg.compiler.ir.PRECISIONS`.

    Attributes:
        values: the variables' values, in their order: views of the block, read and written in place.
        workers: number of threads that share an update.

    Raises:
        Unsupported: if the update has an op, a shape or an order of writes that this compiler does not support, or this
            processor cannot multiply numbers of ``precision``.
    """

    def __init__(
        self,
        metrics: Sequence[tf.Tensor],
        fields: Mapping[str, tf.Tensor],
        variables: Sequence,
        workers: int | None = None,
        kept: Sequence[tf.Tensor] = (),
        others: Sequence[Fetches] = (),
        precision: str = "float32",
    ):
        registers = host_registers()
        if precision != "float32" and not registers.bfloat16:
            raise Unsupported("this processor has no AVX512-BF16")
        if precision == "bfloat16x3" and not registers.amx:
            raise Unsupported("this processor has no AMX, or the system does not let this process use it")
        fetches = ((metrics, kept), *others)
        shapes = [sizes_of(variable) for variable in variables]
        sizes = [math.prod(shape) for shape in shapes]
        per_update = [(name, math.prod(sizes_of(placeholder))) for name, placeholder in fields.items()]
        programs = [simplified(*lower([*some, *kept_too], fields, variables, precision)) for some, kept_too in fetches]
        kinds = [
            UpdateKind(schedule(program, outputs), outputs[: len(metrics)], outputs[len(metrics) :])
            for program, outputs in programs
        ]
        self.workers = workers or max(_worker_count(kind.kernels) for kind in kinds)
        if self.workers > 1 and not _HAS_BARRIER:
            raise Unsupported(f"threads={workers} on {sys.platform}: threads cannot wait for each other there")
        plan = plan_memory([(kind.kernels, (*kind.sums, *kind.kept)) for kind in kinds], sizes)
        module = Module(kinds, plan, per_update, registers, self.workers, precision)
        self._compiled = compile_module(module.text, len(per_update) + len(kept) + 3)
        if dump.is_asked_for():
            compiled = listings(module.text)
            for some, (program, outputs), kind in zip(fetches, programs, kinds, strict=True):
                names = dump.Names(program, [variable.name for variable in variables])
                stages = {
                    "graph.txt": dump.format_graph(ops_in_order([*some[0], *some[1]])),
                    "ir.txt": dump.format_program(program, outputs, names),
                    "schedule.txt": dump.format_schedule(kind.kernels, plan, names),
                    "memory.txt": dump.format_memory(program, sizes, plan, names),
                }
                dump.write(stages | compiled)
        self._block = aligned_block(module.size)
        for program, _ in programs:
            for offset, constant in constants_of(program, plan):
                self._block[offset : offset + constant.size] = constant.detail.array.ravel()
        self._autotuner = Autotuner() if self.workers > 1 else None
        self._threads = ThreadPool(self.workers - 1, "ddpg-update") if self.workers > 1 else None
        self.values = [
            self._block[offset : offset + math.prod(shape)].reshape(shape)
            for offset, shape in zip(plan.variables, shapes, strict=True)
        ]
        self._fields = per_update
        self._sums = np.zeros(len(metrics), np.float32)
        self._addresses = self._block.ctypes.data, self._sums.ctypes.data
        self._kept = [sizes_of(tensor) for tensor in kept]

    def run(
        self, count: int, fields: Sequence[np.ndarray], which: Sequence[int] | None = None
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Make ``count`` ≥ 1 updates on minibatches ``[K, B, ...]``, K ≥ ``count``, as the placeholders are ordered.

        ``which`` gives the kind of each update, 0 for the first, 1 for the first of the others, ...; ``None``: always
        0.

        Returns:
            The metrics' means, and the kept tensors' values, ``[count, ...]`` each.

        Raises:
            ValueError: if there are fewer minibatches than updates, or their size differs from the compiled one.
        """
        arrays = [np.ascontiguousarray(field, np.float32) for field in fields]
        for array, (name, size) in zip(arrays, self._fields, strict=True):
            if array.size != len(array) * size or len(array) < count:
                raise ValueError(f"{name} has shape {array.shape}; expected {size} numbers for each of {count} updates")
        self._sums.fill(0)
        kept = [np.empty((count, *shape), np.float32) for shape in self._kept]
        kinds = np.zeros(count, np.int32) if which is None else np.array(which[:count], np.int32)
        starts = [(array.ctypes.data, array.strides[0]) for array in (kinds, *arrays, *kept)]
        block, sums = self._addresses
        done = 0
        for serial, some in self._autotuner.split(count) if self._autotuner else [(1, count)]:
            kinds_at, *others = [start + done * stride for start, stride in starts]
            here, kept_at = others[: len(arrays)], others[len(arrays) :]
            self._run(bool(serial), some, (kinds_at, block, *here, sums, *kept_at))
            done += some
        return self._sums / np.float32(count), kept

    def span(self, variables: Sequence[int]) -> np.ndarray:
        """Return the block's memory from the first to the last of some variables, given by index."""
        values, first, width = [self.values[place] for place in variables], self._addresses[0], 4
        starts = [(value.ctypes.data - first) // width for value in values]
        ends = [start + value.size for start, value in zip(starts, values, strict=True)]
        return self._block[min(starts) : max(ends)]

    def _run(self, serial: bool, count: int, addresses: Sequence[int]) -> None:
        if serial or self._threads is None:
            self._compiled.run_serial(count, 0, *addresses)
            return
        calls = [(count, worker, *addresses) for worker in range(self.workers)]
        self._threads.run_all(self._compiled.run, calls)


def _worker_count(kernels: Sequence[Kernel]) -> int:
    """Return how many threads pay off: a barrier costs as much as some thousand multiplications."""
    nodes = [kernel for kernel in kernels if isinstance(kernel, Node)]
    work = sum(2 * node.size * node.inputs[0].size // node.shape[0] for node in nodes if node.kind == "matmul")
    convolutions = [node.detail for node in nodes if node.kind in CONVOLUTIONS]
    work += sum(2 * sizes.rows * sizes.patch * sizes.filters[3] for sizes in convolutions)
    return min(available_cores(), max(1, work // WORK_PER_THREAD)) if _HAS_BARRIER else 1
