"""Results of a training run: the best and the latest checkpoints, the tables' rows, and the evaluated episodes."""

import json
import shutil
import time

import gymnasium as gym
import numpy as np
import pytest
from agent_options import IDLE
from refusals import refuses
from remains import saved

from ddpg import DDPGConfig, UsageError, train
from ddpg.checkpoints import checkpoint
from ddpg.cli.main import main
from ddpg.errors import FileFault
from ddpg.runs import recorder
from ddpg.runs.run_directory import read_config
from ddpg.runs.tables import read_table
from ddpg.runs.training import resume

CONFIG = DDPGConfig(**IDLE, updates_per_step=0.1, updates_per_call=10, buffer_size=500, target="online")


class Scripted(gym.Env):
    """The k-th episode of every instance has 10 steps and returns ``returns[k]``, whatever the actions.

    ``resets`` holds every reset that a step followed: the instance, the seed, and the number that was drawn.
    """

    returns = (0.0,)
    resets = ()

    def __init__(self):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.step_number = 0
        self.seed, self.start = seed, float(self.np_random.uniform(-1, 1))
        return self._observation(), {}

    def _observation(self):
        return np.array([self.start, self.step_number / 10], np.float32)

    def step(self, action):
        if self.step_number == 0:
            self.episode += 1
            type(self).resets = (*self.resets, (self, self.seed, self.start))
        self.step_number += 1
        done = self.step_number == 10
        reward = self.returns[min(self.episode, len(self.returns) - 1)] if done else 0.0
        return self._observation(), reward, False, done, {}


@pytest.fixture(scope="module", autouse=True)
def registered():
    gym.register("Scripted-v0", entry_point=Scripted)
    yield
    del gym.registry["Scripted-v0"]


@pytest.fixture(scope="module")
def finished(registered, tmp_path_factory):
    """A run with four evaluations of one episode each; the second is the best."""
    Scripted.returns, Scripted.resets = (1.0, 3.0, 2.0, 2.5), ()
    run = train(
        "Scripted-v0",
        CONFIG,
        seed=7,
        total_timesteps=1200,
        root=tmp_path_factory.mktemp("runs"),
        evaluation_interval=300,
        evaluation_episodes=1,
        progress_bar=False,
    )
    return run, Scripted.resets


def column(run, table, name="timesteps"):
    return [float(row[name]) for row in read_table(run / f"{table}.csv")]


def kept(run):
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def test_best_checkpoint_is_that_of_the_best_evaluation(finished):
    run, _ = finished
    assert column(run, "evaluations", "mean_return") == [1, 3, 2, 2.5]
    manifest, groups = saved(run, "best")
    assert (manifest["num_timesteps"], "replay" in groups) == (600, False)
    assert len(saved(run)[1]["replay"]["rewards"]) == 500


@pytest.mark.filterwarnings("ignore:.*latest versioned")
def test_a_run_records_the_version_of_its_environment(registered, tmp_path):
    for env_id in ("Scripted", "gymnasium:Scripted"):
        run = train(env_id, CONFIG, total_timesteps=20, root=tmp_path, evaluation_episodes=1, progress_bar=False)
        assert read_config(run)["env_id"] == f"{env_id}-v0"
        assert run.parent == tmp_path / "Scripted-v0"


def test_latest_two_checkpoints_are_kept_by_number_not_by_name(finished):
    run, _ = finished
    assert kept(run) == ["1200", "900", "best"]
    assert saved(run)[0]["num_timesteps"] == 1200


def test_evaluations_share_episodes_that_training_does_not_see(finished):
    _, resets = finished
    trained, evaluated = ([(seed, start) for env, seed, start in resets if env is one] for one in instances(resets))
    assert len(trained) > len(evaluated) == 4
    assert len(set(evaluated)) == 1  # the same episode at every evaluation: returns can be compared
    (seed, start), *_ = evaluated
    assert seed is not None
    assert seed not in (7, *(other for other, _ in trained))  # nor the run's own, from which others are derived
    assert start not in [other for _, other in trained]


def test_evaluate_uses_episodes_that_neither_training_nor_its_evaluations_saw(finished, capsys):
    """The best checkpoint was chosen by its evaluations, so their returns are biased upwards."""
    run, resets = finished
    Scripted.resets = ()
    assert main(["evaluate", str(run), "--episodes", "2", "--checkpoint", "best", "--json"]) == 0
    seed = json.loads(capsys.readouterr().out)["seed"]
    assert {seed for _, seed, _ in Scripted.resets} >= {seed}
    assert not {seed} & {7, *(other for _, other, _ in resets)}
    assert not {start for *_, start in Scripted.resets} & {start for *_, start in resets}


def test_an_evaluation_waits_for_the_end_of_an_episode_for_one_interval_at_most(registered, tmp_path):
    """Episodes have ten steps: one due at 9 is made at 10; one due at 4 is made at 8, and cuts the episode."""
    options = {"seed": 7, "root": tmp_path, "evaluation_episodes": 1, "progress_bar": False}
    waited = train("Scripted-v0", CONFIG, total_timesteps=30, evaluation_interval=9, **options)
    assert column(waited, "evaluations") == [10, 20, 30]
    cut = train("Scripted-v0", CONFIG, total_timesteps=30, evaluation_interval=4, **options)
    assert column(cut, "evaluations") == [8, 16, 24, 30]
    assert column(cut, "episodes") == []


def test_a_run_has_two_hundred_rows_and_counts_only_training_as_its_time(registered, tmp_path, monkeypatch):
    """Each evaluation, checkpoint and measurement advances the clock by a thousand seconds."""
    late, clock, calls = [0.0], time.perf_counter, set()

    def slowly(owner, name):
        act = getattr(owner, name)

        def acting(*given, **options):
            late[0] += 1000
            calls.add(name)
            return act(*given, **options)

        monkeypatch.setattr(owner, name, acting)

    monkeypatch.setattr(time, "perf_counter", lambda: clock() + late[0])
    for owner, name in ((recorder, "evaluate"), (checkpoint, "write"), (recorder.DiagnosticsLogWriter, "add_metrics")):
        slowly(owner, name)
    options = {"evaluation_interval": 200, "evaluation_episodes": 1, "progress_bar": False, "diagnose": True}
    run = train("Scripted-v0", CONFIG, seed=7, total_timesteps=400, root=tmp_path, **options)
    assert calls == {"evaluate", "write", "add_metrics"}
    assert column(run, "metrics", "seconds")[-1] < 1000
    assert column(run, "metrics") == [*range(2, 402, 2)]


def instances(resets):
    """Return the training environment and that of the evaluations, which has fewer episodes."""
    envs = list({id(env): env for env, *_ in resets}.values())
    return sorted(envs, key=lambda env: -sum(other is env for other, *_ in resets))


def test_resume_drops_rows_after_the_checkpoint(finished, tmp_path):
    """As after a kill between 900 and 1200 steps: the tables have rows after the newest checkpoint."""
    run = shutil.copytree(finished[0], tmp_path / "run")
    shutil.rmtree(run / "checkpoints" / "1200")
    before = {table: column(run, table) for table in ("metrics", "episodes", "evaluations")}
    seconds = max(float(row["seconds"]) for row in read_table(run / "metrics.csv") if float(row["timesteps"]) <= 900)
    Scripted.returns = (2.75,)
    resume(run, progress_bar=False)
    for table, steps in before.items():
        assert max(steps) == 1200
        assert column(run, table) == steps, table
    assert column(run, "evaluations", "mean_return") == [1, 3, 2, 2.75]
    # The best checkpoint is still known, two others are kept, and the seconds continue.
    assert saved(run, "best")[0]["num_timesteps"] == 600
    assert kept(run) == ["1200", "900", "best"]
    times = column(run, "metrics", "seconds")
    assert times == sorted(times)
    assert times[-1] > seconds


def test_resuming_from_an_older_checkpoint_removes_newer_ones(finished, tmp_path):
    """Otherwise the next ``resume`` would continue from a discarded checkpoint."""
    run = shutil.copytree(finished[0], tmp_path / "run")
    resume(run, which="900", total_timesteps=1000, progress_bar=False)
    assert kept(run) == ["1000", "900", "best"]
    assert column(run, "evaluations")[-2:] == [900, 1000]


@pytest.fixture(scope="module")
def first_branch(registered, tmp_path_factory):
    """A run whose evaluations return 1, 3, 2, 9 at 300, ..., 1200."""
    Scripted.returns = (1.0, 3.0, 2.0, 9.0)
    config = CONFIG.replace(learning_starts=50, learning_rate_schedule="linear")
    root, options = tmp_path_factory.mktemp("branches"), {"evaluation_interval": 300, "evaluation_episodes": 1}
    return train("Scripted-v0", config, seed=7, total_timesteps=1200, root=root, progress_bar=False, **options)


@pytest.mark.parametrize(
    ("returns", "best"),
    [
        ((4.0, 0.0), 1200),
        pytest.param((2.5, 0.0), 1200, marks=pytest.mark.slow),
        pytest.param((0.5, 2.5), 1500, marks=pytest.mark.slow),
    ],
    ids=["better than before", "at the same step", "later"],
)
def test_the_best_checkpoint_of_a_discarded_branch_is_replaced(returns, best, first_branch, tmp_path):
    """The first branch's best is at 1200, and the run is resumed from 900."""
    run = shutil.copytree(first_branch, tmp_path / "run")
    discarded = saved(run, "best")[1]["variables"]
    Scripted.returns = returns
    with pytest.warns(UserWarning, match="step 1200.*step 900.*step 600"):
        resume(run, which="900", total_timesteps=1500, progress_bar=False)
    assert column(run, "evaluations", "mean_return") == [1, 3, 2, *returns]
    manifest, groups = saved(run, "best")
    assert manifest["num_timesteps"] == best
    assert any((value != discarded[name]).any() for name, value in groups["variables"].items())


def halved(left):
    """A custom schedule."""
    return left / 2


def test_resume_needs_the_configuration_that_a_file_cannot_hold(registered, tmp_path):
    config = CONFIG.replace(learning_rate_schedule=halved)
    Scripted.returns = (1.0,)
    options = {"evaluation_interval": 100, "evaluation_episodes": 1, "progress_bar": False}
    run = train("Scripted-v0", config, seed=0, total_timesteps=100, root=tmp_path, **options)
    with refuses(UsageError, "learning_rate_schedule ddpg.resume(run config=...)"):
        resume(run, total_timesteps=200, progress_bar=False)
    assert kept(run) == ["0", "100", "best"]
    resume(run, config=config.replace(gamma=0.5), total_timesteps=200, progress_bar=False)
    assert kept(run) == ["100", "200", "best"]
    recorded = read_config(run)["config"]
    assert (recorded["gamma"], recorded["learning_rate_schedule"]) == (0.5, config.to_json()["learning_rate_schedule"])


@pytest.mark.slow
def test_the_largest_seed_trains_and_is_evaluated(tmp_path):
    Scripted.returns, Scripted.resets = (1.0,), ()
    options = {"root": tmp_path, "evaluation_episodes": 1, "progress_bar": False}
    run = train("Scripted-v0", CONFIG, seed=2**63 - 1, total_timesteps=60, evaluation_interval=30, **options)
    assert len(read_table(run / "evaluations.csv")) == 2
    assert 999_999 in {seed for _, seed, _ in Scripted.resets}
    resume(run, total_timesteps=90, progress_bar=False)
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0


@pytest.mark.parametrize("taken", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_run_that_is_renamed_during_training_writes_to_no_other(taken, tmp_path, monkeypatch):
    """It stops at the next checkpoint, and can be resumed at its new path."""
    Scripted.returns, Scripted.resets = (1.0, 3.0, 2.0, 2.5), ()
    moved, evaluated = tmp_path / "Scripted-v0" / "mine", recorder.evaluate

    def evaluate(*arguments, **options):
        if (moved.parent / "1" / "checkpoints" / "300").exists() and not moved.exists():
            (moved.parent / "1").rename(moved)
            if taken:  # by another run
                (moved.parent / "1").mkdir()
                (moved.parent / "1" / ".owner.json").write_text("{}")
        return evaluated(*arguments, **options)

    monkeypatch.setattr(recorder, "evaluate", evaluate)
    options = {"seed": 7, "root": tmp_path, "evaluation_interval": 300, "evaluation_episodes": 1}
    with refuses(FileFault, "Scripted-v0/1 renamed or removed ddpg resume"):
        train("Scripted-v0", CONFIG, total_timesteps=900, progress_bar=False, **options)
    assert (moved / "checkpoints" / "300").exists()
    assert not (moved / "checkpoints" / "600").exists()
    assert [entry.name for entry in (moved.parent / "1").rglob("*")] == [".owner.json"] * taken
    assert resume(moved, progress_bar=False) == moved
    assert (moved / "checkpoints" / "900").exists()
