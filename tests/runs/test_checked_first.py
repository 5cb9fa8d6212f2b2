"""``train`` refuses bad arguments before it creates a run directory, and reports bad transitions and cut episodes."""

import dataclasses
import functools
import multiprocessing
import sys
import types

import faulty_envs
import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY
from environments import Counting, Still
from gymnasium.vector import SyncVectorEnv
from refusals import lacking, refuses

from ddpg import DDPGConfig, UsageError, evaluate, resume, train
from ddpg.cli.main import main
from ddpg.errors import EnvironmentFault
from ddpg.runs import training
from ddpg.runs.env_factory import make_env, make_training_env
from ddpg.runs.env_source import EnvSource
from ddpg.runs.run_directory import read_config
from ddpg.runs.saved_policy import SavedPolicy
from ddpg.runs.tables import read_table

SMALL = DDPGConfig(**TINY, learning_starts=20, updates_per_call=4)
IDLE = SMALL.replace(learning_starts=1000)  # makes no updates, whose graph takes longer to build than the rest


def refused(tmp_path, message, env_id="faulty/None-v0", config=SMALL, **options):
    with refuses(UsageError, message) as caught:
        train(env_id, config, **{"root": tmp_path, "progress_bar": False, "total_timesteps": 50, **options})
    assert not list(tmp_path.rglob("config.json"))
    return caught.value


@pytest.mark.parametrize(
    ("option", "value", "at_least"),
    [
        *(("seed", value, 0) for value in (-1, 0.5, "0", True)),
        *(("total_timesteps", value, 1) for value in (0, -5, 1.5, float("nan"))),
        *(("evaluation_interval", value, 1) for value in (0, -1)),
        *(("evaluation_episodes", value, 1) for value in (0, -1, None)),
    ],
)
def test_numbers_out_of_range(tmp_path, option, value, at_least):
    refused(tmp_path, f"{option}={value!r} {at_least}", **{option: value})
    assert not list(tmp_path.iterdir())


def test_a_script_without_a_guard_is_told_of_it(monkeypatch):
    """A process of the vector that cannot import the script ends at once; its traceback is far above the message."""

    def ends(*arguments, **options):
        raise ConnectionResetError

    monkeypatch.setattr(gym.vector, "AsyncVectorEnv", ends)
    with refuses(EnvironmentFault, "Pendulum-v1 stderr __name__ __main__"):
        make_training_env("Pendulum-v1", 2, "async")


def test_roots_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    refused(tmp_path, "root= /file/runs' /file' directory", root=tmp_path / "file/runs")
    refused(tmp_path, "root= /file' directory", root=tmp_path / "file")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    refused(tmp_path, "root= /new/runs' not yours", root=tmp_path / "new/runs")


def test_folders_that_are_not_utf8(tmp_path):
    """TensorFlow cannot open event files there."""
    refused(tmp_path, "root= UTF-8 rename", root=tmp_path / "t\udcff")
    assert not [*tmp_path.iterdir()]
    with refuses(UsageError, "run= UTF-8 rename"):
        resume(tmp_path / "t\udcff" / "Pendulum-v1" / "1")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buffer_size": 10**12}, "buffer_size=1000000000000 GB lower buffer_size"),
        ({"hidden": (10**7, 10**7)}, "GB lower hidden"),
        ({"exploration_steps": 3 * 10**9}, "exploration_steps=3000000000 2147483647"),
        ({"step_timeout": 5}, "step_timeout=5.0"),
    ],
)
def test_options_out_of_range(tmp_path, change, message):
    refused(tmp_path, message, config=SMALL.replace(**change))


@pytest.mark.slow
def test_a_refused_run_ends_the_processes_of_its_vector(tmp_path):
    """Though the exception, which holds the frames in which the vector was made, is kept, as in a notebook."""
    vector = {"env_id": "faulty_envs:faulty/None-v0", "n_envs": 2, "vectorization": "async"}
    kept = [refused(tmp_path, "hindsight=4 goals", config=dataclasses.replace(SMALL, hindsight=4), **vector)]
    assert not multiprocessing.active_children()
    run = train(config=SMALL, root=tmp_path, progress_bar=False, total_timesteps=40, seed=0, **vector)
    allowed = {"allow_import": ["faulty_envs"]}
    with refuses(UsageError, "reached its 40 steps") as caught:
        resume(run, **allowed)
    kept.append(caught.value)
    assert not multiprocessing.active_children()
    (run / "learning_curve.png").unlink()
    resume(run, **allowed)
    assert not multiprocessing.active_children()


def test_a_refused_run_closes_its_environment(tmp_path, monkeypatch):
    closed = []
    monkeypatch.setattr(faulty_envs.Faulty, "close", lambda env: closed.append(env))
    refused(tmp_path, "hindsight=4 goals", config=dataclasses.replace(SMALL, hindsight=4))
    assert len(closed) == 1


def test_a_value_that_config_json_cannot_hold(tmp_path):
    refused(tmp_path, "evaluation_episodes 100001", evaluation_episodes=100_001)
    assert not list(tmp_path.iterdir())


def test_a_command_line_that_is_not_utf8_is_recorded(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/ddpg", "train", "--root", "a\udcffb"])
    assert training._command() == ["ddpg", "train", "--root", "a\ufffdb"]


def test_a_constructor_that_fails():
    with refuses(EnvironmentFault, "'faulty/Constructor-v0' KeyError no licence"):
        make_env("faulty/Constructor-v0")


def test_a_needless_wrapper_is_not_taken_for_a_misspelt_one():
    with refuses(UsageError, "'ClipAction' leave it out") as caught:
        make_env(EnvSource("Pendulum-v1", ["ClipAction"]))
    assert "ActionMask" not in str(caught.value)
    with refuses(UsageError, "'TimeAwareObservatoin' 'TimeAwareObservation'?"):
        make_env(EnvSource("Pendulum-v1", ["TimeAwareObservatoin"]))


def test_a_fault_during_an_evaluation():
    with refuses(EnvironmentFault, "step 10 episode 15 seed 3 observation"):
        evaluate(Still(), make_env("faulty/NaN-v0"), 20, seed=3)
    with refuses(UsageError, "seed=-1 0"):
        evaluate(Still(), make_env("faulty/None-v0"), 20, seed=-1)


class Tolerant(Still):
    """A policy with the agents' option to drop bad transitions."""

    config = types.SimpleNamespace(on_bad_transition="drop")


@pytest.mark.parametrize("vector", [False, True])
def test_an_evaluation_abandons_episodes_with_a_bad_transition(vector):
    """The environment's 15th step is bad: the fifth step of its second episode of ten."""
    make = functools.partial(faulty_envs.Faulty, "NaN", at=15, once=True)
    result = evaluate(Tolerant(), SyncVectorEnv([make, faulty_envs.Faulty]) if vector else make(), 6, seed=0)
    assert result.lengths.tolist() == [10] * 6
    assert result.abandoned == 1
    assert str(result).endswith("of 10 steps), 1 abandoned")


@pytest.mark.parametrize(("env_id", "expected"), [("faulty/NaNOnce-v0", {"abandoned": 1}), ("faulty/None-v0", {})])
def test_the_summary_of_a_saved_policy_counts_abandoned_episodes(env_id, expected):
    class Saved(SavedPolicy):
        name, seed = "saved", 0

        def load(self, spaces):
            return Tolerant(), {"timesteps": 5}

    saved = Saved()
    saved.source = EnvSource(env_id)
    summary, text, _ = saved.evaluate(20)
    assert {name: value for name, value in summary.items() if name == "abandoned"} == expected
    assert text.endswith("1 abandoned" if expected else "steps)")


def test_an_evaluation_in_which_no_episode_ends_is_stopped():
    class Broken(faulty_envs.Faulty):
        def step(self, action):
            observation, *rest = super().step(action)
            return observation * (np.nan if self.step_number == 3 else 1), *rest

    with refuses(EnvironmentFault, "abandoned 100 steps"):
        evaluate(Tolerant(), Broken(), 2)


def test_an_evaluation_is_stopped_though_another_environment_goes_on():
    """That one's episodes are complete: neither its further ones nor those that it abandons count."""
    with refuses(EnvironmentFault, "abandoned 100 steps"):
        evaluate(Tolerant(), SyncVectorEnv([lambda: Counting(nan_at=2), Counting]), 2)

    class Later(Counting):
        def reset(self, **options):
            observation = super().reset(**options)
            self.nan_at = 1 if self.episode else None
            return observation

    result = evaluate(Tolerant(), SyncVectorEnv([Later, lambda: Counting(20)]), 2)
    assert (sorted(result.lengths), result.abandoned) == ([3, 20], 0)


def test_a_step_that_abandons_many_episodes_counts_once():
    makers = [functools.partial(faulty_envs.Faulty, "Infinity", at=3, once=True)] * 120
    result = evaluate(Tolerant(), SyncVectorEnv(makers), 120, seed=0)
    assert (len(result.returns), result.abandoned) == (120, 120)


def test_on_bad_transition_can_be_changed_on_resume(tmp_path):
    options = {"evaluation_interval": 50, "evaluation_episodes": 1, "root": tmp_path, "progress_bar": False}
    run = train("faulty/None-v0", IDLE, seed=0, total_timesteps=100, **options)  # raises
    for goal, choice in ((150, "drop"), (200, "raise")):
        resume(run, config=IDLE.replace(on_bad_transition=choice), total_timesteps=goal, progress_bar=False)
    dropped = {int(row["timesteps"]): row["dropped_transitions"] for row in read_table(run / "metrics.csv")}
    assert max(dropped) == 200
    assert {bool(value) for step, value in dropped.items() if 100 < step <= 150} == {True}
    assert {bool(value) for step, value in dropped.items() if not 100 < step <= 150} == {False}


def test_dropped_transitions_are_in_the_metrics(tmp_path):
    run = train(
        "faulty/NaNOnce-v0",
        IDLE.replace(on_bad_transition="drop"),
        **{"seed": 0, "total_timesteps": 200, "evaluation_interval": 200, "evaluation_episodes": 1},
        **{"root": tmp_path, "progress_bar": False},
    )
    header, *rows = (run / "metrics.csv").read_text().splitlines()
    column = header.split(",").index("dropped_transitions")
    assert sum(float(row.split(",")[column]) for row in rows) == 1


LIMITED = {"evaluation_episodes": 1, "progress_bar": False, "seed": 0}


@pytest.fixture
def limited(tmp_path):
    """Register an environment whose episodes last 30 steps; return a function that trains in it."""
    if "Limited-v0" not in gym.registry:
        gym.register("Limited-v0", "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=30)
    return functools.partial(train, "Limited-v0", IDLE, root=tmp_path, **LIMITED)


@pytest.mark.slow
def test_the_default_interval_does_not_cut_episodes(limited):
    """A twentieth of the run, at least one episode (in a vector, two per environment), and at most the run."""
    for total, n_envs, interval in ((800, 1, 40), (200, 1, 30), (10, 1, 10), (500, 4, 240), (100, 4, 100)):
        run = limited(total_timesteps=total, n_envs=n_envs)
        assert read_config(run)["evaluation_interval"] == interval, (total, n_envs)
        assert len(read_table(run / "episodes.csv")) == n_envs * (total // n_envs // 30), (total, n_envs)


LIKE_THEM = [(14, 1, True), (117, 4, True), (120, 4, False)]
INTERVALS = [(18, 1, True), (30, 1, False), *(pytest.param(*case, marks=pytest.mark.slow) for case in LIKE_THEM)]


@pytest.mark.parametrize(("interval", "n_envs", "warned"), INTERVALS)
def test_an_interval_that_cuts_episodes_is_noted(interval, n_envs, warned, limited, capsys):
    run = limited(total_timesteps=480, n_envs=n_envs, evaluation_interval=interval)
    lines = [line for line in capsys.readouterr().err.splitlines() if "evaluation_interval" in line]
    assert len(lines) == warned
    if warned:
        assert not lacking(lines[0], f"evaluation_interval={interval} 30 episodes.csv {30 if n_envs == 1 else 240}")
    assert (len(read_table(run / "episodes.csv")) < 480 // 30) is warned  # as the note says


@pytest.mark.slow
def test_an_interval_that_cuts_no_episode_is_not_noted(limited, capsys, tmp_path):
    """The default interval, a run that ends first, full episodes of a vector, and episodes without a time limit."""
    limited(total_timesteps=20)
    limited(total_timesteps=40, evaluation_interval=20)
    limited(total_timesteps=100, n_envs=4, evaluation_interval=100)
    train("faulty/None-v0", IDLE, **LIMITED, total_timesteps=40, evaluation_interval=2, root=tmp_path)
    assert "evaluation_interval" not in capsys.readouterr().err


@pytest.mark.slow
def test_an_interval_that_cuts_episodes_is_noted_on_resume(limited, capsys):
    run = limited(total_timesteps=20)
    assert "evaluation_interval" not in capsys.readouterr().err
    resume(run, total_timesteps=100, progress_bar=False)
    assert not lacking(capsys.readouterr().err, "evaluation_interval=20 30 episodes.csv")
    assert main(["resume", str(run), "--total-timesteps", "200", "--evaluation-interval", "30"]) == 0  # as it says
    assert "evaluation_interval" not in capsys.readouterr().err
    evaluated = [int(row["timesteps"]) for row in read_table(run / "evaluations.csv")]
    assert evaluated[-4:] == [130, 160, 190, 200]
    assert [int(row["timesteps"]) for row in read_table(run / "episodes.csv")][-3:] == [130, 160, 190]


def test_a_vector_that_overshoots_its_goal_has_reached_it(limited):
    run = limited(total_timesteps=100, n_envs=3)  # 34 steps of three environments: 102
    with refuses(UsageError, "reached its 100 steps --total-timesteps"):
        resume(run, progress_bar=False)
    with refuses(UsageError, "total_timesteps=90 102 --checkpoint"):
        resume(run, total_timesteps=90, progress_bar=False)
