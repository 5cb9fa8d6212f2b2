"""A session that first gets back the variables that the native learner holds in its own memory.

Threads use it one at a time, and every waiting thread gets its turn.
"""

import functools
import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as eager

from ddpg.errors import UsageError

v1 = tf.compat.v1

Result = TypeVar("Result")


class FairLock:
    """Calls functions one at a time across threads; a call can make further calls in its own thread.

    A thread that releases a plain lock and acquires it again at once gets it back: a loop of updates would keep every
    other thread out for seconds. Here a second lock forms a queue: a thread holds it while it waits for the first
    lock, and every other thread has to pass it first. Both are held by ``with`` statements on C objects only, so a
    Ctrl-C at any point leaves neither locked. An uncontended call costs about half a microsecond.
    """

    def __init__(self) -> None:
        self._queue, self._lock = threading.Lock(), threading.RLock()
        self._owner: int | None = None

    def __call__(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Return ``function(*arguments, **options)``, called while no other thread's call through this lock runs."""
        me = threading.get_ident()
        if self._owner != me:  # the owner must not queue behind a thread that waits for it: that is a deadlock
            with self._queue, self._lock:
                pass
        with self._lock:
            before, self._owner = self._owner, me
            try:
                return function(*arguments, **options)
            finally:
                self._owner = before


_user_of_tensorflow: int | None = None  # id of the parent process, if it had used TensorFlow before this one's fork


def check_not_forked() -> None:
    """Raise UsageError in a fork of a process that has used TensorFlow: without its threads, the fork would hang."""
    if _user_of_tensorflow is not None:
        raise UsageError(
            f"process {os.getpid()} is a fork of process {_user_of_tensorflow}, which had used TensorFlow: its threads "
            "do not exist here, so an agent would hang; start processes with multiprocessing.get_context('spawn'), or "
            "fork before TensorFlow is used"
        )


def _note_fork() -> None:
    global _user_of_tensorflow
    # Sessions and eager operations initialise this context; importing TensorFlow does not.
    if _user_of_tensorflow is None and (getattr(eager.context(), "_initialized", False) or SyncedSession.opened):
        _user_of_tensorflow = os.getppid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def assign_variables(run: Callable[..., Any], variables: Sequence[tf.Variable], values: Sequence[np.ndarray]) -> None:
    """Set variables without new ops and with as few calls of a session's ``run`` as possible, usually one.

    A variable's initialiser assigns its second input, so feeding that input sets any value. Variables that share an
    initial tensor are set in separate calls.
    """
    remaining = list(zip(variables, values, strict=True))
    while remaining:
        feeds: dict[Any, np.ndarray] = {}
        operations, later = [], []
        for variable, value in remaining:
            initial = variable.initializer.inputs[1]
            if initial.ref() in feeds:
                later.append((variable, value))
            else:
                feeds[initial.ref()] = value
                operations.append(variable.initializer)
        run(operations, {initial.deref(): value for initial, value in feeds.items()})
        remaining = later


class SyncedSession(tf.compat.v1.Session):
    """A session that calls :attr:`reclaim` before every run, so that its variables are current.

    A learner that updates weights in its own memory sets :attr:`reclaim` to write them back. One thread at a time uses
    the session, so that no read or write of variables overlaps with an update in a learner's memory. Opening a session
    switches TensorFloat-32 off in the whole process, so that a GPU multiplies float32 numbers without rounding them.

    Attributes:
        reclaim: writes the variables back, with :meth:`run_as_is`.
        lock: held during every run, and by a learner while it updates the variables in its own memory.
        opened: whether this process, or the process it was forked from, has opened such a session.

    Raises:
        UsageError: if this process is a fork of one that had used TensorFlow.
    """

    reclaim: Callable[[], None] | None = None
    opened: ClassVar[bool] = False
    _session = None  # the base class's destructor reads it, even if the constructor raised

    def __init__(self) -> None:
        check_not_forked()
        SyncedSession.opened = True
        self.lock = FairLock()
        # By TensorFlow's default, GPUs round the factors of products to 10 bits of mantissa, in the whole process.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        config = v1.ConfigProto(gpu_options=v1.GPUOptions(allow_growth=True))
        # TensorFlow would rewrite the graph for every new set of fetches: seconds, though updates are compiled anyway.
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        super().__init__(config=config)

    def run(self, *arguments: Any, **options: Any) -> Any:
        """See ``tf.compat.v1.Session.run``."""
        return self.lock(self._reclaim_and_call, super().run, *arguments, **options)

    def _reclaim_and_call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if self.reclaim:
            self.reclaim()
        return function(*arguments, **options)

    def run_as_is(self, *arguments: Any, **options: Any) -> Any:
        """Run without reclaiming the variables first."""
        return super().run(*arguments, **options)

    def make_callable(self, *arguments: Any, **options: Any) -> Callable[..., Any]:
        """See ``tf.compat.v1.Session.make_callable``."""
        call = super().make_callable(*arguments, **options)

        return functools.partial(self.lock, self._reclaim_and_call, call)
