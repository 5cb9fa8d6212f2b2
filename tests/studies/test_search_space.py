"""Search spaces of tuning: the built-in ones, files that replace or extend them, and their validation."""

import types

import gymnasium as gym
import numpy as np
import pytest
from agent_options import DQN_PRESETS
from refusals import refuses

from ddpg import DDPGConfig, DQNConfig, UsageError
from ddpg.config.algorithm_options import CONFIGS, NORMS
from ddpg.config.imports import imports_allowed
from ddpg.config.presets import PRESETS, SUITES, preset_config
from ddpg.policies.schedules import SCHEDULES
from ddpg.runs.env_factory import make_env
from ddpg.studies.search_space import Choices, Range, read_space, training_check

BASE = DDPGConfig().to_json()


def space(tmp_path, text, base=BASE, algorithm="DDPG"):
    path = tmp_path / "space.toml"
    path.write_text(text)
    return read_space(algorithm, base, path)


@pytest.mark.parametrize("algorithm", CONFIGS)
def test_built_in_spaces_hold_valid_values(algorithm):
    kind = CONFIGS[algorithm]
    found = read_space(algorithm, kind().to_json())
    assert len(found) >= 8
    for name, field in found.items():
        for value in field.checked_values:
            assert kind.from_json({name: value}).to_json()[name] == value
    assert any(isinstance(field, Range) and field.log for field in found.values())


@pytest.mark.parametrize(("option", "values"), [("learning_rate_schedule", [*SCHEDULES]), ("norm", ["none", *NORMS])])
@pytest.mark.parametrize("algorithm", CONFIGS)
def test_every_schedule_and_norm_can_be_tuned(option, values, algorithm, tmp_path):
    base = CONFIGS[algorithm]().to_json()
    found = space(tmp_path, f"{option} = {values}", base, algorithm)[option]
    tried = [CONFIGS[algorithm].from_json(base | {option: value}).to_json()[option] for value in found.checked_values]
    assert tried == [None if value == "none" else value for value in values]


@pytest.mark.parametrize("env_id", [*PRESETS, *SUITES])
def test_every_preset_can_be_tuned_and_is_in_its_own_space(env_id):
    algorithm = "DQN" if env_id in DQN_PRESETS else "DDPG"
    base = preset_config(env_id, CONFIGS[algorithm]).to_json()
    for name, field in read_space(algorithm, base).items():
        assert field.to_stored(base[name]) is not None, name


def test_options_that_the_base_refuses_or_ignores_are_left_out(tmp_path):
    """Without target networks τ has no effect, and the critics' norm must not change."""
    plus = preset_config("HalfCheetah-v5").to_json()
    whole, found = read_space("DDPG", BASE), read_space("DDPG", plus)
    assert {*whole} - {*found} == {"tau", "norm"}
    assert found["batch_size"] == Choices([*whole["batch_size"].checked_values, plus["batch_size"]])
    assert found["gamma"] == whole["gamma"]
    assert "tau" not in read_space("DQN", DQNConfig(target_update_interval=100).to_json())
    with refuses(UsageError, "norm layer target none"):
        space(tmp_path, "extend = true\nnorm = ['renorm', 'layer']", plus)
    assert space(tmp_path, "tau = [0.1, 0.2]", plus) == {"tau": Choices([0.1, 0.2])}  # where a file lists it


def test_layers_that_own_networks_replace_are_not_varied(tmp_path, monkeypatch):
    (tmp_path / "ownlayers.py").write_text("def actor(states): ...\n\n\ndef critic(states, actions): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = {"actor_network": "ownlayers:actor", "critic_network": "ownlayers:critic"}
    with imports_allowed(["ownlayers"]):
        both, one = (read_space("DDPG", BASE | own | change) for change in ({}, {"critic_network": None}))
    assert {*one} - {*both} == {"hidden", "norm"}


def test_a_file_is_read_into_ranges_and_choices(tmp_path):
    found = space(
        tmp_path,
        "n_steps = { low = 1, high = 5 }\nupdates_per_step = [1, 0.5]\nhidden = [[8, 8], [16]]\n"
        "norm = ['none', 'layer']\ntau = { low = 0.001, high = 0.1, log = true }\n",
    )
    assert found == {
        "n_steps": Range(1, 5, log=False, whole=True),
        "updates_per_step": Choices([1.0, 0.5]),
        "hidden": Choices([[8, 8], [16]]),
        "norm": Choices([None, "layer"]),
        "tau": Range(0.001, 0.1, log=True, whole=False),
    }


def test_a_file_replaces_or_extends_the_built_in_space(tmp_path):
    whole = read_space("DDPG", BASE)
    assert {*space(tmp_path, "gamma = [0.9, 0.99]")} == {"gamma"}
    narrowed = space(tmp_path, "extend = true\ngamma = [0.9, 0.99]\nhidden = false\nn_steps = [1, 3]")
    assert {*narrowed} == {*whole} - {"hidden"} | {"n_steps"}
    assert narrowed["gamma"] == Choices([0.9, 0.99])
    assert narrowed["tau"] == whole["tau"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gama = [0.9]", "gama 'gamma'"),
        ("gamma = 0.9", "gamma 0.9 choices range low high log extend false"),
        ("gamma = false", "gamma False choices"),
        ("gamma = []", "at least one choice"),
        ("gamma = [0.9, 0.9]", "different ones"),
        ("gamma = ['much']", "gamma much"),
        ("gamma = [0.9, 1.5]", "gamma 1.5 [0, 1]"),
        ("tau = { low = 0, high = 0.1 }", "tau 0.0 0 1"),
        ("tau = { low = 0.1, high = 0.1 }", "low high"),
        ("tau = { low = 0.1 }", "without high"),
        ("tau = { low = 0.1, high = 1, logg = true }", "logg 'log'"),
        ("noise_scale = { low = 0.0, high = 1.0, log = true }", "no logarithm"),
        ("noise_scale = { low = 0.1, high = 1.0, log = 1 }", "log 1 noise_scale"),
        ("batch_size = { low = 1.5, high = 8 }", "batch_size 1.5"),
        ("norm = { low = 1, high = 2 }", "norm"),
        ("hidden = { low = 1, high = 2 }", "hidden"),
        ("hidden = [64]", "hidden=[64] 64 [[64]]"),
        ("seed = [1, 2]", "seed --seeds --tuning-seed"),
        ("total_timesteps = [1]", "total_timesteps --total-timesteps"),
        ("norm = ['layr']", "norm layr"),
        ("adam_beta1 = [0.5]\noptimizer = ['sgd', 'momentum']", None),
        ("extend = 1", "extend 1"),
        ("", "varies nothing"),
    ],
)
def test_invalid_files_are_refused(text, message, tmp_path):
    if message is None:  # neither option is valid with the other, but each with the base's
        space(tmp_path, text)
        return
    with refuses(UsageError, message):
        space(tmp_path, text)


def test_a_value_that_needs_another_option_is_refused_unless_that_is_set_or_varied(tmp_path):
    with refuses(UsageError, "priority_exponent 0.5 prioritised"):
        space(tmp_path, "priority_exponent = [0.5]")
    both = space(tmp_path, "priority_exponent = [0.5]\nprioritised = ['none', 'proportional']")
    assert {*both} == {"priority_exponent", "prioritised"}
    base = DDPGConfig(prioritised="lap").to_json()
    assert {*space(tmp_path, "priority_exponent = [0.5]", base)} == {"priority_exponent"}


def test_memory_is_that_of_the_machine_which_trains():
    env = make_env("Pendulum-v1")
    large, goals = DDPGConfig(hidden=(300_000, 300_000)), DDPGConfig(hindsight=4)
    for here in (True, False):
        training_check(env, 100, here)(DDPGConfig())
        with refuses(UsageError, "hindsight=4"):
            training_check(env, 100, here)(goals)
    training_check(env, 100, here=False)(large)
    with refuses(UsageError, "hidden"):
        training_check(env, 100)(large)
    env.close()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (gym.spaces.Box(np.array([-1.0]), np.array([np.inf]), dtype=np.float64), "infinite bounds"),
        (gym.spaces.MultiDiscrete([2, 3]), "is not a Box"),
        (gym.spaces.Tuple([gym.spaces.Discrete(2)]), "is not parameterised as DDPG knows it"),
    ],
)
def test_an_action_space_that_no_agent_acts_in_is_refused(actions, message):
    env = types.SimpleNamespace(observation_space=gym.spaces.Box(-1, 1, (2,)), action_space=actions)
    with refuses(UsageError, message):
        training_check(env, 100)
    env.action_space = gym.spaces.OneOf([gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (0,))])
    training_check(env, 100)


def test_values_are_stored_and_restored():
    whole, choices = Range(1, 8, log=False, whole=True), Choices([None, [8, 8], False])
    assert (whole.to_stored(1), whole.to_stored(8), whole.to_stored(9), whole.to_stored(None)) == (1, 8, None, None)
    assert whole.value(3.0) == 3
    assert type(whole.value(3.0)) is int
    assert [choices.value(choices.to_stored(value)) for value in choices.checked_values] == choices.checked_values
    assert choices.to_stored("layer") is None
    for field, stored in ((whole, 9), (whole, "3"), (choices, '"layer"'), (choices, None)):
        with refuses(ValueError, repr(stored)):
            field.value(stored)
