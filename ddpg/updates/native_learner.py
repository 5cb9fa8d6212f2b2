"""The third driver of an update: machine code of its own, on weights that it borrows from the session."""

from collections.abc import Sequence

import tensorflow as tf

from ddpg.experience.batch import Batch
from ddpg.native.kernel import Kernel
from ddpg.updates.base import Update
from ddpg.updates.emphasis import TD_ERRORS
from ddpg.updates.learner import Updated, placeholders
from ddpg.updates.session import LendingSession

v1 = tf.compat.v1


class NativeLearner:
    """Up to K updates in one call, compiled from the same ops that a session would run.

    The weights stay in the kernel's memory from call to call. Whoever runs the session gets them back first, and
    since anything may be changed there, the next call reads them anew.

    Args:
        update: the symbolic update; its networks' graph is extended.
        batch_size: B.
        updates_per_call: K.
        threads: that share an update; ``None``: by its size and the cores that there are.
        fetch: variables to read after the last update.

    Attributes:
        workers: threads that share an update.

    Raises:
        NoTranslation: an update that cannot be translated.
    """

    def __init__(
        self,
        update: Update,
        *,
        batch_size: int,
        updates_per_call: int,
        threads: int | None = None,
        fetch: Sequence = (),
    ):
        self.updates_per_call = updates_per_call
        self._metrics = update.metrics
        with update.value.graph.as_default(), v1.name_scope("native_learner/"):
            batch = placeholders(update, (batch_size,))
            metrics = update.whole(batch)
            self._variables = [v for v in v1.global_variables() if v.dtype.base_dtype == tf.float32]
        fetches = [metrics[name] for name in update.metrics]
        errors = [metrics[name] for name in (TD_ERRORS,) if name in metrics]
        self._kernel = Kernel(fetches, batch.named(), self._variables, threads, errors)
        self.workers = self._kernel.workers
        places = {variable.name: place for place, variable in enumerate(self._variables)}
        self._fetched = [self._kernel.values[places[variable.name]] for variable in fetch]
        self._places = places
        self._session: LendingSession | None = None
        self._current = self._ahead = False

    def update(self, session: LendingSession, batch: Batch, updates: int) -> Updated:
        """Run ``updates`` ≤ K updates on minibatches ``[K, B, ...]``."""
        if session is not self._session:
            self._session, session.reclaim = session, self._give_back
            self._current = False
        if not self._current:
            self._borrow(session)
        means, errors = self._kernel.run(updates, list(batch))
        self._ahead = True
        named = dict(zip(self._metrics, map(float, means), strict=True))
        return Updated(named, [value.copy() for value in self._fetched], errors[0][..., 0] if errors else None)

    def set_rate(self, variable: tf.Variable, value: float) -> bool:
        """Set a scalar where the weights are now; tell whether they are here."""
        if self._current:
            self._kernel.values[self._places[variable.name]][...] = value
            self._ahead = True
        return self._current

    def _borrow(self, session: LendingSession) -> None:
        for value, stored in zip(self._kernel.values, session.run_as_is(self._variables), strict=True):
            value[...] = stored
        self._current = True

    def _give_back(self) -> None:
        """Put the variables where the session has them; it may change them, so they are read anew."""
        if self._ahead:
            assert self._session is not None
            # A variable's initialiser assigns its second input: feeding that sets any value, without new ops.
            feeds = {
                v.initializer.inputs[1]: value for v, value in zip(self._variables, self._kernel.values, strict=True)
            }
            self._session.run_as_is([variable.initializer for variable in self._variables], feeds)
        self._current = self._ahead = False
