"""Compile an update to a function of NumPy arrays that holds the weights in its own memory between calls."""

import itertools
import math
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from ddpg.compiler import dump
from ddpg.compiler.codegen import Module
from ddpg.compiler.ir import MissingInstructions, Node, Unsupported
from ddpg.compiler.jit import compile_module, host_registers, listings
from ddpg.compiler.lowering import lower, ops_in_order
from ddpg.compiler.memory_plan import aligned_block, constants_of, plan_memory, round_to_cache_lines
from ddpg.compiler.schedule import Kernel, schedule
from ddpg.compiler.simplify import simplified
from ddpg.compiler.thread_pool import Autotuner, ThreadPool, available_cores

_HAS_BARRIER = sys.platform != "win32"  # Windows has no sched_yield
WORK_PER_THREAD = 15_000_000  # floating-point operations of an update that make one more thread worth its barriers


Fetches = tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]  # metrics, and tensors whose values are kept


class CompiledUpdate:
    """One or more kinds of update, compiled, on variables that they share.

    Args:
        metrics: scalars; fetching them in a session runs one update.
        fields: the placeholders of the minibatch, by name.
        variables: all variables that the update reads or writes.
        workers: number of threads that share an update; ``None``: decided by its size and the cores available.
        kept: tensors whose values are returned for each update, instead of their mean.
        others: the metrics and kept tensors of other kinds of update of the same variables: as many as of the first,
            and of the same shapes.
        precision: of the arguments of matrix products, see :data:`ddpg.compiler.ir.PRECISIONS`.

    Attributes:
        values: the variables' values, in their order: views of the block, read and written in place.
        workers: number of threads that share an update.

    Raises:
        Unsupported: if the update has an op, a shape or an order of writes that this compiler does not support.
        MissingInstructions: if this processor cannot multiply numbers of ``precision``.
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
        if precision == "bfloat16" and not registers.bfloat16:
            raise MissingInstructions("this processor has no AVX512-BF16")
        kinds = ((metrics, kept), *others)
        shapes = [tuple(variable.shape) for variable in variables]
        sizes = [math.prod(shape) for shape in shapes]
        per_update = [(name, math.prod(placeholder.shape)) for name, placeholder in fields.items()]
        scheduled = []
        for fetches in kinds:
            program, outputs = simplified(*lower([*fetches[0], *fetches[1]], fields, variables, precision))
            scheduled.append((program, schedule(program, outputs), outputs))
        self.workers = workers or max(_worker_count(kernels) for _, kernels, _ in scheduled)
        if self.workers > 1 and not _HAS_BARRIER:
            raise Unsupported(f"threads={workers} on {sys.platform}: threads cannot wait for each other there")
        self._compiled, constants, size = [], [], 0
        for fetches, (program, kernels, outputs) in zip(kinds, scheduled, strict=True):
            plan = plan_memory(kernels, outputs, sizes, first=size)
            parts = outputs[: len(metrics)], outputs[len(metrics) :]
            module = Module(kernels, plan, per_update, parts, registers, self.workers, precision)
            self._compiled.append(compile_module(module.text, len(per_update) + 2 + len(kept)))
            constants += constants_of(program, plan)
            if folder := dump.dump_folder():
                names = dump.Names(program, [variable.name for variable in variables])
                stages = {
                    "graph.txt": dump.format_graph(ops_in_order([*fetches[0], *fetches[1]])),
                    "ir.txt": dump.format_program(program, outputs, names),
                    "schedule.txt": dump.format_schedule(kernels, plan, names),
                    "memory.txt": dump.format_memory(program, sizes, plan, names),
                    **listings(module.text),
                }
                for name, text in stages.items():
                    (folder / name).write_text(f"{text}\n", encoding="utf-8")
            size = round_to_cache_lines(module.size)
        self._block = aligned_block(size)
        self._autotuners = [Autotuner() for _ in self._compiled] if self.workers > 1 else []
        self._threads = ThreadPool(self.workers - 1, "ddpg-update") if self.workers > 1 else None
        for offset, constant in constants:
            self._block[offset : offset + constant.size] = constant.detail.array.ravel()
        self.values = [
            self._block[offset : offset + math.prod(shape)].reshape(shape)
            for offset, shape in zip(plan.variables, shapes, strict=True)
        ]
        self._fields = per_update
        self._sums = np.zeros(len(metrics), np.float32)
        self._addresses = self._block.ctypes.data, self._sums.ctypes.data
        self._kept = [tuple(tensor.shape) for tensor in kept]

    def run(
        self, count: int, fields: Sequence[np.ndarray], which: Sequence[int] | None = None
    ) -> tuple[np.ndarray, list[np.ndarray]]:
        """Make ``count`` ≥ 1 updates on minibatches ``[K, B, ...]``, K ≥ ``count``.

        Args:
            count: number of updates.
            fields: the minibatches' fields, in the order of the placeholders.
            which: the kind of each update, 0 for the first, 1 for the first of the others, ...; ``None``: always 0.

        Returns:
            The metrics' means, and the kept tensors' values, ``[count, ...]`` each.

        Raises:
            ValueError: if there are fewer minibatches than updates, or if their size is not the compiled one.
        """
        arrays = [np.ascontiguousarray(field, np.float32) for field in fields]
        for array, (name, size) in zip(arrays, self._fields, strict=True):
            if array.size != len(array) * size or len(array) < count:
                raise ValueError(f"{name} has shape {array.shape}; expected {size} numbers for each of {count} updates")
        self._sums.fill(0)
        kept = [np.empty((count, *shape), np.float32) for shape in self._kept]
        starts = [(array.ctypes.data, array.strides[0]) for array in (*arrays, *kept)]
        block, sums = self._addresses
        done = 0
        for kind, same in itertools.groupby([0] * count if which is None else which[:count]):
            length = len(list(same))
            for serial, some in self._autotuners[kind].split(length) if self._autotuners else [(0, length)]:
                here = [start + done * stride for start, stride in starts]
                self._run(kind, bool(serial), some, (block, *here[: len(arrays)], sums, *here[len(arrays) :]))
                done += some
        return self._sums / np.float32(count), kept

    def span(self, variables: Sequence[int]) -> np.ndarray:
        """Return the block's memory from the first to the last of some variables, given by index."""
        values, first, width = [self.values[place] for place in variables], self._addresses[0], 4
        starts = [(value.ctypes.data - first) // width for value in values]
        ends = [start + value.size for start, value in zip(starts, values, strict=True)]
        return self._block[min(starts) : max(ends)]

    def _run(self, kind: int, serial: bool, count: int, addresses: Sequence[int]) -> None:
        if serial or self._threads is None:
            self._compiled[kind].run_serial(count, 0, *addresses)
            return
        calls = [(count, worker, *addresses) for worker in range(self.workers)]
        self._threads.run_all(self._compiled[kind].run, calls)


def _worker_count(kernels: Sequence[Kernel]) -> int:
    """Return how many threads pay off: a barrier costs as much as some thousand multiplications."""
    matmuls = [kernel for kernel in kernels if isinstance(kernel, Node) and kernel.kind == "matmul"]
    work = sum(2 * matmul.size * matmul.inputs[0].size // matmul.shape[0] for matmul in matmuls)
    return min(available_cores(), max(1, work // WORK_PER_THREAD)) if _HAS_BARRIER else 1
