"""Workers as actors of a Ray cluster, of one CPU each: weights in its object store, rollouts from it.

Where the cluster has no room an actor waits: so a node that leaves shrinks the pool, and one that joins lets it grow
again, up to as many workers as were asked for.
"""

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ddpg.distributed.choosing import import_ray
from ddpg.distributed.cluster import connect
from ddpg.distributed.messages import Assignment, Died, Event, Failed, Ready, Request
from ddpg.distributed.worker import Worker
from ddpg.errors import UsageError
from ddpg.experience.faults import said


class Actor:
    """What runs on the cluster; nothing of it raises but what is a fault of ours.

    Args:
        assignment: what the worker is made of.
        number, epoch: of the worker.
    """

    def __init__(self, assignment: Assignment, number: int, epoch: int):
        self._number, self._epoch = number, epoch
        self._worker: Worker | None = None
        self._failed: Failed | None = None
        try:
            self._worker = Worker(assignment, number, epoch)
        except (Exception, KeyboardInterrupt) as error:
            self._failed = self._failure(error)

    def ready(self) -> Ready | Failed:
        """Return that there is an environment, or why not."""
        return self._failed or Ready(self._number, self._epoch)

    def rollout(self, request: Request, version: int, weights: list) -> Event:
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

    def _failure(self, error: BaseException) -> Failed:
        return Failed(self._number, self._epoch, said(error))


class _Remote(NamedTuple):
    """An actor, and what it was asked for and has not answered, the oldest first."""

    epoch: int
    actor: Any
    asked: collections.deque


class RayWorkers:
    """Starts an actor a worker.

    Args:
        assignment: what the workers are made of.
        address: of a cluster that is there; none: the one that this process is connected to, or one of this machine
            with as many CPUs as there are workers, which ends with :meth:`close`.

    Raises:
        UsageError: Ray is not installed.
        EnvironmentFault: no cluster can be reached or started.
    """

    def __init__(self, assignment: Assignment, address: str | None = None):
        self._ray, self._owned = connect(address, len(assignment.behaviours))
        ray = self._ray
        self._kind = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Actor)
        self._assignment = ray.put(assignment)
        self._version, self._weights = -1, None
        self._workers: dict[int, _Remote] = {}

    def publish(self, version: int, arrays: Sequence[np.ndarray]) -> None:
        """Put the weights into the object store, once; a worker gets them when it is asked next."""
        self._version, self._weights = version, self._ray.put(list(arrays))

    def start(self, worker: int, epoch: int) -> None:
        """Ask for an actor, in place of the one of this number if there was one."""
        self._end(worker)
        actor = self._kind.remote(self._assignment, worker, epoch)
        self._workers[worker] = _Remote(epoch, actor, collections.deque([actor.ready.remote()]))

    def request(self, request: Request) -> None:
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
            return Died(number, remote.epoch, f"its actor is gone ({type(error).__name__})")

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
