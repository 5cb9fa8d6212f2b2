"""Crafted checkpoints of an agent: invalid options, spaces and arrays are refused in one line.

Their checksums are right, as an attacker would make them. The tests change copies of one agent's checkpoint.
"""

import json
import shutil

import numpy as np
import pytest
from checkpoints import sealed
from environments import Counting
from refusals import refuses

from ddpg import DDPG, DDPGConfig, DQNConfig, UsageError
from ddpg.agents import off_policy, resource_limits
from ddpg.checkpoints import checkpoint
from ddpg.checkpoints.space_json import restore_space

SMALL = DDPGConfig(hidden=(4,), batch_size=8, learning_starts=40, updates_per_call=4, buffer_size=100, jit=False)
BOX = {"type": "Box", "shape": [], "dtype": "float32", "low": -1, "high": 1}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return DDPG(Counting(7), SMALL, seed=0).learn(30).save(tmp_path_factory.mktemp("saved") / "c")


@pytest.fixture
def path(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "c")


def manifest(path):
    return json.loads((path / "manifest.json").read_text())


def with_options(path, **options):
    sealed(path, config={**manifest(path)["config"], **options})


def refused(path, words=""):
    with refuses(UsageError, words) as caught:
        DDPG.load(path)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hidden": [10**9]}, "hidden=(1000000000,) 3000000000"),
        ({"hidden": [2**53] * 3}, "hidden="),
        ({"hidden": [1] * 5}, "5 layers 4"),
        ({"hidden": [1] * 64}, "64 layers"),
        ({"hidden": [1] * 65}, "length 64"),
        ({"critic_hidden": [10**9]}, "critic_hidden=(1000000000,) 3000000000"),
        ({"critic_hidden": [1] * 64}, "critic_hidden= 64 layers"),
        ({"critic_hidden": []}, "critic_hidden=() 1 none"),
        ({"hidden": [5]}, "shape (2, 4) (2, 5)"),
        ({"hidden": []}, "hidden=() 1"),
        ({"hidden": [True]}, "hidden"),
        ({"hidden": "4"}, "hidden='4' list"),
        ({"buffer_size": 2**40}, "buffer_size=1099511627776 24 bytes"),
        ({"batch_size": 2**30}, "batch_size=1073741824"),
        ({"updates_per_step": 1e12}, "updates_per_step=1000000000000.0"),
        ({"exploration_steps": 2**52}, "exploration_steps=4503599627370496 2147483647"),
        ({"gamma": 1.5}, "gamma=1.5 [0, 1]"),
        ({"gamma": "high"}, "gamma='high' float"),
        ({"activation": "exec"}, "activation='exec'"),
        ({"activation": [1]}, "activation"),
        ({"td_target": []}, "td_target"),
        ({"norm": "b\nad"}, "norm"),
        ({"optimizer": None}, "optimizer"),
        ({"bounding": "x"}, "bounding"),
        ({"noise": [1]}, "noise"),
        ({"jit": 1}, "jit=1 bool"),
        ({"gammma": 0.9}, "'gammma' 'gamma'"),
        ({"bounding": {"custom": "mine"}}, "bounding callable"),
    ],
)
def test_options_are_refused(path, options, words):
    with_options(path, **options)
    refused(path, words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"owed_updates": 1e12}, "owed_updates 1000000000000.0"),
        ({"kind": "DQN"}, "DQN.load"),
        ({"algorithm": "DQN"}, "'action_gradient_clip'"),
        ({"algorithm": "PPO"}, "algorithm 'PPO' DDPG DQN"),
        ({"random_states": {}}, "random states [] ['exploration', 'replay']"),
        ({"action_space": {"type": "Discrete", "n": 3, "start": 0}}, "action space Discrete"),
        ({"action_space": BOX | {"shape": [1], "low": None}}, "infinite bounds"),
        ({"action_space": BOX | {"shape": [2]}}, "shape"),
        ({"action_space": BOX}, "action space (1,)"),
        ({"action_space": {"type": "Tuple", "spaces": [{"type": "Discrete", "n": 2, "start": 0}]}}, "parameterised"),
        ({"observation_space": {"type": "Discrete", "n": 2, "start": 0}}, "a Box"),
    ],
)
def test_fields_are_refused(path, changes, words):
    sealed(path, **changes)
    refused(path, words)


def rewritten(path, group, name, change):
    """Change one array of the checkpoint, with a valid checksum."""
    found, groups = checkpoint.read(path)
    if change is None:
        del groups[group][name]
    else:
        groups[group][name] = change(groups[group][name])
    added = ("format", "arrays", "sha256", "manifest_sha256")
    checkpoint.write(path, {name: value for name, value in found.items() if name not in added}, groups)


@pytest.mark.parametrize(
    ("group", "name", "change", "words"),
    [
        ("variables", "actor/output/b:0", lambda b: b.astype(np.float64), "dtype float64"),
        ("variables", "actor/output/b:0", lambda b: np.concatenate([b, b]), "shape"),
        ("variables", "actor/output/b:0", None, "lacks"),
        ("replay", "actions", lambda a: np.tile(a, 2), "actions shape (30, 2)"),
    ],
)
def test_arrays_are_refused(path, group, name, change, words):
    rewritten(path, group, name, change)
    refused(path, words)


def test_without_variables_is_refused(path):
    arrays, checksums = manifest(path)["arrays"], manifest(path)["sha256"]
    file = "replay.safetensors"
    sealed(path, arrays={"replay": arrays["replay"]}, sha256={file: checksums[file]})
    refused(path, "lacks")


def test_values_within_the_limits_load(path):
    with_options(path, gamma=0.5, buffer_size=31)
    assert DDPG.load(path).config.gamma == 0.5


def test_options_passed_in_python_may_exceed_the_limits(path):
    config = SMALL.replace(exploration_steps=2**40)
    assert DDPG.load(path, config=config).config == config


NUMBERS = (True, -1, 0, 0.5, 1e300, -1e300, 2**53, -(2**53))
WRONG = (*NUMBERS, None, "", "x", "\N{SNOWMAN}\n", [], [0], [2**53], {"custom": ""})


def test_any_option_is_refused_or_within_the_limits(path):
    """The check runs before anything is built. Networks are not built here, which would take long."""
    found = manifest(path)
    spaces = off_policy.fitting_env(found, None)
    for name in found["config"]:
        for value in WRONG:
            try:
                config = off_policy.config_of({**found, "config": {**found["config"], name: value}}, {})
                resource_limits.check_options(path, config, spaces, {"W": np.zeros(156)})
            except UsageError:
                continue
            kinds = type(getattr(SMALL, name)), float, type(None)
            assert name == "norm" or str in kinds or type(getattr(config, name)) in kinds, (name, value)


def test_the_image_shape_must_match_the_convolutions_variables(path):
    frames = {"type": "Box", "shape": [2800, 2800], "dtype": "uint8", "low": 0, "high": 255}
    choices = {"type": "Discrete", "n": 2, "start": 0}
    spaces = restore_space(frames), restore_space(choices)
    config = DQNConfig(network="conv", hidden=(128,), buffer_size=10, batch_size=1)
    with refuses(UsageError, "hidden=(128,)"):
        resource_limits.check_options(path, config, spaces, {"W": np.zeros(1000)})
    claimed = np.broadcast_to(np.float32(0), 32 * 700 * 700 * 128 + 256)  # a view that takes the memory of one number
    resource_limits.check_options(path, config, spaces, {"W": claimed})
