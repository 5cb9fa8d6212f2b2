"""BLAS runs on one thread while an agent acts in several environments, and on as many as before afterwards."""

import threading

import numpy as np
import pytest
import threadpoolctl

from ddpg.policies import exploration
from ddpg.policies.exploration import BoxExploration
from ddpg.policies.noise import GaussianNoise


class Library:
    """Records the numbers of threads that it is set to."""

    def __init__(self, num_threads):
        self.num_threads, self.set = num_threads, []

    def set_num_threads(self, num_threads):
        self.set.append(num_threads)
        self.num_threads = num_threads


def test_the_outermost_block_limits_libraries_to_one_thread_and_restores_them():
    many, one, unknown = Library(6), Library(1), Library(None)
    limit = exploration.SingleThreadBlocks([many, one, unknown])
    with limit.block():
        with limit.block():
            assert many.set == [1]
        assert many.set == [1]
    with pytest.raises(ZeroDivisionError), limit.block():
        1 / 0  # noqa: B018
    assert many.set == [1, 6, 1, 6]
    many.num_threads = 3  # set by other code in between
    with limit.block():
        pass
    assert many.set[-2:] == [1, 3]
    assert one.set == unknown.set == []


def test_overlapping_blocks_of_threads_end_with_the_last():
    library = Library(2)
    limit = exploration.SingleThreadBlocks([library])
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with limit.block():
            entered.set()
            leave.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(20)
    with limit.block():
        pass
    assert library.set == [1]
    leave.set()
    thread.join(20)
    assert library.set == [1, 2]


def blas_threads():
    return {each["num_threads"] for each in threadpoolctl.threadpool_info() if each["user_api"] == "blas"}


@pytest.mark.parametrize(("count", "single"), [(1, False), (2, True)])
def test_acting_in_several_environments_uses_one_thread(count, single):
    """Tested with NumPy's own BLAS, set to two threads before."""
    seen = []

    def policy(observations):
        seen.append(blas_threads())
        return np.zeros((len(observations), 1), np.float32)

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        rng = np.random.default_rng(0)
        behaviour = BoxExploration(
            rng, 0, lambda step: 0.0, size=1, make_noise=lambda shape: GaussianNoise(0.1, shape), scale=0.1
        )
        behaviour.start(count)
        behaviour.act(policy, np.zeros((count, 3), np.float32), 0)
        assert seen == [{1} if single else {2}]
        assert blas_threads() == {2}
