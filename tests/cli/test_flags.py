"""The command line is read from the declarations of options: help, values, mistakes. Nothing is trained but once."""

import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys

import gymnasium as gym
import pytest
from conftest import SHARED_CHANGES
from refusals import refuses

import ddpg
from ddpg import DDPGConfig, DQNConfig, UsageError
from ddpg.cli.command import import_from_working_directory
from ddpg.cli.inspect import Export
from ddpg.cli.main import COMMANDS, main
from ddpg.cli.train import Train
from ddpg.config.options import from_toml
from ddpg.config.presets import preset_config, read_recipe
from ddpg.exports.export import FORMATS
from ddpg.gradients.bounding import BOUNDINGS
from ddpg.gradients.policy import POLICY_GRADIENTS
from ddpg.gradients.td import LOSSES, TD_TARGETS
from ddpg.networks.base import OPTIMIZERS
from ddpg.runs import curves, env_factory

SMALL = [
    "--hidden",
    "4",
    "--no-jit",
    "--batch-size",
    "4",
    "--learning-starts",
    "4",
    "--updates-per-call",
    "4",
    "--optimizer",
    "sgd",
]


SPACES = (gym.spaces.Box(-1.0, 1.0, (2,)), gym.spaces.Box(-1.0, 1.0, (1,)))


def trained(*arguments):
    """Return the command that ``ddpg train`` makes of its arguments, and the configuration."""
    made = Train.parse([str(argument) for argument in arguments], "ddpg train")
    return made.func, made.args[0]


def flag_of(name, value):
    words = ["--" + name.replace("_", "-")]
    if isinstance(value, bool):
        return words if value else ["--no-" + words[0][2:]]
    return [*words, *map(str, value if isinstance(value, tuple) else [value])]


def helped(*arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    assert main([*arguments, "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert max(len(line.rstrip()) for line in captured.out.splitlines() if not line.startswith("usage: ")) <= 80
    return captured.out


def test_runs_to_plot_are_required(capsys, monkeypatch):
    text = in_one_line(helped("plot", capsys=capsys, monkeypatch=monkeypatch))
    assert "directories that hold them (required)" in text
    assert "the PNG, PDF or SVG to write" in text


def in_one_line(text):
    """Return what stands in the boxes, without their lines."""
    return " ".join(re.sub("[│─╭╮╰╯]|---+", " ", text).split())


def flags_in(text):
    return {word.rstrip(",").replace("-", "_")[2:] for word in re.findall(r"^\W*(--[a-z][\w-]+)", text, re.MULTILINE)}


def names(kind):
    return {field.name for field in dataclasses.fields(kind)}


def test_help_in_an_environment_shows_its_options_with_its_presets_values(capsys, monkeypatch, tmp_path):
    text = helped("train", "Pendulum-v1", capsys=capsys, monkeypatch=monkeypatch)
    assert flags_in(text) == names(DDPGConfig) | names(Train) - {"env"}
    assert [
        heading
        for heading in ("networks", "learning", "exploration", "gradient-paths")
        if f" {heading} options " in text
    ]
    told = in_one_line(text)
    assert "--batch-size N transitions in a minibatch (default: 64)" in told  # 256 elsewhere
    assert "--total-timesteps N environment steps; none: the preset's, or 100000 without one (default: 10000)" in told
    assert "--bounding {squashing,inverting,zeroing} how actions stay within their box (default: squashing)" in told
    (tmp_path / "c.toml").write_text("batch_size = 7\njit = false")
    arguments = ["train", "--config", str(tmp_path / "c.toml"), "Pendulum-v1"]
    told = in_one_line(helped(*arguments, capsys=capsys, monkeypatch=monkeypatch))
    assert "transitions in a minibatch (default: 7)" in told
    assert "compile the updates (default: False)" in told


@pytest.mark.parametrize(
    ("env_id", "whose"),
    [
        ("Pendulum-v1", "The defaults are its preset's."),
        ("BipedalWalker-v3", "its preset's, those of the recipe plus."),
        ("WithoutPreset-v0", "those of the recipe plus: WithoutPreset-v0 has no preset"),
        ("WithoutPresetChoices-v0", "WithoutPresetChoices-v0 has no preset"),
    ],
)
def test_help_says_whose_the_defaults_are(env_id, whose, capsys, monkeypatch):
    gym.register("WithoutPreset-v0", "gymnasium.envs.classic_control.pendulum:PendulumEnv")
    gym.register("WithoutPresetChoices-v0", "gymnasium.envs.classic_control.acrobot:AcrobotEnv")
    if env_id == "BipedalWalker-v3":  # without its physics
        monkeypatch.setattr("ddpg.cli.train.inspect_environment", lambda *_: (env_id, "DDPG", DDPGConfig, SPACES))
    assert whose in in_one_line(helped("train", env_id, capsys=capsys, monkeypatch=monkeypatch))


def test_help_without_an_environment_has_the_defaults_of_every_algorithm(capsys, monkeypatch):
    text = in_one_line(helped("train", capsys=capsys, monkeypatch=monkeypatch))
    ddpgs, dqns = (
        {field.name: field.default for field in dataclasses.fields(kind)} for kind in (DDPGConfig, DQNConfig)
    )
    different = [name for name in ddpgs.keys() & dqns.keys() if ddpgs[name] != dqns[name]]
    assert "exploration_initial" in different
    for name in different:
        told = ["none" if default is None else default for default in (ddpgs[name], dqns[name])]
        assert "[DDPG: {}, DQN: {}]".format(*told) in text


def test_help_where_actions_are_discrete_shows_dqns_options_alone(capsys, monkeypatch):
    text = helped("train", "CartPole-v1", capsys=capsys, monkeypatch=monkeypatch)
    assert flags_in(text) == names(DQNConfig) | names(Train) - {"env"}


def test_help_without_an_environment_shows_every_option_and_says_where_its_own_are(capsys, monkeypatch):
    text = helped("train", capsys=capsys, monkeypatch=monkeypatch)
    assert flags_in(text) == names(DDPGConfig) | names(DQNConfig) | names(Train) - {"env"}
    assert "ddpg train ENV --help" in text
    told = in_one_line(text)
    assert "learning rate of the Q-network [DQN]" in told
    assert "pink: its power falls as 1/frequency [DDPG]" in told
    assert "discount factor; none: 1 - 5/T clipped to [0.95, 0.995]" in told


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_line_and_its_help(name, capsys, monkeypatch):
    overview = helped(capsys=capsys, monkeypatch=monkeypatch)
    assert f"  {name} " in overview
    assert inspect.getdoc(COMMANDS[name]).split(".")[0] in helped(name, capsys=capsys, monkeypatch=monkeypatch)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ddpg {ddpg.__version__}\n"


def test_flags_as_they_are_written():
    arguments = (
        "--batch-size",
        65,
        "--no-jit",
        "--hidden",
        63,
        64,
        "--norm",
        "none",
        "--gamma=0.5",
        "--threads",
        "NONE",
    )
    command, config = trained("Pendulum-v1", *arguments, "--seed", 3, "--wrap", "TimeAwareObservation", "--root", "r")
    expected = {"batch_size": 65, "jit": False, "hidden": (63, 64), "norm": None, "gamma": 0.5, "threads": None}
    assert config == preset_config("Pendulum-v1", **expected)
    assert command == Train(env="Pendulum-v1", total_timesteps=10_000, seed=3, wrap=("TimeAwareObservation",), root="r")


def test_flags_and_toml_say_what_python_says(tmp_path):
    changes = SHARED_CHANGES | {"hidden": (5, 6), "jit": False}
    del changes["rescale_rewards"]  # beside normalize_rewards it is refused
    expected = preset_config("Pendulum-v1", **changes)
    assert trained("Pendulum-v1", *(word for item in changes.items() for word in flag_of(*item)))[1] == expected
    lines = [f"{key} = {json.dumps(value)}" for key, value in changes.items()]
    (tmp_path / "c.toml").write_text("\n".join(lines))
    assert trained("Pendulum-v1", "--config", tmp_path / "c.toml")[1] == expected


def test_an_environment_without_a_preset_is_learned_by_plus():
    """What does not go together says whose options those are that nobody wrote."""
    for name, point in (("Unknown-v0", "pendulum:PendulumEnv"), ("UnknownChoices-v0", "acrobot:AcrobotEnv")):
        gym.register(name, f"gymnasium.envs.classic_control.{point}", max_episode_steps=5)
    command, config = trained("Unknown-v0", "--gamma", 0.9)
    beside = {"gamma": 0.9, "actor_average": 1_000, "noise": "pink", "noise_scale": 0.5}
    assert command.total_timesteps == 100_000
    assert config == DDPGConfig(**from_toml(DDPGConfig, read_recipe("plus"), "plus")).replace(**beside)
    assert trained("UnknownChoices-v0")[1] == preset_config("Acrobot-v1", DQNConfig) != DQNConfig()
    assert trained("Unknown-v0", "--recipe", "ddpg", "--optimizer", "sgd")[1] == DDPGConfig(optimizer="sgd")
    with refuses(UsageError, "'sgd' Unknown-v0 --recipe"):
        trained("Unknown-v0", "--optimizer", "sgd")
    with refuses(UsageError, "'sgd'"):  # who names a recipe knows
        trained("Unknown-v0", "--recipe", "plus", "--optimizer", "sgd")


def test_a_flag_goes_before_the_file_that_it_mends(tmp_path):
    (tmp_path / "c.toml").write_text('td_target = "placeholder"\nnormalize_rewards = true')
    with refuses(UsageError, "jit=False"):
        trained("Pendulum-v1", "--config", tmp_path / "c.toml")
    arguments = ("--no-jit", "--updates-per-call", 1, "--no-normalize-rewards")
    _, config = trained("Pendulum-v1", "--config", tmp_path / "c.toml", *arguments)
    assert (config.td_target, config.normalize_rewards) == ("placeholder", False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "Missing from ddpg train: ENV"),
        (["evaluate"], "Missing from ddpg evaluate: RUN"),
        (["trian"], "no command 'trian'; did you mean 'train'?"),
        ([], "a command is missing"),
        (["train", "Pendulum-v1", "--bach-size", "3"], "'--bach-size'; did you mean '--batch-size'?"),
        (["train", "CartPole-v1", "--noise-scale", "0.1"], "DQNConfig has no field 'noise_scale'"),  # its own default
        (["train", "Pendulum-v1", "--double-q"], "DDPGConfig has no field 'double_q'"),
        (["train", "Pendulum-v1", "--batch-size", "many"], "batch_size='many' must be int"),
        (["train", "Pendulum-v1", "--hidden", "8", "x"], "hidden=(8, 'x') must be a list of int"),
        (["train", "Pendulum-v1", "--hidden"], "hidden=() must be layers of at least 1 unit"),
        (["train", "Pendulum-v1", "--seed", "x"], "seed='x' must be int or none"),
        (["train", "Pendulum-v1", "--seed"], "Missing value for argument '--seed'"),
        (["train", "Pendulum-v1", "--activation", "rely"], "did you mean 'relu'"),
        (
            ["train", "Pendulum-v1", "--norm", "bath"],
            "one of ('batch', 'layer', 'rms', 'renorm', 'renorm_soft', 'renorm_preactivation'), or none; "
            "did you mean 'batch'",
        ),
        (["train", "Pendulum-v1", "--wrap", "Flatten"], "did you mean 'FlattenObservation'"),
        (["train", "Pendulum-v1", "--wrap", "GrayscaleObservation"], "'GrayscaleObservation' does not fit"),
        (["train", "Blackjack-v1", *SMALL], "with --wrap FlattenObservation"),
        (["paths", "Pendulum-v1", "--bounding", "invert"], "did you mean 'inverting'"),
        (["runs", "a", "b"], "ddpg runs does not know 'b'"),
        (["plot"], "no runs to plot"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_of_flags_end_in_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("ddpg: error: ")
    assert message in err
    assert not list(tmp_path.iterdir())


def test_a_files_mistakes_end_in_one_line(tmp_path, capsys):
    for text, message in (
        ("gama = 1", "DDPGConfig has no field 'gama'; did you mean 'gamma'"),
        ('jit = "yes"', "jit='yes' must be bool"),
    ):
        (tmp_path / "c.toml").write_text(text)
        assert main(["train", "Pendulum-v1", "--config", str(tmp_path / "c.toml")]) == 2
        assert message in capsys.readouterr().err


def test_choices_are_the_tables_that_they_choose_from():
    choices = {field.name: tuple(field.metadata["choices"]) for field in dataclasses.fields(DDPGConfig)}
    tables = {
        "td_target": TD_TARGETS,
        "policy_gradient": POLICY_GRADIENTS,
        "bounding": BOUNDINGS,
        "critic_loss": LOSSES,
        "optimizer": OPTIMIZERS,
    }
    assert {name: choices[name] for name in tables} == {name: tuple(table) for name, table in tables.items()}

    def told(kind, name):
        metadata = next(field.metadata for field in dataclasses.fields(kind) if field.name == name)
        return tuple(metadata["metavar"].strip("{}").split(","))

    assert told(Export, "format") == FORMATS
    assert told(Train, "vectorization") == env_factory.VECTORIZATIONS
    plot = {field.name: field.metadata.get("choices") for field in dataclasses.fields(COMMANDS["plot"])}
    assert (plot["against"], plot["measure"]) == (curves.AGAINST, tuple(curves.MEASURES))
    text = next(field.metadata["help"] for field in dataclasses.fields(Train) if field.name == "wrap")
    assert re.findall(r"\w+Observation|ActionMask", text) == list(env_factory.WRAPPERS)


@pytest.mark.parametrize("kind", [DDPGConfig, DQNConfig])
def test_docstrings_hold_every_option_with_its_default(kind):
    text = " ".join(inspect.getdoc(kind).split())
    for field in dataclasses.fields(kind):
        assert re.search(
            rf" {field.name}: {re.escape(field.metadata['help'])}\..*?Default: ``{re.escape(repr(field.default))}``",
            text,
        )
    choices = next(field for field in dataclasses.fields(kind) if field.name == "target").metadata["choices"]
    assert f"One of {', '.join(map(repr, choices))}. Default: ``'ema'``." in text


def test_wrappers_are_remembered_by_the_run(tmp_path, capsys):
    pytest.importorskip("pygame")
    gym.register("Brief-v0", "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=5)
    arguments = ["--wrap", "FlattenObservation", "--wrap", "TimeAwareObservation", "--total-timesteps", "12"]
    arguments += ["--recipe", "ddpg"]
    small = ["--evaluation-episodes", "1", "--root", str(tmp_path), "--json", "--no-progress-bar", *SMALL]
    assert main(["train", "Brief-v0", *arguments, *small, "--n-envs", "2"]) == 0
    summary = json.loads(capsys.readouterr().out)
    run = summary["run"]
    assert json.loads((tmp_path / "Brief-v0" / "1" / "config.json").read_text())["wrappers"] == arguments[1:4:2]
    assert summary["compile_seconds"] > 0
    assert main(["resume", run, "--total-timesteps", "14", "--no-progress-bar"]) == 0
    assert main(["evaluate", run, "--episodes", "2", "--json"]) == 0
    assert main(["record", run]) == 0
    assert ddpg.DDPG.load(run).observation_space.shape == (4,)  # with the time


def test_a_module_in_the_working_directory_is_found_for_what_the_command_line_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "lying_here.py").write_text(
        "import gymnasium as gym\n"
        "gym.register('Lying-v0', 'gymnasium.envs.classic_control:PendulumEnv', max_episode_steps=10)\n"
    )
    (tmp_path / "json.py").write_text("raise SystemError")
    before = list(sys.path)
    import_from_working_directory("json", "gymnasium")  # found elsewhere
    assert sys.path == before
    command, _ = trained("lying_here:Lying-v0")
    assert command.env == "lying_here:Lying-v0"
    assert sys.path == [*before, str(tmp_path)]
    assert main(["train", "nowhere:Lying-v0"]) == 2
    assert "no module 'nowhere'" in capsys.readouterr().err


def test_a_package_that_raises_is_one_line_of_the_environment_that_needs_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "raising_package").mkdir()
    (tmp_path / "raising_package" / "__init__.py").write_text("undefined_name\n")
    (tmp_path / "raising_package" / "envs.py").write_text("")
    assert main(["train", "raising_package.envs:Id-v0"]) == 3
    assert "'raising_package.envs:Id-v0' could not be made: NameError: name 'undefined_name'" in capsys.readouterr().err


def test_a_package_without_a_file_goes_on_in_the_working_directory(tmp_path, monkeypatch):
    for folder in ("elsewhere", "here"):
        (tmp_path / folder / "parted_package").mkdir(parents=True)
    (tmp_path / "here" / "parted_package" / "envs.py").write_text("")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "elsewhere")])
    import_from_working_directory("parted_package.envs")
    assert sys.path[-1] == str(tmp_path / "here")


def test_what_needs_no_tensorflow_imports_none_and_importing_it_is_quiet(tmp_path):
    code = f"""
import sys
from ddpg.cli.main import main
main(["--help"])
heavy = {{"tensorflow", "matplotlib", "numpy", "gymnasium"}} & set(sys.modules)
assert not heavy, heavy
assert main(["runs", {str(tmp_path)!r}]) == 0
assert main(["plot", "nowhere"]) == 2
assert main(["study", "nowhere.toml"]) == 2
for name in ("evaluate", "export", "record", "watch", "resume"):
    assert main([name, "nowhere"]) == 2
import ddpg.runs.plotting, ddpg.runs.evaluation, ddpg.studies.scheduler, ddpg.studies.study_report
assert main(["train", "Pendulum-v1", "--help"]) == 0
assert not {{"tensorflow", "scipy.stats"}} & set(sys.modules)  # half a second of processor
sys.stderr.write("then\\n")
import ddpg, gymnasium
ddpg.DDPG(gymnasium.make("Pendulum-v1"), ddpg.DDPGConfig(hidden=(4,), jit=False))
"""
    variables = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("then\n"), done.stderr
    assert "no runs yet" in done.stdout


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])  # of which tyro's boxes are drawn
def test_as_a_module(encoding):
    done = subprocess.run(
        [sys.executable, "-m", "ddpg", "train", "--seed"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONIOENCODING": encoding},
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "ddpg: error: Missing value for argument '--seed'. Expected 1 values.\n"


def test_a_positional_argument_given_as_a_flag_is_said_to_need_none(capsys):
    assert main(["runs", "--root", "elsewhere"]) == 2
    message = capsys.readouterr().err
    assert "--root" in message
    assert "without a flag, ddpg runs ROOT" in message
