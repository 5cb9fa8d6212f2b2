"""Run workers as Ray actors with one CPU each; weights and rollouts go through the object store.

An actor waits until the cluster has a free CPU. So the pool shrinks when a node leaves, and grows when a node joins, up
to the requested number of workers.
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
from ddpg.errors import EnvironmentFault, UsageError, format_error
from ddpg.workers.worker import (
    CLOSE_LIMIT,
    EnvironmentFailed,
    Event,
    RolloutRequest,
    WorkerDied,
    WorkerReady,
    WorkerService,
    WorkerSpec,
)
from ddpg.workers.worker_options import import_ray

_NEEDED = (
    "every node needs the same version of this package, and the module of make_env where Python finds it: installed, "
    "or in a folder of PYTHONPATH"
)


def connect_to_ray(address: str | None, cpus: int) -> tuple[Any, bool]:
    """Connect to a Ray cluster, unless this process is connected already.

    Args:
        address: ``HOST:PORT`` of a cluster's head, or ``"auto"``; ``None``: the address in the environment variable
            ``RAY_ADDRESS``, or else a new cluster on this machine.
        cpus: minimum number of CPUs of a new cluster, which also gets at least the cores available to this process.

    Returns:
        The module ``ray``, and whether this call made the connection, in which case the caller must close it.

    Raises:
        UsageError: if Ray is not installed, or the address is malformed.
        EnvironmentFault: if no cluster can be reached or started.
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
        except Exception as error:  # Ray raises many types if no cluster answers
            if here:
                where, hint = "a cluster on this machine could not be started", ""
            elif address == "auto":
                where, hint = "no Ray cluster answers at 'auto'", ""
            else:  # its port is open
                where = f"the Ray cluster at {address!r} could not be joined"
                hint = "; if it has a token, set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or ~/.ray/auth_token to it"
            raise EnvironmentFault(f"{where}: {format_error(error)}{hint}") from None
    return ray, True


@contextlib.contextmanager
def _signal_handlers_preserved() -> Iterator[None]:
    """Restore the signal handlers at the end of the block, because Ray installs its own for SIGTERM."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


def _check_reachable(name: str, address: str) -> None:
    """Check the address and that its port is open, because Ray itself would retry for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in address:
        raise UsageError(f"{name}={address!r} must be 'auto', or HOST:PORT of a cluster's head such as 10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise EnvironmentFault(
            f"no Ray cluster answers at {address!r} ({format_error(error)}); start one with: ray start --head"
        ) from None


class RayWorkerActor(WorkerService):
    """A worker on the cluster."""

    def rollout(self, request: RolloutRequest, version: int, weights: list) -> Event:
        """Return a rollout with the weights of ``version``, to which the list ``weights`` holds a reference.

        It ends early if the call is cancelled, where this version of Ray can tell.
        """
        ray = import_ray()
        ends = getattr(ray.get_runtime_context(), "is_canceled", lambda: False)  # Ray 2.40 has none
        return self.answer(request, lambda known: (version, ray.get(weights[0])) if version > known else None, ends)


class _RemoteWorker(NamedTuple):
    """An actor and its pending calls, the oldest first."""

    epoch: int
    actor: Any
    pending: collections.deque


class RayTransport:
    """Runs each worker as a Ray actor.

    Args:
        spec: the description from which workers are built.
        address: address of a running cluster; ``None``: see :func:`connect_to_ray`. A new cluster has a CPU for each
            worker, and ends with :meth:`close`.

    Raises:
        UsageError: if Ray is not installed.
        EnvironmentFault: if no cluster can be reached or started.
    """

    start_limit: float | None = None  # an actor waits until the cluster has a free CPU

    def __init__(self, spec: WorkerSpec, address: str | None = None):
        self._ray, self._owned = connect_to_ray(address, len(spec.behaviours))
        self._actor_class = self._ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(RayWorkerActor)
        self._spec = self._ray.put(spec)
        self._version, self._weights = -1, None
        self._workers: dict[int, _RemoteWorker] = {}
        self._ready: set[int] = set()  # numbers of workers that have made their environment

    def publish(self, version: int, arrays: Sequence[np.ndarray]) -> None:
        """Put the weights into the object store once; each worker fetches them with its next request."""
        self._version, self._weights = version, self._ray.put(list(arrays))

    def start(self, worker: int, epoch: int) -> None:
        """Create an actor, which replaces the worker of this number if there is one."""
        self._end(worker)
        actor = self._actor_class.remote(self._spec, worker, epoch)
        self._workers[worker] = _RemoteWorker(epoch, actor, collections.deque([actor.ready.remote()]))

    def request(self, request: RolloutRequest) -> None:
        """Send a request with a reference to the newest weights."""
        remote = self._workers[request.worker]
        # In a list, because Ray would resolve a bare reference, and so fetch the weights, with every request.
        remote.pending.append(remote.actor.rollout.remote(request, self._version, [self._weights]))

    def poll(self, timeout: float) -> list[Event]:
        """Return the answers of actors, and a :class:`WorkerDied` for each that is gone."""
        heads = {remote.pending[0]: number for number, remote in self._workers.items() if remote.pending}
        if not heads:
            return []
        found, rest = self._ray.wait(list(heads), num_returns=1, timeout=timeout)
        if found and rest:
            found += self._ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        return [self._answer(heads[reference]) for reference in found]

    def _answer(self, number: int) -> Event:
        remote = self._workers[number]
        try:
            event = self._ray.get(remote.pending.popleft())
        except self._ray.exceptions.RayTaskError:
            raise
        except self._ray.exceptions.RayError as error:  # the actor, its node or its result is lost
            self._end(number)
            if getattr(error, "actor_init_failed", False):  # before RayWorkerActor could answer
                why = str(error).strip().splitlines()[-1]
                return EnvironmentFailed(number, remote.epoch, f"its actor could not be created ({why}); {_NEEDED}")
            return WorkerDied(number, remote.epoch, f"its actor is gone ({type(error).__name__})")
        if isinstance(event, WorkerReady):
            self._ready.add(number)
        return event

    def close(self) -> None:
        """End all actors, which close their environments first if they can, and the cluster if it was started here."""
        closed = []
        for remote in [self._workers[number] for number in self._ready]:
            for call in remote.pending:
                self._ray.cancel(call)
            closed.append(remote.actor.close.remote())
        if closed:
            self._ray.wait(closed, num_returns=len(closed), timeout=CLOSE_LIMIT)
        for number in list(self._workers):
            self._end(number)
        self._weights = self._spec = None
        if self._owned:
            self._ray.shutdown()

    def _end(self, number: int) -> None:
        self._ready.discard(number)
        remote = self._workers.pop(number, None)
        if remote is not None:
            self._ray.kill(remote.actor)
