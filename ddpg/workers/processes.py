"""Run workers as processes on this machine, each with its own pipe, and with the weights in shared memory."""

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import multiprocessing.resource_tracker
import os
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ddpg.interaction import env_calls
from ddpg.workers.worker import (
    CLOSE_LIMIT,
    EnvironmentFailed,
    Event,
    RolloutRequest,
    WorkerDied,
    WorkerService,
    WorkerSpec,
)
from ddpg.workers.worker_options import GUARD

START_LIMIT = 1800.0  # seconds to import the main module and make the environment, after which a worker counts as hung
# Exit code 1 before any message: Python could not import the main module or unpickle the worker, nor could it again.
_NOT_STARTED = (
    "before it could make the environment; its messages on stderr say why; a script that trains with workers needs "
    f"{GUARD}, because every worker process imports it"
)
_ENDED = -2  # in place of the newest version: the workers are to end
_SLOTS = 2  # the newest weights, and the previous ones, which a worker may still be reading


class SharedWeights:
    """The newest weights in shared memory without locks: one process writes, the others read.

    Version n is written to slot n mod 2, so that readers of version n − 1 are not disturbed. A reader that is overtaken
    by two versions notices the changed version number of its slot, and reads again.

    Args:
        arrays: arrays with the shapes and dtypes of the weights.
        context: the multiprocessing context of the readers.
    """

    def __init__(self, arrays: Sequence[np.ndarray], context: Any):
        self._layout = [(array.shape, array.dtype.str) for array in arrays]
        self._numbers = context.RawArray(ctypes.c_int64, [-1] * (1 + _SLOTS))  # the newest version, then each slot's
        self._bytes = context.RawArray(ctypes.c_byte, max(1, _SLOTS * sum(array.nbytes for array in arrays)))

    def write(self, version: int, arrays: Sequence[np.ndarray]) -> None:
        """Make ``arrays`` the newest; ``version`` is one more than the last."""
        slot = version % _SLOTS
        self._numbers[1 + slot] = -1
        for place, array in zip(self._slot_views(slot), arrays, strict=True):
            place[...] = array
        self._numbers[1 + slot] = version
        self._numbers[0] = version

    def end(self) -> None:
        """Ask the readers to end; nothing is written after that."""
        self._numbers[0] = _ENDED

    @property
    def ended(self) -> bool:
        """Whether the readers are to end."""
        return self._numbers[0] == _ENDED

    def read(self, known: int) -> tuple[int, list[np.ndarray]] | None:
        """Return the newest version and a copy of its arrays, or ``None`` if it is ``known``."""
        while (version := self._numbers[0]) not in (known, _ENDED):
            slot = version % _SLOTS
            arrays = [place.copy() for place in self._slot_views(slot)]
            if self._numbers[1 + slot] == version:
                return version, arrays
        return None

    def _slot_views(self, slot: int) -> list[np.ndarray]:
        buffer = np.frombuffer(self._bytes, np.int8)
        places, start = [], slot * (len(buffer) // _SLOTS)
        for shape, dtype in self._layout:
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            places.append(buffer[start : start + size].view(dtype).reshape(shape))
            start += size
        return places


class ProcessTransport:
    """Runs each worker in its own process, which it reaches through a pipe.

    Args:
        spec: how workers are built.
    """

    start_limit: float | None = START_LIMIT

    def __init__(self, spec: WorkerSpec):
        self._spec = spec
        # Spawned, not forked: a fork would copy TensorFlow's memory without its threads.
        self._context = multiprocessing.get_context("spawn")
        self._weights: SharedWeights | None = None
        self._workers: dict[int, tuple[int, Any, Any]] = {}  # by number: epoch, process, pipe
        self._answered: set[int] = set()  # numbers of workers that have sent a message

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [process.pid for _, process, _ in self._workers.values()]

    def publish(self, version: int, arrays: Sequence[np.ndarray]) -> None:
        """Write the weights to shared memory."""
        if self._weights is None:
            self._weights = SharedWeights(arrays, self._context)
        self._weights.write(version, arrays)

    def start(self, worker: int, epoch: int) -> None:
        """Start a process, which replaces the worker of this number if there is one."""
        self._end(worker)
        pipe, theirs = self._context.Pipe()
        arguments = (theirs, self._spec, self._weights, worker, epoch)
        process = self._context.Process(target=_serve, args=arguments, name=f"ddpg-worker-{worker}", daemon=True)
        if os.name == "posix":
            multiprocessing.resource_tracker.ensure_running()  # its start would unblock SIGINT below
        with env_calls.terminal_signals_blocked():
            process.start()
        theirs.close()
        self._workers[worker] = epoch, process, pipe

    def request(self, request: RolloutRequest) -> None:
        """Send a request."""
        with contextlib.suppress(OSError):  # the worker is gone, which the next poll reports
            self._workers[request.worker][2].send(request)

    def poll(self, timeout: float) -> list[Event]:
        """Return the messages that workers have sent, and a :class:`WorkerDied` for each that is gone.

        For one that could not be started at all it is an :class:`EnvironmentFailed`.
        """
        pipes: dict[Any, int] = {pipe: number for number, (_, _, pipe) in self._workers.items()}
        events: list[Event] = []
        for ready in multiprocessing.connection.wait(list(pipes), timeout):
            number = pipes[ready]
            epoch, process, pipe = self._workers[number]
            try:
                events.append(pipe.recv())
                self._answered.add(number)
            except (EOFError, OSError):
                process.join(timeout=5)
                answered = number in self._answered
                self._end(number)
                why = f"its process ended with exit code {process.exitcode}"
                if process.exitcode == 1 and epoch == 0 and not answered:
                    events.append(EnvironmentFailed(number, epoch, f"{why} {_NOT_STARTED}"))
                else:
                    events.append(WorkerDied(number, epoch, why))
        return events

    def close(self) -> None:
        """End all processes; each closes its environment first, unless that takes longer than ``CLOSE_LIMIT``."""
        if self._weights is not None:
            self._weights.end()
        for _, _, pipe in self._workers.values():
            pipe.close()
        deadline = time.monotonic() + CLOSE_LIMIT
        for _, process, _ in self._workers.values():
            process.join(max(0.0, deadline - time.monotonic()))
        for number in list(self._workers):
            self._end(number)

    def _end(self, number: int) -> None:
        self._answered.discard(number)
        if number in self._workers:
            _, process, pipe = self._workers.pop(number)
            pipe.close()
            process.kill()  # a worker that hangs in compiled code reacts to nothing else
            process.join()


def _serve(pipe: Any, spec: WorkerSpec, weights: SharedWeights, number: int, epoch: int) -> None:
    """Answer requests until the pipe is closed; the main function of a worker's process."""
    env_calls.exit_if_orphaned()
    env_calls.ignore_terminal_signals()
    worker = WorkerService(spec, number, epoch)
    try:
        pipe.send(worker.ready())
        while True:
            pipe.send(worker.answer(pipe.recv(), weights.read, lambda: weights.ended))
    except (EOFError, OSError):
        return
    finally:
        worker.close()
