"""The pool of workers: keeps each one supplied with requests, accounts for every rollout, replaces workers that hang.

It knows neither processes nor Ray: a :class:`Transport` starts workers, sends requests and delivers events.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ddpg.errors import EnvironmentFault, UsageError, brief
from ddpg.interaction.validation import is_real
from ddpg.workers.worker import EnvironmentFailed, Event, Rollout, RolloutRequest, WorkerDied, WorkerReady

TIMEOUT_FACTOR = 10.0  # times the longest rollout so far
MIN_TIMEOUT = 60.0  # seconds, however short the rollouts were: an environment may load something now and then


class RolloutTimeout:
    """How long a rollout may take before its worker counts as hung, adapted to the longest one so far.

    There is no limit until the first rollout has arrived: an environment may compile in its first step.

    Args:
        least: lower bound of the limit, in seconds.

    Raises:
        UsageError: if ``least`` is not a number above 0.
    """

    def __init__(self, least: float = MIN_TIMEOUT):
        if not (is_real(least) and least > 0):
            raise UsageError(f"rollout_timeout={brief(least)} must be seconds, more than 0")
        self._least = least
        self._longest: float | None = None

    def record(self, seconds: float) -> None:
        """Record how long a rollout took its worker."""
        self._longest = max(seconds, self._longest or 0.0)

    @property
    def seconds(self) -> float | None:
        """How long a rollout may take; ``None``: no limit yet."""
        return None if self._longest is None else max(self._least, TIMEOUT_FACTOR * self._longest)


MAX_DEATHS_IN_A_ROW = 5  # per worker, in a row without a rollout between them: then the pool gives up


class Transport(Protocol):
    """Starts workers and exchanges messages with them. Only :meth:`poll` waits for a worker."""

    def publish(self, version: int, arrays: Sequence[np.ndarray]) -> None:
        """Give workers these weights, to act with from their next request on."""

    def start(self, worker: int, epoch: int) -> None:
        """Begin to start a worker; a :class:`WorkerReady` or :class:`WorkerDied` follows."""

    def request(self, request: RolloutRequest) -> None:
        """Send a request to a worker that is ready."""

    def poll(self, timeout: float) -> list[Event]:
        """Return the events that have arrived, each worker's in order; wait up to ``timeout`` seconds for the first."""

    def close(self) -> None:
        """End all workers."""


@dataclasses.dataclass
class RolloutCounts:
    """Counters; always ``requested == accepted + lost + pending``. Each death is followed by a restart.

    Attributes:
        requested: requests sent.
        accepted: rollouts that answered a pending request.
        lost: requests whose worker died, or was ended with the pool, before it answered.
        refused: rollouts that answer no pending request: duplicates, and those of a worker since replaced.
        deaths: workers that died, or were ended because they hung.
        hangs: deaths of workers that hung.
        lost_episodes: episodes that were accepted in part, and whose worker died before their end.
        steps: environment steps of the accepted rollouts.
    """

    requested: int = 0
    accepted: int = 0
    lost: int = 0
    refused: int = 0
    deaths: int = 0
    hangs: int = 0
    lost_episodes: int = 0
    steps: int = 0


@dataclasses.dataclass
class _WorkerState:
    """The pool's record of one worker."""

    epoch: int = 0
    ready: bool = False
    sequence: int = 0  # of the next request
    pending: dict[int, RolloutRequest] = dataclasses.field(default_factory=dict)  # by sequence
    unfinished_steps: int = 0  # of its episode
    waiting_since: float = 0.0  # when it could start on its oldest pending request


class WorkerPool:
    """N workers, each with a bounded number of pending requests.

    With two requests a worker keeps stepping while its last rollout is learned from. There are no more, so that
    rollouts do not grow stale in a queue and a slow learner makes its workers wait.

    Args:
        transport: reaches the workers; the pool closes it.
        workers: N.
        length: environment steps of a rollout.
        first_step: the number of the first environment step.
        in_flight: most pending requests of a worker.
        rollout_timeout: after how long a worker is ended and replaced.

    Attributes:
        counts: the counters.
        version: of the newest weights.
    """

    def __init__(
        self,
        transport: Transport,
        workers: int,
        length: int,
        first_step: int = 0,
        in_flight: int = 2,
        rollout_timeout: RolloutTimeout | None = None,
    ):
        self.counts, self.version = RolloutCounts(), -1
        self._transport, self._length, self._in_flight = transport, length, in_flight
        self._rollout_timeout = rollout_timeout or RolloutTimeout()
        self._next_step = first_step
        self._free_steps: list[int] = []  # first steps of lost requests, to be requested again
        self._workers = [_WorkerState() for _ in range(workers)]
        self._events: list[Event] = []
        self._started, self._deaths_in_a_row = False, 0

    @property
    def ready(self) -> int:
        """How many workers are ready."""
        return sum(state.ready for state in self._workers)

    @property
    def pending(self) -> int:
        """How many requests are pending."""
        return sum(len(state.pending) for state in self._workers)

    def publish(self, arrays: Sequence[np.ndarray]) -> int:
        """Let the workers act with these weights from their next rollouts on; return the new version."""
        self.version += 1
        self._transport.publish(self.version, arrays)
        return self.version

    def collect(self, timeout: float) -> Rollout | None:
        """Keep every worker supplied with requests, and return the next rollout, or ``None`` after ``timeout`` seconds.

        Weights must have been published.

        Raises:
            EnvironmentFault: if an environment failed, or workers die as fast as they are started.
        """
        if not self._started:
            self._started = True
            for worker, state in enumerate(self._workers):
                self._transport.start(worker, state.epoch)
        deadline = time.monotonic() + timeout
        self._send_requests()
        while True:
            if not self._events:
                self._events = self._transport.poll(max(0.0, deadline - time.monotonic()))
                self._events += self._find_hung({_worker_of(event) for event in self._events})
            while self._events:
                rollout = self._handle(self._events.pop(0))
                if rollout is not None:
                    return rollout
            self._send_requests()  # to workers that have become ready
            if time.monotonic() >= deadline:
                return None

    def close(self) -> None:
        """End all workers; their pending requests are lost."""
        for state in self._workers:
            self._discard_requests(state, episode=False)
        self._transport.close()

    def _send_requests(self) -> None:
        # One request each in turn: no worker gets its second before all have their first.
        for depth in range(self._in_flight):
            for worker, state in enumerate(self._workers):
                if state.ready and len(state.pending) <= depth:
                    if self._free_steps:
                        step = self._free_steps.pop(0)
                    else:
                        step, self._next_step = self._next_step, self._next_step + self._length
                    request = RolloutRequest(worker, state.epoch, state.sequence, step)
                    if not state.pending:
                        state.waiting_since = time.monotonic()
                    state.pending[state.sequence] = request
                    state.sequence += 1
                    self.counts.requested += 1
                    self._transport.request(request)

    def _handle(self, event: Event) -> Rollout | None:
        """Process an event; return its rollout if it is one to learn from."""
        if isinstance(event, Rollout):
            return self._accept(event)
        state = self._workers[event.worker]
        if event.epoch != state.epoch:
            return None  # from a worker that has been replaced
        if isinstance(event, WorkerReady):
            state.ready = True
        elif isinstance(event, EnvironmentFailed):
            raise EnvironmentFault(f"worker {event.worker}: {event.message}")
        else:
            self._replace(event)
        return None

    def _accept(self, rollout: Rollout) -> Rollout | None:
        worker, epoch, sequence, _ = rollout.request
        state = self._workers[worker]
        if epoch != state.epoch or state.pending.pop(sequence, None) is None:
            self.counts.refused += 1
            return None
        state.waiting_since = time.monotonic()
        self._rollout_timeout.record(rollout.seconds)
        state.unfinished_steps = rollout.unfinished_steps
        self.counts.accepted += 1
        self.counts.steps += len(rollout)
        self._deaths_in_a_row = 0
        return rollout

    def _find_hung(self, answered: set[int]) -> list[Event]:
        """Return a :class:`WorkerDied` for each worker over its time limit, unless the last poll brought its answer.

        Polling first makes this fair: an answer that waits in its pipe counts, however long this process was busy.
        """
        now, most = time.monotonic(), self._rollout_timeout.seconds
        late = [
            WorkerDied(worker, state.epoch, f"no rollout in {most:.0f} s", hung=True)
            for worker, state in enumerate(self._workers)
            if most is not None and state.pending and worker not in answered and now - state.waiting_since > most
        ]
        return list(late)

    def _replace(self, death: WorkerDied) -> None:
        state = self._workers[death.worker]
        self.counts.deaths += 1
        self.counts.hangs += death.hung
        self._deaths_in_a_row += 1
        self._discard_requests(state)
        if self._deaths_in_a_row >= MAX_DEATHS_IN_A_ROW * len(self._workers):
            raise EnvironmentFault(
                f"worker {death.worker} died ({death.why}), the {self._deaths_in_a_row}th death in a row without a "
                "rollout between them; try the environment in this process: --collector local"
            )
        state.epoch += 1
        state.ready, state.sequence = False, 0
        self._transport.start(death.worker, state.epoch)

    def _discard_requests(self, state: _WorkerState, episode: bool = True) -> None:
        self.counts.lost += len(state.pending)
        self._free_steps += [request.first_step for request in state.pending.values()]
        state.pending.clear()
        self.counts.lost_episodes += episode and state.unfinished_steps > 0
        state.unfinished_steps = 0


def _worker_of(event: Event) -> int:
    return event.request.worker if isinstance(event, Rollout) else event.worker
