"""The default number of random first steps scales with a run's length; a note names runs that are too short."""

import json

import gymnasium as gym
import pytest
from agent_options import DQN_PRESETS
from refusals import lacking

import ddpg
from ddpg import DDPGConfig, DQNConfig
from ddpg.cli.main import main
from ddpg.cli.train import Train
from ddpg.config.presets import PRESETS, Preset, budget_note, ddpg_recipe, preset_config, preset_for
from ddpg.runs.environment_notes import value_range_note
from ddpg.runs.episode_limits import episode_limit

CONFIGS = dict.fromkeys((*DQN_PRESETS, "NoPresetDiscrete-v0"), DQNConfig)


@pytest.fixture(autouse=True, scope="module")
def environments():
    gym.register("NoPreset-v0", "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=5)
    gym.register("NoPresetDiscrete-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=5)


def small_run(root, steps, *words):
    """Return the arguments of a short run of NoPreset-v0 with small networks and few updates."""
    small = {"hidden": 8, "batch-size": 4, "evaluation-episodes": 1, "updates-per-step": 0.02, "atoms": 4, "root": root}
    small["n-critics"] = 1
    options = [word for name, value in small.items() for word in (f"--{name}", str(value))]
    run = ["train", "NoPreset-v0", "--total-timesteps", str(steps), "--no-jit", "--no-progress-bar"]
    return [*run, *options, "--optimizer", "sgd", "--adam-beta1", "0.9", *words]


def config_of(*words):
    return Train.parse([str(word) for word in words], "ddpg train").args[0]


@pytest.mark.parametrize(
    ("steps", "starts"), [(1_000_000, 5_000), (100_000, 5_000), (50_000, 5_000), (8_000, 800), (500, 96), (10, 96)]
)
def test_a_tenth_of_a_short_run_is_random_without_a_preset(steps, starts):
    """The recipe plus has 5,000 random steps; its minibatch of 96 is the lower limit."""
    assert config_of("NoPreset-v0", "--total-timesteps", steps).learning_starts == starts


def test_dqn_explores_for_the_same_share_of_a_short_run():
    config = config_of("NoPresetDiscrete-v0", "--total-timesteps", 5_000)
    assert config.learning_starts == 500
    assert config.exploration_steps == 1_000  # a fifth, as in the preset's 100,000 steps


def test_discrete_actions_without_a_preset_use_that_of_acrobot():
    assert config_of("NoPresetDiscrete-v0") == preset_config("Acrobot-v1", DQNConfig) != DQNConfig()


@pytest.mark.parametrize("env_id", [*PRESETS, "NoPreset-v0", "NoPresetDiscrete-v0"])
def test_a_run_of_at_least_the_presets_length_has_its_values(env_id):
    kind = CONFIGS.get(env_id, DDPGConfig)
    preset = preset_for(env_id, kind)
    for steps in (preset.total_timesteps, 3 * preset.total_timesteps):
        assert preset.options_for(kind, steps) == preset.options
        assert budget_note(env_id, kind(**preset.options), steps) == ""
    if env_id in PRESETS:
        assert value_range_note(episode_limit(env_id), kind(**preset.options)) == ""


@pytest.mark.slow
def test_a_gamma_beyond_the_critics_value_range_is_noted(tmp_path, capsys):
    """Episodes have 5 steps: with gamma = 0.99, Q can reach 100 rewards, 20 times an episode's return."""
    arguments = (tmp_path, 400, "--recipe", "plus", "--learning-starts", "50", "--gamma")
    assert main(small_run(*arguments, "0.99")) == 0
    assert lacking(capsys.readouterr().err, "NoPreset-v0", "gamma=0.99", "gamma=0.6", "v_max") == []
    assert main(small_run(*arguments, "0.6")) == 0
    assert capsys.readouterr().err == ""


def test_long_exploration_of_a_preset_keeps_its_share():
    preset = Preset(1_000, {"exploration_steps": 500, "learning_starts": 300})
    changed = preset.options_for(DDPGConfig, 500)
    assert (changed["exploration_steps"], changed["learning_starts"]) == (250, 256)  # at least the minibatch of 256


def test_explicit_values_are_not_scaled(tmp_path):
    (tmp_path / "options.toml").write_text("learning_starts = 4_000")
    short = ("NoPreset-v0", "--total-timesteps", 8_000)
    assert config_of(*short, "--learning-starts", 5_000).learning_starts == 5_000
    assert config_of(*short, "--config", tmp_path / "options.toml").learning_starts == 4_000
    assert config_of(*short, "--recipe", "plus").learning_starts == 5_000


def test_a_run_that_is_too_short_is_noted():
    plus = preset_for("NoPreset-v0").options
    assert "nothing will be learned" in budget_note("NoPreset-v0", DDPGConfig(**plus), 5_000)
    assert "5,000 of 8,000" in budget_note("NoPreset-v0", DDPGConfig(**plus), 8_000)
    assert "--recipe ddpg" in budget_note("NoPreset-v0", DDPGConfig(**plus | {"learning_starts": 800}), 8_000)
    assert "recipe plus" in budget_note("NoPreset-v0", DDPGConfig(**plus | {"learning_starts": 800}), 8_000)
    assert budget_note("NoPreset-v0", DDPGConfig(learning_starts=700), 8_000) == ""


@pytest.mark.parametrize(
    ("starts", "steps", "words", "advice"),
    [
        (1, 1, "its only step is random", 0),
        (9, 1, "its only step is random", 0),
        (2, 2, "all 2 steps are random", 0),
        (1, 3, "1 of 3 steps is random", 0),
        (2, 7, "2 of 7 steps are random", 0),
        (5, 20, "", None),
        (6, 20, "6 of 20 steps are random", 2),
    ],
)
def test_the_advised_number_differs_in_runs_of_few_steps(starts, steps, words, advice):
    note = budget_note("NoPreset-v0", DDPGConfig(learning_starts=starts), steps)
    assert words in note
    assert note.endswith(f"--learning-starts {advice}") == (advice is not None)


@pytest.mark.slow
def test_the_scaled_number_is_saved_and_kept_on_resume(tmp_path, capsys):
    assert main(small_run(tmp_path, 1_000, "--gamma", "0.6")) == 0
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "100 of 1,000 steps are random" in err
    run = tmp_path / "NoPreset-v0" / "1"
    assert json.loads((run / "config.json").read_text())["config"]["learning_starts"] == 100
    ddpg.resume(run, total_timesteps=1_010, progress_bar=False)
    assert json.loads((run / "config.json").read_text())["config"]["learning_starts"] == 100


@pytest.mark.slow
def test_train_in_python_scales_it_too(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("ddpg.runs.run_loop.run_to_goal", lambda run, document, *_: seen.append(document["config"]))
    ddpg.train("NoPreset-v0", total_timesteps=8_000, root=tmp_path, progress_bar=False)
    assert seen[0]["learning_starts"] == 800


def test_no_note_on_random_steps_of_another_recipe():
    preset = preset_for("NoPreset-v0").options_for(DDPGConfig, 8_000)
    assert "800 of 8,000" in budget_note("NoPreset-v0", DDPGConfig(**preset), 8_000)
    of_ddpg = DDPGConfig(**ddpg_recipe("ddpg") | {"learning_starts": preset["learning_starts"]})
    assert budget_note("NoPreset-v0", of_ddpg, 8_000) == ""
