"""The worker pool: it keeps every worker busy with requests, accounts for every rollout, and replaces hung workers.

It does not depend on processes or Ray: a :class:`Transport` starts workers, sends requests and delivers events.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ddpg.errors import EnvironmentFault, UsageError, brief
from ddpg.interaction.validation import is_real
from ddpg.progress import print_to_stderr
from ddpg.workers.worker import EnvironmentFailed, Event, Rollout, RolloutRequest, WorkerDied, WorkerReady

TIMEOUT_FACTOR = 10.0  # the time limit of a rollout, as a multiple of the longest one so far
MIN_TIMEOUT = 60.0  # seconds; never less, because an environment may load something now and then


class RolloutTimeout:
    """The time limit of a rollout, after which its worker counts as hung; it adapts to the longest rollout so far.

    There is no limit until the first rollout has arrived, because an environment may compile in its first step.

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
        """Record the duration of a rollout."""
        self._longest = max(seconds, self._longest or 0.0)

    @property
    def seconds(self) -> float | None:
        """The time limit in seconds; ``None``: no limit yet."""
        return None if self._longest is None else max(self._least, TIMEOUT_FACTOR * self._longest)


REQUESTS = 2  # maximum number of pending requests of a worker
MAX_DEATHS_IN_A_ROW = 5  # deaths of one worker, without a rollout of it in between, after which the pool gives up


class Transport(Protocol):
    """Starts workers and exchanges messages with them. Only :meth:`poll` waits for a worker.

    Attributes:
        start_limit: seconds after which a worker that is not ready counts as hung; ``None``: a worker may wait until
            there is room for it.
    """

    start_limit: float | None

    def publish(self, version: int, arrays: Sequence[np.ndarray]) -> None:
        """Give the workers these weights, which they use from their next request on."""

    def start(self, worker: int, epoch: int) -> None:
        """Start a worker without waiting for it; a :class:`WorkerReady` or :class:`WorkerDied` event follows."""

    def request(self, request: RolloutRequest) -> None:
        """Send a request to a worker that is ready."""

    def poll(self, timeout: float) -> list[Event]:
        """Return the events that have arrived, each worker's in order; wait up to ``timeout`` seconds for the first."""

    def close(self) -> None:
        """End all workers."""


@dataclasses.dataclass
class RolloutCounts:
    """Counters, with ``requested == accepted + lost + pending`` at any time. A worker is restarted after each death.

    Attributes:
        requested: requests sent.
        accepted: rollouts that answered a pending request.
        lost: requests whose worker died, or ended with the pool, before it answered.
        refused: rollouts that answer no pending request: duplicates, and those of a worker that has been replaced.
        deaths: workers that died, or were ended because they hung.
        hangs: deaths of workers that hung.
        lost_episodes: episodes whose worker died before their end, after a part of them had been accepted.
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
    sequence: int = 0  # sequence number of the next request
    pending: dict[int, RolloutRequest] = dataclasses.field(default_factory=dict)  # by sequence number
    unfinished_steps: int = 0  # accepted steps of its unfinished episode
    waiting_since: float = 0.0  # the time at which it was started, or could start its oldest pending request
    deaths_in_a_row: int = 0  # since its last accepted rollout


class WorkerPool:
    """N workers, each with a bounded number of pending requests.

    With two requests (:data:`REQUESTS`) a worker keeps stepping while the learner uses its last rollout. More requests
    would let rollouts grow stale in a queue; instead, workers wait for a slow learner.

    Args:
        transport: connects to the workers; the pool closes it.
        workers: N.
        length: environment steps of a rollout.
        first_step: global number of the first environment step.
        rollout_timeout: the time limit after which a worker is ended and replaced.

    Attributes:
        counts: the counters.
        version: version of the newest weights.
        workers, length: as given.
    """

    def __init__(
        self,
        transport: Transport,
        workers: int,
        length: int,
        first_step: int = 0,
        rollout_timeout: RolloutTimeout | None = None,
    ):
        self.counts, self.version = RolloutCounts(), -1
        self._transport, self.length, self.workers = transport, length, workers
        self._rollout_timeout = rollout_timeout or RolloutTimeout()
        self._next_step = first_step
        self._free_steps: list[int] = []  # first steps of lost requests, to be requested again
        self._workers = [_WorkerState() for _ in range(workers)]
        self._events: list[Event] = []
        self._started, self._last_poll = False, 0.0

    @property
    def ready(self) -> int:
        """The number of workers that are ready."""
        return sum(state.ready for state in self._workers)

    @property
    def pending(self) -> int:
        """The number of pending requests."""
        return sum(len(state.pending) for state in self._workers)

    def publish(self, arrays: Sequence[np.ndarray]) -> int:
        """Let the workers act with these weights from their next requests on; return the new version."""
        self.version += 1
        self._transport.publish(self.version, arrays)
        return self.version

    def collect(self, timeout: float) -> Rollout | None:
        """Keep every worker supplied with requests, and return the next rollout, or ``None`` after ``timeout`` seconds.

        Weights must have been published.

        Raises:
            EnvironmentFault: if an environment failed, or a worker keeps dying without finishing a rollout.
        """
        if not self._started:
            self._started = True
            self._last_poll = time.monotonic()
            for worker in range(len(self._workers)):
                self._start(worker)
        deadline = time.monotonic() + timeout
        self._send_requests()
        while True:
            if not self._events:
                self._events = self._transport.poll(max(0.0, deadline - time.monotonic()))
                self._forgive_pause()
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
        for depth in range(REQUESTS):
            for worker, state in enumerate(self._workers):
                if state.ready and len(state.pending) <= depth:
                    if not self._free_steps:
                        self._free_steps.append(self._next_step)
                        self._next_step += self.length
                    step = self._free_steps.pop(0)
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
        state.deaths_in_a_row = 0
        return rollout

    def _forgive_pause(self) -> None:
        """Let the time since the last poll count as half a time limit at most.

        In a longer pause the workers may have been stopped together with this process (SIGSTOP, a frozen container),
        so no worker counts as hung before it has had some time while this process polled.
        """
        now, most = time.monotonic(), self._rollout_timeout.seconds or MIN_TIMEOUT
        if (excess := now - self._last_poll - most / 2) > 0:
            for state in self._workers:
                state.waiting_since = min(state.waiting_since + excess, now)
        self._last_poll = now

    def _find_hung(self, answered: set[int]) -> list[Event]:
        """Return a :class:`WorkerDied` for each worker over its time limit that is not in ``answered``.

        The caller polls first, so that an answer which has waited in the pipe counts, however long this process was
        busy.
        """
        now = time.monotonic()
        hung: list[Event] = []
        for worker, state in enumerate(self._workers):
            if state.ready:
                limit, missing = self._rollout_timeout.seconds if state.pending else None, "no rollout"
            else:
                limit, missing = self._transport.start_limit, "not ready"
            if limit is not None and worker not in answered and now - state.waiting_since > limit:
                hung.append(WorkerDied(worker, state.epoch, f"{missing} in {limit:.0f} s", hung=True))
        return hung

    def _replace(self, death: WorkerDied) -> None:
        state = self._workers[death.worker]
        what = "hung" if death.hung else "died"
        self.counts.deaths += 1
        self.counts.hangs += death.hung
        state.deaths_in_a_row += 1
        self._discard_requests(state)
        if state.deaths_in_a_row >= MAX_DEATHS_IN_A_ROW:
            raise EnvironmentFault(
                f"worker {death.worker} {what} ({death.why}), its {state.deaths_in_a_row}th death in a row without a "
                "rollout in between; try the environment in this process: --collector local"
            )
        print_to_stderr(f"worker {death.worker} {what} ({death.why}) and is restarted")
        state.epoch += 1
        state.ready, state.sequence = False, 0
        self._start(death.worker)

    def _start(self, worker: int) -> None:
        state = self._workers[worker]
        state.waiting_since = time.monotonic()
        self._transport.start(worker, state.epoch)

    def _discard_requests(self, state: _WorkerState, episode: bool = True) -> None:
        self.counts.lost += len(state.pending)
        self._free_steps += [request.first_step for request in state.pending.values()]
        state.pending.clear()
        self.counts.lost_episodes += episode and state.unfinished_steps > 0
        state.unfinished_steps = 0


def _worker_of(event: Event) -> int:
    return event.request.worker if isinstance(event, Rollout) else event.worker
