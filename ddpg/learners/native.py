"""The learner that runs an update as machine code from :mod:`ddpg.compiler`, on weights it borrows from the session."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ddpg.algorithms.base import TD_ERRORS, Metrics, Update
from ddpg.compiler.compiled_update import CompiledUpdate
from ddpg.learners.graph import LearnerResult, check_assignments, convolves, network_variables, placeholders
from ddpg.learners.synced_session import SyncedSession, assign_variables
from ddpg.replay.minibatch import Batch, stored_dtype

v1 = tf.compat.v1
LARGEST_CALL = 2**20  # numbers in the images of a call, 4 MiB


class NativeLearner:
    """Up to K updates in one call, compiled from the same ops that a session would run.

    The weights stay in the kernel's memory between calls. They are written back before any other call of the session;
    because that call can change them, the next update reads them again.

    Args:
        update, batch_size, fetch: as for :class:`ddpg.learners.graph.XLALearner`.
        updates_per_call: K; of images there may be fewer.
        threads: number of threads that share an update; ``None``: decided by its size and the cores available.
        precision: of the arguments of matrix products, see :data:`ddpg.compiler.ir.PRECISIONS`.

    Attributes:
        workers: number of threads that share an update.

    Raises:
        Unsupported: if the compiler does not support some op of the update, or not ``precision`` on this processor.
    """

    def __init__(
        self,
        update: Update,
        *,
        batch_size: int,
        updates_per_call: int,
        threads: int | None = None,
        fetch: Sequence = (),
        precision: str = "float32",
    ):
        self.updates_per_call = _minibatches_per_call(update, batch_size, updates_per_call)
        self._metrics, self._count, self._made = update.metrics, update.count, 0
        with update.value.graph.as_default() as graph, v1.name_scope("native_learner/"):
            made = len(graph.get_operations())
            self._draw = _NoiseDraws(update, batch_size)
            batch = placeholders(update, (batch_size,), float_images=True).replace(noise=self._draw.placeholder)
            wholes, self._which = _update_kinds(update, batch)
            check_assignments(update, made, [metric for whole in wholes for metric in whole.values()])
            self._variables = [v for v in v1.global_variables() if v.dtype.base_dtype == tf.float32]
        first, *others = (
            ([metrics[name] for name in update.metrics], [metrics[TD_ERRORS]] if TD_ERRORS in metrics else [])
            for metrics in wholes
        )
        self._compiled = CompiledUpdate(first[0], batch.named(), self._variables, threads, first[1], others, precision)
        self.workers = self._compiled.workers
        self._places = places = {variable.name: place for place, variable in enumerate(self._variables)}
        self._fetched = [self._compiled.values[places[variable.name]] for variable in fetch]
        # A kernel that reads or writes a variable of another dtype is refused, so such variables do not change here.
        weights = [
            self._compiled.span([places[variable.name] for variable in network if variable.name in places])
            for network in network_variables(update)
        ]
        self._weights = [(span, np.zeros_like(span)) for span in weights]
        self._session: SyncedSession | None = None
        self._current = self._ahead = False

    def update(self, session: SyncedSession, batch: Batch, updates: int) -> LearnerResult:
        """Run ``updates`` ≤ K updates on as many minibatches, ``[updates, B, ...]``."""
        return session.lock(self._update_here, session, batch, updates)

    def _update_here(self, session: SyncedSession, batch: Batch, updates: int) -> LearnerResult:
        if session is not self._session:
            self._session, session.reclaim = session, self._give_back
            self._current = False
        if not self._current:
            self._borrow(session)
        if (noise := self._draw(session, self._made, updates)) is not None:
            batch = batch.replace(noise=noise)
        which = [self._which(self._made + update) for update in range(updates)]
        means, errors = self._compiled.run(updates, list(batch), which)
        self._made += updates
        self._ahead = True
        named = dict(zip(self._metrics, means.tolist(), strict=True))
        fetched = [value.copy() for value in self._fetched]
        return LearnerResult(named, fetched, errors[0][..., 0] if errors else None, self._finite())

    def set_rate(self, variable: tf.Variable, value: float) -> bool:
        """Set a scalar in the kernel's memory, if the weights are there; return whether they are."""
        if self._current:
            self._compiled.values[self._places[variable.name]][...] = value
            self._ahead = True
        return self._current

    def _finite(self) -> bool:
        """Return whether all weights are finite: w·0 is 0 if w is finite, else NaN. A dot product is fast."""
        return all(weights.dot(zeros) == 0 for weights, zeros in self._weights)

    def _borrow(self, session: SyncedSession) -> None:
        for value, stored in zip(self._compiled.values, session.run_as_is(self._variables), strict=True):
            value[...] = stored
        if self._count is not None:
            self._made = int(session.run_as_is(self._count.variable))
        self._current = True

    def _give_back(self) -> None:
        """Write the variables back to the session; the next update reads them again, because they can change there."""
        if self._ahead:
            assert self._session is not None
            variables, values = list(self._variables), list(self._compiled.values)
            if self._count is not None:
                variables.append(self._count.variable)
                values.append(np.asarray(self._made, np.int64))
            assign_variables(self._session.run_as_is, variables, values)
        self._current = self._ahead = False


def _minibatches_per_call(update: Update, batch_size: int, updates_per_call: int) -> int:
    """Return how many minibatches a call gets: fewer of images, which are float32 there."""
    space = update.value.observation_space
    if stored_dtype(space) != np.uint8 and not convolves(update):
        return updates_per_call
    return max(1, min(updates_per_call, LARGEST_CALL // (2 * batch_size * math.prod(space.shape))))


class _NoiseDraws:
    """Draws the random numbers of all updates of a call in the session, because the compiler has no integer ops."""

    def __init__(self, update: Update, batch_size: int):
        self._made, self._count = v1.placeholder(tf.int64, [], name="made"), v1.placeholder(tf.int64, [], name="count")
        made = self._made + tf.range(self._count)
        shape = batch_size, update.action_size
        self._numbers = update.noise(shape, made)
        drawn = self._numbers is not None
        self.placeholder = v1.placeholder(tf.float32, shape, name="noise") if drawn else None

    def __call__(self, session: SyncedSession, made: int, count: int) -> np.ndarray | None:
        """Return the numbers ``[count, B, A]`` of the updates after ``made`` others; ``None`` if they draw none."""
        if self._numbers is None:
            return None
        return session.run_as_is(self._numbers, {self._made: made, self._count: count})


def _update_kinds(update: Update, batch: Batch) -> tuple[list[Metrics], Callable[[int], int]]:
    """Return the distinct kinds of update, and a function from the number of updates made to the next update's kind."""
    count = update.count
    if count is None:
        return [update.update_op(batch)], lambda made: 0
    with count.assume_step(0):
        begun = update.first_step(batch)
        shared = count.firsts == [0]  # none of its ops depend on the number of updates made
        wholes = [update.later_steps(batch, *begun)]
    kinds = {count.is_due(0): 0}
    for made in count.firsts[1:]:
        kinds[count.is_due(made)] = len(wholes)
        with count.assume_step(made):
            wholes.append(update.later_steps(batch, *(begun if shared else update.first_step(batch))))
    return wholes, lambda made: kinds[count.is_due(made)]
