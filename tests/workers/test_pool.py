"""The worker pool's bookkeeping: open requests, duplicate and late rollouts, dead and hanging workers, and counts."""

import pytest
from refusals import refuses
from transports import Played, rollout

from ddpg import UsageError
from ddpg.workers import pool as pool_module
from ddpg.workers.pool import MAX_DEATHS_IN_A_ROW, RolloutTimeout, WorkerPool
from ddpg.workers.worker import EnvironmentFailed, RolloutRequest, WorkerDied, WorkerReady


def pool_of(workers=2, first_step=0):
    transport = Played()
    pool = WorkerPool(transport, workers, 3, first_step)
    pool.publish([])
    assert pool.collect(0) is None
    transport.events = [WorkerReady(worker, 0) for worker in range(workers)]
    assert pool.collect(0) is None
    return pool, transport


def check_counts_add_up(pool):
    counts = pool.counts
    assert counts.requested == counts.accepted + counts.lost + pool.pending


def test_every_worker_has_two_open_requests():
    pool, transport = pool_of()
    assert pool.collect(0) is None
    # Workers take turns, and steps are numbered consecutively.
    expected = [(0, 0, 0, 0), (1, 0, 0, 3), (0, 0, 1, 6), (1, 0, 1, 9)]
    assert transport.requests == [RolloutRequest(*fields) for fields in expected]
    transport.events = [rollout(transport.requests[1])]
    assert pool.collect(0).request == RolloutRequest(1, 0, 0, 3)
    assert pool.collect(0) is None
    assert transport.requests[4:] == [RolloutRequest(1, 0, 2, 12)]
    assert (pool.pending, pool.counts.accepted, pool.counts.steps) == (4, 1, 3)
    check_counts_add_up(pool)


def test_weights_are_numbered_from_0():
    pool = WorkerPool(Played(), 1, 3)
    assert pool.version == -1
    assert [pool.publish([]), pool.publish([])] == [0, 1]


def test_a_worker_gets_requests_once_it_is_ready():
    transport = Played()
    pool = WorkerPool(transport, 2, 3)
    pool.publish([])
    pool.collect(0)
    assert transport.started == [(0, 0), (1, 0)]
    assert (transport.requests, pool.ready) == ([], 0)
    transport.events = [WorkerReady(1, 0)]
    pool.collect(0)
    assert ({request.worker for request in transport.requests}, pool.ready) == ({1}, 1)


def test_a_duplicate_rollout_is_refused():
    pool, transport = pool_of()
    first = transport.requests[0]
    transport.events = [rollout(first), rollout(first)]
    assert pool.collect(0).request == first
    assert pool.collect(0) is None
    assert (pool.counts.accepted, pool.counts.refused) == (1, 1)
    check_counts_add_up(pool)


def test_a_rollout_that_was_not_requested_is_refused():
    pool, transport = pool_of()
    transport.events = [rollout(RolloutRequest(0, 0, 7, 0))]
    assert pool.collect(0) is None
    assert pool.counts.refused == 1


def test_a_dead_worker_is_replaced_and_its_open_rollouts_are_lost():
    pool, transport = pool_of()
    first, _, second, _ = transport.requests
    transport.events = [rollout(first, unfinished_steps=2)]
    pool.collect(0)
    pool.collect(0)
    transport.events = [WorkerDied(0, 0, "killed")]
    assert pool.collect(0) is None
    assert transport.started[2:] == [(0, 1)]
    assert (pool.counts.deaths, pool.counts.lost, pool.counts.lost_episodes, pool.ready) == (1, 2, 1, 1)
    assert pool.counts.hangs == 0
    check_counts_add_up(pool)
    # A rollout of the dead worker that arrives late is refused: its replacement takes these steps.
    transport.events = [rollout(second), WorkerReady(0, 0)]
    assert pool.collect(0) is None
    assert (pool.counts.refused, pool.ready) == (1, 1)
    count = len(transport.requests)
    transport.events = [WorkerReady(0, 1)]
    pool.collect(0)
    again = transport.requests[count:]
    assert again == [RolloutRequest(0, 1, 0, second.first_step), RolloutRequest(0, 1, 1, 12)]
    check_counts_add_up(pool)


def test_a_finished_episode_is_not_counted_as_lost():
    pool, transport = pool_of()
    transport.events = [rollout(transport.requests[0], unfinished_steps=0), WorkerDied(0, 0, "killed")]
    pool.collect(0)
    pool.collect(0)
    assert (pool.counts.deaths, pool.counts.lost_episodes) == (1, 0)


def test_too_many_deaths_in_a_row_end_learning():
    pool, transport = pool_of(1)
    for epoch in range(MAX_DEATHS_IN_A_ROW - 1):
        transport.events = [WorkerDied(0, epoch, "killed")]
        assert pool.collect(0) is None
    # A rollout resets the count.
    transport.events = [WorkerReady(0, MAX_DEATHS_IN_A_ROW - 1)]
    pool.collect(0)
    transport.events = [rollout(transport.requests[-1])]
    assert pool.collect(0) is not None
    for epoch in range(MAX_DEATHS_IN_A_ROW - 1, 2 * MAX_DEATHS_IN_A_ROW - 2):
        transport.events = [WorkerDied(0, epoch, "killed")]
        assert pool.collect(0) is None
    transport.events = [WorkerDied(0, 2 * MAX_DEATHS_IN_A_ROW - 2, "killed by a test")]
    with refuses(UsageError, "worker 0 5th"):
        pool.collect(0)


def test_a_worker_that_always_dies_is_given_up_though_the_other_one_delivers(capsys):
    pool, transport = pool_of()
    for epoch in range(MAX_DEATHS_IN_A_ROW - 1):
        healthy = [request for request in transport.requests if request.worker == 1]
        transport.events = [rollout(healthy[epoch]), WorkerDied(0, epoch, "killed", hung=epoch == 2)]
        assert pool.collect(0).request.worker == 1
        assert pool.collect(0) is None
    lines = capsys.readouterr().err.splitlines()
    assert [("worker 0" in line, "hung" in line, "died" in line) for line in lines] == [
        (True, False, True),
        (True, False, True),
        (True, True, False),
        (True, False, True),
    ]
    transport.events = [WorkerDied(0, MAX_DEATHS_IN_A_ROW - 1, "killed by a test")]
    with refuses(UsageError, "worker 0 5th"):
        pool.collect(0)


def test_an_environment_fault_ends_learning():
    pool, transport = pool_of()
    transport.events = [EnvironmentFailed(1, 0, "environment X failed")]
    with refuses(UsageError, "worker 1"):
        pool.collect(0)


def test_closing_counts_open_rollouts_as_lost():
    pool, transport = pool_of()
    transport.events = [rollout(transport.requests[0], unfinished_steps=2)]
    pool.collect(0)
    pool.close()
    assert transport.closed
    assert (pool.counts.lost, pool.counts.lost_episodes, pool.pending) == (3, 0, 0)
    check_counts_add_up(pool)


def test_steps_are_numbered_from_the_agents_step():
    _, transport = pool_of(1, first_step=40)
    assert [request.first_step for request in transport.requests] == [40, 43]


def test_rollouts_of_an_earlier_epoch_are_refused():
    pool, transport = pool_of(1)
    late = transport.requests[0]
    transport.events = [WorkerDied(0, 0, "killed"), WorkerReady(0, 1)]
    pool.collect(0)
    # The new worker has an open request with the same sequence number.
    transport.events = [rollout(late)]
    assert pool.collect(0) is None
    assert (pool.counts.accepted, pool.counts.refused, pool.pending) == (0, 1, 2)
    check_counts_add_up(pool)


class Clock:
    """A clock that the test sets."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(pool_module.time, "monotonic", lambda: self.now)

    def wait(self, pool, seconds):
        """Let the pool wait for rollouts, a second at a time, while nothing comes."""
        for _ in range(seconds):
            self.now += 1
            assert pool.collect(0) is None


def test_a_worker_that_takes_ten_times_the_longest_rollout_is_replaced(monkeypatch):
    """Even while the other worker answers; the longest rollout took 9 s, so the pool waits 90 s."""
    clock = Clock(monkeypatch)
    pool, transport = pool_of()
    for seconds in (9.0, 3.0):
        transport.events = [rollout(transport.requests[-2], seconds=seconds), rollout(transport.requests[-1])]
        pool.collect(0), pool.collect(0), pool.collect(0)
    for later, deaths in ((89, 0), (2, 1)):
        clock.wait(pool, later - 1)
        clock.now += 1
        mine = [request for request in transport.requests if request.worker == 1]
        transport.events = [rollout(mine[-1], unfinished_steps=1, seconds=1.0)]
        assert pool.collect(0).request.worker == 1
        assert pool.collect(0) is None
        assert (pool.counts.deaths, pool.counts.hangs) == (deaths, deaths)
    assert transport.started[2:] == [(0, 1)]
    assert pool.counts.lost == 2
    check_counts_add_up(pool)


def test_a_worker_that_answered_between_collect_calls_does_not_hang(monkeypatch):
    clock = Clock(monkeypatch)
    pool, transport = pool_of(1)
    transport.events = [rollout(transport.requests[0], seconds=1.0)]
    pool.collect(0)
    clock.wait(pool, 40)
    clock.now += 3600  # as half a minute, the longest that a time without a poll counts
    transport.events = [rollout(transport.requests[1], seconds=1.0)]
    assert pool.collect(0) is not None
    clock.wait(pool, 59)
    assert pool.counts.hangs == 0
    clock.wait(pool, 2)  # the shortest timeout is a minute
    assert pool.counts.hangs == 1


@pytest.mark.parametrize("paused_in_poll", [True, False])
def test_a_pause_in_which_the_learner_and_its_workers_are_stopped_is_no_hang(monkeypatch, paused_in_poll):
    """The limit is a minute: 20 s before the pause, half a minute for the pause, and 10 s after it."""
    clock = Clock(monkeypatch)
    pool, transport = pool_of(1)
    transport.events = [rollout(transport.requests[0], seconds=1.0)]
    pool.collect(0)
    clock.wait(pool, 20)
    if paused_in_poll:
        poll = transport.poll
        transport.poll = lambda timeout: setattr(clock, "now", clock.now + 3600) or poll(timeout)
        assert pool.collect(1.0) is None
        transport.poll = poll
    else:
        clock.now += 3600
        assert pool.collect(0) is None
    clock.wait(pool, 10)
    assert pool.counts.hangs == 0
    clock.wait(pool, 1)
    assert pool.counts.hangs == 1


def test_no_worker_hangs_before_the_first_rollout(monkeypatch):
    clock = Clock(monkeypatch)
    pool, _ = pool_of(1)
    clock.now += 3000
    assert pool.collect(0) is None
    assert (pool.counts.hangs, RolloutTimeout().seconds) == (0, None)


@pytest.mark.parametrize(("limit", "hangs"), [(None, 0), (30.0, 1)])
def test_a_worker_that_is_not_ready_in_time_is_replaced_unless_it_may_wait_for_room(monkeypatch, limit, hangs):
    clock = Clock(monkeypatch)
    transport = Played()
    transport.start_limit = limit
    pool = WorkerPool(transport, 2, 3)
    pool.publish([])
    assert pool.collect(0) is None
    transport.events = [WorkerReady(0, 0)]  # it has requests, whose limit is not known before the first rollout
    clock.wait(pool, 30)
    assert pool.counts.hangs == 0
    clock.wait(pool, 1)
    assert pool.counts.hangs == hangs
    assert transport.started[2:] == [(1, 1)] * hangs


@pytest.mark.parametrize("seconds", [0, float("nan"), "x", None])
def test_an_invalid_rollout_timeout_is_refused(seconds):
    with refuses(UsageError, "rollout_timeout", repr(seconds)):
        RolloutTimeout(seconds)
