"""The clock of a run and its rows of metrics, worked out by hand with a clock that the test sets."""

import types

import pytest

from ddpg.runs.run_state import MetricsTracker, RunState


class Clock:
    now = 1000.0

    def perf_counter(self):
        return self.now


def agent_at(steps):
    return types.SimpleNamespace(
        num_timesteps=steps, compile_seconds=None, counts={"clipped_actions": 7}, num_updates=5
    )


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("ddpg.runs.run_state.time", clock)
    return clock


def run_state_at(steps, seconds):
    return RunState(logged=steps, evaluated=steps, seconds=seconds, sums={"loss": 0.0}, counts={"clipped_actions": 4})


def test_fps_of_a_resumed_run_counts_its_own_steps_and_seconds(clock):
    agent = agent_at(1000)
    tracker = MetricsTracker(run_state_at(1000, seconds=100.0), agent)
    clock.now += 8
    tracker.exclude(3.0)  # an evaluation
    agent.num_timesteps = 1100
    row = tracker.row(agent)
    assert (row["seconds"], row["compile_seconds"], row["fps"]) == (105.0, 0.0, 20.0)


def test_compiling_counts_as_training_but_not_in_fps(clock):
    agent = agent_at(0)
    agent.compile_seconds = 5.0  # before this run
    tracker = MetricsTracker(run_state_at(0, seconds=0.0), agent)
    clock.now += 6
    agent.num_timesteps, agent.compile_seconds = 50, 6.0
    row = tracker.row(agent)
    assert (row["seconds"], row["compile_seconds"], row["fps"]) == (6.0, 1.0, 10.0)


def test_the_clock_pauses_between_end_and_begin(clock):
    agent = agent_at(0)
    tracker = MetricsTracker(run_state_at(0, seconds=1.0), agent)
    clock.now += 2
    tracker.end(agent)
    clock.now += 50
    tracker.begin(agent)
    clock.now += 4
    assert tracker.seconds() == 7.0
    assert tracker.row(agent)["fps"] == 0.0


def test_compile_seconds_add_up_over_processes(clock):
    """The first process trains for 6 s, 2 s of them compiling; the second makes 40 steps in 5 s, 1 s compiling."""
    agent = agent_at(0)
    tracker = MetricsTracker(run_state_at(0, seconds=0.0), agent)
    clock.now += 6
    agent.compile_seconds = 2.0
    arrays = tracker.run_state.arrays(agent.counts, tracker.seconds(), tracker.compile_seconds(agent))
    again = agent_at(100)
    resumed = MetricsTracker(RunState.from_arrays("a.safetensors", arrays, ["loss"], again.counts), again)
    clock.now += 5
    again.num_timesteps, again.compile_seconds = 140, 1.0
    row = resumed.row(again)
    assert (row["seconds"], row["compile_seconds"], row["fps"]) == (11.0, 3.0, 10.0)
    resumed.end(again)
    resumed.begin(again)
    assert resumed.row(again)["compile_seconds"] == 3.0
    del arrays["compile_seconds"]  # as in a checkpoint of an older version
    older = RunState.from_arrays("a.safetensors", arrays, ["loss"], again.counts)
    assert (older.seconds, older.compile_seconds) == (6.0, 0.0)


def test_a_row_holds_means_and_counts_since_the_last_one(clock):
    agent = agent_at(10)
    tracker = MetricsTracker(run_state_at(10, seconds=0.0), agent)
    row = tracker.row(agent)
    assert (row["clipped_actions"], row.keys() & {"loss", "ep_rew_mean", "n_updates"}) == (3, set())
    for loss, episode in ((1.0, (10.0, 4)), (4.0, (20.0, 8))):
        tracker.add_update({"loss": loss})
        tracker.add_episode(types.SimpleNamespace(episode_return=episode[0], length=episode[1]))
    agent.num_timesteps, agent.counts = 20, {"clipped_actions": 9}
    row = tracker.row(agent)
    assert (row["loss"], row["ep_rew_mean"], row["ep_len_mean"], row["n_updates"]) == (2.5, 15.0, 6.0, 5.0)
    assert row["clipped_actions"] == 2
    assert tracker.run_state.logged == 20
    tracker.add_update({"loss": 8.0})
    assert tracker.row(agent)["loss"] == 8.0


def test_the_current_row_starts_anew_with_other_options():
    before = RunState(logged=10, evaluated=5, seconds=2.0, calls=3, sums={"loss": 6.0}, counts={"clipped_actions": 1})
    arrays = before.arrays({"clipped_actions": 4}, 7.0, 1.5)
    counts = {"clipped_actions": 4, "dropped_transitions": 2}
    run_state = RunState.from_arrays("a.safetensors", arrays, ["loss", "other"], counts, anew=True)
    assert (run_state.logged, run_state.evaluated, run_state.seconds, run_state.calls) == (10, 5, 7.0, 0)
    assert (run_state.sums, run_state.counts) == ({"loss": 0.0, "other": 0.0}, counts)
    same = RunState.from_arrays("a.safetensors", arrays, ["loss"], {"clipped_actions": 4})
    assert (same.calls, same.sums, same.counts) == (3, {"loss": 6.0}, {"clipped_actions": 1})
