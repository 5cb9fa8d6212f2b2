"""Workers on a Ray cluster: learning, replacement of dead workers, and a pool that follows the cluster's size."""

import functools
import os
import signal
import subprocess
import time
from pathlib import Path

import distributed_envs
import pytest
from environments import Counting
from refusals import refuses

from ddpg import DDPG, DDPGConfig, UsageError, evaluate
from ddpg.errors import EnvironmentFault
from ddpg.runs.env_factory import make_env
from ddpg.workers import ray_workers
from ddpg.workers.remote_loop import learning_from_workers

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")

TINY = DDPGConfig(
    hidden=(8,), batch_size=8, optimizer="sgd", jit=False, buffer_size=20_000, learning_starts=100, updates_per_step=0.1
)
PENDULUM = functools.partial(make_env, "Pendulum-v1")


def actors():
    """Return the process ids of the Ray actors on this machine."""
    found = subprocess.run(["pgrep", "-f", "^ray::RayWorkerActor"], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def check_counts_add_up(pool):
    counts = pool.counts
    assert counts.requested == counts.accepted + counts.lost + pool.pending


@pytest.mark.slow
def test_a_local_cluster_starts_and_stops_with_the_workers():
    before = signal.getsignal(signal.SIGTERM)
    with DDPG(PENDULUM(), TINY, seed=0) as agent:
        with learning_from_workers(agent, PENDULUM, "ray", 2) as loop:
            assert signal.getsignal(signal.SIGTERM) is before
            agent.learn(1000)
            check_counts_add_up(loop.pool)
            assert (agent.replay.added, loop.pool.counts.deaths, loop.pool.ready) == (1000, 0, 2)
            assert agent.num_updates + loop.owed_updates == pytest.approx(90)
        assert not ray.is_initialized()


@pytest.mark.slow
def test_an_environment_that_cannot_be_made_ends_learning():
    with (
        DDPG(Counting(), TINY, seed=0) as agent,
        learning_from_workers(agent, functools.partial(make_env, "No-v0"), "ray", 1),
        refuses(UsageError, "No-v0"),
    ):
        agent.learn(100)


@pytest.mark.slow
def test_a_module_that_a_node_lacks_is_named():
    """Python finds the tests' modules in this process alone."""
    with (
        DDPG(Counting(), TINY, seed=0) as agent,
        learning_from_workers(agent, distributed_envs.Slow, "ray", 1) as loop,
        refuses(EnvironmentFault, "distributed_envs"),
    ):
        agent.learn(100)
    assert loop.pool.counts.deaths == 0


@pytest.mark.slow
def test_an_actor_closes_its_environment_at_the_end(tmp_path, monkeypatch):
    """Where Ray does not tell an actor in time that its call is cancelled, the second rollout takes ten seconds."""
    monkeypatch.setattr(ray_workers, "CLOSE_LIMIT", 60.0)
    monkeypatch.setenv("PYTHONPATH", str(Path(distributed_envs.__file__).parent))
    make_env = functools.partial(distributed_envs.Closed, str(tmp_path))
    with DDPG(Counting(), TINY, seed=0) as agent:
        with learning_from_workers(agent, make_env, "ray", 1, length=100):
            agent.learn(10)
        assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("address", "message"), [("127.0.0.1:1", "127.0.0.1:1"), ("ray://head:10001", "auto")])
def test_an_unreachable_cluster_is_a_one_line_error(address, message):
    with (
        DDPG(Counting(), TINY, seed=0) as agent,
        refuses(UsageError, message) as caught,
        learning_from_workers(agent, Counting, "ray", 1, ray_address=address),
    ):
        pass
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_run_survives_killed_workers_and_a_removed_node():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
        done, killed = [], []

        def cause_failures(agent):
            now = agent.num_timesteps
            due = [at for at in (1000, 2000, 4000) if now >= at and at not in done]
            done.extend(due)
            for at in due:
                if at < 4000:
                    killed.append(next(pid for pid in actors() if pid not in killed))
                    os.kill(killed[-1], signal.SIGKILL)
                else:
                    cluster.remove_node(nodes[1])

        def settle(agent, workers):
            """Learn until ``workers`` workers are ready: each takes seconds to start."""
            end = time.monotonic() + 90
            while agent.loop.pool.ready != workers and time.monotonic() < end:
                agent.learn(100)
            assert agent.loop.pool.ready == workers

        ray.init(address=cluster.address, log_to_driver=False)
        with DDPG(PENDULUM(), TINY, seed=0) as agent:
            with learning_from_workers(agent, PENDULUM, "ray", 5) as loop:
                agent.learn(12_000, cause_failures)
                settle(agent, 3)  # one on the head, two on the remaining node
                check_counts_add_up(loop.pool)
                counts = loop.pool.counts
                assert agent.num_timesteps == agent.replay.added == loop.learned_steps >= 12_000
                assert counts.steps == counts.accepted * 100
                assert counts.deaths == 4  # two killed, two lost with their node
                assert counts.lost > 0
                cluster.add_node(num_cpus=2)
                settle(agent, 5)  # the new node has room
            assert ray.is_initialized()  # it was not the loop that started Ray
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert not actors()


@pytest.mark.slow
def test_a_node_that_joins_grows_the_pool():
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        with DDPG(PENDULUM(), TINY, seed=0) as agent, learning_from_workers(agent, PENDULUM, "ray", 4) as loop:
            agent.learn(1000)
            assert loop.pool.ready == 1  # the cluster has no room for more
            cluster.add_node(num_cpus=2)
            for _ in range(300):
                if loop.pool.ready == 3:
                    break
                agent.learn(100)
            agent.learn(1000)
            assert loop.pool.ready == 3  # four were requested, and the cluster has room for three
            assert {request.worker for member in loop.pool._workers for request in member.pending.values()} == {0, 1, 2}
            assert (loop.pool.counts.deaths, loop.learned_steps) == (0, agent.replay.added)
            check_counts_add_up(loop.pool)
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(("collector", "workers"), [("process", 2), ("process", 4), ("ray", 2)])
def test_pendulum_is_learned_with_workers(collector, workers):
    config = DDPGConfig(learning_starts=1000)
    with DDPG(PENDULUM(), config, seed=0) as agent:
        with learning_from_workers(agent, PENDULUM, collector, workers):
            agent.learn(12_000)
        assert evaluate(agent, PENDULUM(), 10, seed=1).summary()["mean_return"] > -300
