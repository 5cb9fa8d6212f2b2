"""Custom code that flags and files name as ``module:Name``, such as gradient paths, is imported only if allowed."""

import contextlib
import dataclasses
import importlib
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from agent_options import TINY
from few_frames import few_frames
from refusals import refuses

from ddpg import DDPGConfig, DQNConfig, UsageError, load_policy
from ddpg.agents.off_policy import load_agent
from ddpg.algorithms.registry import ALGORITHMS
from ddpg.checkpoints import checkpoint
from ddpg.cli.command import check_own_options, own_options
from ddpg.cli.main import main
from ddpg.cli.studies import Tune
from ddpg.config.algorithm_options import CONFIGS
from ddpg.config.imports import imports_allowed
from ddpg.config.options import as_toml, field_type, from_toml, non_string_types
from ddpg.runs import run_directory
from ddpg.runs.tables import read_table
from ddpg.runs.training import train
from ddpg.studies import tuning_report
from ddpg.studies.engine_choice import EngineChoice
from ddpg.studies.scheduler import study_resume_hint
from ddpg.studies.study import cells_of, read_study
from ddpg.studies.study_folder import CellFolder, check_same
from ddpg.studies.trials import Trial

MODULE = '''
import dataclasses

import numpy as np
import tensorflow as tf

from ddpg import DDPGConfig
from ddpg.algorithms import ddpg
from ddpg.algorithms.registry import ALGORITHMS, Algorithm
from ddpg.gradients import bounding, policy, td

NUMBER = 3


def path(actor, critic, states):
    return [(3 * gradient, variable) for gradient, variable in policy.chain_rule(actor, critic, states)]


def cloning(actor, critic, states, batch):
    return path(actor, critic, batch.observations)


def down(actor, critic, states):
    return [(-gradient, variable) for gradient, variable in path(actor, critic, states)]


def td_path(q, target, variables):
    return [(2 * gradient, variable) for gradient, variable in td.stop_gradient(q, target, variables)]


def td_up(q, target, variables):
    return [(-gradient, variable) for gradient, variable in td.stop_gradient(q, target, variables)]


def loss(q, target):
    return tf.reduce_mean(tf.abs(q - target))


def activation(x):
    return tf.nn.relu(x)


def schedule(left):
    return left**2


def dense(x, units, name):
    kernel = tf.compat.v1.get_variable(f"{name}/w", [int(x.shape[-1]), units])
    return tf.nn.relu(tf.matmul(x, kernel) + tf.compat.v1.get_variable(f"{name}/b", [units]))


def actor(states):
    return dense(dense(states, 5, "first"), 4, "second")


def critic(states, actions):
    return dense(tf.concat([dense(states, 5, "first"), actions], axis=1), 4, "second")


def q(states):
    return dense(states, 6, "only")


def one_row(states):
    return tf.reduce_mean(dense(states, 4, "only"), axis=0, keepdims=True)


def of_images(states):
    return dense(tf.reshape(states, [-1, 84 * 84]), 4, "only")


def cannot_be_compiled(states):
    return tf.math.special.dawsn(dense(states, 4, "only"))


optimizer = tf.compat.v1.train.AdamOptimizer
bound = bounding.Bounding(bounding.linear_head, bounding.zeroing)


class noise:
    def __init__(self, shape):
        self.shape = shape

    def sample(self, rng):
        return rng.uniform(-0.1, 0.1, self.shape).astype(np.float32)

    def reset(self, index):
        pass


@dataclasses.dataclass(frozen=True)
class CautiousConfig(DDPGConfig):
    caution: float = 0.0
    shares: tuple[float, ...] = (0.5, 1.0)


@dataclasses.dataclass(frozen=True)
class CautiousUpdate(ddpg.DDPGUpdate):
    def target(self, batch):
        return super().target(batch) - self.config.caution


@dataclasses.dataclass(frozen=True)
class LostConfig(DDPGConfig):
    """The config of no algorithm."""


Cautious = Algorithm(CautiousConfig, CautiousUpdate)
ALGORITHMS["Careful"] = Cautious
'''
# For each option that takes code, the module's object for it.
CODE = {
    **{"policy_gradient": "path", "td_target": "td_path", "critic_loss": "loss", "activation": "activation"},
    **{"learning_rate_schedule": "schedule", "actor_learning_rate_schedule": "schedule"},
    **{"critic_learning_rate_schedule": "schedule", "optimizer": "optimizer", "bounding": "bound", "noise": "noise"},
    **{"actor_network": "actor", "critic_network": "critic", "q_network": "q"},
}
SMALL = TINY | {"learning_starts": 20, "updates_per_call": 5, "target": "online"}
FLAGS = "--recipe ddpg --hidden 4 --batch-size 4 --learning-starts 20 --updates-per-call 5"
FLAGS += " --no-jit --optimizer sgd --target online"
STEPS = "--total-timesteps 60 --evaluation-interval 60 --evaluation-episodes 1 --no-progress-bar --seed 0"
TRAIN = f"train Pendulum-v1 {FLAGS} {STEPS}"
ALLOW = "--allow-import own_code"
NETWORKS = f"--actor-network own_code:actor --critic-network own_code:critic {ALLOW}"


@contextlib.contextmanager
def working_in(folder):
    """Work in a folder that has the module ``own_code``; undo its registrations afterwards."""
    (folder / "own_code.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch, mock.patch.dict(ALGORITHMS), mock.patch.dict(CONFIGS):
        patch.chdir(folder)
        patch.setattr(sys, "path", [*sys.path])
        yield folder
    sys.modules.pop("own_code", None)


@pytest.fixture
def folder(tmp_path):
    """The working directory, with the module ``own_code`` in it."""
    with working_in(tmp_path):
        yield tmp_path


@pytest.fixture
def own_code(folder, monkeypatch):
    """The module, imported."""
    monkeypatch.syspath_prepend(folder)
    return importlib.import_module("own_code")


def status_of(command):
    """Run a command line; return its status."""
    return main(shlex.split(command))


def weights(run="runs/Pendulum-v1/1"):
    return checkpoint.read(checkpoint.find(run))[1]["variables"]


def stderr_line(capsys):
    """Return the only line on stderr."""
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    return err


# -- options ----------------------------------------------------------------------------------------------------------


def test_every_option_that_takes_an_object_also_takes_its_name(own_code):
    fields = {(kind, field.name) for kind in (DDPGConfig, DQNConfig) for field in dataclasses.fields(kind)}
    takes_names = {name for kind, name in fields if field_type(kind, name)[0] is str}
    assert {name for kind, name in fields if name in takes_names and non_string_types(kind, name)} == {*CODE}


@pytest.mark.parametrize("name", CODE)
def test_an_allowed_name_becomes_the_object_and_is_saved_as_the_name(name, own_code):
    reference = f"own_code:{CODE[name]}"
    kind = DDPGConfig if name in DDPGConfig.__dataclass_fields__ else DQNConfig
    with refuses(UsageError, name, reference, "--allow-import own_code"):
        kind(**{name: reference})
    with imports_allowed(["own_code"]):
        config = kind(**{name: reference})
        assert getattr(config, name) is getattr(own_code, CODE[name])
        assert config.to_json()[name] == reference
        assert kind.from_json(config.to_json()) == config
        read = from_toml(kind, {name: reference}, "a file")
        assert kind(**read) == config
        assert f'{name} = "{reference}"' in as_toml(config.to_json())
    with refuses(UsageError, name, reference, "--allow-import own_code"):
        kind.from_json(config.to_json())  # the permission has ended


def test_only_the_named_modules_are_allowed(own_code):
    with imports_allowed(["own", "own_code.sub"]), refuses(UsageError, "--allow-import own_code"):
        DDPGConfig(td_target="own_code:td_path")


def test_an_option_that_takes_no_code_takes_no_name(own_code):
    with imports_allowed(["own_code"]), refuses(UsageError, "block own_code:path 'plain' 'residual'"):
        DDPGConfig(block="own_code:path")


# -- mistakes ---------------------------------------------------------------------------------------------------------

WRONG = {
    "--policy-gradient own_code:path": "policy_gradient own_code:path --allow-import imports_allowed(['own_code'])",
    f"--policy-gradient own_code:pathh {ALLOW}": "policy_gradient own_code 'pathh' 'path'",
    "--policy-gradient own_cod:path --allow-import own_cod": "policy_gradient no module 'own_cod'",
    f"--policy-gradient own_code:loss {ALLOW}": "policy_gradient own_code:loss (actor, critic, states[, batch])",
    f"--policy-gradient own_code:td_path {ALLOW}": "policy_gradient own_code:td_path td_target",
    f"--td-target own_code:path {ALLOW}": "td_target own_code:path policy_gradient",
    f"--td-target own_code:loss {ALLOW}": "td_target own_code:loss (q, target, variables)",
    f"--critic-loss own_code:td_path {ALLOW}": "critic_loss own_code:td_path (q, target)",
    f"--learning-rate-schedule own_code:loss {ALLOW}": "learning_rate_schedule own_code:loss (left)",
    f"--policy-gradient own_code:NUMBER {ALLOW}": "policy_gradient 3 'chain_rule'",
    "--actor-network own_code:actor": "actor_network own_code:actor --allow-import own_code",
    f"--actor-network own_code:actr {ALLOW}": "actor_network own_code 'actr' 'actor'",
    f"--actor-network own_code:NUMBER {ALLOW}": "actor_network 3 function module:name",
    "--actor-network mlp": "actor_network 'mlp' function module:name --allow-import",
    f"--actor-network own_code:critic {ALLOW}": "actor_network own_code:critic (states)",
    f"--critic-network own_code:actor {ALLOW}": "critic_network own_code:actor (states, actions)",
    f"--actor-network own_code:one_row {ALLOW}": "actor_network own_code:one_row [1, 4] [B, f] [B, 3]",
    f"--actor-network own_code:of_images {ALLOW}": "actor_network actor reshape multiple of 7056",
    f"--actor-network own_code:optimizer {ALLOW}": "actor_network own_code:optimizer <tensorflow AdamOptimizer [B, f]",
    f"--critic-network own_code:critic --target none --norm renorm {ALLOW}": "target='none' own_code:critic --target",
    f"--q-network own_code:q {ALLOW}": "q_network DDPGConfig",
    "--policy-gradient broken:path --allow-import broken": "policy_gradient broken ZeroDivisionError",
    "--policy-gradient script:path --allow-import script": "policy_gradient script SystemExit",
    "--policy-gradient needy:path --allow-import needy": "policy_gradient needy 'no_such_package'",
    "--algorithm own_code:Cautious": "algorithm own_code:Cautious --allow-import own_code",
    f"--algorithm own_code:Cautius {ALLOW}": "algorithm own_code:Cautius no 'Cautius' 'Cautious'",
    f"--algorithm own_code:NUMBER {ALLOW}": "algorithm own_code:NUMBER 3",
    f"--algorithm own_code:LostConfig {ALLOW}": "algorithm own_code:LostConfig",
    f"--algorithm own_code:Cautious --cautoin 1 {ALLOW}": "--cautoin --caution",
    f"--algorithm own_code:Cautious --caution much {ALLOW}": "caution 'much'",
    "--algorithm plus": "algorithm 'plus' --recipe",
    f"--algorithm own_code:Cautious --n-critics 2 --policy-delay 3 {ALLOW}": "n_critics=2 policy_delay=3 TD3Update",
}


@pytest.mark.parametrize("flags", WRONG)
def test_mistakes_are_one_line(flags, folder, capsys):
    (folder / "broken.py").write_text("1 / 0")
    (folder / "script.py").write_text("raise SystemExit(3)")
    (folder / "needy.py").write_text("import no_such_package")
    assert status_of(f"{TRAIN} {flags}") == 2
    line = stderr_line(capsys)
    with refuses(UsageError, WRONG[flags]):
        raise UsageError(line)
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        pytest.param("HalfCheetah-v5", "target='none' CrossQUpdate plus --recipe ddpg", marks=pytest.mark.slow),
        ("Pendulum-v1 --dataset data.npz", "bc_alpha=2.5 TD3BCUpdate td3_bc --recipe ddpg"),
    ],
)
def test_defaults_that_an_algorithm_would_ignore_are_named_with_their_recipe(flags, message, folder, capsys):
    assert status_of(f"train {flags} --algorithm own_code:Cautious {ALLOW}") == 2
    with refuses(UsageError, message):
        raise UsageError(capsys.readouterr().err.splitlines()[-1])
    assert not (folder / "runs").exists()


def test_an_algorithm_for_other_actions_is_refused(folder, capsys):
    assert status_of(f"train CartPole-v1 --algorithm own_code:Cautious {ALLOW}") == 2
    with refuses(UsageError, "own_code:Cautious DDPG CartPole-v1 DQNConfig"):
        raise UsageError(stderr_line(capsys))


@pytest.mark.parametrize(
    "flags", ["--policy-gradient own_code:down", pytest.param("--td-target own_code:td_up", marks=pytest.mark.slow)]
)
def test_a_wrong_sign_is_warned_about_in_one_line(flags, folder):
    with pytest.warns(UserWarning, match=flags.rpartition(":")[2]) as caught:
        assert status_of(f"{TRAIN} {flags} {ALLOW}") == 0
    warned = [str(one.message) for one in caught if one.category is UserWarning]  # others are of earlier tests' garbage
    assert ["\n" in message for message in warned] == [False]


# -- runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    """Return a function that trains with the given flags, once, in a folder that has the module ``own_code``."""
    made = {}

    def make(flags):
        if flags not in made:
            with working_in(tmp_path_factory.mktemp("made")) as folder:
                assert status_of(f"{TRAIN} {flags}") == 0
                made[flags] = folder / "runs/Pendulum-v1/1"
        return made[flags]

    return make


@pytest.fixture
def trained(folder, made_once, capsys):
    """A run with custom gradient paths."""
    run = made_once(f"--policy-gradient own_code:cloning --td-target own_code:td_path {ALLOW}")
    capsys.readouterr()
    return shutil.copytree(run, folder / "runs/Pendulum-v1/1")


@pytest.mark.slow
def test_a_run_equals_that_of_python_and_its_files_hold_the_names(trained, own_code):
    config = DDPGConfig(**SMALL, policy_gradient=own_code.cloning, td_target=own_code.td_path)
    settings = {"seed": 0, "total_timesteps": 60, "evaluation_interval": 60, "evaluation_episodes": 1}
    same = weights(train("Pendulum-v1", config, **settings, progress_bar=False))
    plain = weights(train("Pendulum-v1", DDPGConfig(**SMALL), **settings, progress_bar=False))
    np.testing.assert_equal(weights(trained), same)
    assert any((values != plain[name]).any() for name, values in same.items())
    for saved in (run_directory.read_config(trained), checkpoint.read(checkpoint.find(trained))[0]):
        options = saved["config"]
        assert (options["policy_gradient"], options["td_target"]) == ("own_code:cloning", "own_code:td_path")


@pytest.mark.parametrize(
    "command",
    [
        "evaluate {} --episodes 1",
        "resume {} --total-timesteps 80 --no-progress-bar",
        pytest.param("record {} -o a.gif", marks=pytest.mark.slow),
        "export {}",
    ],
)
def test_commands_that_load_the_agent_must_allow_the_import_again(command, trained, monkeypatch, capsys):
    few_frames(monkeypatch)
    command = command.format("runs/Pendulum-v1/1")
    assert status_of(command) == 2
    with refuses(UsageError, "own_code:td_path --allow-import own_code"):
        raise UsageError(stderr_line(capsys))
    assert "own_code" not in sys.modules
    assert status_of(f"{command} {ALLOW}") == 0


@pytest.mark.slow
def test_the_printed_command_allows_the_import(folder, capsys):
    assert status_of(f"{TRAIN} --policy-gradient own_code:path {ALLOW}") == 0
    command = capsys.readouterr().out.partition("evaluate it with: ddpg ")[2].splitlines()[0]
    assert "--allow-import own_code" in command
    assert status_of(f"{command} --episodes 1") == 0


@pytest.mark.slow
def test_a_toml_file_needs_the_flag_too(folder, capsys):
    (folder / "mine.toml").write_text('policy_gradient = "own_code:path"')
    assert status_of(f"{TRAIN} --config mine.toml") == 2
    assert "--allow-import own_code" in stderr_line(capsys)
    assert status_of(f"{TRAIN} --config mine.toml {ALLOW}") == 0


# -- networks ---------------------------------------------------------------------------------------------------------


def test_a_run_with_networks_equals_that_of_python(folder, own_code):
    assert status_of(f"{TRAIN} {NETWORKS} --n-envs 2") == 0
    document = run_directory.read_config(folder / "runs/Pendulum-v1/1")
    names = ("seed", "total_timesteps", "evaluation_interval", "evaluation_episodes")
    settings = {name: document[name] for name in names}
    networks = {"actor_network": own_code.actor, "critic_network": own_code.critic}
    again = train("Pendulum-v1", DDPGConfig(**SMALL, **networks), **settings, n_envs=2, progress_bar=False)
    one, same = weights(), weights(again)
    shapes = {name: value.shape for name, value in one.items() if name.endswith("/w:0")}
    assert {*shapes.values()} == {(3, 5), (5, 4), (6, 4)}
    assert all((one[name] == same[name]).all() for name in one)
    saved = checkpoint.read(checkpoint.find(again))[0]["config"]
    assert saved["actor_network"] == "own_code:actor"  # the imported object is saved as its name


@pytest.mark.slow
def test_a_run_with_networks_is_exported(folder):
    assert status_of(f"{TRAIN} {NETWORKS}") == 0
    for format in ("numpy", "c"):
        assert status_of(f"export runs/Pendulum-v1/1 --format {format} -o {format}") == 2
        assert status_of(f"export runs/Pendulum-v1/1 --format {format} -o {format} {ALLOW}") == 0
    with imports_allowed(["own_code"]):
        agent = load_agent("runs/Pendulum-v1/1")
    observation = np.array([1.0, 0.0, 0.5], np.float32)
    np.testing.assert_allclose(load_policy("numpy").predict(observation)[0], agent.predict(observation)[0], 1e-6)
    assert (folder / "c/policy.c").is_file()


def test_a_run_with_a_named_q_network(folder):
    flags = "--hidden 4 --batch-size 4 --learning-starts 20 --updates-per-call 5 --no-jit"
    assert status_of(f"train CartPole-v1 {flags} {STEPS} --q-network own_code:q {ALLOW}") == 0
    assert [value.shape for name, value in weights("runs/CartPole-v1/1").items() if name == "q/only/w:0"] == [(4, 6)]
    document = run_directory.read_config(folder / "runs/CartPole-v1/1")
    assert (document["algorithm"], document["config"]["q_network"]) == ("DQN", "own_code:q")
    rows = read_table(folder / "runs/CartPole-v1/1/metrics.csv")
    assert max(float(row["loss"] or 0) for row in rows) > 0


@pytest.mark.slow
def test_a_network_that_xla_cannot_compile_is_one_line(folder, capsys):
    flags = f"--actor-network own_code:cannot_be_compiled {ALLOW}"
    assert status_of(f"{TRAIN.replace('--no-jit', '--jit')} {flags}") == 2
    with refuses(UsageError, "Dawsn XLA --no-jit"):
        raise UsageError(capsys.readouterr().err.splitlines()[-1])
    assert status_of(f"{TRAIN} {flags}") == 0


# -- algorithms -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CautiousConfig", "Cautious", "Careful"])
def test_an_algorithm_is_named_by_variable_config_class_or_registered_name(name, folder, made_once, capsys):
    plain = weights(made_once(""))
    off = weights(made_once(f"--algorithm own_code:Cautious {ALLOW}"))
    expected = weights(made_once(f"--algorithm own_code:Cautious --caution 3 {ALLOW}"))
    assert all((off[name] == plain[name]).all() for name in plain)
    assert any((expected[name] != plain[name]).any() for name in plain)
    assert status_of(f"{TRAIN} --algorithm own_code:{name} --caution 3 {ALLOW}") == 0
    cautious = weights()
    assert all((cautious[name] == expected[name]).all() for name in plain)
    document = run_directory.read_config(folder / "runs/Pendulum-v1/1")
    assert (document["algorithm"], document["config"]["caution"]) == (f"own_code:{name}", 3.0)
    capsys.readouterr()
    assert status_of("evaluate runs/Pendulum-v1/1 --episodes 1") == 2
    assert "--allow-import own_code" in stderr_line(capsys)
    assert status_of("runs") == 0
    assert "caution=3.0" in capsys.readouterr().out
    ALGORITHMS.pop(f"own_code:{name}")
    assert status_of(f"resume runs/Pendulum-v1/1 --total-timesteps 80 --no-progress-bar {ALLOW}") == 0


@pytest.mark.slow
def test_a_run_that_python_has_trained_goes_on_on_the_command_line(folder, own_code, capsys):
    config = own_code.CautiousConfig(**SMALL, caution=3.0, shares=(0.25, 2.0))
    train("Pendulum-v1", config, total_timesteps=60, evaluation_interval=60, evaluation_episodes=1, progress_bar=False)
    del ALGORITHMS["Careful"], sys.modules["own_code"]
    command = "resume runs/Pendulum-v1/1 --total-timesteps 80 --no-progress-bar"
    capsys.readouterr()
    assert status_of(command) == 2
    with refuses(UsageError, "'Careful' --allow-import MODULE"):
        raise UsageError(stderr_line(capsys))
    assert status_of(f"{command} {ALLOW}") == 0
    saved = checkpoint.read(checkpoint.find("runs/Pendulum-v1/1"))[0]
    assert (saved["algorithm"], saved["num_timesteps"]) == ("Careful", 80)
    assert (saved["config"]["caution"], saved["config"]["shares"]) == (3.0, [0.25, 2.0])


@pytest.mark.slow
def test_a_run_goes_on_with_an_update_that_has_a_metric_more(folder):
    assert status_of(f"{TRAIN} --algorithm own_code:Cautious {ALLOW}") == 0
    del ALGORITHMS["own_code:Cautious"], ALGORITHMS["Careful"], sys.modules["own_code"]
    more = """
    metrics = (*ddpg.DDPGUpdate.metrics, "target_mean")

    def critic_step(self, batch, y):
        return super().critic_step(batch, y) | {"target_mean": tf.reduce_mean(y)}

    def target"""
    (folder / "own_code.py").write_text(MODULE.replace("\n    def target", more))
    assert status_of(f"resume runs/Pendulum-v1/1 --total-timesteps 80 --no-progress-bar {ALLOW}") == 0
    rows = read_table(folder / "runs/Pendulum-v1/1/metrics.csv")
    of_updates = [row for row in rows if row["critic_loss"]]
    assert {int(row["timesteps"]) > 60 for row in of_updates} == {False, True}
    assert all((row["target_mean"] != "") == (int(row["timesteps"]) > 60) for row in of_updates)


def test_an_option_named_like_a_flag_of_the_command_is_refused(folder, capsys):
    """``--seed`` would set the option, and every run would have seed 0."""
    (folder / "own_code.py").write_text(MODULE.replace("    caution: float", "    seed: int = 0\n    caution: float"))
    assert status_of(f"{TRAIN} --algorithm own_code:Cautious {ALLOW}") == 2
    with refuses(UsageError, "CautiousConfig 'seed' ddpg train"):
        raise UsageError(stderr_line(capsys))


def test_the_options_of_an_algorithm_are_in_its_help(folder, capsys):
    assert status_of(f"train Pendulum-v1 --algorithm own_code:Cautious {ALLOW} --help") == 0
    assert "--caution" in capsys.readouterr().out


# -- studies and tunings ----------------------------------------------------------------------------------------------

STUDY = """
environments = ["Pendulum-v1"]
seeds = 2
total_timesteps = 60

[configurations]
chain_rule = { recipe = "ddpg" }
mine = { recipe = "ddpg", policy_gradient = "own_code:path" }
cautious = { recipe = "ddpg", algorithm = "own_code:Cautious", caution = 3 }
layers = { recipe = "ddpg", actor_network = "own_code:actor", critic_network = "own_code:critic" }
"""


def test_the_cells_of_a_study_allow_its_imports(folder, own_code, tmp_path):
    (folder / "mine.toml").write_text(STUDY)
    everything = "'own_code:path' 'own_code:Cautious' 'own_code:actor' 'docking:Docking-v0'"
    (folder / "more.toml").write_text(STUDY.replace('"Pendulum-v1"', '"Pendulum-v1", "docking:Docking-v0"'))
    with refuses(UsageError, "more.toml --allow-import own_code --allow-import docking", everything):
        read_study("more.toml", [], own_options)
    with refuses(UsageError, "more.toml 'docking:Docking-v0' --allow-import docking"):
        read_study("more.toml", ["own_code"], own_options)
    groups = read_study("mine.toml", ["own_code"], own_options)
    assert [group.algorithm for group in groups] == ["DDPG", "DDPG", "own_code:Cautious", "DDPG"]
    assert (groups[1].options["policy_gradient"], groups[2].options["caution"]) == ("own_code:path", 3.0)
    words = {}
    for cell in cells_of(groups)[:4]:
        place = CellFolder(tmp_path, cell)
        place.path.mkdir(parents=True)
        words[cell.group.configuration] = place.arguments()
    assert "--allow-import" not in words["chain_rule"]
    assert [words[name].count("own_code") for name in ("mine", "cautious", "layers")] == [1, 1, 1]
    assert 'critic_network = "own_code:critic"' in (tmp_path / "layers/0/Pendulum-v1/options.toml").read_text()
    assert 'policy_gradient = "own_code:path"' in (tmp_path / "mine/0/Pendulum-v1/options.toml").read_text()
    assert words["cautious"][words["cautious"].index("--algorithm") + 1] == "own_code:Cautious"
    assert study_resume_hint(folder / "mine.toml", tmp_path, groups, EngineChoice()).endswith("--allow-import own_code")
    check_same(tmp_path, groups, groups)


def test_a_study_with_unsuitable_code_does_not_start(folder, own_code, capsys):
    (folder / "mine.toml").write_text(STUDY.replace("own_code:path", "own_code:td_path"))
    assert status_of(f"study mine.toml {ALLOW} --no-progress-bar") == 2
    with refuses(UsageError, "mine.toml 'mine' policy_gradient own_code:td_path td_target"):
        raise UsageError(stderr_line(capsys))
    assert not (folder / "studies").exists()


def test_options_that_an_algorithm_would_ignore_are_refused_before_anything_starts(folder, own_code):
    (folder / "mine.toml").write_text(STUDY.replace("caution = 3", "n_critics = 2"))
    with refuses(UsageError, "mine.toml 'cautious' n_critics=2 TD3Update CautiousUpdate"):
        read_study("mine.toml", ["own_code"], own_options, check_own_options)
    (folder / "space.toml").write_text("policy_delay = [1, 2]")
    flags = "--algorithm own_code:Cautious --space space.toml --recipe ddpg --allow-import own_code"
    tune = Tune.parse(["Pendulum-v1", *flags.split()], "ddpg tune")
    with tune.imports_allowed(), refuses(UsageError, "space.toml policy_delay 2 TD3Update"):
        tune._plan()


def test_a_tuning_can_vary_code(folder, own_code):
    space = {"policy_gradient": ["chain_rule", "own_code:path"], "caution": [0.0, 3.0]}
    space["actor_network"] = ["none", "own_code:actor"]
    (folder / "space.toml").write_text("\n".join(f"{name} = {json.dumps(values)}" for name, values in space.items()))
    flags = ["--algorithm", "own_code:Cautious", "--space", "space.toml", "--recipe", "ddpg"]
    refused = Tune.parse(["Pendulum-v1", *flags], "ddpg tune")
    with refuses(UsageError, "--allow-import own_code"):
        refused._plan()
    tune = Tune.parse(["Pendulum-v1", *flags, "--allow-import", "own_code"], "ddpg tune")
    assert "--allow-import own_code" in shlex.join(tune._command_words())
    with tune.imports_allowed():
        plan, _ = tune._plan()
        assert plan.base.algorithm == "own_code:Cautious"
        chosen = {"policy_gradient": "own_code:path", "caution": 3.0, "actor_network": "own_code:actor"}
        trial = plan.trial(1, chosen)
        best = Trial(1, chosen, "complete", 1.0, {}, None)
        report = tuning_report._best(Path("best.toml"), plan, best, [best], ["ddpg"], "")
    assert (trial.options["policy_gradient"], trial.options["caution"]) == ("own_code:path", 3.0)
    assert {"own_code:path", "own_code:actor"} <= {*trial.references}
    own = "--algorithm own_code:Cautious --allow-import own_code"
    assert f"# Use: ddpg train Pendulum-v1 --total-timesteps 10000 {own} --config best.toml\n" in report


@pytest.mark.slow
def test_the_study_of_the_page_runs(folder, capsys):
    """A custom path, the chain rule and a custom algorithm, with three seeds each; every cell has a process."""
    page = (Path(__file__).parents[2] / "docs/studies.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"```\w+\n(# (?:mypaths\.py|mine\.toml)\n)(.*?)```", page, re.DOTALL):
        (folder / name.strip("# \n")).write_text(text.replace("10_000", "1_100"))
    with (folder / "mine.toml").open("a") as file:
        file.write('cautious = { algorithm = "own_code:Cautious", caution = 100 }\n')
    assert status_of(f"study mine.toml {ALLOW} --allow-import mypaths --no-progress-bar") == 0
    out = capsys.readouterr().out
    assert all(f"| Pendulum-v1 | {name} | 1,100 | 3 |" in out for name in ("chain_rule", "normalised", "cautious"))
    runs = {name: f"studies/mine/{name}/0/Pendulum-v1/1" for name in ("chain_rule", "normalised", "cautious")}
    document = run_directory.read_config(folder / runs["normalised"])
    assert document["config"]["policy_gradient"] == "mypaths:normalised"
    assert run_directory.read_config(folder / runs["cautious"])["algorithm"] == "own_code:Cautious"
    ends = [weights(run) for run in runs.values()]
    assert len({b"".join(end[name].tobytes() for name in sorted(end)) for end in ends}) == 3


@pytest.mark.slow
def test_the_study_of_the_networks_page_runs(folder, capsys):
    """The page's two configurations with one seed each; their networks differ."""
    page = (Path(__file__).parents[2] / "docs/how_to/networks.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"```\w+\n(# (?:mynetworks\.py|layers\.toml)\n)(.*?)```", page, re.DOTALL):
        text = text.replace("seeds = 3", "total_timesteps = 1_100")
        (folder / name.strip("# \n")).write_text(text)
    assert status_of("study layers.toml --allow-import mynetworks --no-progress-bar") == 0
    out = capsys.readouterr().out
    assert all(f"| Pendulum-v1 | {name} | 1,100 | 1 |" in out for name in ("usual", "late_action"))
    runs = [weights(f"studies/layers/{name}/0/Pendulum-v1/1") for name in ("usual", "late_action")]
    assert ["critic/first/w:0" in run for run in runs] == [False, True]
