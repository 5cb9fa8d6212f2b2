"""A session that first takes back variables that the native learner holds in its own memory.

Threads use it one at a time, and each that waits gets its turn.
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
    """Calls functions one at a time, whichever threads ask; a call may make further calls in its own thread.

    A plain lock goes back to the thread that released it if that thread asks again at once: a loop of updates would
    keep every other thread out for seconds. Here a thread waits for the lock behind a second lock, which whoever asks
    next has to pass first. Both are held by ``with`` statements on C objects alone, so that a Ctrl-C anywhere in here
    leaves neither locked. It costs about half a microsecond where nobody waits.
    """

    def __init__(self) -> None:
        self._queue, self._lock = threading.Lock(), threading.RLock()
        self._owner: int | None = None

    def __call__(self, function: Callable[..., Result], *arguments: Any, **options: Any) -> Result:
        """Return ``function(*arguments, **options)``, called while no other thread calls by this lock."""
        me = threading.get_ident()
        if self._owner != me:  # who owns it may not queue behind a thread that waits for it
            with self._queue, self._lock:
                pass
        with self._lock:
            before, self._owner = self._owner, me
            try:
                return function(*arguments, **options)
            finally:
                self._owner = before


_user_of_tensorflow: int | None = None  # the process whose use of TensorFlow this one is a fork of


def check_not_forked() -> None:
    """Refuse TensorFlow in a fork of a process that has used it: its threads do not exist there, and it would hang.

    Raises:
        UsageError: if this process is such a fork.
    """
    if _user_of_tensorflow is not None:
        raise UsageError(
            f"process {os.getpid()} is a fork of process {_user_of_tensorflow}, which had used TensorFlow: its threads "
            "do not exist here, so an agent would hang; start processes with multiprocessing.get_context('spawn'), or "
            "fork before TensorFlow is used"
        )


def _note_fork() -> None:
    global _user_of_tensorflow
    # Sessions and eager operations both begin by making this context; importing TensorFlow does not.
    if _user_of_tensorflow is None and (getattr(eager.context(), "_initialized", False) or SyncedSession.opened):
        _user_of_tensorflow = os.getppid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def assign_variables(run: Callable[..., Any], variables: Sequence[tf.Variable], values: Sequence[np.ndarray]) -> None:
    """Set variables with as few calls of a session's ``run`` as possible, mostly one, and without new ops.

    A variable's initialiser assigns its second input, so feeding that input sets any value. Variables that share one
    initial tensor are set in separate calls.
    """
    left = list(zip(variables, values, strict=True))
    while left:
        feeds: dict[Any, np.ndarray] = {}
        operations, later = [], []
        for variable, value in left:
            initial = variable.initializer.inputs[1]
            if initial.ref() in feeds:
                later.append((variable, value))
            else:
                feeds[initial.ref()] = value
                operations.append(variable.initializer)
        run(operations, {initial.deref(): value for initial, value in feeds.items()})
        left = later


class SyncedSession(tf.compat.v1.Session):
    """A session that calls :attr:`reclaim` before it runs anything, so that its variables are current.

    A learner that updates weights in its own memory sets :attr:`reclaim` to write them back. One thread at a time uses
    the session, so that no read or write of variables overlaps with an update elsewhere. Opening one switches
    TensorFloat-32 off in the process, so that a GPU multiplies float32 numbers as such.

    Attributes:
        reclaim: called before anything runs; writes the variables back, by :meth:`run_as_is`.
        lock: held while anything runs, and by a learner while it updates the variables elsewhere.
        opened: whether this process, or the process it was forked from, has opened such a session.

    Raises:
        UsageError: if this process is a fork of one that had used TensorFlow.
    """

    reclaim: Callable[[], None] | None = None
    opened: ClassVar[bool] = False
    _session = None  # which the base class's destructor reads, also where the constructor raised

    def __init__(self) -> None:
        check_not_forked()
        SyncedSession.opened = True
        self.lock = FairLock()
        # GPUs would round what they multiply to 10 bits of mantissa, in all of the process: TensorFlow's default.
        tf.config.experimental.enable_tensor_float_32_execution(False)
        config = v1.ConfigProto(gpu_options=v1.GPUOptions(allow_growth=True))
        # TensorFlow would rewrite the graph anew for whatever is fetched first: seconds, for what is compiled anyway.
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
