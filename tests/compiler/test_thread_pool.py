"""A thread pool calls all functions, even if Ctrl-C interrupts ``run_all``; the cores that this process may use."""

import gc
import signal
import subprocess
import sys
import threading

import pytest

from ddpg.compiler import thread_pool
from ddpg.compiler.thread_pool import ThreadPool, available_cores

WAIT = 5.0  # seconds until a barrier or a join gives up


class Meeting:
    """A function whose calls wait until ``count`` of them run; ``made`` lists the arguments of finished calls."""

    def __init__(self, count):
        self.made = []
        self._barrier = threading.Barrier(count)

    def __call__(self, *call):
        self._barrier.wait(WAIT)
        self.made.append(call)


class Interrupted:
    """A queue whose ``number``-th put raises KeyboardInterrupt, before the put or ``after`` it."""

    def __init__(self, queue, number, after):
        self._queue, self._left, self._after = queue, number, after

    def put(self, task):
        self._left -= 1
        if self._left == -1 and not self._after:
            raise KeyboardInterrupt
        self._queue.put(task)
        if self._left == -1 and self._after:
            raise KeyboardInterrupt


def interrupted(pool, *given):
    """Return whether ``run_all`` was interrupted, called in another thread so that a deadlock fails the test."""
    found = []

    def run():
        try:
            pool.run_all(*given)
        except KeyboardInterrupt:
            found.append(True)
        else:
            found.append(False)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(2 * WAIT)
    assert found, "run_all hangs"
    return found[0]


def calls_of(count, what="a"):
    return [(what, number) for number in range(count)]


def test_calls_run_at_the_same_time_the_first_in_the_callers_thread():
    pool, meeting, threads = ThreadPool(2, "test"), Meeting(3), {}

    def function(*call):
        meeting(*call)
        threads[call[1]] = threading.current_thread()

    pool.run_all(function, calls_of(3))
    assert sorted(meeting.made) == calls_of(3)
    assert threads[0] is threading.current_thread()
    assert len({*threads.values()}) == 3


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", [0, 1])
def test_an_interrupt_while_queueing_calls_loses_and_repeats_none(number, after):
    pool, meeting = ThreadPool(2, "test"), Meeting(3)
    queue = pool._tasks
    pool._tasks = Interrupted(queue, number, after)
    assert interrupted(pool, meeting, calls_of(3))
    assert sorted(meeting.made) == calls_of(3)
    pool._tasks = queue
    assert not interrupted(pool, meeting, calls_of(3, "b"))
    assert sorted(meeting.made[3:]) == calls_of(3, "b")


def test_an_interrupt_after_the_callers_own_call_waits_for_the_others():
    """As Python delivers it: Ctrl-C during compiled code raises when that returns."""
    pool, meeting, slow = ThreadPool(1, "test"), Meeting(2), threading.Event()

    def function(*call):
        meeting(*call)
        if call[1] == 0:
            threading.Timer(0.2, slow.set).start()
            raise KeyboardInterrupt
        slow.wait(WAIT)
        meeting.made.append("ended")

    assert interrupted(pool, function, calls_of(2))
    assert meeting.made[-1] == "ended"
    assert sorted(meeting.made[:-1]) == calls_of(2)


def test_threads_end_when_the_pool_is_deleted():
    before = {*threading.enumerate()}
    pool = ThreadPool(3, "test")
    pool.run_all(Meeting(4), calls_of(4))
    threads = {*threading.enumerate()} - before
    assert sorted(thread.name for thread in threads) == ["test-0", "test-1", "test-2"]
    del pool
    gc.collect()
    for thread in threads:
        thread.join(WAIT)
    assert not any(thread.is_alive() for thread in threads)


STORM = """
import signal, sys
import numpy as np, tensorflow as tf
from types import SimpleNamespace
from ddpg.compiler.compiled_update import CompiledUpdate
v1 = tf.compat.v1
v1.disable_eager_execution()
x, weights = v1.placeholder(tf.float32, [64, 64]), v1.get_variable("weights", [64, 64], use_resource=True)
loss = tf.reduce_sum(tf.square(tf.tanh(tf.matmul(x, weights))))
with tf.control_dependencies([weights.assign_sub(1e-6 * tf.gradients(loss, weights)[0])]):
    metrics = [tf.identity(loss)]
update = CompiledUpdate(metrics, {"x": x}, [weights], 2)
update._autotuner = SimpleNamespace(split=lambda count: [(False, count)])
rng = np.random.default_rng(0)
update.values[0][...] = rng.normal(size=(64, 64))
batch = [rng.normal(size=(1, 64, 64)).astype(np.float32)]
def interrupt(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, interrupt)
for _ in range(2000):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(2e-4, 2e-3))
            while True:
                update.run(1, batch)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
    before = update.values[0].copy()
    update.run(1, batch)
    assert (update.values[0] != before).any()
print("went on")
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timers")
def test_two_thousand_interrupts_of_shared_updates():
    done = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, timeout=300)
    assert done.stdout.endswith("went on\n"), done.stderr


@pytest.fixture
def six_cores(monkeypatch, tmp_path):
    """A machine with six cores; returns the folder, empty at first, that stands in for its control group files."""
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(6)), raising=False)
    monkeypatch.setattr(thread_pool, "CONTROL_GROUP", tmp_path)
    monkeypatch.delenv(thread_pool.INTRAOP, raising=False)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "250000 100000\n"}, 2),
        ({"cpu.max": "50000 100000\n"}, 1),
        ({"cpu.max": "max 100000\n"}, 6),
        ({"cpu.max": "1600000 100000\n"}, 6),
        ({"cpu/cpu.cfs_quota_us": "300000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 6),
    ],
    ids=lambda value: " ".join(value.values()).replace("\n", "") if isinstance(value, dict) else "",
)
def test_a_containers_quota_limits_the_threads(six_cores, files, expected):
    for name, text in files.items():
        (six_cores / name).parent.mkdir(exist_ok=True)
        (six_cores / name).write_text(text)
    assert available_cores() == expected


def test_tensorflows_setting_limits_the_threads_of_parallel_jobs(six_cores, monkeypatch):
    for setting, expected in (("", 6), ("0", 6), ("4", 4), ("9", 6)):
        monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", setting)
        assert available_cores() == expected
