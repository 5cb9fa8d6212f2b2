"""Measure the time of an update, of its parts, and of its matrix products with NumPy's BLAS and XLA."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from unittest import mock

import numpy as np
import tensorflow as tf
from gymnasium import spaces
from tensorflow.compiler.tf2xla.python import xla

from benchmarks.speed.roofline.count import Product
from benchmarks.speed.tasks import Task
from ddpg import DDPG, DDPGConfig
from ddpg.compiler import compiled_update
from ddpg.compiler.ir import Node
from ddpg.compiler.schedule import Kernel
from ddpg.replay.minibatch import Batch

SHAPES = {"Pendulum-v1": (3, 1), "HalfCheetah-v5": (17, 6)}  # observations, actions
CHAIN = 50  # products in one compiled call; each depends on the one before
tf.get_logger().setLevel("ERROR")  # without TensorFlow's warning that each product creates another tf.function

Call = tuple[Callable[[], object], int]  # a function, and how many updates or products one call of it makes


class Subject:
    """An agent whose updates run completely, or only their matrix products or their passes.

    Args:
        task: the sizes.
        part: ``whole``, ``products``, ``passes`` (everything else) or ``nothing``.
        compiler: of the updates.
        precision: of the matrix products.

    Attributes:
        updates: number of updates in one call.
        steps, outputs: our compiler's schedule of one complete update, and the values that it computes.
        workers: threads that share an update.
    """

    def __init__(self, task: Task, part: str, compiler: str = "native", precision: str = "float32"):
        observations, actions = SHAPES[task.env]
        pair = spaces.Box(-np.inf, np.inf, (observations,)), spaces.Box(-1, 1, (actions,))
        config = DDPGConfig(
            hidden=task.hidden, batch_size=task.batch, buffer_size=1_000, compiler=compiler, precision=precision
        )
        self.updates = config.updates_per_call
        self.steps: list[Kernel] = []
        self.outputs: list[Node] = []
        with _only_part(part, self):
            self._agent = DDPG(pair, config, seed=0)
            self._learner = self._agent.updater.learner
        self.workers = getattr(self._learner, "workers", 1)
        rng = np.random.default_rng(0)
        shapes = Batch((observations,), (actions,), (1,), (observations,), (1,))
        self._batch = Batch(
            *(rng.uniform(-1, 1, (self.updates, task.batch, *shape)).astype(np.float32) for shape in shapes)
        )

    def run(self) -> None:
        """Make one call of updates."""
        self._learner.update(self._agent.session, self._batch, self.updates)


@contextlib.contextmanager
def _only_part(part: str, subject: Subject) -> Iterator[None]:
    """Make the compiler emit code for one part of the schedule only; the memory layout stays the same."""
    wanted = {
        "whole": lambda step: True,
        "products": is_product,
        "passes": lambda step: not is_product(step),
        "nothing": lambda step: False,
    }[part]
    module, schedule = compiled_update.Module, compiled_update.schedule

    def scheduled(program, outputs):
        subject.steps, subject.outputs = schedule(program, outputs), outputs
        return subject.steps

    def module_of_part(kinds, *arguments):
        some = [kind._replace(kernels=[step for step in kind.kernels if wanted(step)]) for kind in kinds]
        return module(some, *arguments)

    with mock.patch.multiple(compiled_update, schedule=scheduled, Module=module_of_part):
        yield


def is_product(step: Kernel) -> bool:
    """Return whether a step of the schedule is a matrix product."""
    return isinstance(step, Node) and step.kind == "matmul"


def blas_product(product: Product) -> Callable[[], object]:
    """Return a function that multiplies matrices of these shapes with NumPy, into memory that is already allocated."""
    one, other = _arguments(product)
    result = np.empty((product.rows, product.columns), np.float32)
    first, second = one.T if product.transposed[0] else one, other.T if product.transposed[1] else other
    return lambda: np.matmul(first, second, out=result)


def copy_call(size: int) -> Callable[[], object]:
    """Return a function that copies ``size`` bytes."""
    source, goal = np.ones((2, size // 4), np.float32)
    return lambda: np.copyto(goal, source)


def xla_product(product: Product) -> Call:
    """Return a compiled function that repeats a product, and the number of repetitions."""
    one, other = map(tf.constant, _arguments(product))

    @tf.function(jit_compile=True, autograph=False)
    def chain(one, other):
        def body(index, one, _):
            made = tf.matmul(one, other, transpose_a=product.transposed[0], transpose_b=product.transposed[1])
            # The next product depends on this one through a single element, which is changed in place.
            return index + 1, xla.dynamic_update_slice(one, one[:1, :1] + 1e-30 * made[:1, :1], [0, 0]), made

        start = tf.zeros([product.rows, product.columns])
        return tf.while_loop(lambda index, *_: index < CHAIN, body, [0, one, start])[2]

    return lambda: chain(one, other), CHAIN


def medians(calls: Mapping[str, Call], repeats: int, seconds: float) -> dict[str, list[float]]:
    """Run all calls in turn, ``repeats`` times; return the seconds of one repetition: median, minimum, maximum."""
    for call, _ in calls.values():
        call()  # compiles, and warms up
    times: dict[str, list[float]] = {label: [] for label in calls}
    for _ in range(repeats):
        for label, (call, amount) in calls.items():
            made, start = 0, time.perf_counter()
            while (took := time.perf_counter() - start) < seconds or not made:
                call()
                made += amount
            times[label].append(took / made)
    return {label: [statistics.median(each), min(each), max(each)] for label, each in times.items()}


def _arguments(product: Product) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = (product.rows, product.inner), (product.inner, product.columns)
    turned = (shape[::-1] if flip else shape for shape, flip in zip(shapes, product.transposed, strict=True))
    one, other = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in turned)
    return one, other
