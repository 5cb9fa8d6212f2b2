"""The pool of workers: which rollouts are requested, taken, refused or lost, and when a worker counts as hung.

It knows nothing of processes or of Ray: a :class:`Transport` starts workers, carries requests and brings events.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from ddpg.errors import EnvironmentFault, UsageError
from ddpg.workers.messages import EnvironmentFailed, Event, Rollout, RolloutRequest, WorkerDied, WorkerReady

FACTOR = 10.0  # times the longest rollout so far
LEAST = 60.0  # seconds, whatever the rollouts took: an environment may now and then load something


class RolloutTimeout:
    """Learns from the rollouts that come how long one may take.

    Until the first has come nothing is known, and nobody hangs: an environment may compile in its first step.

    Args:
        least: seconds that any rollout may take.

    Raises:
        UsageError: they are none.
    """

    def __init__(self, least: float = LEAST):
        if not least > 0:
            raise UsageError(f"rollout_timeout={least!r} must be seconds, more than 0")
        self._least = least
        self._longest: float | None = None

    def note(self, seconds: float) -> None:
        """Take note of what a rollout took its worker."""
        self._longest = max(seconds, self._longest or 0.0)

    @property
    def seconds(self) -> float | None:
        """What a rollout may take; ``None``: as long as it likes."""
        return None if self._longest is None else max(self._least, FACTOR * self._longest)


DEATHS = 5  # in a row, of each worker on average, without a rollout between them, until the pool gives up


class Transport(Protocol):
    """How workers are reached. None of its calls waits for a worker but :meth:`poll`."""

    def publish(self, version: int, arrays: Sequence[np.ndarray]) -> None:
        """Let workers act with these weights from their next request on."""

    def start(self, worker: int, epoch: int) -> None:
        """Begin to start a worker; it is :class:`Ready` later, or :class:`Died`."""

    def request(self, request: RolloutRequest) -> None:
        """Ask a worker that is ready for a rollout."""

    def poll(self, timeout: float) -> list[Event]:
        """Return what has come, those of one worker in their order; wait ``timeout`` seconds at most for the first."""

    def close(self) -> None:
        """End all workers."""


@dataclasses.dataclass
class RolloutCounts:
    """What was counted: ``requested == taken + lost + under way``, ``deaths`` are restarts, too.

    Attributes:
        requested: rollouts.
        taken: rollouts, each of which answers one request.
        lost: rollouts that were asked of a worker which died before it answered, or was ended with the pool.
        refused: rollouts that answer no open request: those that came twice, and those of an epoch that is over.
        deaths: workers that died, or were ended because they hung.
        hangs: of those, the ones that hung.
        lost_episodes: episodes of which something was taken, and whose worker died before their end.
        steps: environment steps of the rollouts that were taken.
    """

    requested: int = 0
    taken: int = 0
    lost: int = 0
    refused: int = 0
    deaths: int = 0
    hangs: int = 0
    lost_episodes: int = 0
    steps: int = 0


@dataclasses.dataclass
class _Member:
    """A worker as the pool sees it."""

    epoch: int = 0
    ready: bool = False
    sequence: int = 0  # of the next request
    open: dict[int, RolloutRequest] = dataclasses.field(default_factory=dict)  # by sequence
    under_way: int = 0
    since: float = 0.0  # when it could begin with its oldest open request


class WorkerPool:
    """N workers, each with a bounded number of requests that it has not answered.

    Two requests a worker let it go on while its last rollout is learned from; no more, so that rollouts do not grow
    old in a queue and a learner that is slower than its workers makes them wait.

    Args:
        transport: how they are reached; the pool closes it.
        workers: N.
        length: environment steps of a rollout.
        first_step: the number of the first environment step.
        in_flight: requests that a worker may have open.
        patience: how long one may take before its worker is ended and replaced.

    Attributes:
        counts: what was counted.
        version: of the newest weights.
    """

    def __init__(
        self,
        transport: Transport,
        workers: int,
        length: int,
        first_step: int = 0,
        in_flight: int = 2,
        patience: RolloutTimeout | None = None,
    ):
        self.counts, self.version = RolloutCounts(), -1
        self._transport, self._length, self._in_flight = transport, length, in_flight
        self._patience = patience or RolloutTimeout()
        self._next_step = first_step
        self._free_steps: list[int] = []  # of requests that were lost, to be asked for again
        self._members = [_Member() for _ in range(workers)]
        self._events: list[Event] = []
        self._started, self._deaths_in_a_row = False, 0

    @property
    def ready(self) -> int:
        """How many workers there are now."""
        return sum(member.ready for member in self._members)

    @property
    def under_way(self) -> int:
        """How many requests are open."""
        return sum(len(member.open) for member in self._members)

    def publish(self, arrays: Sequence[np.ndarray]) -> int:
        """Let the workers act with these weights from their next rollouts on; return their version."""
        self.version += 1
        self._transport.publish(self.version, arrays)
        return self.version

    def collect(self, timeout: float) -> Rollout | None:
        """Keep every worker busy, and return the next rollout; ``None``: there was none within ``timeout`` seconds.

        Weights must have been published.

        Raises:
            EnvironmentFault: an environment failed, or workers die as fast as they are started.
        """
        if not self._started:
            self._started = True
            for worker, member in enumerate(self._members):
                self._transport.start(worker, member.epoch)
        deadline = time.monotonic() + timeout
        self._ask()
        while True:
            if not self._events:
                self._events = self._transport.poll(max(0.0, deadline - time.monotonic()))
                self._events += self._hung({_worker_of(event) for event in self._events})
            while self._events:
                rollout = self._meet(self._events.pop(0))
                if rollout is not None:
                    return rollout
            self._ask()  # those that are ready by now
            if time.monotonic() >= deadline:
                return None

    def close(self) -> None:
        """End all workers; what they were doing is lost."""
        for member in self._members:
            self._lose(member, episode=False)
        self._transport.close()

    def _ask(self) -> None:
        # A request each in turn: nobody's second goes before another's first.
        for depth in range(self._in_flight):
            for worker, member in enumerate(self._members):
                if member.ready and len(member.open) <= depth:
                    if self._free_steps:
                        step = self._free_steps.pop(0)
                    else:
                        step, self._next_step = self._next_step, self._next_step + self._length
                    request = RolloutRequest(worker, member.epoch, member.sequence, step)
                    if not member.open:
                        member.since = time.monotonic()
                    member.open[member.sequence] = request
                    member.sequence += 1
                    self.counts.requested += 1
                    self._transport.request(request)

    def _meet(self, event: Event) -> Rollout | None:
        """Take note of an event; return the rollout that it is, if it is to be learned from."""
        if isinstance(event, Rollout):
            return self._take(event)
        member = self._members[event.worker]
        if event.epoch != member.epoch:
            return None  # of one that was replaced
        if isinstance(event, WorkerReady):
            member.ready = True
        elif isinstance(event, EnvironmentFailed):
            raise EnvironmentFault(f"worker {event.worker}: {event.message}")
        else:
            self._replace(event)
        return None

    def _take(self, rollout: Rollout) -> Rollout | None:
        worker, epoch, sequence, _ = rollout.request
        member = self._members[worker]
        if epoch != member.epoch or member.open.pop(sequence, None) is None:
            self.counts.refused += 1
            return None
        member.since = time.monotonic()
        self._patience.note(rollout.seconds)
        member.under_way = rollout.under_way
        self.counts.taken += 1
        self.counts.steps += len(rollout)
        self._deaths_in_a_row = 0
        return rollout

    def _hung(self, heard: set[int]) -> list[Event]:
        """Return the deaths of workers that take too long, of those that were not heard of in the poll just now.

        Who has answered is heard of in the next poll: so it does not matter how long this process was elsewhere, nor
        how much the others have to say.
        """
        now, most = time.monotonic(), self._patience.seconds
        late = [
            WorkerDied(worker, member.epoch, f"no rollout in {most:.0f} s", hung=True)
            for worker, member in enumerate(self._members)
            if most is not None and member.open and worker not in heard and now - member.since > most
        ]
        return list(late)

    def _replace(self, death: WorkerDied) -> None:
        member = self._members[death.worker]
        self.counts.deaths += 1
        self.counts.hangs += death.hung
        self._deaths_in_a_row += 1
        self._lose(member)
        if self._deaths_in_a_row >= DEATHS * len(self._members):
            raise EnvironmentFault(
                f"worker {death.worker} died ({death.why}), the {self._deaths_in_a_row}th death in a row without a "
                "rollout between them; try the environment in this process: --collector local"
            )
        member.epoch += 1
        member.ready, member.sequence = False, 0
        self._transport.start(death.worker, member.epoch)

    def _lose(self, member: _Member, episode: bool = True) -> None:
        self.counts.lost += len(member.open)
        self._free_steps += [request.first_step for request in member.open.values()]
        member.open.clear()
        self.counts.lost_episodes += episode and member.under_way > 0
        member.under_way = 0


def _worker_of(event: Event) -> int:
    return event.request.worker if isinstance(event, Rollout) else event.worker
