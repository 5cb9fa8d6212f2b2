"""The base of all agents: it owns a TensorFlow graph and session, gives access to their variables, and closes them."""

import abc
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from ddpg.errors import UsageError, brief, did_you_mean
from ddpg.interaction.validation import validate_bool, validate_numeric
from ddpg.learners.synced_session import SyncedSession, assign_variables

Self = TypeVar("Self", bound="TFAgent")
Method = TypeVar("Method", bound=Callable[..., Any])


_this_process = os.getpid()  # asking the system at every step of learning would take microseconds


def _note_fork() -> None:
    global _this_process
    _this_process = os.getpid()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def exclusive(method: Method) -> Method:
    """Decorate methods of an agent so that only one thread at a time runs any of them; they may call each other.

    They raise the errors of :meth:`TFAgent.check_usable`.
    """

    @functools.wraps(method)
    def locked(self: "TFAgent", *arguments: Any, **options: Any) -> Any:
        if _this_process != self._process:  # in a fork, a thread that does not exist there may hold the lock
            self.check_usable()
        return self.session.lock(_checked, self, method, arguments, options)

    return locked  # type: ignore[return-value]  # the same signature


def _checked(owner: "TFAgent", method: Callable[..., Any], arguments: tuple, options: Mapping[str, Any]) -> Any:
    if owner.closed:  # perhaps by another thread while this one waited
        owner.check_usable()
    return method(owner, *arguments, **options)


class TFAgent(abc.ABC):
    """Owner of a graph and its session, which are released by :meth:`close`, or when the object is deleted.

    Threads may share an agent: methods marked :func:`exclusive` wait for each other. docs/reliability.md says which
    calls may run at the same time.

    Attributes:
        graph: the TensorFlow graph.
        session: the session that holds its variables.
        global_variables: by name, all variables that learning changes; learning rates are options and not among them.
        closed: whether :meth:`close` was called.
    """

    graph: tf.Graph
    session: SyncedSession
    global_variables: dict[str, tf.Variable]
    closed: bool = False
    _learning_thread: int | None = None

    def _own(self, session: SyncedSession) -> None:
        """Become the owner of a session that was made in this process."""
        self.session, self._process = session, _this_process
        # The session holds threads and device memory: release them when the object is deleted.
        self._finalizer = weakref.finalize(self, _close, session, self._process)

    # -- closing --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the session, its threads and its device memory; further calls do nothing.

        The environment stays open. ``with DDPG(env) as agent:`` closes the agent at the end of the block.

        Raises:
            UsageError: if ``learn`` is running, in this thread or in another.
        """
        if _this_process == self._process:
            self.session.lock(self._close)
        else:  # in a fork the lock may never be free, and there is no session to release
            self._release()

    def _close(self) -> None:
        if self._learning_thread is not None:
            raise UsageError(
                "close() while learn() is under way: it would go on without its session; call stop(), wait until "
                "learn() has returned, and close then"
            )
        self._release()

    def _release(self) -> None:
        self.closed = True
        self._finalizer()

    @contextlib.contextmanager
    def _learning(self) -> Iterator[None]:
        """Mark ``learn`` as running in this thread, inside the block; refuse it if it runs already, in any thread."""
        me = threading.get_ident()
        if self._learning_thread == me:
            raise UsageError(
                "learn() within learn() of the same agent: a callback or the environment calls it while it is under "
                "way; give the first call as many total_timesteps as are wanted (a callback ends it by returning "
                "False), and call learn() again when it has returned"
            )
        try:
            self.session.lock(self._begin_learning)
            yield
        finally:
            if self._learning_thread == me:
                self._learning_thread = None

    def _begin_learning(self) -> None:
        me = threading.get_ident()
        if self._learning_thread not in (None, me):
            raise UsageError(
                "learn() is under way in another thread, and one environment cannot be stepped by two: wait until it "
                "has returned (stop() asks it to), or give each thread an agent of its own"
            )
        self._learning_thread = me

    def __enter__(self: Self) -> Self:
        self.check_usable()
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def check_usable(self) -> None:
        """Check that the agent is open, and in the process that made it: TensorFlow's threads do not exist in a fork.

        Raises:
            UsageError: if it is closed, or this is a fork.
        """
        if _this_process != self._process:
            raise UsageError(
                f"this agent was made in process {self._process}, and TensorFlow's threads do not exist in the fork "
                f"{_this_process}, where it would hang; start processes with multiprocessing.get_context('spawn'), and "
                "load a saved agent in each"
            )
        if self.closed:
            raise UsageError(
                "this agent is closed, and its weights are gone; use it before close(), or load a saved one"
            )

    def __reduce__(self):
        """Refuse pickling and copying with a UsageError: a session belongs to its process."""
        name = type(self).__name__
        raise UsageError(
            f"a {name} cannot be pickled or copied; use save and load: agent.save(path), {name}.load(path, env)"
        )

    # -- variables ------------------------------------------------------------------------------------

    @exclusive
    def get_parameters(self) -> dict[str, np.ndarray]:
        """Return copies of all variables that gradient updates change, by name.

        These are the weights, target networks (moving averages), optimiser slots, statistics of normalisation layers
        and the update counter: :meth:`set_parameters` needs them all for updates to continue exactly. Learning rates
        are options; the replay memory, ``num_timesteps`` and random states are in checkpoints (``save``).

        Raises:
            UsageError: if the agent is closed.
        """
        return self.session.run(self.global_variables)

    @exclusive
    def set_parameters(self, parameters: Mapping[str, Any], exact_match: bool = True) -> None:
        """Set variables to the result of :meth:`get_parameters`, of this agent or one with the same networks.

        Args:
            parameters: arrays by name, of the same shapes, finite; floats of another precision are converted.
            exact_match: require every variable; otherwise variables that are not given stay as they are.

        Raises:
            UsageError: if a name is unknown or missing, an array has another shape or dtype or holds NaN, or the agent
                is closed. Nothing is set then.
        """
        if not isinstance(parameters, Mapping):
            raise UsageError(f"parameters={brief(parameters)} must be a dict of arrays by name, as of get_parameters()")
        exact_match = validate_bool(exact_match, "exact_match")
        values = {name: validate_numeric(value, f"parameter {name!r}") for name, value in parameters.items()}
        for name, value in values.items():
            if name not in self.global_variables:
                raise UsageError(
                    f"the agent has no parameter {name!r}{did_you_mean(name, self.global_variables)}; "
                    "get_parameters() has their names"
                )
            dtype = self.global_variables[name].dtype.base_dtype.as_numpy_dtype
            if value.dtype != dtype and value.dtype.kind == np.dtype(dtype).kind:
                with np.errstate(over="ignore"):  # becomes infinity, which is refused
                    values[name] = value = value.astype(dtype)
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise UsageError(
                    f"parameter {name!r} holds numbers that are not finite as {value.dtype}; give finite ones"
                )
        wanted = {name: v for name, v in self.global_variables.items() if exact_match or name in values}
        advice = "give all that get_parameters() returns of the same networks, or exact_match=False for some"
        check_variables(wanted, values, "set_parameters", advice)
        self.assign(values)

    @exclusive
    def assign(self, values: Mapping[str, np.ndarray]) -> None:
        """Set variables to arrays that :func:`check_variables` has accepted."""
        assign_variables(self.session.run, [self.global_variables[name] for name in values], [*values.values()])
        self.refresh_policy()

    @abc.abstractmethod
    def refresh_policy(self) -> None:
        """Update the policy after variables were set."""


def check_variables(variables: Mapping[str, Any], values: Mapping[str, np.ndarray], source: str, advice: str) -> None:
    """Check that values fit ``variables``, TensorFlow's, by name, shape and dtype.

    Raises:
        UsageError: if a value is missing, has no variable, or has another shape or dtype. The message names the
            ``source`` of the values and gives ``advice``.
    """
    if variables.keys() != values.keys():
        missing, extra = sorted(variables.keys() - values.keys()), sorted(values.keys() - variables.keys())
        raise UsageError(
            f"{source} does not fit these networks: it lacks {missing[:3] or 'nothing'}, and has "
            f"{extra[:3] or 'nothing'} that they do not; {advice}"
        )
    for name, variable in variables.items():
        if values[name].shape != tuple(variable.shape):
            raise UsageError(
                f"{name} has shape {values[name].shape} in {source} and {tuple(variable.shape)} here; {advice}"
            )
        if values[name].dtype != variable.dtype.base_dtype.as_numpy_dtype:
            raise UsageError(
                f"{name} has dtype {values[name].dtype} in {source} and {variable.dtype.base_dtype.name} here; {advice}"
            )


def _close(session: tf.compat.v1.Session, process: int) -> None:
    if _this_process == process:  # in a fork, closing would wait for threads that do not exist there
        session.close()
