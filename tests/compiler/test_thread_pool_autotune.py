"""The autotuner uses the faster of threaded and serial, and tries the other now and then."""

import itertools

import pytest

from ddpg.compiler.thread_pool import Autotuner


class Work:
    """Simulated work: seconds a piece, threaded and serial."""

    def __init__(self, together, alone):
        self.seconds, self.waking, self.now, self.done = [together, alone], 0.0, 0.0, []
        self.tuner = Autotuner(lambda: self.now)

    def call(self, count):
        """Return how the pieces of a call are split between the two ways."""
        parts = []
        for way, some in self.tuner.split(count):
            self.now += self.seconds[way] * some + self.waking * (way == 0 and not parts)
            parts.append((way, some))
        assert sum(some for _, some in parts) == count
        return parts


@pytest.mark.parametrize(("together", "alone", "best"), [(0.01, 0.02, 0), (0.02, 0.01, 1)])
def test_the_faster_way_is_used(together, alone, best):
    work = Work(together, alone)
    work.call(10), work.call(10)  # both have been tried
    assert work.call(10) == [(best, 10)]


def test_a_way_that_has_become_slow_is_left_and_returned_to():
    work = Work(0.01, 0.02)
    work.call(1), work.call(1)
    assert work.call(5) == [(0, 5)]
    work.seconds[0] = 0.5  # the cores are busy
    work.call(5)
    assert work.call(5) == [(1, 5)]
    work.seconds[0] = 0.01
    work.now += 10
    assert work.call(5) == [(0, 1), (0, 4)]
    assert work.call(5) == [(0, 5)]


def test_a_first_piece_that_waits_for_threads_to_wake_does_not_decide():
    """Of 40 pieces, 16 are timed; all but the first are as fast as before."""
    work = Work(0.01, 0.02)
    work.call(1), work.call(1)
    work.seconds[0] = 0.5
    work.call(1)
    work.seconds[0], work.waking, work.now = 0.01, 0.05, 10
    assert work.call(40) == [(0, 1), (0, 15), (0, 24)]


def test_a_much_slower_way_is_tried_with_one_piece():
    work = Work(0.5, 0.01)
    work.call(1), work.call(1)
    work.now += 10
    assert work.call(40) == [(0, 1), (1, 39)]


def test_the_slower_way_is_tried_less_and_less_often():
    work = Work(0.1, 1e-3)
    for _ in range(100_000):
        for way, _some in work.call(1):
            if way == 0:
                work.done.append(work.now)
    gaps = [after - before for before, after in itertools.pairwise(work.done)]
    assert gaps[:4] == pytest.approx([1.1, 2.1, 4.1, 8.1], abs=0.01)
    assert gaps[4:] == pytest.approx([8.1] * len(gaps[4:]), abs=0.01)
    assert len(gaps) > 8


def test_the_remainder_of_a_call_is_not_timed():
    """33 pieces are a call of 32 and one of 1, for which waking the threads takes five times as long as the piece."""
    work = Work(0.01, 0.012)
    work.call(32), work.call(32)
    work.waking = 0.05
    for _ in range(12):
        assert work.call(1) == [(0, 1)]
        assert work.call(32)[-1][0] == 0


def test_calls_that_have_become_shorter_are_timed_again():
    work = Work(0.01, 0.02)
    work.call(32), work.call(32)
    work.seconds[0] = 0.5
    ways = [work.call(1)[-1][0] for _ in range(60)]
    assert ways[0] == 0
    assert ways[-1] == 1
