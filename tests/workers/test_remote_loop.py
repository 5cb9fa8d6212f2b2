"""Learning from workers' rollouts: each transition once, with updates and callbacks as without workers."""

import time

import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY
from environments import Counting
from refusals import refuses
from transports import Here, Played

from ddpg import DDPG, Callback, DDPGConfig, UsageError
from ddpg.agents.diagnostics import Diagnostics
from ddpg.workers.pool import WorkerPool
from ddpg.workers.remote_loop import RemoteLoop, learning_from_workers, worker_spec_of
from ddpg.workers.worker import WorkerDied

SMALL = TINY | {"target": "online", "buffer_size": 1000}


def remote(workers=2, length=10, make_env=Counting, **options):
    """Return an agent whose workers are in this process, and their transport; episodes have three steps."""
    config = DDPGConfig(**{"learning_starts": 20, "updates_per_call": 4} | SMALL | options)
    agent = DDPG(Counting(), config, seed=1)
    transport = Here(worker_spec_of(agent, make_env, workers, length, 0))
    agent.loop = RemoteLoop(agent, WorkerPool(transport, workers, length))
    return agent, transport


def endless():
    return gym.wrappers.TransformReward(Counting(10**6), lambda reward: 1.0)


def test_diagnosed_returns_are_complete_although_workers_store_rollouts_in_turn():
    """Rewards are 1, Q is 0 and γ = 0.5: a return of 7 steps is 2 − 1/64. A shorter one, completed by Q, is less."""
    agent, _ = remote(4, make_env=endless, gamma=0.5, learning_starts=1000)
    with agent:
        with agent.session.as_default():
            agent.critic.set_network_params([np.zeros_like(array) for array in agent.critic.get_network_params()])
        agent.learn(200)
        diagnostics = Diagnostics(agent)
        found = diagnostics.measure(1000)
        diagnostics.close()
    assert found["discounted_return"] == pytest.approx(2 - 1 / 64)


class Recorder(Callback):
    def __init__(self):
        self.episodes, self.updates, self.steps, self.metrics = [], [], [], []

    def on_episode_end(self, agent, episode):
        self.episodes.append((agent.num_timesteps, episode))

    def on_update(self, agent, metrics):
        self.updates.append((agent.num_timesteps, agent.num_updates))
        self.metrics.append(metrics)

    def on_step(self, agent):
        self.steps.append(agent.num_timesteps)


@pytest.mark.parametrize(
    ("per_step", "workers"),
    [(0.25, 4), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((0.25, 1), (1.0, 1), (1.0, 4)))],
)
def test_updates_per_step_are_as_without_workers(workers, per_step):
    agent, _ = remote(workers, updates_per_step=per_step)
    with agent, DDPG(Counting(), agent.config, seed=1) as alone:
        agent.learn(145)
        alone.learn(145)
        assert (agent.num_timesteps, agent.replay.added, agent.replay.own) == (145, 145, 145)
        assert agent.num_updates + agent.loop.owed_updates == 125 * per_step
        assert (agent.num_updates, agent.loop.owed_updates) == (alone.num_updates, alone.loop.owed_updates)


def test_fractional_updates_run_when_they_are_due():
    """At 0.6 updates a step, the third is due after five steps, and not after six as with rounding."""
    agent, _ = remote(1, updates_per_step=0.6, updates_per_call=1)
    recorder = Recorder()
    with agent:
        agent.learn(40, recorder)
    assert recorder.updates == [(20 + step, step * 6 // 10) for step in range(1, 21) if step * 6 % 10 < 6]


def test_learning_starts_in_the_middle_of_a_rollout():
    agent, _ = remote(1, learning_starts=13)
    recorder = Recorder()
    with agent:
        agent.learn(21, recorder)
    assert recorder.updates == [(17, 4), (21, 8)]


def test_every_transition_is_learned_from_once_and_in_order():
    agent, _ = remote()
    recorder = Recorder()
    with agent:
        agent.learn(57, recorder)
        stored = agent.replay.arrays()
        collected = agent.loop.pool.counts.steps
        agent.learn(3, recorder)  # the rest of the last rollout
        assert (collected, agent.loop.pool.counts.steps, agent.loop.learned_steps) == (60, 60, 60)
        assert len(agent.replay) == 60
        agent.learn(1000, lambda agent: agent.num_timesteps < 85)  # a callback stops it within a rollout
        assert 85 <= agent.num_timesteps < 90
    assert recorder.updates == [(step, step - 20) for step in range(24, 61, 4)], "calls are full and on time"
    assert stored["rewards"].shape == (57, 1)
    # The two workers' rollouts of 10 steps alternate; observations are [episode, step].
    rows = stored["observations"].astype(int).tolist()
    assert rows[:10] == rows[10:20] == [[step // 3, step % 3] for step in range(10)]
    assert rows[20:30] == [[step // 3, step % 3] for step in range(10, 20)]
    # Episodes are reported at the step where they end.
    assert [step for step, _ in recorder.episodes][:9] == [3, 6, 9, 13, 16, 19, 22, 25, 28]
    assert [episode.index for _, episode in recorder.episodes][:9] == [0] * 3 + [1] * 3 + [0] * 3
    assert {(episode.episode_return, episode.length) for _, episode in recorder.episodes} == {(6.0, 3)}
    assert set(recorder.steps) >= {step for step, _ in recorder.episodes}


def test_n_step_returns_do_not_mix_workers():
    agent, _ = remote(n_steps=2, gamma=0.5)
    with agent:
        agent.learn(40)
        batch = agent.replay.gather(np.arange(40), 2, 0.5)
    # r + r'/2 is 1 + 2/2, 2 + 3/2, 3; the last steps in memory have no successor yet.
    steps = np.tile([*range(10)], 4)[:20]
    expected = [(2.0, 3.5, 3.0)[step % 3] for step in steps]
    # Step 9 begins an episode whose second step is in the worker's next rollout, ten rows later.
    assert batch.rewards[:20, 0].tolist() == expected


class Constant(Counting):
    """Counting, but all observations are equal, and the third reward of each episode is NaN."""

    def __init__(self):
        super().__init__(4, nan_reward_at=3)

    def _observation(self):
        return np.zeros(2)


@pytest.mark.parametrize("length", [1, 4, *(pytest.param(length, marks=pytest.mark.slow) for length in (2, 10))])
def test_an_abandoned_episode_ends_anywhere_in_a_rollout(length):
    """γ = 0.5, rewards 1 and 2 before each drop: G is 1 and 2.5, and no return crosses into the next episode."""
    options = {"on_bad_transition": "drop", "n_steps": 3, "normalize_rewards": True, "gamma": 0.5}
    agent, _ = remote(1, length, Constant, **options)
    with agent:
        agent.learn(12)
        batch = agent.replay.gather(np.arange(12), 3, 0.5)
        assert batch.discounts[:, 0].tolist() == [0.25, 0.5] * 6
        assert agent.memory.statistics()["rewards.largest"] == 2.5


def test_policy_lag_of_unrecorded_weights_counts_from_the_oldest_recorded():
    agent, _ = remote(1, learning_starts=0)
    before, recorder = Recorder(), Recorder()
    with agent:
        agent.learn(40, before)
        # Every fourth step makes 4 updates; two rollouts are requested before the first is learned from.
        lags = [metrics["policy_lag"] for metrics in before.metrics]
        assert (lags[0], max(lags)) == (0, 16)
        assert set(agent.metrics) == set(before.metrics[0])
        agent.loop._published = {1000: agent.num_updates - 3}  # as if a rollout's weights were over 100 versions old
        agent.learn(4, recorder)
    assert [metrics["policy_lag"] for metrics in recorder.metrics] == [3]


def test_weights_are_published_once_for_all_workers_and_only_when_new():
    agent, transport = remote(4)
    with agent:
        agent.learn(20)
        assert transport.published == [0]
        agent.learn(40)
    # New weights after each rollout, except for the last, which no request followed.
    assert transport.published == [0, 1, 2, 3]
    assert agent.loop.broadcasts == 4


def test_a_dead_worker_loses_only_its_open_rollouts():
    agent, transport = remote()
    killed = []

    def kill(agent):
        if agent.num_timesteps >= 30 and not killed:
            killed.append(agent.num_timesteps)
            transport.events = [event for event in transport.events if event.request.worker != 0]
            transport.events.append(WorkerDied(0, 0, "killed by a test"))

    with agent:
        agent.learn(100, kill)
        counts = agent.loop.pool.counts
        assert counts.requested == counts.accepted + counts.lost + agent.loop.pool.pending
        assert (counts.deaths, agent.loop.learned_steps, agent.replay.added) == (1, 100, 100)
        assert (counts.lost, counts.lost_episodes) == (2, 1)
        assert agent.counts["worker_deaths"] == 1
        assert agent.counts["lost_rollouts"] == 2
        # The new worker's first transition does not follow the old one's last.
        _, continues = agent.replay.observations.next_rows(np.arange(100))
        steps = agent.replay.arrays()["observations"][:, 1].astype(int)
        after = agent.replay.arrays()["next_observations"][:, 1].astype(int)
        assert (after == steps + 1).all()
        assert not continues[steps == 2].any()


def test_the_former_loop_is_restored_with_the_owed_updates():
    with DDPG(Counting(), DDPGConfig(learning_starts=0, updates_per_call=4, **SMALL), seed=1) as agent:
        before = agent.loop
        before.owed_updates = 3.0
        with learning_from_workers(agent, Counting, "process", 1) as loop:
            assert agent.loop is loop
            assert loop.owed_updates == 3.0
            loop.owed_updates = 2.0
        assert (agent.loop, before.owed_updates) == (before, 2.0)


@pytest.mark.parametrize("own_loop", [False, True])
def test_episodes_before_during_and_after_workers_are_separate(monkeypatch, own_loop):
    """γ = 0.5, all in environment 0: G is 1, 2.5 before, 1, 2.5, 4.25, 1 in the worker, and 1 afterwards."""
    monkeypatch.setattr("ddpg.workers.remote_loop._make_transport", lambda _, spec, __: Here(spec))
    with DDPG(Counting(), DDPGConfig(normalize_rewards=True, gamma=0.5, **SMALL), seed=1) as agent:
        agent.learn(2)
        with learning_from_workers(agent, Counting, "process", 1, length=4):
            agent.learn(4)
        if own_loop:  # from where the worker's last transition ended
            agent.observe([1, 1], [0.0], 1.0, [1, 2], False, False)
        else:
            agent.learn(1)
        assert agent.replay.arrays()["observations"][-1].tolist() == [1, 1 if own_loop else 0]
        assert agent.memory.statistics()["rewards.mean"] == pytest.approx((1 + 2.5 + 1 + 2.5 + 4.25 + 1 + 1) / 7)


def test_the_local_collector_and_an_id_instead_of_a_function_are_refused():
    with DDPG(Counting(), DDPGConfig(**SMALL), seed=1) as agent:
        with refuses(UsageError, "collector='local' learn()"), learning_from_workers(agent, Counting, "local"):
            pass
        refused = refuses(UsageError, "make_env='Pendulum-v1' functools.partial")
        with refused, learning_from_workers(agent, "Pendulum-v1"):
            pass


def test_silent_workers_end_learning(monkeypatch):
    monkeypatch.setattr("ddpg.workers.remote_loop.MAX_SILENCE", 0.5)
    with DDPG(Counting(), DDPGConfig(**SMALL), seed=1) as agent:
        agent.loop = RemoteLoop(agent, WorkerPool(Played(), 2, 10))
        with refuses(UsageError, "worker 0"):
            agent.learn(10)


def test_an_hour_in_which_the_learner_and_its_workers_are_stopped_is_no_silence(monkeypatch):
    agent, transport = remote(1)
    poll, polls = transport.poll, []

    def paused(timeout):
        polls.append(timeout)
        if len(polls) == 1:
            monkeypatch.setattr("time.monotonic", lambda now=time.monotonic: now() + 7200)
            return []
        return poll(timeout)

    transport.poll = paused
    with agent:
        agent.learn(20)
        assert agent.num_timesteps == 20


def test_owed_updates_are_made_up_after_the_workers_end(monkeypatch):
    """After 22 steps two updates are owed, fewer than the four of a call."""
    monkeypatch.setattr("ddpg.workers.remote_loop._make_transport", lambda kind, spec, address: Here(spec))
    config = DDPGConfig(**{"learning_starts": 20, "updates_per_call": 4} | SMALL)
    with DDPG(Counting(), config, seed=1) as agent:
        local = agent.loop
        with learning_from_workers(agent, Counting, "process", 1, length=10) as loop:
            assert agent.loop is loop
            agent.learn(22)
            assert (agent.num_updates, loop.owed_updates) == (0, 2)
        assert agent.loop is local
        assert agent.loop.owed_updates == 2
        agent.learn(2)
        assert agent.num_updates == 4
