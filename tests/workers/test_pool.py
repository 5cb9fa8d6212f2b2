"""Nothing is taken twice, nothing of the dead, never more in flight than allowed; and the counts add up."""

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


def check_sum(pool):
    counts = pool.counts
    assert counts.requested == counts.accepted + counts.lost + pool.pending


def test_every_worker_has_two_requests_and_no_more():
    pool, transport = pool_of()
    assert pool.collect(0) is None
    # Each in turn, the steps one after the other.
    expected = [(0, 0, 0, 0), (1, 0, 0, 3), (0, 0, 1, 6), (1, 0, 1, 9)]
    assert transport.requests == [RolloutRequest(*fields) for fields in expected]
    transport.events = [rollout(transport.requests[1])]
    assert pool.collect(0).request == RolloutRequest(1, 0, 0, 3)
    assert pool.collect(0) is None
    assert transport.requests[4:] == [RolloutRequest(1, 0, 2, 12)]
    assert (pool.pending, pool.counts.accepted, pool.counts.steps) == (4, 1, 3)
    check_sum(pool)


def test_weights_are_numbered_from_0():
    pool = WorkerPool(Played(), 1, 3)
    assert pool.version == -1
    assert [pool.publish([]), pool.publish([])] == [0, 1]


def test_a_worker_is_asked_when_it_is_ready():
    transport = Played()
    pool = WorkerPool(transport, 2, 3)
    pool.publish([])
    pool.collect(0)
    assert transport.started == [(0, 0), (1, 0)]
    assert (transport.requests, pool.ready) == ([], 0)
    transport.events = [WorkerReady(1, 0)]
    pool.collect(0)
    assert ({request.worker for request in transport.requests}, pool.ready) == ({1}, 1)


def test_a_rollout_that_comes_twice_is_taken_once():
    pool, transport = pool_of()
    first = transport.requests[0]
    transport.events = [rollout(first), rollout(first)]
    assert pool.collect(0).request == first
    assert pool.collect(0) is None
    assert (pool.counts.accepted, pool.counts.refused) == (1, 1)
    check_sum(pool)


def test_what_was_never_asked_for_is_refused():
    pool, transport = pool_of()
    transport.events = [rollout(RolloutRequest(0, 0, 7, 0))]
    assert pool.collect(0) is None
    assert pool.counts.refused == 1


def test_a_worker_that_died_is_replaced_and_what_it_did_is_lost():
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
    check_sum(pool)
    # What the dead one had sent comes late: another will do these steps.
    transport.events = [rollout(second), WorkerReady(0, 0)]
    assert pool.collect(0) is None
    assert (pool.counts.refused, pool.ready) == (1, 1)
    asked = len(transport.requests)
    transport.events = [WorkerReady(0, 1)]
    pool.collect(0)
    again = transport.requests[asked:]
    assert again == [RolloutRequest(0, 1, 0, second.first_step), RolloutRequest(0, 1, 1, 12)]
    check_sum(pool)


def test_an_episode_that_ended_is_not_lost():
    pool, transport = pool_of()
    transport.events = [rollout(transport.requests[0], unfinished_steps=0), WorkerDied(0, 0, "killed")]
    pool.collect(0)
    pool.collect(0)
    assert (pool.counts.deaths, pool.counts.lost_episodes) == (1, 0)


def test_workers_that_die_again_and_again_are_given_up():
    pool, transport = pool_of(1)
    for epoch in range(MAX_DEATHS_IN_A_ROW - 1):
        transport.events = [WorkerDied(0, epoch, "killed")]
        assert pool.collect(0) is None
    # A rollout between them begins the count anew.
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


def test_an_environment_that_fails_ends_it():
    pool, transport = pool_of()
    transport.events = [EnvironmentFailed(1, 0, "environment X failed")]
    with refuses(UsageError, "worker 1"):
        pool.collect(0)


def test_closing_counts_what_was_open():
    pool, transport = pool_of()
    transport.events = [rollout(transport.requests[0], unfinished_steps=2)]
    pool.collect(0)
    pool.close()
    assert transport.closed
    assert (pool.counts.lost, pool.counts.lost_episodes, pool.pending) == (3, 0, 0)
    check_sum(pool)


def test_steps_are_numbered_from_where_the_agent_is():
    _, transport = pool_of(1, first_step=40)
    assert [request.first_step for request in transport.requests] == [40, 43]


def test_rollouts_of_an_epoch_that_is_over_are_refused():
    pool, transport = pool_of(1)
    late = transport.requests[0]
    transport.events = [WorkerDied(0, 0, "killed"), WorkerReady(0, 1)]
    pool.collect(0)
    # The new worker has the same sequence open.
    transport.events = [rollout(late)]
    assert pool.collect(0) is None
    assert (pool.counts.accepted, pool.counts.refused, pool.pending) == (0, 1, 2)
    check_sum(pool)


class Clock:
    """Time as a test has it."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(pool_module.time, "monotonic", lambda: self.now)


def test_a_worker_that_takes_ten_times_the_longest_rollout_is_replaced(monkeypatch):
    """While another one answers all the time: the longest took 9 s, so 90 s are waited."""
    clock = Clock(monkeypatch)
    pool, transport = pool_of()
    for seconds in (9.0, 3.0):
        transport.events = [rollout(transport.requests[-2], seconds=seconds), rollout(transport.requests[-1])]
        pool.collect(0), pool.collect(0), pool.collect(0)
    for later, deaths in ((89.0, 0), (2.0, 1)):
        clock.now += later
        mine = [request for request in transport.requests if request.worker == 1]
        transport.events = [rollout(mine[-1], unfinished_steps=1, seconds=1.0)]
        assert pool.collect(0).request.worker == 1
        assert pool.collect(0) is None
        assert (pool.counts.deaths, pool.counts.hangs) == (deaths, deaths)
    assert transport.started[2:] == [(0, 1)]
    assert pool.counts.lost == 2
    check_sum(pool)


def test_who_answered_while_the_learner_was_elsewhere_does_not_hang(monkeypatch):
    clock = Clock(monkeypatch)
    pool, transport = pool_of(1)
    transport.events = [rollout(transport.requests[0], seconds=1.0)]
    pool.collect(0), pool.collect(0)
    clock.now += 3600
    transport.events = [rollout(transport.requests[1], seconds=1.0)]
    assert pool.collect(0) is not None
    clock.now += 59
    assert pool.collect(0) is None
    assert pool.counts.hangs == 0
    clock.now += 2  # the least is a minute
    assert pool.collect(0) is None
    assert pool.counts.hangs == 1


def test_before_the_first_rollout_nobody_hangs(monkeypatch):
    clock = Clock(monkeypatch)
    pool, _ = pool_of(1)
    clock.now += 3000
    assert pool.collect(0) is None
    assert (pool.counts.hangs, RolloutTimeout().seconds) == (0, None)


@pytest.mark.parametrize("seconds", [0, float("nan"), "x", None])
def test_a_patience_that_is_no_time_is_refused(seconds):
    with refuses(UsageError, "rollout_timeout", repr(seconds)):
        RolloutTimeout(seconds)
