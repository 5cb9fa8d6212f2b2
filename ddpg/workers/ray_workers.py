"""Workers as Ray actors of one CPU each: weights and rollouts travel through the object store.

Where the cluster has no room an actor waits: so a node that leaves shrinks the pool, and one that joins lets it grow
again, up to as many workers as were asked for.
"""

import collections
import contextlib
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ddpg.compiler.thread_pool import available_cores
from ddpg.errors import EnvironmentFault, UsageError
from ddpg.interaction.env_errors import format_error
from ddpg.workers.messages import EnvironmentFailed, Event, RolloutRequest, WorkerDied, WorkerReady, WorkerSpec
from ddpg.workers.worker import Worker
from ddpg.workers.worker_options import import_ray


def connect_to_ray(address: str | None, cpus: int) -> tuple[Any, bool]:
    """Connect, unless this process is connected already.

    Args:
        address: ``HOST:PORT`` of a cluster's head, or ``"auto"``; none: the one that this process is connected to, that
            of the environment variable ``RAY_ADDRESS``, or one of this machine.
        cpus: of a cluster of this machine; at least those that this process may use.

    Returns:
        Ray, and whether the connection is this call's, so that who called ends it.

    Raises:
        UsageError: Ray is not installed, or an address that is none.
        EnvironmentFault: no cluster can be reached or started.
    """
    ray = import_ray()
    if ray.is_initialized():
        return ray, False
    name = "ray_address"
    if address is None:
        name, address = "RAY_ADDRESS", os.environ.get("RAY_ADDRESS") or None
    if address is not None and address != "auto":
        _check_reachable(name, address)
    here = address is None
    size = {"num_cpus": max(cpus, available_cores()), "include_dashboard": False} if here else {}
    with _signal_handlers_preserved():
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False, **size)
        except Exception as error:  # whatever Ray raises where nobody answers
            where = (
                "a cluster on this machine could not be started" if here else f"no Ray cluster answers at {address!r}"
            )
            raise EnvironmentFault(f"{where}: {format_error(error)}") from None
    return ray, True


@contextlib.contextmanager
def _signal_handlers_preserved() -> Iterator[None]:
    """Bring the handlers of signals back: Ray takes SIGTERM for itself."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _check_reachable(name: str, address: str) -> None:
    """Refuse an address that is none, or where nobody listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in address:
        raise UsageError(f"{name}={address!r} must be 'auto', or HOST:PORT of a cluster's head such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise EnvironmentFault(
            f"no Ray cluster answers at {address!r} ({format_error(error)}); start one with: ray start --head"
        ) from None


class RayWorkerActor:
    """What runs on the cluster; nothing of it raises but what is a fault of ours.

    Args:
        assignment: what the worker is made of.
        number, epoch: of the worker.
    """

    def __init__(self, assignment: WorkerSpec, number: int, epoch: int):
        self._number, self._epoch = number, epoch
        self._worker: Worker | None = None
        self._failed: EnvironmentFailed | None = None
        try:
            self._worker = Worker(assignment, number, epoch)
        except (Exception, KeyboardInterrupt) as error:
            self._failed = self._failure(error)

    def ready(self) -> WorkerReady | EnvironmentFailed:
        """Return that there is an environment, or why not."""
        return self._failed or WorkerReady(self._number, self._epoch)

    def rollout(self, request: RolloutRequest, version: int, weights: list) -> Event:
        """Return a rollout with the weights of ``version``, of which ``weights`` holds the reference."""
        worker = self._worker
        if worker is None:
            return self.ready()
        try:
            if version > worker.version:
                worker.load(version, import_ray().get(weights[0]))
            return worker.rollout(request)
        except (UsageError, KeyboardInterrupt) as error:
            return self._failure(error)

    def _failure(self, error: BaseException) -> EnvironmentFailed:
        return EnvironmentFailed(self._number, self._epoch, format_error(error))


class _RemoteWorker(NamedTuple):
    """An actor, and what it was asked for and has not answered, the oldest first."""

    epoch: int
    actor: Any
    asked: collections.deque


class RayTransport:
    """Starts an actor a worker.

    Args:
        assignment: what the workers are made of.
        address: of a cluster that is there; none: the one that this process is connected to, or one of this machine
            with as many CPUs as there are workers, which ends with :meth:`close`.

    Raises:
        UsageError: Ray is not installed.
        EnvironmentFault: no cluster can be reached or started.
    """

    def __init__(self, assignment: WorkerSpec, address: str | None = None):
        self._ray, self._owned = connect_to_ray(address, len(assignment.behaviours))
        ray = self._ray
        self._kind = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(RayWorkerActor)
        self._assignment = ray.put(assignment)
        self._version, self._weights = -1, None
        self._workers: dict[int, _RemoteWorker] = {}

    def publish(self, version: int, arrays: Sequence[np.ndarray]) -> None:
        """Put the weights into the object store, once; a worker gets them when it is asked next."""
        self._version, self._weights = version, self._ray.put(list(arrays))

    def start(self, worker: int, epoch: int) -> None:
        """Ask for an actor, in place of the one of this number if there was one."""
        self._end(worker)
        actor = self._kind.remote(self._assignment, worker, epoch)
        self._workers[worker] = _RemoteWorker(epoch, actor, collections.deque([actor.ready.remote()]))

    def request(self, request: RolloutRequest) -> None:
        """Send a request, with the reference to the newest weights."""
        remote = self._workers[request.worker]
        # In a list: an argument that is itself a reference would be fetched with every request.
        remote.asked.append(remote.actor.rollout.remote(request, self._version, [self._weights]))

    def poll(self, timeout: float) -> list[Event]:
        """Return what actors have answered, or that they are gone."""
        heads = {remote.asked[0]: number for number, remote in self._workers.items() if remote.asked}
        if not heads:
            return []
        found, rest = self._ray.wait(list(heads), num_returns=1, timeout=timeout)
        if found and rest:
            found += self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        return [self._answer(heads[reference]) for reference in found]

    def _answer(self, number: int) -> Event:
        remote = self._workers[number]
        try:
            return self._ray.get(remote.asked.popleft())
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError as error:  # the actor, its node or what it left there is gone
            self._end(number)
            return WorkerDied(number, remote.epoch, f"its actor is gone ({type(error).__name__})")

    def close(self) -> None:
        """End all actors, and the cluster if it was started here."""
        for number in list(self._workers):
            self._end(number)
        self._weights = self._assignment = None
        if self._owned:
            self._ray.shutdown()

    def _end(self, number: int) -> None:
        remote = self._workers.pop(number, None)
        if remote is not None:
            self._ray.kill(remote.actor)
