"""A compiled update: a function of NumPy arrays that holds its weights between calls."""

import itertools
import math
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from ddpg.compiler import dump
from ddpg.compiler.codegen import Module
from ddpg.compiler.ir import Node, Unsupported
from ddpg.compiler.jit import compile_module, host_registers, listings
from ddpg.compiler.lowering import lower, ops_in_order
from ddpg.compiler.memory_plan import ALIGNMENT, constants_of, plan_memory, round_to_cache_lines
from ddpg.compiler.schedule import Kernel, schedule
from ddpg.compiler.thread_pool import Autotuner, ThreadPool, available_cores

_MEETING = sys.platform != "win32"  # which has no sched_yield
WORTH = 15_000_000  # floating-point operations of an update, for each thread that shares it


Fetches = tuple[Sequence[tf.Tensor], Sequence[tf.Tensor]]


class CompiledUpdate:
    """Updates one after the other, on weights of its own.

    Args:
        metrics: scalars; fetching them in a session runs one update.
        fields: the placeholders of the minibatch, by name.
        variables: all that the update reads or writes.
        workers: threads that share an update; ``None``: by its size and the cores that there are.
        kept: tensors of which every update's values are kept, not their mean.
        others: other updates of the same variables, by their metrics and what of them is kept: the same numbers of
            the same shapes.

    Attributes:
        values: the variables' values, in their order: views into the kernel's memory, read and written in place.
        workers: threads that share an update.

    Raises:
        Unsupported: an update has an op, a shape or an order that this compiler does not know.
    """

    def __init__(
        self,
        metrics: Sequence[tf.Tensor],
        fields: Mapping[str, tf.Tensor],
        variables: Sequence,
        workers: int | None = None,
        kept: Sequence[tf.Tensor] = (),
        others: Sequence[Fetches] = (),
    ):
        shapes = [tuple(variable.shape) for variable in variables]
        sizes = [math.prod(shape) for shape in shapes]
        per_update = [(name, math.prod(placeholder.shape)) for name, placeholder in fields.items()]
        programs = []
        for fetches in ((metrics, kept), *others):
            program, outputs = lower([*fetches[0], *fetches[1]], fields, variables)
            programs.append((program, schedule(program, outputs), outputs))
        self.workers = workers or max(_worker_count(steps) for _, steps, _ in programs)
        if self.workers > 1 and not _MEETING:
            raise Unsupported(f"threads={workers} on {sys.platform}, where threads do not know how to meet")
        self._compiled, constants, size = [], [], 0
        for fetches, (program, steps, outputs) in zip(((metrics, kept), *others), programs, strict=True):
            layout = plan_memory(steps, outputs, sizes, behind=size)
            parts = outputs[: len(metrics)], outputs[len(metrics) :]
            module = Module(steps, layout, per_update, parts, host_registers(), self.workers)
            self._compiled.append(compile_module(module.text, len(per_update) + 2 + len(kept)))
            constants += constants_of(program, layout)
            if folder := dump.dump_folder():
                names = dump.Names(program, [variable.name for variable in variables])
                stages = {
                    "graph.txt": dump.format_graph(ops_in_order([*fetches[0], *fetches[1]])),
                    "ir.txt": dump.format_program(program, outputs, names),
                    "schedule.txt": dump.format_schedule(steps, layout, names),
                    "memory.txt": dump.format_memory(program, sizes, layout, names),
                    **listings(module.text),
                }
                for name, text in stages.items():
                    (folder / name).write_text(f"{text}\n", encoding="utf-8")
            size = round_to_cache_lines(module.size)
        self._block = _aligned(size)
        self._paces = [Autotuner() for _ in self._compiled] if self.workers > 1 else []
        self._helpers = ThreadPool(self.workers - 1, "ddpg-update") if self.workers > 1 else None
        for offset, table in constants:
            self._block[offset : offset + table.size] = table.detail.array.ravel()
        self.values = [
            self._block[offset : offset + math.prod(shape)].reshape(shape)
            for offset, shape in zip(layout.variables, shapes, strict=True)
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
            count: how many.
            fields: of the minibatches.
            which: the update to make on each: 0, or the number of one of the others; ``None``: always 0.

        Returns:
            The metrics' means, and what is kept, ``[count, ...]`` each.

        Raises:
            ValueError: fewer minibatches than updates, or of another size than was compiled.
        """
        arrays = [np.ascontiguousarray(field, np.float32) for field in fields]
        for array, (name, size) in zip(arrays, self._fields, strict=True):
            if array.size != len(array) * size or len(array) < count:
                raise ValueError(f"{name} has shape {array.shape}; expected {size} numbers for each of {count} updates")
        self._sums.fill(0)
        kept = [np.empty((count, *shape), np.float32) for shape in self._kept]
        places = [(array.ctypes.data, array.strides[0]) for array in (*arrays, *kept)]
        block, sums = self._addresses
        done = 0
        for update, same in itertools.groupby([0] * count if which is None else which[:count]):
            length = len(list(same))
            for alone, some in self._paces[update].parts(length) if self._paces else [(0, length)]:
                here = [start + done * stride for start, stride in places]
                self._run(update, bool(alone), some, (block, *here[: len(arrays)], sums, *here[len(arrays) :]))
                done += some
        return self._sums / np.float32(count), kept

    def span(self, variables: Sequence[int]) -> np.ndarray:
        """Return the memory from the first to the last of some variables, by their numbers, with all between them."""
        values, first, width = [self.values[place] for place in variables], self._addresses[0], 4
        starts = [(value.ctypes.data - first) // width for value in values]
        ends = [start + value.size for start, value in zip(starts, values, strict=True)]
        return self._block[min(starts) : max(ends)]

    def _run(self, update: int, alone: bool, count: int, addresses: Sequence[int]) -> None:
        if alone or self._helpers is None:
            self._compiled[update].run_alone(count, 0, *addresses)
            return
        calls = [(count, worker, *addresses) for worker in range(self.workers)]
        self._helpers.together(self._compiled[update].run, calls)


def _worker_count(steps: Sequence[Kernel]) -> int:
    """Return how many threads pay: a meeting of two costs as much as some thousand products of numbers."""
    products = [step for step in steps if isinstance(step, Node) and step.kind == "matmul"]
    work = sum(2 * step.size * step.inputs[0].size // step.shape[0] for step in products)
    return min(available_cores(), max(1, work // WORTH)) if _MEETING else 1


def _aligned(size: int) -> np.ndarray:
    """Return zeros that begin where a cache line does."""
    block = np.zeros(size + ALIGNMENT, np.float32)
    skipped = -(block.ctypes.data // block.itemsize) % ALIGNMENT
    return block[skipped : skipped + size]
