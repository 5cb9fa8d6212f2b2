"""Environments in processes of their own: how long they may take, which one failed, and an end to them all."""

import contextlib
import functools
import multiprocessing
import multiprocessing.connection
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv

from ddpg.errors import UsageError
from ddpg.experience.faults import said


def processes_of(env: Any) -> AsyncVectorEnv | None:
    """Return the vector of processes that ``env`` is, or wraps, if any."""
    inner = env.unwrapped if isinstance(env, gym.vector.VectorEnv) else None
    return inner if isinstance(inner, AsyncVectorEnv) else None


def check_timeout(env: Any, seconds: float | None) -> None:
    """Refuse a ``step_timeout`` that nothing can keep: an environment in this very process cannot be ended.

    Raises:
        UsageError: ``env`` is no vector of processes.
    """
    if seconds is not None and processes_of(env) is None:
        raise UsageError(
            f"step_timeout={seconds} needs environments in processes of their own, since one in this process cannot "
            "be ended: give --n-envs 2 (or more) --vectorization async, in Python train(..., n_envs=2, "
            "vectorization='async') or an environment gymnasium.make_vec(ID, num_envs=1, vectorization_mode='async')"
        )


class Limit:
    """A context in which steps and resets of a vector of processes end after some seconds, through wrappers too."""

    def __init__(self, env: Any, seconds: float):
        check_timeout(env, seconds)
        self._inner: Any = processes_of(env)
        self._seconds = seconds

    def __enter__(self) -> None:
        # gymnasium's step() passes no timeout on to step_wait(), which would take one.
        for name in ("step_wait", "reset_wait"):
            setattr(self._inner, name, functools.partial(getattr(self._inner, name), timeout=self._seconds))

    def __exit__(self, *error: object) -> None:
        for name in ("step_wait", "reset_wait"):
            delattr(self._inner, name)


def explained(env: Any, error: BaseException, seconds: float | None) -> tuple[int | None, str]:
    """Return which environment of a vector failed, where that can be known, and how, in one line."""
    inner = processes_of(env)
    if inner is None:
        return None, said(error)
    failed = [index for index, pipe in enumerate(inner.parent_pipes) if pipe is None]
    if failed:
        return failed[-1], said(error)
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
    return None, said(error)


def end(env: Any) -> None:
    """End the processes of a vector that failed: they would keep this one from ending, or wait for it for ever."""
    inner = processes_of(env)
    if inner is None or inner.closed:
        return
    for process in inner.processes:
        process.kill()  # one that hangs in compiled code heeds nothing less
    for pipe in inner.parent_pipes:
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    for process in inner.processes:
        process.join()
    inner.closed = True
