"""Environment errors: one-line messages, the policy for dropping bad transitions, and time limits of subprocesses."""

import contextlib
import functools
import multiprocessing
import multiprocessing.connection
import traceback
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv

from ddpg.errors import EnvironmentFault, UsageError, format_error

MAX_FAULTS_IN_A_ROW = 100  # steps or resets with a fault, without a good transition in between; the last one raises


def env_name(env: Any) -> str:
    """Return the id of ``env``, or the name of its class if it has none."""
    name = getattr(getattr(env, "spec", None), "id", None)  # an environment may have a spec of another kind
    return type(getattr(env, "unwrapped", env)).__name__ if name is None else name


def describe_reset(seed: int | None) -> str:
    """Return the words that name a reset by its seed."""
    return "without a seed" if seed is None else f"with seed {seed}"


class FaultCounter:
    """Raises an environment's faults, or with ``on_bad_transition="drop"`` counts those that are dropped.

    The transition of a dropped fault is not stored, and its episode is abandoned. A step or a reset counts once, even
    if several environments of a vector were at fault, and a good transition of any of them resets the count. The
    :data:`MAX_FAULTS_IN_A_ROW`-th fault in a row raises, so that environments that only fail are not stepped forever.
    """

    def __init__(self, on_bad_transition: str):
        self._drops = on_bad_transition == "drop"
        self._fault: EnvironmentFault | None = None  # of the current step or reset
        self._in_a_row = 0

    def record(self, fault: EnvironmentFault) -> None:
        """Raise ``fault``, or note it for :meth:`end_step`.

        Raises:
            EnvironmentFault: if faults are not dropped.
        """
        if not self._drops:
            raise fault
        self._fault = fault

    def end_step(self, good: bool) -> None:
        """Count a step or a reset in which a fault was noted; reset the count if it had a ``good`` transition.

        Raises:
            EnvironmentFault: if the count reaches :data:`MAX_FAULTS_IN_A_ROW`.
        """
        fault, self._fault = self._fault, None
        if good:
            self._in_a_row = 0
        elif fault is not None:
            self._in_a_row += 1
            if self._in_a_row >= MAX_FAULTS_IN_A_ROW:
                raise EnvironmentFault(
                    f"{fault}; that was step or reset {self._in_a_row} in a row with a fault, without a good "
                    "transition between them: on_bad_transition='drop' goes no further"
                )


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
    """A context that limits the duration of steps and resets of a vector of processes, which may be wrapped."""

    def __init__(self, env: Any, seconds: float):
        check_timeout(env, seconds)
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
