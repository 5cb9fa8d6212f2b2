"""The package's policies, one per preset, hold only data, are small, load by name and export to every format."""

import fnmatch
import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from refusals import refuses

sys.path.append(str(Path(__file__).parents[2]))

import ddpg
from benchmarks.zoo.page import MISSING, without_entry
from ddpg.config.algorithm_options import CONFIGS
from ddpg.config.presets import PRESETS
from ddpg.config.toml_file import read_toml
from ddpg.errors import UsageError
from ddpg.exports import policy_file, policy_graph, zoo
from ddpg.exports.export import FORMATS
from ddpg.exports.export_dir import ACT
from ddpg.policies.standalone import OPERATIONS
from ddpg.runs.saved_policy import export_saved

ROOT = Path(__file__).parents[2]
NAMES = zoo.names()
MEGABYTE = 1_000_000


def test_every_preset_has_a_policy_or_is_declared_missing():
    assert sorted(without_entry()) == sorted(MISSING)
    assert {zoo.entry_name(env_id) for env_id in PRESETS} >= {*NAMES}
    assert len({zoo.entry_name(env_id) for env_id in PRESETS}) == len(PRESETS)
    assert all(MISSING.values())


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_holds_only_data_and_a_card_of_its_policy_and_preset(name):
    entry = zoo.read_entry(name)
    assert sorted(path.name for path in entry.folder.iterdir()) == sorted(zoo.FILES)
    card, about = entry.card, json.loads((entry.folder / "policy.json").read_bytes())
    assert card.policy_sha256 == about["policy_sha256"]
    assert entry.size == sum(path.stat().st_size for path in entry.folder.iterdir())
    preset, kind = PRESETS[card.env_id.rpartition(":")[2]], CONFIGS[card.algorithm]
    # Options added after the card was written have their defaults, which change nothing.
    assert kind().to_json() | card.options == kind(**preset.options_for(kind, card.timesteps)).to_json()
    assert card.recipe == preset.recipe
    assert card.seed == 0, "no seed was picked"
    length = [] if card.timesteps == preset.total_timesteps else ["--total-timesteps", str(card.timesteps)]
    assert card.command.split() == ["ddpg", "train", card.env_id, "--seed", "0", *length]
    assert card.license == "MIT"
    assert len(card.evaluation.returns) == len(card.evaluation.lengths) == 100
    assert card.evaluation.seed == 2_000_000
    assert {"python", "numpy", "gymnasium", "machine", "functions"} <= {*card.evaluation.versions}


def test_all_entries_are_in_the_wheel_and_small():
    sizes = [zoo.read_entry(name).size for name in NAMES]
    assert sum(sizes) <= 5 * MEGABYTE
    setuptools = read_toml(ROOT / "pyproject.toml")["tool"]["setuptools"]
    assert "ddpg.zoo" in setuptools["packages"]
    patterns = setuptools["package-data"]["ddpg.zoo"]
    for name in NAMES:
        for file in zoo.FILES:
            assert any(fnmatch.fnmatch(f"{name}/{file}", pattern) for pattern in patterns)


@pytest.mark.parametrize("given", ["zoo:LQR-v0", "zoo:ddpg_envs/LQR-v0", "LQR-v0", "zoo:ddpg_envs:ddpg_envs/LQR-v0"])
def test_an_entry_is_found_by_its_name_and_its_environment_id(given):
    assert zoo.read_entry(given).card.env_id == "ddpg_envs/LQR-v0"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("zoo:Pendulum-v0", "Pendulum-v0 Pendulum-v1 zoo"),
        ("zoo:pendulum-v1", "pendulum-v1 Pendulum-v1"),
        ("zoo:", "Pendulum-v1 zoo"),
        ("zoo:Pusher-v5", "'Pusher-v5'; it has Pendulum-v1"),  # not Hopper-v5
        ("zoo:dmc/cartpole-swingup-v0", "'dmc/cartpole-swingup-v0'; it has Pendulum-v1"),  # not CartPole-v1
        ("zoo:ddpg_envs/LQ-v0", "ddpg_envs/LQ-v0 mean 'LQR-v0'"),
        ("zoo:other/LQR-v0", "other/LQR-v0 ddpg_envs/LQR-v0"),
        ("zoo:../recipes", "../recipes"),
        ("zoo:/etc/passwd", "/etc/passwd"),
        ("zoo:" + "x" * 10_000, "zoo"),
        ("zoo:a\0b", "zoo"),
    ],
)
def test_unknown_names_are_refused_in_one_line(given, words):
    with refuses(UsageError, words) as caught:
        ddpg.load_policy(given)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda card: card | {"code": "print"}, "code"),
        (lambda card: card | {"timesteps": "many"}, "timesteps"),
        (lambda card: card | {"format": 2}, "format 2"),
        (lambda card: card | {"env_id": "Pendulum-v1"}, "Pendulum-v1"),
        (lambda card: card["evaluation"].update(returns=[]) or card, "evaluation returns"),
    ],
)
def test_a_damaged_card_is_refused_in_one_line(tmp_path, change, words):
    shutil.copytree(zoo.read_entry("LQR-v0").folder, tmp_path / "LQR-v0")
    card = json.loads((tmp_path / "LQR-v0" / zoo.CARD).read_bytes())
    (tmp_path / "LQR-v0" / zoo.CARD).write_text(json.dumps(change(card)))
    with refuses(UsageError, words):
        zoo.read_entry("LQR-v0", tmp_path)


def test_a_card_survives_writing_and_reading(tmp_path):
    card = zoo.read_entry("LQR-v0").card
    (tmp_path / "LQR-v0").mkdir()
    zoo.write_card(tmp_path / "LQR-v0", card)
    assert msgspec.to_builtins(zoo.read_entry("LQR-v0", tmp_path).card) == msgspec.to_builtins(card)
    assert zoo.names(tmp_path) == ["LQR-v0"]
    assert zoo.names(tmp_path / "nowhere") == []


def test_acting_does_not_import_tensorflow():
    code = (
        "import sys, ddpg, gymnasium\n"
        "env = gymnasium.make('Pendulum-v1')\n"
        "print(ddpg.evaluate(ddpg.load_policy('zoo:Pendulum-v1'), env, 1, seed=0))\n"
        "assert 'tensorflow' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True).stdout


def test_load_policy_is_portable_for_the_zoo_and_on_request():
    folder = zoo.read_entry("Reacher-v5").folder
    observations = np.random.default_rng(0).standard_normal((50, 10), np.float32)
    portable, plain = ddpg.load_policy(folder, portable=True), ddpg.load_policy(folder)
    of_zoo, _ = ddpg.load_policy(Path("zoo:Reacher-v5")).predict(observations)
    assert of_zoo.tobytes() == portable.predict(observations)[0].tobytes()
    assert of_zoo.tobytes() != plain.predict(observations)[0].tobytes()
    np.testing.assert_allclose(of_zoo, plain.predict(observations)[0], rtol=0, atol=1e-5)


def test_every_operation_has_its_tensorflow_counterpart():
    assert {*policy_graph.TENSORFLOW_OPERATIONS} == {*OPERATIONS}


@pytest.mark.parametrize("name", sorted({*OPERATIONS}))
def test_a_tensorflow_operation_agrees_with_numpy(name):
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.5, 2, (3, 4)).astype(np.float32) for _ in range(2))
    x = x if name in ("Sqrt", "Rsqrt") else x - 1.2
    x = x.reshape(1, 3, 2, 2) if name in ("Conv2D", "Transpose") else x
    second = {
        "Conv2D": [y.reshape(2, 1, 2, 3), np.array([2, 1, 1])],
        "Transpose": [np.array([0, 2, 1, 3])],
        "MatMul": [y.T.copy()],
        "Reshape": [np.array([-1, 6])],
        "ConcatV2": [y, np.array(1)],
        "Mean": [np.array([1])],
        **{key: [y] for key in ("BiasAdd", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum")},
    }.get(name, [])
    found = policy_graph.TENSORFLOW_OPERATIONS[name](x, *second).numpy()
    np.testing.assert_allclose(found, OPERATIONS[name](x, *second), rtol=1e-6, atol=1e-6)


# Box, discrete and parameterised actions.
@pytest.mark.parametrize(
    ("name", "format"),
    [
        *(
            pytest.param("Pendulum-v1", format, marks=[pytest.mark.slow] * (format in ("tflite", "onnx")))
            for format in FORMATS
        ),
        ("CartPole-v1", "tflite"),
        ("Platform-v0", "c"),
    ],
)
def test_a_policy_is_exported_to_every_format(name, format, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    summary = export_saved(f"zoo:{name}", format)
    assert summary["difference"] < 1e-4
    assert ("half-range" in summary["difference_unit"]) == (name != "CartPole-v1")
    assert Path(summary["path"]).exists()
    assert summary["path"].startswith(name)
    if format == "numpy":
        assert (Path(summary["path"]) / ACT).exists()
        entry, exported = policy_file.read(zoo.read_entry(name).folder)[0], policy_file.read(Path(summary["path"]))[0]
        observations = policy_file.check_observations(ddpg.load_policy(f"zoo:{name}").observation_space)
        np.testing.assert_array_equal(entry(observations), exported(observations))
