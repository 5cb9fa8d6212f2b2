"""``ddpg resume RUN --option value``: which options change, which are refused, and what config.json says of it."""

import dataclasses
import shutil
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from environments import Aiming, Counting, Reaching
from refusals import lacking, refuses

from ddpg import DDPGConfig, DQNConfig, UsageError, resume, train
from ddpg.checkpoints import checkpoint
from ddpg.cli.main import main
from ddpg.config.changeable_options import CHANGEABLE, check_changeable
from ddpg.config.options import field_type
from ddpg.runs import run_directory, training
from ddpg.runs.run_config import with_changes
from ddpg.runs.run_directory import read_config

SMALL = {"hidden": (4,), "batch_size": 4, "learning_starts": 6, "updates_per_call": 1, "jit": False}
RUN = {"seed": 5, "total_timesteps": 24, "evaluation_interval": 12, "evaluation_episodes": 1, "progress_bar": False}
ENVIRONMENTS = {
    "ChangesBox-v0": lambda: Counting(3),
    "ChangesChoice-v0": lambda: Counting(3, action_space=gym.spaces.Discrete(3)),
    "ChangesParameters-v0": Aiming,
    "ChangesGoal-v0": lambda: Reaching(3),
    "ChangesImage-v0": lambda: gym.wrappers.TransformObservation(
        Counting(3), lambda seen: np.full((4, 4), seen[1], np.uint8), gym.spaces.Box(0, 255, (4, 4), np.uint8)
    ),
}
for name, make in ENVIRONMENTS.items():
    if name not in gym.registry:
        gym.register(name, make, disable_env_checker=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return a function that trains 24 steps in an environment, once."""
    made = {}

    def make(env_id, config):
        key = env_id, config.replace()
        if (found := next((run for other, run in made.items() if other == key), None)) is None:
            found = made[key] = train(env_id, config, root=tmp_path_factory.mktemp("runs"), **RUN)
        return found

    return make


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained("ChangesBox-v0", DDPGConfig(**SMALL)), tmp_path / "run")


def manifest_of(run):
    return checkpoint.read(run_directory.checkpoints(run)[-1], only=set())[0]


def test_a_changed_option_acts_from_there_on_and_is_recorded(run, capsys):
    """18 updates in the first 24 steps, then two for each of 12 steps."""
    assert manifest_of(run)["num_updates"] == 18
    own = {"tau": 0.005, "hidden": [4]}  # no changes
    resume(run, options={"updates_per_step": 2.0, **own}, total_timesteps=36, progress_bar=False)
    assert manifest_of(run)["num_updates"] == 18 + 24
    document = read_config(run)
    assert document["config"]["updates_per_step"] == manifest_of(run)["config"]["updates_per_step"] == 2.0
    (change,) = document["changes"]
    assert change["timesteps"] == 24
    assert change["settings"] == {"total_timesteps": [24, 36], "updates_per_step": [1.0, 2.0]}
    assert not lacking(capsys.readouterr().err, "24", "updates_per_step", "2.0", "1.0")
    resume(run, total_timesteps=39, progress_bar=False)
    assert [change["settings"] for change in read_config(run)["changes"]][1:] == [{"total_timesteps": [36, 39]}]
    assert manifest_of(run)["num_updates"] == 18 + 24 + 6


def test_changes_of_steps_that_are_repeated_count_from_where_the_run_goes_on():
    before = {"config": {"tau": 0.1, "n_steps": 1}, "total_timesteps": 50, "evaluation_interval": 9, "workers": None}
    before |= {"ray_address": None, "offline_timesteps": None}
    before["changes"] = [{"timesteps": steps, "time": "then", "settings": {}} for steps in (10, 30)]
    now = before | {"config": {"tau": 0.1, "n_steps": 3}, "total_timesteps": 60, "seed": 2}
    changes = with_changes(before, now, 20)
    assert [change["timesteps"] for change in changes] == [10, 20, 20]
    assert changes[-1]["settings"] == {"total_timesteps": [50, 60], "n_steps": [1, 3]}
    assert [change["time"] for change in with_changes(before, before, 20)] == ["then", "then"]


@pytest.mark.parametrize("kind", [DDPGConfig, DQNConfig])
def test_every_other_option_is_refused_with_its_reason(kind):
    names = {field.name for field in dataclasses.fields(kind)}
    check_changeable(kind, names & CHANGEABLE)
    for name in names - CHANGEABLE:
        with refuses(UsageError, name, "saved" if name not in LEARNED else "learned"):
            check_changeable(kind, [name])


LEARNED = ("gamma", "rescale_rewards", "normalize_rewards", "normalize_observations")


def test_nothing_changes_if_an_option_cannot(run):
    files = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != ".lock"}
    for options, words in (
        ({"gamma": 0.5, "batch_size": 8}, "gamma"),
        ({"batch_size": 0}, "batch_size 0"),
        ({"batchsize": 8}, "batchsize"),
        ([8], "options [8]"),
        ({8: 8}, "options"),
    ):
        with refuses(UsageError, words):
            resume(run, options=options, total_timesteps=36, progress_bar=False)
    with refuses(UsageError, "config options"):
        resume(run, options={"tau": 0.5}, config=DDPGConfig(**SMALL), total_timesteps=36, progress_bar=False)
    assert {path: path.read_bytes() for path in files} == files


def test_the_command_line_gives_only_what_changes(run, monkeypatch, capsys):
    given = []
    monkeypatch.setattr(training, "resume", lambda run, **options: given.append(options) or Path(run))
    flags = "--batch-size 8 --tau 0.005 --noise pink --no-jit --max-gradient-norm 2 --total-timesteps 1e3"
    assert main(["resume", str(run), *flags.split(), "--json"]) == 0
    assert given[0]["options"] == {"batch_size": 8, "noise": "pink", "max_gradient_norm": 2.0}
    assert given[0]["total_timesteps"] == 1000
    capsys.readouterr()
    for flags, words in (
        ("--hidden 8", "hidden"),
        ("--normalize-rewards", "normalize_rewards"),
        ("--learning-rate 0.1", "learning_rate actor_learning_rate"),
        ("--batchsize 8", "--batch-size"),
        ("--seed 3", "--seed"),
    ):
        assert main(["resume", str(run), *flags.split()]) == 2
        assert not lacking(capsys.readouterr().err, words), flags
    assert len(given) == 1


def test_help_has_the_runs_own_values(run, capsys):
    assert main(["resume", str(run), "--help"]) == 0
    text = capsys.readouterr().out
    assert "--batch-size N" in text
    assert "(default: 4)" in text
    assert "--hidden" not in text
    assert main(["resume", "--help"]) == 0
    assert "--batch-size N" not in capsys.readouterr().out


TD3 = {"policy_delay": 3, "target_policy_noise": 0.25, "bc_alpha": 0.25}


@pytest.mark.parametrize("name", TD3)
def test_an_option_that_would_make_it_another_update_is_refused(name, run):
    """A plain run has no counter of updates; one with two critics has (below)."""
    with refuses(UsageError, name, "DDPGUpdate"):
        resume(run, options={name: TD3[name]}, total_timesteps=36, progress_bar=False)


OTHER = {  # values, and options that the run has for them
    "learning_rate_schedule": ("linear", {}),
    "actor_learning_rate_schedule": ("linear", {}),
    "critic_learning_rate_schedule": ("linear", {}),
    "critic_loss": ("huber", {}),
    "clip_delta": (1.0, {"td_target": "output_delta"}),
    "target_spread": (0.5, {"critic": "categorical"}),
    "target_critics": ("mean", {"n_critics": 2}),
    "double_q": (True, {}),
    "td_target": ("output_delta", {}),
    "policy_gradient": ("direct", {}),
    "bc_final": (0.5, {"bc_alpha": 2.5}),
    "noise": ("pink", {"noise": "ornstein_uhlenbeck"}),
    "noise_schedule": ("linear", {}),
    "jit": (True, {}),
    "compiler": ("xla", {}),
    "precision": ("auto", {"jit": True}),
    **{name: (value, {"bc_alpha": 2.5} if "bc" in name else {"n_critics": 2}) for name, value in TD3.items()},
    "overlap": (True, {}),
    "on_bad_transition": ("drop", {}),
    "step_timeout": (None, {}),
    "buffer_size": (50_000, {"buffer_size": 15}),
    "dataset_share": (0.5, {}),
    "priority_correction": (0.5, {"prioritised": "proportional"}),
    "priority_correction_steps": (50, {"prioritised": "proportional"}),
    "weight_decay": (0.01, {}),
    "exploration_initial": (0.5, {}),
    "exploration_final": (0.5, {"exploration_initial": 0.6}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CHANGEABLE))
def test_a_run_goes_on_with_each_changeable_option(name, trained, tmp_path):
    kind = next(kind for kind in (DDPGConfig, DQNConfig) if name in {field.name for field in dataclasses.fields(kind)})
    usual = 3 if field_type(kind, name)[0] is int else 0.25
    value, needed = OTHER.get(name, (usual, {}))
    env_id = "ChangesBox-v0" if kind is DDPGConfig else "ChangesChoice-v0"
    env_id = {"hindsight": "ChangesGoal-v0", "random_shift": "ChangesImage-v0"}.get(name, env_id)
    config = kind(**SMALL | needed)
    run = shutil.copytree(trained(env_id, config), tmp_path / "run")
    resume(run, options={name: value}, total_timesteps=36, progress_bar=False)
    found = manifest_of(run)
    assert found["num_timesteps"] == 36
    assert found["config"] == config.replace(**{name: value}).to_json()
