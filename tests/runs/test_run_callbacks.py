"""Callbacks with Stable-Baselines3's names; results worked out by hand for 20 steps in episodes of 4."""

import types

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from agent_options import TINY
from environments import Counting
from gymnasium.vector import SyncVectorEnv
from refusals import refuses

from ddpg import (
    DDPG,
    Callback,
    CallbackList,
    CheckpointCallback,
    CSVCallback,
    DDPGConfig,
    EvalCallback,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
    StopTrainingOnRewardThreshold,
    TensorBoardCallback,
    TrackerCallback,
    UsageError,
)
from ddpg.checkpoints import checkpoint
from ddpg.runs.evaluation import Evaluation
from ddpg.runs.tables import read_table

CONFIG = DDPGConfig(**TINY, learning_starts=5, updates_per_call=1)
IDLE = CONFIG.replace(learning_starts=100_000)


class Scripted(Counting):
    """Episodes of one step with the given rewards."""

    def __init__(self, *rewards):
        super().__init__(1)
        self.rewards = rewards

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float(self.rewards[self.episode]), *rest


class Losses(Callback):
    """Records the critic loss of every update."""

    def __init__(self):
        self.rows = []

    def on_update(self, agent, metrics):
        self.rows.append((agent.num_timesteps, metrics["critic_loss"]))

    def mean(self, after, until):
        return np.mean([loss for step, loss in self.rows if after < step <= until])


class Tracker:
    """Records its calls."""

    def __init__(self):
        self.calls = []

    def init(self, **options):
        self.calls.append(("init", options))

    def log(self, scalars, step):
        self.calls.append((step, scalars))

    def finish(self):
        self.calls.append("finish")


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """An agent that learned for 20 steps with all callbacks."""
    folder, losses, tracker = tmp_path_factory.mktemp("watched"), Losses(), Tracker()
    evaluation = EvalCallback(
        Scripted(1.0, 3.0, 2.0, 9.0), n_eval_episodes=1, eval_freq=6, best_model_save_path=folder / "best"
    )
    logs = [
        CSVCallback(folder / "csv", log_interval=8),
        TensorBoardCallback(folder / "tb", log_interval=8),
        TrackerCallback(tracker, log_interval=8, project="p"),
    ]
    saving = CheckpointCallback(7, folder / "saved", save_replay_buffer=True)
    agent = DDPG(Counting(4), CONFIG, seed=0).learn(20, CallbackList([evaluation, losses, CallbackList(logs), saving]))
    return types.SimpleNamespace(
        agent=agent, folder=folder, losses=losses, tracker=tracker, evaluation=evaluation, logs=logs
    )


def test_callbacks_do_not_change_what_is_learned(watched):
    alone = DDPG(Counting(4), CONFIG, seed=0).learn(20).get_parameters()
    np.testing.assert_equal(watched.agent.get_parameters(), alone)


def test_an_evaluation_that_explores_draws_none_of_the_agents_random_numbers():
    callback = EvalCallback(Counting(4), n_eval_episodes=1, eval_freq=6, deterministic=False)
    noisy = CONFIG.replace(noise_scale=0.5)
    watched, alone = DDPG(Counting(4), noisy, seed=0).learn(20, callback), DDPG(Counting(4), noisy, seed=0).learn(20)
    np.testing.assert_equal(watched.get_parameters(), alone.get_parameters())


def test_evaluations_come_at_multiples_of_the_interval_and_the_best_is_saved(watched):
    found = [(step, evaluation.mean_return) for step, evaluation in watched.evaluation.evaluations]
    assert found == [(6, 1.0), (12, 3.0), (18, 2.0)]
    assert (watched.evaluation.best_mean_reward, watched.evaluation.last_mean_reward) == (3.0, 2.0)
    manifest, groups = checkpoint.read(watched.folder / "best" / "best_model")
    assert (manifest["num_timesteps"], "replay" in groups) == (12, False)


def test_a_bad_path_for_the_best_model_is_refused():
    with refuses(UsageError, "best_model_save_path 3"):
        EvalCallback(Scripted(3.0), best_model_save_path=3)


def test_of_equal_evaluations_the_first_is_the_best(tmp_path):
    best = EvalCallback(Scripted(3.0, 3.0), n_eval_episodes=1, eval_freq=6, best_model_save_path=tmp_path)
    DDPG(Counting(4), CONFIG, seed=0).learn(12, best)
    assert len(best.evaluations) == 2
    assert checkpoint.read(tmp_path / "best_model")[0]["num_timesteps"] == 6


def test_evaluations_share_episodes_that_training_does_not_see():
    learned, watched, chosen = (Counting(2) for _ in range(3))
    callbacks = [EvalCallback(watched, eval_freq=6), EvalCallback(chosen, eval_freq=6, seed=9)]
    DDPG(learned, CONFIG, seed=3).learn(12, callbacks)
    assert [seed for seed in chosen.seeds if seed is not None] == [9, 9]
    seed, again = (seed for seed in watched.seeds if seed is not None)
    assert seed == again
    assert seed not in (3, *learned.seeds)  # nor the agent's own, which also seeds environments


def test_another_call_of_learn_counts_from_the_agents_steps():
    callback, agent = EvalCallback(Counting(2), n_eval_episodes=1, eval_freq=6), DDPG(Counting(4), CONFIG, seed=0)
    agent.learn(8).learn(6, callback)
    assert [step for step, _ in callback.evaluations] == [12]


def test_checkpoints_have_no_replay_memory_by_default(tmp_path):
    DDPG(Counting(4), CONFIG, seed=0).learn(5, CheckpointCallback(5, tmp_path))
    assert "replay" not in checkpoint.read(tmp_path / "5")[1]


def test_checkpoints_are_saved_at_multiples_of_the_interval(watched):
    assert sorted(path.name for path in (watched.folder / "saved").iterdir()) == ["14", "7"]
    manifest, groups = checkpoint.read(watched.folder / "saved" / "14")
    assert (manifest["num_timesteps"], "replay" in groups) == (14, True)


def test_tables_are_like_those_of_a_run(watched):
    metrics, episodes, evaluations = (
        read_table(watched.folder / "csv" / f"{name}.csv") for name in ("metrics", "episodes", "evaluations")
    )
    assert [(row["timesteps"], row["n_updates"]) for row in metrics] == [("8", "3.0"), ("16", "11.0"), ("20", "15.0")]
    assert {(row["ep_rew_mean"], row["ep_len_mean"]) for row in metrics} == {("10.0", "4.0")}
    means = [watched.losses.mean(*between) for between in ((0, 8), (8, 16), (16, 20))]
    np.testing.assert_allclose([float(row["critic_loss"]) for row in metrics], means)
    assert [tuple(row.values()) for row in episodes] == [(str(step), "10.0", "4") for step in (4, 8, 12, 16, 20)]
    assert [(row["timesteps"], row["mean_return"]) for row in evaluations] == [
        ("6", "1.0"),
        ("12", "3.0"),
        ("18", "2.0"),
    ]


def test_events_and_trackers_get_the_same_values(watched):
    (path,) = (watched.folder / "tb").iterdir()
    events = [
        (event.step, {value.tag: value.simple_value for value in event.summary.value})
        for event in tf.compat.v1.train.summary_iterator(str(path))
        if event.summary.value
    ]
    (started, options), *logged, finished = watched.tracker.calls
    assert (started, options["project"], options["config"]["batch_size"], finished) == ("init", "p", 4, "finish")
    assert [step for step, _ in logged] == [step for step, _ in events] == [6, 8, 12, 16, 18, 20]
    for (_, one), (_, other) in zip(logged, events, strict=True):
        assert one.keys() == other.keys()
        assert all(one[tag] == pytest.approx(other[tag]) for tag in one if tag != "time/fps")
    assert logged[0][1] == {"eval/mean_reward": 1.0, "eval/mean_ep_length": 1.0, "eval/clipped_actions": 0}
    assert logged[1][1]["rollout/ep_rew_mean"] == 10
    assert logged[1][1]["train/critic_loss"] == watched.losses.mean(0, 8)


@pytest.fixture(scope="module")
def idle():
    """An agent that acts in episodes of 4 steps and makes no updates."""
    return DDPG(Counting(4), IDLE, seed=0)


def test_tables_continue_with_the_agent_and_start_anew_with_a_new_one(idle, tmp_path):
    csv = CSVCallback(tmp_path, log_interval=1_000)
    begun = idle.num_timesteps
    for _ in range(2):
        idle.learn(4, csv)
    rows = read_table(tmp_path / "metrics.csv")
    assert [int(row["timesteps"]) - begun for row in rows] == [4, 8]
    assert float(rows[1]["seconds"]) > float(rows[0]["seconds"])
    DDPG(Counting(4), IDLE, seed=1).learn(4, CSVCallback(tmp_path))
    assert [row["timesteps"] for row in read_table(tmp_path / "metrics.csv")] == ["4"]


def test_seconds_of_evaluations_do_not_count_in_fps(idle):
    tracker = Tracker()

    class Slow(Callback):
        def on_step(self, agent):
            agent.report_evaluation(Evaluation(np.ones(1), np.ones(1), seconds=1e6))

    idle.learn(1, [Slow(), TrackerCallback(tracker)])
    assert tracker.calls[-2][1]["time/fps"] > 1e6  # more seconds were subtracted than had passed


def test_a_number_is_refused_as_an_evaluation(idle, tmp_path):
    def report(agent):
        agent.report_evaluation(3.0)

    with refuses(UsageError, "evaluation=3.0 ddpg.evaluate"):
        idle.learn(1, [report, CSVCallback(tmp_path)])


@pytest.mark.parametrize("name", ["metrics.csv", "config.json"])
def test_foreign_tables_are_not_overwritten(idle, tmp_path, name):
    (tmp_path / name).write_text("timesteps,mine\n1,2\n")
    with refuses(UsageError, "directory"):
        idle.learn(1, CSVCallback(tmp_path))
    assert (tmp_path / name).read_text() == "timesteps,mine\n1,2\n"


def test_a_tracker_run_that_the_user_started_is_not_finished(idle):
    calls = []
    run = types.SimpleNamespace(log=lambda scalars, step: calls.append(step), finish=lambda: calls.append("finish"))
    idle.learn(2, TrackerCallback(run, log_interval=1))
    assert calls == [idle.num_timesteps - 1, idle.num_timesteps]


@pytest.mark.parametrize(
    ("tracker", "options", "message"),
    [
        (types.SimpleNamespace(init=print, finish=print), {}, "log"),
        (types.SimpleNamespace(init=print, log=print), {}, "finish"),
        (types.SimpleNamespace(log=print), {"project": "p"}, "project"),
    ],
)
def test_objects_that_are_no_trackers_are_refused(tracker, options, message):
    with refuses(UsageError, message):
        TrackerCallback(tracker, **options)


def evaluation(mean):
    return Evaluation(np.array([mean - 1.0, mean + 1.0]), np.array([1, 1]))


def ends_after(callback, means):
    """Return after how many evaluations with these means learning ends; ``None`` if it does not."""
    for count, mean in enumerate(means, start=1):
        if callback.on_evaluation(None, evaluation(mean)) is False:
            return count
    return None


def test_a_reached_threshold_ends_learning():
    assert ends_after(StopTrainingOnRewardThreshold(5.0), [4.9, 5.0, 6.0]) == 2
    assert ends_after(StopTrainingOnRewardThreshold(5), [4.9]) is None


def test_too_many_evaluations_without_improvement_end_learning():
    means = [1.0, 2.0, 2.0, 1.0, 3.0, 3.0, 2.0, 0.0]
    assert ends_after(StopTrainingOnNoModelImprovement(2), means) == 8
    assert ends_after(StopTrainingOnNoModelImprovement(1), means) == 4
    assert ends_after(StopTrainingOnNoModelImprovement(1, min_evals=4), means) == 7
    assert ends_after(StopTrainingOnNoModelImprovement(3), means) is None


def test_an_evaluation_ends_learning_at_once(idle):
    start = idle.num_timesteps
    idle.learn(100, [EvalCallback(Scripted(7.0), n_eval_episodes=1, eval_freq=1), StopTrainingOnRewardThreshold(7.0)])
    assert idle.num_timesteps == start + 1


def test_each_call_of_learn_counts_episodes_anew(idle):
    idle.abandon_episode()
    for _ in range(2):
        start = idle.num_timesteps
        idle.learn(100, StopTrainingOnMaxEpisodes(3))
        assert idle.num_timesteps == start + 12


def test_a_vector_multiplies_max_episodes_and_may_skip_multiples():
    agent = DDPG(SyncVectorEnv([lambda: Counting(4), lambda: Counting(2)]), IDLE, seed=0)
    callback = EvalCallback(Scripted(*range(9)), n_eval_episodes=1, eval_freq=3)
    agent.learn(100, [StopTrainingOnMaxEpisodes(2), callback])
    # A reset takes a step: the episodes end after 4 steps, and after 2, 5 and 8; by then, 7 and 6 steps were taken.
    assert agent.num_timesteps == 13
    assert [step for step, _ in callback.evaluations] == [4, 7, 9, 13]


def test_evaluations_need_another_environment(idle):
    with refuses(UsageError, "another"):
        idle.learn(1, EvalCallback(gym.wrappers.TimeLimit(idle.env, 3)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: EvalCallback(Counting(2), eval_freq=0),
        lambda: EvalCallback(Counting(2), n_eval_episodes=0),
        lambda: CheckpointCallback(0, "x"),
        lambda: CSVCallback("x", log_interval=0.5),
        lambda: StopTrainingOnMaxEpisodes(0),
        lambda: StopTrainingOnNoModelImprovement(-1),
    ],
)
def test_numbers_out_of_range(make):
    with refuses(UsageError, "whole number"):
        make()


@pytest.mark.parametrize("threshold", [float("nan"), np.float32("nan"), float("inf"), np.float64("inf"), "high", True])
def test_a_threshold_must_be_a_finite_number(threshold):
    with refuses(UsageError, "number"):
        StopTrainingOnRewardThreshold(threshold)


@pytest.mark.parametrize(
    ("kind", "number"),
    [(StopTrainingOnRewardThreshold, 200.0), (StopTrainingOnNoModelImprovement, 5), (StopTrainingOnMaxEpisodes, 5)],
)
def test_verbose_is_refused_with_a_hint(kind, number):
    with refuses(UsageError, f"{kind.__name__} verbose ProgressBar"):
        kind(number, verbose=1)
