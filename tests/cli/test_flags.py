"""Flags, help and error messages of the command line follow from the declarations of options."""

import dataclasses
import inspect
import json
import os
import re
import subprocess
import sys
import types

import gymnasium as gym
import pytest
from conftest import SHARED_CHANGES
from refusals import refuses

import ddpg
from ddpg import DDPGConfig, DQNConfig, UsageError
from ddpg.checkpoints import checkpoint
from ddpg.cli.command import import_from_working_directory
from ddpg.cli.flags import flags_of, parse_flags
from ddpg.cli.inspect import Export, Plot
from ddpg.cli.main import COMMANDS, main
from ddpg.cli.studies import Study
from ddpg.cli.train import Train
from ddpg.config.algorithm_options import AgentConfig
from ddpg.config.options import field_type, from_toml
from ddpg.config.presets import preset_config, read_recipe
from ddpg.exports.c_network import QUANTIZATIONS
from ddpg.exports.export import FORMATS
from ddpg.gradients.bounding import BOUNDINGS
from ddpg.gradients.policy import POLICY_GRADIENTS
from ddpg.gradients.td import LOSSES, TD_TARGETS
from ddpg.networks.base import OPTIMIZERS
from ddpg.runs import curves, env_factory
from ddpg.runs.trackers import TRACKERS
from ddpg.runs.wrappers import WRAPPERS
from ddpg.studies.engine_choice import ENGINES
from ddpg.workers.worker_options import COLLECTORS

SMALL = ["--hidden", "4", "--batch-size", "4", "--learning-starts", "4", "--updates-per-call", "4"]
SMALL += ["--no-jit", "--optimizer", "sgd", "--target", "online"]
ENV = types.SimpleNamespace(
    observation_space=gym.spaces.Box(-1.0, 1.0, (2,)), action_space=gym.spaces.Box(-1.0, 1.0, (1,))
)


def parsed(*arguments):
    """Parse arguments of ``ddpg train``; return the command and its configuration."""
    made = Train.parse([str(argument) for argument in arguments], "ddpg train")
    return made.func, made.args[0]


def flag_of(name, value):
    words = ["--" + name.replace("_", "-")]
    if isinstance(value, bool):
        return words if value else ["--no-" + words[0][2:]]
    return [*words, *map(str, value if isinstance(value, tuple) else [value])]


def help_of(*arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    assert main([*arguments, "--help"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert max(len(line.rstrip()) for line in captured.out.splitlines() if not line.startswith("usage: ")) <= 80
    return captured.out


def test_runs_to_plot_are_required(capsys, monkeypatch):
    text = in_one_line(help_of("plot", capsys=capsys, monkeypatch=monkeypatch))
    assert "directories that hold them (required)" in text
    assert "the PNG, PDF or SVG to write" in text


def in_one_line(text):
    """Return the text of a help in one line, without its boxes."""
    return " ".join(re.sub("[│─╭╮╰╯]|---+", " ", text).split())


def flags_in(text):
    return {word.rstrip(",").replace("-", "_")[2:] for word in re.findall(r"^\W*(--[a-z][\w-]+)", text, re.MULTILINE)}


def names(kind):
    return {field.name for field in dataclasses.fields(kind)}


def test_help_of_an_environment_shows_its_options_with_its_presets_values(capsys, monkeypatch, tmp_path):
    text = help_of("train", "Pendulum-v1", capsys=capsys, monkeypatch=monkeypatch)
    assert flags_in(text) == names(DDPGConfig) | names(Train) - {"env"}
    assert [
        heading
        for heading in ("networks", "learning", "exploration", "gradient-paths")
        if f" {heading} options " in text
    ]
    shown = in_one_line(text)
    assert "--batch-size N transitions in a minibatch (default: 64)" in shown  # 256 elsewhere
    assert "--total-timesteps N environment steps; none: the preset's, or 100000 without one (default: 10000)" in shown
    assert "--bounding {squashing,inverting,zeroing} how actions stay within their box (default: squashing)" in shown
    (tmp_path / "c.toml").write_text("batch_size = 7\njit = false")
    arguments = ["train", "--config", str(tmp_path / "c.toml"), "Pendulum-v1"]
    shown = in_one_line(help_of(*arguments, capsys=capsys, monkeypatch=monkeypatch))
    assert "transitions in a minibatch (default: 7)" in shown
    assert "compile the updates (default: False)" in shown


@pytest.mark.parametrize(
    ("env_id", "source"),
    [
        ("Pendulum-v1", "The defaults are its preset's."),
        ("BipedalWalker-v3", "its preset's, those of the recipe plus."),
        ("Hopper-v4", "those of Hopper-v5's preset, those of the recipe plus."),
        ("WithoutPreset-v0", "those of the recipe plus: WithoutPreset-v0 has no preset"),
        ("WithoutPresetChoices-v0", "WithoutPresetChoices-v0 has no preset"),
    ],
)
def test_help_names_the_source_of_the_defaults(env_id, source, capsys, monkeypatch):
    gym.register("WithoutPreset-v0", "gymnasium.envs.classic_control.pendulum:PendulumEnv")
    gym.register("WithoutPresetChoices-v0", "gymnasium.envs.classic_control.acrobot:AcrobotEnv")
    if env_id == "BipedalWalker-v3":  # without Box2D
        monkeypatch.setattr("ddpg.cli.train.inspect_environment", lambda *_: (env_id, "DDPG", DDPGConfig, ENV))
    assert source in in_one_line(help_of("train", env_id, capsys=capsys, monkeypatch=monkeypatch))


def test_help_without_an_environment_has_the_defaults_of_every_algorithm(capsys, monkeypatch):
    text = in_one_line(help_of("train", capsys=capsys, monkeypatch=monkeypatch))
    ddpgs, dqns = (
        {field.name: field.default for field in dataclasses.fields(kind)} for kind in (DDPGConfig, DQNConfig)
    )
    different = [name for name in ddpgs.keys() & dqns.keys() if ddpgs[name] != dqns[name]]
    assert "exploration_initial" in different
    for name in different:
        defaults = ["none" if default is None else default for default in (ddpgs[name], dqns[name])]
        assert "[DDPG: {}, DQN: {}]".format(*defaults) in text


def test_help_of_discrete_actions_shows_only_dqns_options(capsys, monkeypatch):
    text = help_of("train", "CartPole-v1", capsys=capsys, monkeypatch=monkeypatch)
    assert flags_in(text) == names(DQNConfig) | names(Train) - {"env"}


def test_help_without_an_environment_shows_every_option_and_names_the_specific_help(capsys, monkeypatch):
    text = help_of("train", capsys=capsys, monkeypatch=monkeypatch)
    assert flags_in(text) == names(DDPGConfig) | names(DQNConfig) | names(Train) - {"env"}
    assert "ddpg train ENV --help" in text
    shown = in_one_line(text)
    assert "learning rate of the Q-network [DQN]" in shown
    assert "pink: its power falls as 1/frequency [DDPG]" in shown
    assert "discount factor; none: 1 - 5/T clipped to [0.95, 0.995]" in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_overview_and_has_its_help(name, capsys, monkeypatch):
    overview = help_of(capsys=capsys, monkeypatch=monkeypatch)
    assert f"  {name} " in overview
    assert inspect.getdoc(COMMANDS[name]).split(".")[0] in help_of(name, capsys=capsys, monkeypatch=monkeypatch)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ddpg {ddpg.__version__}\n"


def test_ways_to_write_flags():
    lists = "--hidden 63 64 --critic-hidden none"
    arguments = f"--batch_size 65 --no-jit {lists} --norm none --gamma=0.5 --threads NONE --seed 3 --root r"
    command, config = parsed("Pendulum-v1", *arguments.split(), "--wrap", "TimeAwareObservation")
    expected = {"batch_size": 65, "jit": False, "hidden": (63, 64), "norm": None, "gamma": 0.5, "threads": None}
    assert config == preset_config("Pendulum-v1", **expected)
    assert command == Train(env="Pendulum-v1", total_timesteps=10_000, seed=3, wrap=("TimeAwareObservation",), root="r")


@pytest.mark.parametrize("kind", [DDPGConfig, DQNConfig, *COMMANDS.values()])
def test_every_option_that_may_be_none_reads_none(kind):
    """On the command line and, for an agent's options, in a file."""
    named = [field.name for field in dataclasses.fields(kind) if not field.metadata.get("positional")]
    optional = [name for name in named if field_type(kind, name)[2]]
    flags = {name: flag for name, flag in flags_of(kind).items() if name in optional}
    words = [word for name in optional for word in flag_of(name, "none")]
    found, unknown = parse_flags(flags, words, "ddpg", "")
    assert (found, unknown) == (dict.fromkeys(optional), [])
    if issubclass(kind, AgentConfig):
        assert from_toml(kind, dict.fromkeys(optional, "none"), "c.toml") == dict.fromkeys(optional)


def test_flags_and_toml_give_the_config_of_python(tmp_path):
    changes = SHARED_CHANGES | {"hidden": (5, 6), "jit": False}
    del changes["rescale_rewards"]  # excluded by normalize_rewards
    expected = preset_config("Pendulum-v1", **changes)
    assert parsed("Pendulum-v1", *(word for item in changes.items() for word in flag_of(*item)))[1] == expected
    lines = [f"{key} = {json.dumps(value)}" for key, value in changes.items()]
    (tmp_path / "c.toml").write_text("\n".join(lines))
    assert parsed("Pendulum-v1", "--config", tmp_path / "c.toml")[1] == expected


def test_an_environment_without_a_preset_uses_the_recipe_plus():
    """Errors of conflicting options name the source of those that the user did not set."""
    for name, point in (("Unknown-v0", "pendulum:PendulumEnv"), ("UnknownChoices-v0", "acrobot:AcrobotEnv")):
        gym.register(name, f"gymnasium.envs.classic_control.{point}", max_episode_steps=5)
    command, config = parsed("Unknown-v0", "--gamma", 0.9)
    expected_options = {"gamma": 0.9, "actor_average": 1_000, "noise": "pink", "noise_scale": 0.5}
    assert command.total_timesteps == 100_000
    assert config == DDPGConfig(**from_toml(DDPGConfig, read_recipe("plus"), "plus")).replace(**expected_options)
    assert parsed("UnknownChoices-v0")[1] == preset_config("Acrobot-v1", DQNConfig) != DQNConfig()
    assert parsed("Unknown-v0", "--recipe", "ddpg", "--optimizer", "sgd")[1] == DDPGConfig(optimizer="sgd")
    with refuses(UsageError, "'sgd' Unknown-v0 --recipe"):
        parsed("Unknown-v0", "--optimizer", "sgd")
    with refuses(UsageError, "'sgd'"):  # not if the user names the recipe
        parsed("Unknown-v0", "--recipe", "plus", "--optimizer", "sgd")


def test_flags_override_the_file_before_options_are_checked(tmp_path):
    (tmp_path / "c.toml").write_text('td_target = "placeholder"\nnormalize_rewards = true')
    with refuses(UsageError, "jit=False"):
        parsed("Pendulum-v1", "--config", tmp_path / "c.toml")
    arguments = ("--no-jit", "--updates-per-call", 1, "--no-normalize-rewards")
    _, config = parsed("Pendulum-v1", "--config", tmp_path / "c.toml", *arguments)
    assert (config.td_target, config.normalize_rewards) == ("placeholder", False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "Missing from ddpg train: ENV"),
        (["evaluate"], "Missing from ddpg evaluate: RUN"),
        (["trian"], "no command 'trian'; did you mean 'train'?"),
        ([], "a command is missing"),
        (["train", "Pendulum-v1", "--bach-size", "3"], "'--bach-size'; did you mean '--batch-size'?"),
        (["train", "CartPole-v1", "--noise-scale", "0.1"], "DQNConfig has no field 'noise_scale'"),  # DDPG's default
        (["train", "Pendulum-v1", "--double-q"], "DDPGConfig has no field 'double_q'"),
        (["train", "Pendulum-v1", "--batch-size", "many"], "batch_size='many' must be int"),
        (["train", "Pendulum-v1", "--hidden", "8", "x"], "hidden=(8, 'x') must be a list of int"),
        (["train", "Pendulum-v1", "--hidden"], "hidden=() must be layers of at least 1 unit"),
        (["train", "Pendulum-v1", "--seed", "x"], "seed='x' must be int or none"),
        (["train", "Pendulum-v1", "--seed"], "Missing value for argument '--seed'"),
        (
            ["train", "Pendulum-v1", "--norm", "bath"],
            "one of ('batch', 'layer', 'rms', 'renorm', 'renorm_soft', 'renorm_preactivation'), or none; "
            "did you mean 'batch'",
        ),
        (["train", "Pendulum-v1", "--wrap", "Flatten"], "did you mean 'FlattenObservation'"),
        (
            ["train", "Pendulum-v1", "--wrap", "FlattenObservation", "TimeAwareObservation"],
            "--wrap TimeAwareObservation",
        ),
        (["train", "Pendulum-v1", "--wrap", "GrayscaleObservation"], "'GrayscaleObservation' does not fit"),
        (["train", "Blackjack-v1", *SMALL], "with --wrap FlattenObservation"),
        (["paths", "Pendulum-v1", "--bounding", "invert"], "did you mean 'inverting'"),
        (["runs", "a", "b"], "ddpg runs does not know 'b'"),
        (["plot"], "no runs to plot"),
        (["train", "Pendulun-v1"], "did you mean 'Pendulum-v1'?"),
        (["train", "Blackjack-v1"], "is not a Box"),
        (["train", "nomodule:X-v0"], "no module 'nomodule'"),
        (["train", "./plants:Heater-v0"], "write 'plants:Heater-v0'"),
        (["train", "../lab/plants.py:Heater-v0"], "write 'plants:Heater-v0'"),
        (["train", "plants:"], "'plants:' must have a module and an id"),
        (
            ["train", "Zyzzyva-v0"],
            "doesn't exist; an environment of your own is named with its module, module:Zyzzyva-v0",
        ),
        (["train", "Reachr-v5"], "doesn't exist; did you mean 'Reacher-v5'?"),
        (["train", "ddpg_envs:ddpg_envs/Goal-v9"], "did you mean 'ddpg_envs:ddpg_envs/"),
        (["train", "zoo:Pendulum-v1"], "its own id, such as Pendulum-v1"),
        (["export", "zoo:Pendulum-v1", "--format", "onxx"], "did you mean 'onnx'?"),
        (["train", "Pendulum-v1", "--gamma", "2"], "gamma=2.0 must be in [0, 1]"),
        (["train", "Pendulum-v1", "--total-timesteps", "0"], "total_timesteps=0"),
        (["train", "Pendulum-v1", "--td-target", "placeholder"], "set jit=False"),
        (["train", "Pendulum-v1", "--config", "missing.toml"], "no configuration file"),
        (["evaluate", "missing"], "no checkpoint or run directory"),
        (["evaluate", "-runs/1"], "write ./-runs/1"),
        (["record", "runs", "-o", "-x.gif"], "write ./-x.gif"),
        (["evaluate", "."], "not a run directory"),
        (["resume", "missing"], "not a run directory"),
        (["check-critic", "missing"], "no checkpoint or run directory"),
        (["check-critic", "zoo:Pendulum-v1"], "without its critic"),
        (["evaluate", "Pendulum-v1"], "zoo:Pendulum-v1 is the policy"),
        (["study", "missing.toml", "--report", "--retry"], "leave one of them out"),
        (["plot", "missing"], "no run at 'missing'"),
        (["runs", "missing"], "no directory 'missing'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_end_in_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("ddpg: error: ")
    assert message in err
    assert not list(tmp_path.iterdir())


def test_mistakes_in_a_file_end_in_one_line(tmp_path, capsys):
    for text, message in (
        ("gama = 1", "DDPGConfig has no field 'gama'; did you mean 'gamma'"),
        ('jit = "yes"', "jit='yes' must be bool"),
    ):
        (tmp_path / "c.toml").write_text(text)
        assert main(["train", "Pendulum-v1", "--config", str(tmp_path / "c.toml")]) == 2
        assert message in capsys.readouterr().err


def test_choices_are_the_names_in_the_registries():
    tables = {
        DDPGConfig: {
            "td_target": TD_TARGETS,
            "policy_gradient": POLICY_GRADIENTS,
            "bounding": BOUNDINGS,
            "critic_loss": LOSSES,
            "optimizer": OPTIMIZERS,
        },
        Train: {"vectorization": env_factory.VECTORIZATIONS, "collector": COLLECTORS, "track": TRACKERS},
        Study: {"engine": ENGINES},
        Export: {"format": FORMATS, "quantize": QUANTIZATIONS},
        Plot: {"against": curves.AGAINST, "measure": curves.MEASURES},
    }
    for kind, of_options in tables.items():
        choices = {field.name: field.metadata["choices"] for field in dataclasses.fields(kind)}
        for name, table in of_options.items():
            assert tuple(choices[name]) == tuple(table), name
    text = next(field.metadata["help"] for field in dataclasses.fields(Train) if field.name == "wrap")
    assert re.findall(r"[A-Z][a-z]+[A-Z]\w+\b(?!\()", text) == list(WRAPPERS)


@pytest.mark.parametrize("kind", [DDPGConfig, DQNConfig])
def test_docstrings_describe_every_option_with_its_default(kind):
    text = " ".join(inspect.getdoc(kind).split())
    for field in dataclasses.fields(kind):
        assert re.search(
            rf" {field.name}: {re.escape(field.metadata['help'])}\..*?Default: ``{re.escape(repr(field.default))}``",
            text,
        )
    choices = next(field for field in dataclasses.fields(kind) if field.name == "target").metadata["choices"]
    assert f"One of {', '.join(map(repr, choices))}. Default: ``'ema'``." in text


def test_a_run_records_its_wrappers(tmp_path, capsys):
    pytest.importorskip("pygame")
    gym.register("Brief-v0", "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=5)
    arguments = ["--wrap", "FrameStackObservation(2)", "--wrap", "FlattenObservation", "--total-timesteps", "12"]
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
    assert checkpoint.read(checkpoint.find(run))[0]["observation_space"]["shape"] == [6]


def test_a_module_in_the_working_directory_is_found(tmp_path, monkeypatch, capsys):
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
    command, _ = parsed("lying_here:Lying-v0")
    assert command.env == "lying_here:Lying-v0"
    assert sys.path == [*before, str(tmp_path)]
    assert main(["train", "nowhere:Lying-v0"]) == 2
    assert "no module 'nowhere'" in capsys.readouterr().err


def test_a_package_that_raises_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "raising_package").mkdir()
    (tmp_path / "raising_package" / "__init__.py").write_text("undefined_name\n")
    (tmp_path / "raising_package" / "envs.py").write_text("")
    assert main(["train", "raising_package.envs:Id-v0"]) == 3
    assert "'raising_package.envs:Id-v0' could not be made: NameError: name 'undefined_name'" in capsys.readouterr().err


def test_a_namespace_package_includes_the_working_directory(tmp_path, monkeypatch):
    for folder in ("elsewhere", "here"):
        (tmp_path / folder / "parted_package").mkdir(parents=True)
    (tmp_path / "here" / "parted_package" / "envs.py").write_text("")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "elsewhere")])
    import_from_working_directory("parted_package.envs")
    assert sys.path[-1] == str(tmp_path / "here")


def test_tensorflow_is_imported_only_if_needed_and_quietly(tmp_path):
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
assert main(["train", "--help"]) == main(["train", "Pendulum-v1", "--help"]) == 0
assert not {{"tensorflow", "scipy.stats"}} & set(sys.modules)  # importing it takes half a second
sys.stderr.write("then\\n")
import ddpg, gymnasium
ddpg.DDPG(gymnasium.make("Pendulum-v1"), ddpg.DDPGConfig(hidden=(4,), jit=False, optimizer="sgd"))
"""
    variables = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 0, done.stderr
    # TensorFlow 2.18 ignores its log level when it says at a process's first run of a session that it does nothing.
    ignored = ("WARNING: All log messages before absl::InitializeLog()", "mlir_graph_optimization_pass.cc")
    shown = [line for line in done.stderr.splitlines() if not any(text in line for text in ignored)]
    assert shown[-1] == "then", done.stderr
    assert "no runs yet" in done.stdout


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])  # tyro's boxes depend on it
def test_python_m_ddpg(encoding):
    done = subprocess.run(
        [sys.executable, "-m", "ddpg", "train", "--seed"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONIOENCODING": encoding},
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "ddpg: error: Missing value for argument '--seed'. Expected 1 values.\n"


def test_a_positional_argument_given_as_a_flag_gets_a_hint(capsys):
    assert main(["runs", "--root", "elsewhere"]) == 2
    message = capsys.readouterr().err
    assert "--root" in message
    assert "without a flag, ddpg runs ROOT" in message


def test_a_short_flag_may_have_its_value_in_the_same_word():
    found, unknown = parse_flags(Plot.flags(), ["runs", "-ocurves.png"], "ddpg plot", "")
    assert (found["output"], unknown) == ("curves.png", [])
