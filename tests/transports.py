"""Transports for tests: one controlled by the test, and one whose workers are in this process."""

import numpy as np

from ddpg.interaction.transitions import Transitions
from ddpg.workers.worker import Rollout, Worker, WorkerReady


def rollout(request, length=3, unfinished_steps=0, version=0, seconds=0.0):
    """Return an empty rollout that answers ``request``."""
    values, flags = np.zeros((length, 1), np.float32), np.zeros(length, bool)
    transitions = Transitions(values, values, values[:, 0], values, flags, flags, [0] * length)
    return Rollout(request, version, transitions, flags, [], 0, [], unfinished_steps, seconds)


class Played:
    """Records requests, and returns the events that a test adds."""

    start_limit = None

    def __init__(self):
        self.events, self.started, self.requests, self.published, self.closed = [], [], [], [], False

    def publish(self, version, arrays):
        self.published.append(version)

    def start(self, worker, epoch):
        self.started.append((worker, epoch))

    def request(self, request):
        self.requests.append(request)

    def poll(self, timeout):
        events, self.events = self.events, []
        return events

    def close(self):
        self.closed = True


class Here(Played):
    """Workers in this process, which answer a request immediately."""

    def __init__(self, spec):
        super().__init__()
        self.spec, self.workers, self.arrays = spec, {}, None

    def publish(self, version, arrays):
        super().publish(version, arrays)
        self.arrays = [array.copy() for array in arrays]

    def start(self, worker, epoch):
        super().start(worker, epoch)
        self.workers[worker] = Worker(self.spec, worker, epoch)
        self.events.append(WorkerReady(worker, epoch))

    def request(self, request):
        super().request(request)
        worker = self.workers[request.worker]
        worker.load(self.published[-1], self.arrays)
        self.events.append(worker.rollout(request))
