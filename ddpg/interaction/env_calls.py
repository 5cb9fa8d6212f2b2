"""Call users' environments safely: every call of an environment's method goes through this module.

An exception in an environment, even ``sys.exit()``, becomes an error of this call and does not end the program. Process
state that an environment changes is restored after the call: the streams, the handlers of three signals, NumPy's
error state, filters that turn warnings into errors, and, if a run writes files (:func:`own_directory`), the working
directory and the umask. State that this package does not use stays changed: environment variables, the locale, global
random states.

A vector's environments are wrapped in :class:`CheckedEnv`, so that their failures reach the caller with their cause.
Its processes can have a time limit (:class:`StepTimeout`), and are ended when one of them fails.
"""

import contextlib
import contextvars
import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv

from ddpg.errors import EnvironmentFault, UsageError, format_error
from ddpg.interaction.spaces import check_castable
from ddpg.interaction.validation import refuse_masked, validate_flag, validate_scalar

CLOSE_FAILED = 71  # exit status of a process whose environment failed in close, when its pipe is no longer read

_SIGNALS = tuple(number for number in signal.Signals if number.name in ("SIGINT", "SIGTERM", "SIGHUP"))
_TERMINAL_SIGNALS = tuple(number for number in _SIGNALS if number.name != "SIGTERM")  # Ctrl-C; a closed terminal
_CAN_BLOCK = hasattr(signal, "pthread_sigmask")  # not on Windows
# signal.getsignal looks its result up in an enumeration, which takes longer than everything else in the guard.
_get_handler = getattr(signal, "_signal", signal).getsignal
_IN_CONTEXT = int(np.__version__.partition(".")[0]) >= 2  # NumPy's error state is a context variable


def env_name(env: Any) -> str:
    """Return the id of ``env``, or the name of its class if it has none."""
    name = getattr(getattr(env, "spec", None), "id", None)  # an environment may have a spec of another kind
    return type(getattr(env, "unwrapped", env)).__name__ if name is None else name


def call(function: Callable, *arguments: Any, fault: Callable[[BaseException], Exception], **options: Any) -> Any:
    """Call a method of an environment; ``fault`` converts its exception to the one to raise.

    Raises:
        KeyboardInterrupt: if the environment raised it, or the user pressed Ctrl-C; it is not converted.
    """
    try:
        with ProcessStateGuard():
            return function(*arguments, **options)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise fault(error) from error


def exit_if_orphaned() -> None:
    """End this worker process when its parent dies, even while its environment hangs in a step."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "only processes that multiprocessing started have a parent"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="exit-if-orphaned", daemon=True).start()


def ignore_terminal_signals() -> None:
    """Ignore the signals that a terminal sends to all of a command's processes; the parent ends this one."""
    for number in _TERMINAL_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    if _CAN_BLOCK:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TERMINAL_SIGNALS)


@contextlib.contextmanager
def terminal_signals_blocked() -> Iterator[None]:
    """Block a terminal's signals in this thread within the block, and so in the processes that are started there.

    Such a process calls :func:`ignore_terminal_signals`; before that, a signal would end Python's start or the imports
    with a traceback. In this process the signals are handled by another thread, or after the block.
    """
    if not _CAN_BLOCK:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TERMINAL_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ProcessStateGuard:
    """A context that restores, at its end, process state that an environment has changed in it."""

    __slots__ = ("_context", "_errors", "_filters", "_handlers", "_main", "_streams")

    def __enter__(self) -> None:
        # Only the main thread restores streams, filters and handlers: another thread could undo its changes halfway.
        self._main = threading.current_thread() is threading.main_thread()
        self._streams = sys.stdout, sys.stderr
        self._filters = warnings.filters[:]
        self._handlers = [*map(_get_handler, _SIGNALS)]
        self._context = contextvars.copy_context()
        self._errors = None if _IN_CONTEXT else np.geterr()
        if _directories is not None:
            _directories.enter()

    def __exit__(self, *error: object) -> None:
        if _directories is not None:
            _directories.leave()
        if contextvars.copy_context() != self._context:
            np.seterr(**self._context.run(np.geterr))
        elif self._errors is not None and np.geterr() != self._errors:
            np.seterr(**self._errors)
        if not self._main:
            return
        if (sys.stdout, sys.stderr) != self._streams:
            sys.stdout, sys.stderr = self._streams
        if warnings.filters != self._filters:
            _restore_filters(self._filters)
        if [*map(_get_handler, _SIGNALS)] != self._handlers:
            for number, handler in zip(_SIGNALS, self._handlers, strict=True):
                if _get_handler(number) is not handler and handler is not None:
                    signal.signal(number, handler)


def _restore_filters(before: Any) -> None:
    """Remove filters that an environment added to turn warnings into errors; keep those that silence warnings."""
    added = [entry for entry in warnings.filters if entry not in before and entry[0] != "error"]
    warnings.resetwarnings()  # the only way to make Python consult changed filters again
    warnings.filters[:] = [*added, *before]  # type: ignore[index]


class _Directories:
    """Switches between the program's working directory and the one that environments have changed to.

    An environment that changed to its own folder finds itself there again in its next step.
    """

    def __init__(self) -> None:
        self._ours, self._theirs = _working_directory(), ""
        self._umask = os.umask(0o077)
        os.umask(self._umask)

    def enter(self) -> None:
        """Change to the environments' directory."""
        if self._theirs:
            with contextlib.suppress(OSError):
                os.chdir(self._theirs)

    def leave(self) -> None:
        """Change back to the program's directory."""
        os.umask(self._umask)
        now = _working_directory()
        if now != self._ours and self._ours:
            self._theirs = now
            os.chdir(self._ours)


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""


_directories: _Directories | None = None


@contextlib.contextmanager
def own_directory() -> Iterator[None]:
    """Keep the program's working directory and umask within the block, whatever environments change."""
    global _directories
    if _directories is not None:
        yield
        return
    _directories = _Directories()
    try:
        yield
    finally:
        _directories = None


def async_vector_of(env: Any) -> AsyncVectorEnv | None:
    """Return the ``AsyncVectorEnv`` that ``env`` is or wraps; ``None`` if there is none."""
    inner = env.unwrapped if isinstance(env, gym.vector.VectorEnv) else None
    return inner if isinstance(inner, AsyncVectorEnv) else None


def check_timeout(env: Any, seconds: float | None) -> None:
    """Check that a ``step_timeout`` can be enforced: an environment in this process cannot be stopped.

    Raises:
        UsageError: if ``env`` is not a vector of processes.
    """
    if seconds is not None and async_vector_of(env) is None:
        raise UsageError(
            f"step_timeout={seconds} needs environments in processes of their own, since one in this process cannot "
            "be ended: give --n-envs 2 (or more) --vectorization async, in Python train(..., n_envs=2, "
            "vectorization='async') or an environment gymnasium.make_vec(ID, num_envs=1, vectorization_mode='async')"
        )


class StepTimeout:
    """A context that limits the duration of steps and resets of a vector of processes (:func:`check_timeout`)."""

    def __init__(self, env: Any, seconds: float):
        self._inner: Any = async_vector_of(env)
        self._seconds = seconds

    def __enter__(self) -> None:
        # step_wait() takes a timeout, but gymnasium's step() does not pass one on.
        for name in ("step_wait", "reset_wait"):
            setattr(self._inner, name, functools.partial(getattr(self._inner, name), timeout=self._seconds))

    def __exit__(self, *error: object) -> None:
        for name in ("step_wait", "reset_wait"):
            delattr(self._inner, name)


def describe_failure(env: Any, error: BaseException, seconds: float | None) -> tuple[int | None, str]:
    """Return the index of the vector's environment that failed, if known, and the failure in one line."""
    inner = async_vector_of(env)
    if inner is None:
        return _raised_by(env, error), format_error(error)
    failed = [index for index, pipe in enumerate(inner.parent_pipes) if pipe is None]
    if failed:
        return failed[-1], format_error(error)
    if isinstance(error, multiprocessing.TimeoutError):
        silent = [index for index, pipe in enumerate(inner.parent_pipes) if not pipe.poll()]
        return (silent[0] if silent else None), f"no answer within {seconds} s (step_timeout)"
    if isinstance(error, (EOFError, OSError)):
        # The pipe of a process breaks a moment before the process is gone.
        gone = multiprocessing.connection.wait([process.sentinel for process in inner.processes], timeout=5)
        for index, process in enumerate(inner.processes):
            if process.sentinel in gone:
                process.join(timeout=5)
                return index, f"its process ended with exit code {process.exitcode} ({type(error).__name__})"
    return None, format_error(error)


def _raised_by(env: Any, error: BaseException) -> int | None:
    """Return the index of the environment that raised ``error`` in a vector of this process, if known.

    The vector does not tell, but the traceback does: there the environment is ``self``.
    """
    indices = {id(one): index for index, one in enumerate(getattr(env.unwrapped, "envs", ()))}
    calls = (id(frame.f_locals.get("self")) for frame, _ in traceback.walk_tb(error.__traceback__))
    return next((indices[call] for call in calls if call in indices), None)


def terminate_processes(env: Any) -> None:
    """End the processes of a vector that failed; they would keep this process from ending."""
    inner = async_vector_of(env)
    if inner is None or inner.closed:
        return
    for process in inner.processes:
        process.kill()  # a process that hangs in compiled code ignores SIGTERM
    for pipe in inner.parent_pipes:
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    for process in inner.processes:
        process.join()
    inner.closed = True


def close(env: Any) -> None:
    """Close an environment.

    Raises:
        EnvironmentFault: if it failed, in this process or in a worker process of a vector.
    """
    vector = async_vector_of(env)
    where = f"environment {env_name(env)} failed in close"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        call(env.close, fault=lambda error: EnvironmentFault(f"{where}: {format_error(error)}"))
    processes = [] if vector is None else vector.processes
    for index, process in enumerate(processes):
        if process.exitcode == CLOSE_FAILED:
            raise EnvironmentFault(f"{where}: number {index} of {len(processes)}")


def close_quietly(env: Any) -> None:
    """Close an environment and ignore its errors, because it was only inspected or has failed before."""
    with contextlib.suppress(EnvironmentFault, KeyboardInterrupt):
        close(env)


@contextlib.contextmanager
def closing(env: Any) -> Iterator[Any]:
    """Yield an environment, and close it; an error in ``close`` does not replace an error within the block.

    Raises:
        EnvironmentFault: if ``close`` failed.
    """
    try:
        yield env
    except BaseException:
        close_quietly(env)
        raise
    close(env)


def unpacked_reset(returned: Any) -> Any:
    """Return the observation that a reset returned.

    Raises:
        UsageError: if the reset did not return a tuple ``(observation, info)``.
    """
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise UsageError(f"reset returned {_shape_of(returned)}; expected a tuple (observation, info)")
    _check_info(returned[1], "reset")
    return returned[0]


def unpacked_step(returned: Any) -> tuple[Any, ...]:
    """Return the five values that a step returned.

    Raises:
        UsageError: if the step did not return ``(observation, reward, terminated, truncated, info)``.
    """
    if not isinstance(returned, (tuple, list)) or len(returned) != 5:
        raise UsageError(
            f"step returned {_shape_of(returned)}; expected (observation, reward, terminated, truncated, info)"
        )
    if type(returned[4]) is not dict:
        _check_info(returned[4], "step")
    return tuple(returned)


def _check_info(info: Any, what: str) -> None:
    if not isinstance(info, Mapping):
        named = "None" if info is None else f"a {type(info).__name__}"
        wrapper = ", and leave out gymnasium's DictInfoToList" * isinstance(info, list)
        raise UsageError(
            f"info of {what} is {named}; expected a dict: return {{}} where there is nothing to tell{wrapper}"
        )


def _shape_of(returned: Any) -> str:
    kind = type(returned).__name__
    return f"a {kind} of {len(returned)} values" if isinstance(returned, (tuple, list)) else f"a {kind}"


class CheckedEnv(gym.Wrapper):
    """One environment of a vector; its failures reach the vector as an :class:`EnvironmentFault`.

    Needed because gymnasium's vectors copy what environments return into arrays before it can be checked: masks are
    lost, ``"False"`` becomes a true flag, an observation of another shape is broadcast. They also end silently on
    ``sys.exit()``, and not every exception can be sent between processes. NaN passes, so that it can be dropped.

    Args:
        env: the environment.
        in_worker: whether this is a worker process that steps only this environment; its parent handles Ctrl-C.
    """

    def __init__(self, env: gym.Env, in_worker: bool = False):
        super().__init__(env)
        self._in_worker = in_worker
        space = env.observation_space
        self._box = space if isinstance(space, gym.spaces.Box) else None

    def reset(self, **options: Any) -> Any:
        """Reset, as the environment does.

        Raises:
            EnvironmentFault: if it failed, or the observation is not of its space's shape and kind of numbers.
        """
        returned = self._call(self.env.reset, **options)
        with _as_fault():
            self._check(unpacked_reset(returned))
        return returned

    def step(self, action: Any) -> Any:
        """Step, as the environment does.

        Raises:
            EnvironmentFault: if it failed, or returned an observation that is not of its space's shape and kind of
                numbers, a reward that is not a number, or flags that are not booleans.
        """
        returned = self._call(self.env.step, action)
        with _as_fault():
            values = unpacked_step(returned)
            observation, reward, terminated, truncated, _ = values
            self._check(observation)
            validate_scalar(reward, "reward")
            validate_flag(terminated, "terminated")
            validate_flag(truncated, "truncated")
        return values

    def close(self) -> None:
        """Close, as the environment does.

        Raises:
            EnvironmentFault: if it failed.
            SystemExit: if it failed in a worker process, with status
                :data:`~ddpg.interaction.env_calls.CLOSE_FAILED`.
        """
        try:
            self._call(self.env.close)
        except EnvironmentFault:
            if self._in_worker:
                raise SystemExit(CLOSE_FAILED) from None
            raise

    def _check(self, observation: Any) -> None:
        if self._box is not None:
            check_castable(self._box, observation)
        else:
            refuse_masked(observation, "observation")

    def _call(self, function: Callable, *arguments: Any, **options: Any) -> Any:
        try:
            return call(function, *arguments, fault=lambda error: EnvironmentFault(format_error(error)), **options)
        except KeyboardInterrupt as error:
            if self._in_worker:
                raise EnvironmentFault(format_error(error)) from error
            raise


class ProbedEnv(CheckedEnv):
    """An environment that is only inspected, for example for its spaces; ``close`` raises nothing."""

    def close(self) -> None:
        """Close, and ignore every error."""
        close_quietly(self.env)


@contextlib.contextmanager
def _as_fault() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        raise EnvironmentFault(str(error)) from None
