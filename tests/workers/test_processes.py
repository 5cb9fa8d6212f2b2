"""Worker processes: without TensorFlow, small, replaced when they die or hang, and ended with the loop."""

import functools
import multiprocessing
import os
import signal
import time

import numpy as np
import pytest
from agent_options import TINY
from distributed_envs import Alone, Broken, Closed, Exits, Hanging, Invalid, Slow, Unloadable, Wide
from environments import Counting
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.workers.processes import SharedWeights
from ddpg.workers.remote_loop import current_weights, learning_from_workers

CONFIG = DDPGConfig(**TINY, learning_starts=50, updates_per_step=0.1, buffer_size=5000, target="online")


def all_ended(pids):
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture(scope="module")
def agent():
    """An agent for tests that do not count what it has learned from."""
    with DDPG(Counting(), CONFIG.replace(learning_starts=5_000), seed=0) as agent:
        yield agent


def test_a_worker_has_no_tensorflow_and_little_memory():
    """Numbers of workers and of steps may be floats."""
    with (
        DDPG(Counting(), CONFIG, seed=0) as agent,
        learning_from_workers(agent, Alone, workers=1.0, length=5.0) as loop,
    ):
        agent.learn(40)
        assert 10 < agent.replay.arrays()["rewards"].max() < 150  # MB
        assert loop.pool.counts.steps == 5 * loop.pool.counts.accepted >= 40


def test_a_killed_worker_is_replaced_and_nothing_is_learned_twice():
    killed = []

    def kill(agent):
        if agent.num_timesteps >= 100 and not killed:
            pool = agent.loop.pool  # the other worker may still be starting, without requests to lose
            number = next(number for number, state in enumerate(pool._workers) if state.pending)
            killed.append(pool._transport.pids[number])
            os.kill(killed[0], signal.SIGKILL)

    with DDPG(Counting(), CONFIG, seed=0) as agent:
        with learning_from_workers(agent, Slow, "process", 2, length=20) as loop:
            agent.learn(1500, kill)
            counts, pids = loop.pool.counts, loop.pool._transport.pids
            assert counts.requested == counts.accepted + counts.lost + loop.pool.pending
            assert counts.deaths == 1
            assert 1 <= counts.lost <= 2
            assert (loop.learned_steps, agent.replay.added, agent.num_timesteps) == (1500, 1500, 1500)
            assert killed[0] not in pids
        assert all_ended(pids)
        assert counts.requested == counts.accepted + counts.lost


@pytest.mark.slow
def test_a_worker_that_hangs_is_replaced_while_the_other_continues(tmp_path):
    make_env = functools.partial(Hanging, str(tmp_path / "hung"))
    with DDPG(Counting(), CONFIG, seed=0) as agent:
        with learning_from_workers(agent, make_env, "process", 2, length=20, rollout_timeout=0.5) as loop:
            while loop.pool.counts.hangs == 0 or loop.pool.ready < 2:
                agent.learn(100)
            pids = loop.pool._transport.pids
            assert agent.counts["worker_hangs"] == loop.pool.counts.hangs <= loop.pool.counts.deaths
            assert loop.learned_steps == agent.replay.added == agent.num_timesteps
        assert all_ended(pids)


def test_a_worker_closes_its_environment_at_the_end(agent, tmp_path, capfd):
    """It may have started a simulator. The second rollout, of ten seconds, is cut short."""
    make_env = functools.partial(Closed, str(tmp_path))
    with learning_from_workers(agent, make_env, "process", 1, length=100) as loop:
        agent.learn(10)
        (pid,) = loop.pool._transport.pids
    assert [path.name for path in tmp_path.iterdir()] == [str(pid)]
    assert "Traceback" not in capfd.readouterr().err


def test_ctrl_c_and_a_closed_terminal_while_a_worker_starts_do_not_reach_it(agent):
    with learning_from_workers(agent, Slow, "process", 1, length=20) as loop:
        loop.pool.publish(current_weights(agent))
        assert loop.pool.collect(0) is None
        for number in (signal.SIGINT, signal.SIGHUP):
            os.kill(loop.pool._transport.pids[0], number)
        agent.learn(20)
        assert loop.pool.counts.deaths == 0


def test_a_worker_acts_with_the_latest_weights(agent):
    with learning_from_workers(agent, Alone, "process", 1, length=5) as loop:
        agent.learn(20)
        version = loop.pool.publish(current_weights(agent))
        rollouts = [loop.pool.collect(60.0) for _ in range(4)]  # up to two were requested before
        assert rollouts[-1].version == version == loop.pool.version > 0


@pytest.mark.parametrize(
    ("env", "message"),
    [(Broken, "licence"), (Exits, "sys.exit licence"), (Invalid, "Invalid step 2"), (Wide, "observation space agent")],
)
def test_an_environment_fault_ends_learning_with_one_line(env, message, agent):
    with learning_from_workers(agent, env, "process", 1, length=20), refuses(UsageError, message) as caught:
        agent.learn(100)
    assert "died" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not [child for child in multiprocessing.active_children() if child.name.startswith("ddpg-worker")]


def test_a_worker_that_cannot_be_unpickled_ends_learning_at_once_and_the_guard_is_named(agent):
    with (
        learning_from_workers(agent, Unloadable(), "process", 1, length=20) as loop,
        refuses(UsageError, "worker 0 exit code 1 __main__"),
    ):
        agent.learn(100)
    assert loop.pool.counts.deaths == 0


def test_the_newest_weights_are_read_once():
    arrays = [np.arange(3, dtype=np.float32), np.asarray(7), np.ones((2, 2))]
    weights = SharedWeights(arrays, multiprocessing.get_context("spawn"))
    assert weights.read(-1) is None
    weights.write(0, arrays)
    version, found = weights.read(-1)
    assert version == 0
    for array, expected in zip(found, arrays, strict=True):
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(array, expected)
    assert weights.read(0) is None
    weights.write(1, [2 * array for array in arrays])
    weights.write(2, [3 * array for array in arrays])
    version, found = weights.read(0)
    assert (version, found[0].tolist(), int(found[1])) == (2, [0, 3, 6], 21)
    np.testing.assert_array_equal(found[2], np.full((2, 2), 3.0))


def test_weights_overwritten_during_a_read_are_read_again():
    arrays = [np.zeros(3, np.float32)]
    weights = SharedWeights(arrays, multiprocessing.get_context("spawn"))
    weights.write(0, arrays)
    slot_views, reads = weights._slot_views, []

    def overtaken(slot):
        found = slot_views(slot)
        reads.append(slot)
        if len(reads) == 1:  # after the version is read, before the arrays are copied
            weights._slot_views = slot_views
            weights.write(1, [np.ones(3, np.float32)])
            weights.write(2, [np.full(3, 2, np.float32)])
            weights._slot_views = overtaken
        return found

    weights._slot_views = overtaken
    version, found = weights.read(-1)
    assert (version, found[0].tolist(), len(reads)) == (2, [2, 2, 2], 2)
