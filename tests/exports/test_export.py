"""Exports reproduce the agent's actions and replace only exports, and ``load_policy`` refuses invalid policies."""

import errno
import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from action_spaces import BOX, MOVES, UNBOUNDED
from agent_options import SMALL_UPDATE, WITHOUT_SLOTS_AND_TARGETS
from refusals import refuses

import ddpg
from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError
from ddpg.checkpoints import safe_json
from ddpg.exports import export as exporting
from ddpg.exports import export_dir, formats, policy_file, policy_graph
from ddpg.exports.c_network import lower_to_c
from ddpg.exports.export import FORMATS
from ddpg.policies import standalone

FILES = [kind for kind in FORMATS if kind not in ("numpy", "c")]
SPACES = {"box": BOX, "moves": MOVES, "choice": gym.spaces.Discrete(4, start=-1)}


def make_agent(action_space, observation_space=UNBOUNDED, seed=0, **options):
    """Return an agent with large weights, whose outputs reach and exceed their bounds."""
    small = {"hidden": (8, 8), "jit": False, **WITHOUT_SLOTS_AND_TARGETS, **options}
    if isinstance(action_space, gym.spaces.Discrete):
        agent = DQN((observation_space, action_space), DQNConfig(**small), seed)
        network = agent.q
    else:
        agent = DDPG((observation_space, action_space), DDPGConfig(**SMALL_UPDATE | small), seed)
        network = agent.actor
    with agent.session.as_default():
        network.set_network_params(
            [4 * np.sign(value) * np.abs(value) ** 0.5 for value in network.get_network_params()]
        )
    agent.refresh_policy()
    return agent


@pytest.fixture(scope="module")
def agents():
    """One agent for each kind of actions; for boxes also one whose outputs exceed the bounds."""
    return {
        "box": make_agent(BOX),
        "inverting": make_agent(BOX, bounding="inverting", norm="layer"),
        "moves": make_agent(MOVES, bounding="inverting", activation="elu"),
        "choice": make_agent(SPACES["choice"]),
    }


def observations(count=40):
    return np.random.default_rng(1).normal(size=(count, 2, 3))


def assert_same_actions(found, expected):
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_same_actions(one, other)
        return
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def assert_outputs_match(agent, outputs, expected):
    """Assert that an export's outputs are the actions ``expected`` by ``predict``, to within 1e-5 half-ranges."""
    if isinstance(agent, DQN):
        np.testing.assert_array_equal(outputs["actions"], expected)
        return
    low, high = agent.actions.bounds
    found = outputs["actions"]
    if isinstance(expected, tuple):
        choices, parameters = expected
        assert np.abs(found[:, :3]).max() <= 1
        np.testing.assert_array_equal(found[:, :3].argmax(axis=1) + 1, choices)
        flat = np.concatenate([part.reshape(len(found), -1) for part in parameters], axis=1)
        found, expected, low, high = found[:, 3:], flat, low[3:], high[3:]
    assert found.shape == expected.shape
    differences = np.abs(found - expected).reshape(len(found), -1) / ((high - low) / 2)
    assert differences.max() < 1e-5


@pytest.mark.parametrize("name", ["box", "inverting", "moves", "choice"])
def test_loaded_policy_acts_as_the_agent(name, agents, tmp_path):
    agent = agents[name]
    assert agent.export(tmp_path / "policy", "numpy") == tmp_path / "policy"
    policy = ddpg.load_policy(tmp_path / "policy")
    batch = observations()
    assert_same_actions(policy.predict(batch)[0], agent.predict(batch)[0])
    assert_same_actions(policy.predict(batch[3])[0], agent.predict(batch[3])[0])
    assert policy.action_space.contains(policy.predict(batch[3])[0])
    assert (policy.observation_space, policy.action_space) == (UNBOUNDED, agent.action_space)
    if name == "inverting":  # so that clipping is tested
        assert (np.abs(agent.policy(batch.astype(np.float32))) > 1).any()


@pytest.mark.parametrize(
    ("name", "kind"),
    # test_pairwise_combinations has the other formats of boundings
    [("inverting", "savedmodel"), *((name, kind) for name in ("moves", "choice") for kind in FILES)],
)
def test_files_reproduce_the_agents_actions(name, kind, agents, tmp_path):
    if kind == "onnx":
        pytest.importorskip("tf2onnx")
    path = agents[name].export(tmp_path / "deep" / "policy", kind)
    outputs = exporting._WRITERS[kind][1](path)(observations().astype(np.float32))
    assert_outputs_match(agents[name], outputs, agents[name].predict(observations())[0])
    if name == "choice":
        np.testing.assert_allclose(outputs["values"], agents[name].policy(observations().astype(np.float32)), atol=1e-5)


@functools.cache
def make_kelvin_agent():
    """Return an agent that has observed 300 ± 5, with outputs of size 1."""
    spaces = gym.spaces.Box(0, np.inf, (3,)), gym.spaces.Box(-1, 1, (2,))
    options = {"hidden": (8, 8), "jit": False, "output_init": "fan_in"}
    agent = DDPG(spaces, DDPGConfig(normalize_observations=True, **options, **SMALL_UPDATE), seed=0)
    agent.memory.observations.update(np.float32(300 + 5 * np.random.default_rng(0).normal(size=(1000, 3))))
    return agent


@functools.cache
def normalising_agent():
    """Return an agent, and its observations far from 0: without the statistics the policy would saturate."""
    config = DDPGConfig(hidden=(4,), normalize_observations=True, jit=False, **SMALL_UPDATE)
    agent, rng = DDPG((UNBOUNDED, gym.spaces.Box(-1, 1, (2,))), config, 0), np.random.default_rng(0)
    seen = (rng.normal(size=(50, 2, 3)) * [1, 20, 0.1] + [100, -40, 3]).astype(np.float32)
    agent.remember(seen, np.zeros((50, 2)), np.zeros(50), seen, np.zeros(50, bool), np.zeros(50, bool))
    return agent, seen


@pytest.mark.parametrize("kind", ["numpy", "savedmodel"])
def test_normalisation_is_exported(tmp_path, kind):
    agent, seen = normalising_agent()
    agent.export(tmp_path / "policy", kind)
    expected = agent.predict(seen)[0]
    if kind == "numpy":
        found = ddpg.load_policy(tmp_path / "policy").predict(seen)[0]
    else:
        found = formats.run_savedmodel(tmp_path / "policy")(seen)["actions"]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.ptp(expected, axis=0).min() > 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_samples_follow_the_normalisation_statistics(dtype):
    """The statistics are 300 ± 5, and the space ends at 306."""
    space = gym.spaces.Box(-(2**30), 306, (2, 2), dtype)
    moments = np.full((1, 4), 300, np.float32), np.full((1, 4), 0.2, np.float32)
    drawn = exporting.sample_observations(space, moments=moments)
    assert drawn.shape == (64, 2, 2)
    assert abs(drawn.mean() - 300) < 1
    assert 3 < drawn.std() < 5
    checks = policy_file.check_observations(space, moments=moments)
    exact = 300 + 5 * np.sin(np.arange(1, 9)[:, None] + 0.7 * np.arange(4)).reshape(8, 2, 2)
    np.testing.assert_allclose(checks, exact, rtol=1e-6, atol=0 if dtype == np.float32 else 0.5)
    for found in (drawn, checks):
        assert found.max() <= 306
        assert dtype == np.float32 or (found == np.rint(found)).all()


def test_a_normalising_policy_is_compared_on_typical_observations(tmp_path):
    """Relative to 300 ± 5, observations near 0 are all clipped to -10 standard deviations: all outputs are equal."""
    agent = make_kelvin_agent()
    difference = exporting.export(tmp_path / "int8", "c", exporting.ActingPolicy.of(agent), "int8")
    states = np.float32(300 + 5 * np.random.default_rng(1).normal(size=(500, 3)))
    lowered = lower_to_c(policy_graph.numpy_program(exporting.ActingPolicy.of(agent)), (3,), "int8")
    real = np.abs(lowered.outputs(states) - agent.policy(states)).max()
    assert real / 3 < difference < 3 * real
    policy = standalone.load(agent.export(tmp_path / "policy"))
    outputs = np.array(policy.about["check"]["outputs"])
    assert np.ptp(outputs, axis=0).min() > 0.03
    difference, tolerance = policy.check()
    assert difference <= tolerance < 1e-4
    with policy_graph.acting_policy(*policy_file.read(tmp_path / "policy")) as parts:  # as for the zoo
        exporting.export(tmp_path / "again", "numpy", parts)
    np.testing.assert_allclose(standalone.load(tmp_path / "again").about["check"]["outputs"], outputs, atol=1e-5)


def test_a_constant_observation_does_not_raise_the_tolerance(tmp_path, monkeypatch):
    """Its standard deviation counts as 1e-4: 64 rounding errors of 300 would be 12 standard deviations."""
    agent = make_kelvin_agent()
    monkeypatch.setattr(agent.memory, "observations", type(agent.memory.observations)((3,)))
    agent.memory.observations.update(np.float32([[300, 300, 1], [300, 300, 2]]))
    about = json.loads((agent.export(tmp_path / "policy") / "policy.json").read_text())
    assert about["check"]["tolerance"] < 1e-4


def test_earlier_exports_are_checked_near_0(tmp_path):
    """Their policy.json lacks ``normalised``, which places the check observations around the mean."""
    agent = make_kelvin_agent()
    policy = standalone.load(agent.export(tmp_path / "policy"))
    assert policy.about["check"].pop("normalised") is True
    near_0 = policy_file.check_observations(agent.observation_space)
    policy.about["check"]["outputs"] = agent.policy(near_0).tolist()
    difference, tolerance = policy.check()
    assert difference <= tolerance


def test_a_narrow_box_far_from_0(tmp_path):
    """Bounds of 50 ± 0.1, as of a mains frequency, where float32 steps are 4e-6, or 4e-5 half-ranges."""
    spaces = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(49.9, 50.1, (2,), np.float32)
    agent = DDPG(spaces, DDPGConfig(hidden=(4,), output_init="fan_in", **SMALL_UPDATE), seed=0)
    states = np.random.default_rng(0).uniform(-1, 1, (20, 3)).astype(np.float32)
    found = formats.run_tflite(agent.export(tmp_path / "policy.tflite", "tflite"))(states)["actions"]
    np.testing.assert_allclose(found, agent.predict(states)[0], atol=8e-6)


def test_the_difference_includes_the_rounding_of_a_narrow_box(tmp_path):
    """At 1000, float32 steps are 6.1e-5, and twice that in half-ranges of 0.5."""
    spaces = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(1000, 1001, (2,), np.float64)
    agent = DDPG(spaces, DDPGConfig(hidden=(4,), output_init="fan_in", **SMALL_UPDATE), seed=0)
    acting = exporting.ActingPolicy.of(agent)
    states = exporting.sample_observations(spaces[0])
    expected = 1000.5 + 0.5 * agent.policy(states).astype(np.float64)
    for kind in ("savedmodel", "c"):
        difference = exporting.export(tmp_path / kind, kind, acting)
        assert 3e-5 < difference < 1.3e-4
        if kind == "savedmodel":
            found = formats.run_savedmodel(tmp_path / kind)(states)["actions"]
            assert difference == pytest.approx(np.abs(found - expected).max() / 0.5, rel=1e-2)


@pytest.mark.parametrize(("low", "high"), [(1e8 + 0.1, 1e8 + 0.9), (-1e300, 1e300), (-1e-50, 1e-50), (-1e39, 1.0)])
def test_the_formats_of_float32_refuse_a_box_that_needs_float64(low, high):
    """At 1e8, float32 steps are 8; its range is 1.2e-38 to 3.4e38."""
    space = gym.spaces.Box(np.array([-1, low]), np.array([1, high]), dtype=np.float64)
    with refuses(UsageError, f"format='tflite' float32 {low} {high} 'numpy'"):
        policy_graph.check_float32("tflite", space)


@pytest.mark.parametrize("parameters", [False, True])
def test_a_box_that_needs_float64_is_exported_only_to_numpy(parameters, tmp_path):
    """At 1e5, float32 steps are 0.0078, or 0.016 half-ranges."""
    space = gym.spaces.Box(np.array([-1, 1e5]), np.array([1, 1e5 + 1]), dtype=np.float64)
    if parameters:
        space = gym.spaces.Tuple((gym.spaces.Discrete(2), gym.spaces.Tuple((gym.spaces.Box(0, 1, (0,)), space))))
    agent = DDPG(
        (gym.spaces.Box(-1, 1, (3,)), space), DDPGConfig(hidden=(4,), output_init="fan_in", **SMALL_UPDATE), seed=0
    )
    for kind in ("savedmodel", "c"):
        with refuses(UsageError, f"format={kind!r} float32 {1e5} {1e5 + 1} 'numpy'"):
            agent.export(tmp_path / "policy", kind)
    assert list(tmp_path.iterdir()) == []
    policy = ddpg.load_policy(agent.export(tmp_path / "policy", "numpy"))
    assert_same_actions(policy.predict(np.eye(3))[0], agent.predict(np.eye(3))[0])


@pytest.mark.slow
def test_a_very_narrow_float32_box_is_exported(tmp_path):
    """The agent's actions are float32, too: both are rounded to steps of 0.016 half-ranges."""
    spaces = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(1e5, 1e5 + 1, (2,), np.float32)
    agent = DDPG(spaces, DDPGConfig(hidden=(4,), output_init="fan_in", **SMALL_UPDATE), seed=0)
    difference = exporting.export(tmp_path / "policy", "savedmodel", exporting.ActingPolicy.of(agent))
    assert 1e-3 < difference <= 0.016


def test_actions_stay_inside_a_float64_box(tmp_path):
    """The float32 nearest to 0.1 is larger, and the one nearest to -0.1 is smaller."""
    spaces = gym.spaces.Box(-np.inf, np.inf, (3,)), gym.spaces.Box(-0.1, 0.1, (2,), np.float64)
    agent = DDPG(spaces, DDPGConfig(hidden=(4,), jit=False, output_init="fan_in", **SMALL_UPDATE), seed=0)
    states = (np.random.default_rng(0).normal(size=(200, 3)) * 1000).astype(np.float32)
    for kind in FILES if importlib.util.find_spec("tf2onnx") else ("savedmodel", "tflite"):
        found = np.float64(exporting._WRITERS[kind][1](agent.export(tmp_path / kind, kind))(states)["actions"])
        assert -0.1 <= found.min() < -0.0999999, kind
        assert 0.0999999 < found.max() <= 0.1, kind


class LogGamma(tf.Module):
    """One op that tf2onnx does not convert, since ONNX lacks it."""

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="observations")])
    def policy(self, observations):
        return {"actions": tf.math.lgamma(observations)}


def test_an_op_that_onnx_lacks_is_named(tmp_path):
    pytest.importorskip("tf2onnx")
    with refuses(UsageError, "ONNX Lgamma savedmodel"):
        formats.write_onnx(tmp_path / "policy.onnx", LogGamma().policy, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("kind", "operation", "dtype"),
    [
        ("onnx", lambda x: x * 2, tf.bfloat16),  # refused by ONNX's own check of the file
        ("onnx", tf.nn.softplus, tf.float64),  # written, but onnxruntime has no such operation
        ("tflite", lambda x: tf.reshape(x, [5, 3]), tf.float32),  # the interpreter fails for four rows
    ],
)
def test_a_network_that_a_format_cannot_run_is_refused(kind, operation, dtype, tmp_path):
    if kind == "onnx":
        pytest.importorskip("tf2onnx")
    write, run = exporting._WRITERS[kind]

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, name="observations")])
    def policy(observations):
        return {"actions": tf.cast(operation(tf.cast(observations, dtype)), tf.float32)}

    with refuses(UsageError, "network savedmodel"):
        write(tmp_path / "policy", policy, {})
        run(tmp_path / "policy")(np.ones((4, 3), np.float32))


@pytest.mark.parametrize("call", [tf.numpy_function, pytest.param(tf.py_function, marks=pytest.mark.slow)])
def test_a_network_that_calls_python_is_refused(call, tmp_path):
    """A SavedModel of it acts in this process, and fails in every other one."""

    def actor_network(states):
        return tf.ensure_shape(call(lambda x: x, [states], tf.float32), [None, 3])

    spaces = gym.spaces.Box(-1, 1, (3,)), gym.spaces.Box(-1, 1, (2,))
    agent = DDPG(spaces, DDPGConfig(hidden=(4,), jit=False, **SMALL_UPDATE), seed=0, actor_network=actor_network)
    with refuses(UsageError, "Python numpy_function"):
        agent.export(tmp_path / "policy", "savedmodel")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_agent_whose_updates_xla_has_compiled_is_exported(tmp_path):
    """The update has a gradient of this package's own, of the weighted samples, inside the compiled function."""
    config = DQNConfig(hidden=(4,), batch_size=4, updates_per_call=1, prioritised="lap", compiler="xla")
    agent = DQN((UNBOUNDED, gym.spaces.Discrete(2)), config, seed=0)
    agent.remember(observations(8), [0, 1] * 4, np.ones(8), observations(8), [False] * 8, [False] * 8)
    agent.update(1)
    for kind in ("savedmodel", "tflite"):
        agent.export(tmp_path / f"policy{Path(exporting.NAMES[kind]).suffix}", format=kind)  # it compares itself


def test_a_savedmodel_path_with_a_bracket_is_refused(agents, tmp_path):
    with refuses(UsageError, "TensorFlow SavedModel ["):
        agents["box"].export(tmp_path / "a[1]" / "policy", "savedmodel")
    assert not (tmp_path / "a[1]").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="other file systems have no such names")
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in ("onnx", "c"))) for kind in FORMATS]
)
def test_a_path_that_is_not_utf8(kind, agents, tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9") / "policy"
    if kind == "savedmodel":
        with refuses(UsageError, "UTF-8 SavedModel caf"):
            agents["box"].export(path, kind)
        assert list(tmp_path.iterdir()) == []
    else:
        assert agents["box"].export(path, kind).exists()


def test_a_tflite_export_prints_nothing(agents, tmp_path, capfd, monkeypatch):
    class PrintingInterpreter(tf.lite.Interpreter):
        """Prints at every call the message that TFLite prints at a process's first call."""

        def get_signature_runner(self):
            runner = super().get_signature_runner()

            def printing(**inputs):
                os.write(2, b"INFO: Created TensorFlow Lite XNNPACK delegate for CPU.\n")
                return runner(**inputs)

            return printing

    convert = tf.lite.TFLiteConverter.convert

    def printing_convert(converter):  # as TensorFlow 2.18
        os.write(2, b"W0000 00:00:1.0 1 tf_tfl_flatbuffer_helpers.cc:365] Ignored output_format.\n")
        return convert(converter)

    monkeypatch.setattr(tf.lite, "Interpreter", PrintingInterpreter)
    monkeypatch.setattr(tf.lite.TFLiteConverter, "convert", printing_convert)
    capfd.readouterr()
    agents["box"].export(tmp_path / "policy.tflite", "tflite")
    assert capfd.readouterr().err == ""


def test_an_export_that_differs_is_not_kept(agents, tmp_path, monkeypatch):
    before = agents["box"].export(tmp_path / "policy", "savedmodel")
    monkeypatch.setattr(exporting, "TOLERANCE", -1.0)
    for kind in ("numpy", "savedmodel"):
        with refuses(UsageError, "differs"):
            agents["moves"].export(tmp_path / "policy", kind)
        with refuses(UsageError, "differs"):
            agents["moves"].export(tmp_path / "new" / "folder" / "other", kind)
    assert list(tmp_path.iterdir()) == [before]
    assert json.loads((before / "policy.json").read_text())["action_space"]["type"] == "Box"


def test_the_comparison_detects_a_wrong_bound(agents, tmp_path, monkeypatch):
    """One number of the action is off by 1 % of its range."""
    right = exporting.policy_graph._translated

    def wrong(actions, outputs):
        return right(actions, outputs * np.array([1, 1, 1.01, 1], np.float32))

    monkeypatch.setattr(exporting.policy_graph, "_translated", wrong)
    with refuses(UsageError, "savedmodel"):
        agents["box"].export(tmp_path / "policy", "savedmodel")
    assert list(tmp_path.iterdir()) == []


def test_samples_are_inside_the_space():
    space = gym.spaces.Box(np.array([-1, -np.inf, 0], np.float32), np.array([1, np.inf, np.inf], np.float32))
    drawn = exporting.sample_observations(space)
    assert drawn.shape == (64, 3)
    assert (space.low <= drawn).all()
    assert (drawn <= space.high).all()
    assert drawn.std(axis=0).min() > 0.3
    integers = exporting.sample_observations(gym.spaces.Box(0, 255, (4,), np.uint8))
    assert (integers == np.floor(integers)).all()
    assert integers.max() > 200


@pytest.mark.parametrize(
    ("low", "high", "dtype", "all_drawn"),
    [
        (0, 1, np.int64, [0, 1]),  # as FlattenObservation makes of Discrete, MultiDiscrete and MultiBinary spaces
        (0, 1, bool, [0, 1]),
        (-1, 2, np.int8, [-1, 0, 1, 2]),
        (0, 2**40, np.int64, None),  # of large bounds numbers near 0
    ],
)
def test_samples_of_integers_reach_both_bounds(low, high, dtype, all_drawn):
    """Rounding uniform numbers down would never reach the upper bound: of 0 and 1, only 0 would be compared."""
    space = gym.spaces.Box(low, high, (40,), dtype)
    for drawn in (exporting.sample_observations(space), policy_file.check_observations(space)):
        found = np.unique(drawn)
        assert len(found) > 1
        assert all_drawn is None or found.tolist() == all_drawn
        assert all(space.contains(row) for row in drawn.astype(dtype))


def test_zeros_and_ones_are_compared(tmp_path):
    """With zeros alone, the weights of the first layer, and their rounding to int8, would not matter."""
    spaces = gym.spaces.Box(0, 1, (16,), np.int64), gym.spaces.Discrete(4)
    agent = DQN(spaces, DQNConfig(hidden=(32, 32), output_init="fan_in"), seed=0)
    acting = exporting.ActingPolicy.of(agent)
    lowered = lower_to_c(policy_graph.numpy_program(acting), (16,), "int8")
    states = np.eye(16, dtype=np.float32)
    real = np.abs(lowered.outputs(states) - agent.policy(states)).max()
    assert exporting.export(tmp_path / "int8", "c", acting, "int8") > real / 3
    outputs = np.array(standalone.load(agent.export(tmp_path / "policy")).about["check"]["outputs"])
    assert np.ptp(outputs, axis=0).min() > 0.01


@pytest.mark.parametrize("path", ["policy", "deep/policy"])
def test_a_path_inside_a_checkpoint_is_refused(path, agents, tmp_path):
    """A checkpoint with other files in it is not pruned, nor replaced by a better one."""
    saved = agents["box"].save(tmp_path / "best")
    before = sorted(saved.iterdir())
    with refuses(UsageError, f"{str(saved / path)!r} {str(saved)!r} outside"):
        agents["box"].export(saved / path)
    assert sorted(saved.iterdir()) == before
    agents["box"].save(saved)
    agents["box"].export(tmp_path / "policy")


def test_paths_that_are_not_exports_are_kept(agents, tmp_path):
    agent = agents["box"]
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("mine")
    mixed = agent.export(tmp_path / "mixed")
    (mixed / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to(mixed)
    os.mkfifo(tmp_path / "pipe")
    expected = {
        "file": "file",
        "folder": "directory file",
        "mixed": "notes.txt",
        "link": "symbolic link",
        "pipe": "pipe",
        "file/policy": "file",
    }
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name, message in expected.items():
        with refuses(UsageError, message):
            agent.export(tmp_path / name)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    with refuses(UsageError, "format npz"):
        agent.export(tmp_path / "new", "npz")


@pytest.fixture(scope="module")
def saved_model(agents, tmp_path_factory):
    return agents["box"].export(tmp_path_factory.mktemp("saved") / "policy", "savedmodel")


@pytest.mark.parametrize(
    "own",
    [
        *("assets/map.txt", "variables/notes.txt", "variables/variables.index.old", "__pycache__/mine.py"),
        *("__pycache__/react.cpython-312.pyc", "__pycache__/act.cpython-312.pyc/file", "policy.safetensors/file"),
        *("assets/deep/file", "._mine/file", "assets/.DS_Store/file"),
    ],
)
def test_foreign_files_inside_an_export_are_kept(own, saved_model, agents, tmp_path):
    path = shutil.copytree(saved_model, tmp_path / "policy")
    (path / own).parent.mkdir(parents=True, exist_ok=True)
    (path / own).write_text("mine")
    foreign = own.removesuffix("/file").replace("policy.safetensors", "policy.safetensors, which is no file")
    with refuses(UsageError, foreign):
        agents["box"].export(path)
    assert (path / own).read_text() == "mine"


def test_a_file_named_like_an_export_directory_is_kept(saved_model, agents, tmp_path):
    for name in ("assets", "__pycache__"):
        path = shutil.copytree(saved_model, tmp_path / f"policy with {name}")
        if (path / name).exists():
            (path / name).rmdir()
        (path / name).write_text("mine")
        with refuses(UsageError, f"{name} no directory"):
            agents["box"].export(path)
        assert (path / name).read_text() == "mine"


def test_a_link_inside_an_export_is_kept(saved_model, agents, tmp_path):
    path = shutil.copytree(saved_model, tmp_path / "policy")
    (path / "variables").rename(tmp_path / "elsewhere")
    (path / "variables").symlink_to(tmp_path / "elsewhere")
    with refuses(UsageError, "variables symbolic link"):
        agents["box"].export(path)
    assert (path / "variables").is_symlink()


def test_bytecode_and_file_manager_litter_are_replaced_with_an_export(saved_model, agents, tmp_path):
    path = shutil.copytree(saved_model, tmp_path / "policy")
    (path / "__pycache__").mkdir()
    for name in ("__pycache__/act.cpython-312.pyc", "variables/.DS_Store", "assets/._map.txt", ".DS_Store"):
        (path / name).write_text("")
    agents["box"].export(path)
    assert sorted(entry.name for entry in path.iterdir()) == ["act.py", "policy.json", "policy.safetensors"]


def test_an_export_replaces_another_of_any_format(agents, tmp_path):
    (tmp_path / "policy").mkdir()
    for kind in ("savedmodel", "numpy", "tflite", "numpy"):
        path = agents["box"].export(tmp_path / "policy", kind)
    assert sorted(entry.name for entry in path.iterdir()) == ["act.py", "policy.json", "policy.safetensors"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_replaced_without_a_moment_in_which_it_is_missing(tmp_path, monkeypatch):
    """A program that loads the policy meanwhile, or after a kill at that moment, must find one of the two."""
    path, there = tmp_path / "policy.onnx", []
    path.write_text(export_dir.MARK)

    def watched(move):
        return lambda source, target: (move(source, target), there.append(path.exists()))

    for name in ("rename", "replace"):
        monkeypatch.setattr(export_dir.Path, name, watched(getattr(export_dir.Path, name)))
    with export_dir.write_aside(path) as temporary:
        temporary.write_text("new")
    assert path.read_text() == "new"
    assert there == [True]
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["savedmodel", "tflite"])
def test_all_files_are_flushed_before_the_old_export_is_replaced(kind, agents, tmp_path, monkeypatch):
    path, flushed = agents["box"].export(tmp_path / "policy", kind), set()

    def recording_fsync(descriptor):
        flushed.add(os.fstat(descriptor).st_ino)
        assert path.stat().st_ino == old

    old = path.stat().st_ino
    monkeypatch.setattr(os, "fsync", recording_fsync)
    agents["box"].export(path, kind)
    files = {file.stat().st_ino for file in (path, *path.rglob("*")) if file.is_file()}
    assert files
    assert files <= flushed


@pytest.mark.parametrize("kind", ["numpy", "tflite"])
def test_an_export_may_have_any_name(kind, agents, tmp_path):
    agents["box"].export(tmp_path / "old", kind)
    path = agents["choice"].export(tmp_path / "old", kind)
    about = (path / "policy.json").read_bytes() if kind == "numpy" else path.read_bytes()
    assert b"Discrete" in about
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("policy.onnx", "numpy", "policy.onnx format='onnx' 'numpy'"),
        ("policy.onnx", "tflite", "policy.onnx format='onnx' 'tflite'"),
        ("policy.tflite", "c", "policy.tflite format='tflite' 'c'"),
        ("robot/swing.c", "c", "robot/swing.c directory 'robot/swing' option name"),
        ("robot/", "onnx", "robot/ directory format='onnx' robot/policy.onnx"),
        ("empty", "tflite", "empty directory format='tflite' empty/policy.tflite"),
    ],
)
def test_a_path_that_means_another_format_or_a_directory_is_refused(path, kind, message, agents, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with refuses(UsageError, message):
        agents["box"].export(path, kind)
    assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_permission_errors_name_the_given_path(number, agents, tmp_path, monkeypatch):
    """Fails at the new export's temporary folder, at the old export's, and at the rename to ``path``."""
    path = agents["box"].export(tmp_path / "policy")
    before = (path / "policy.json").read_bytes()
    mkdtemp, rename, steps = export_dir.tempfile.mkdtemp, export_dir.Path.rename, []

    def failing(source):
        steps.append(source)
        if len(steps) == number:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), source)

    def refusing_folder(prefix, dir):
        failing(f"{dir}/{prefix}random")
        return mkdtemp(prefix=prefix, dir=dir)

    def refusing_place(source, target):
        if target == path and ".ddpg-" in str(source):
            failing(str(source))
        return rename(source, target)

    monkeypatch.setattr(export_dir.tempfile, "mkdtemp", refusing_folder)
    monkeypatch.setattr(export_dir.Path, "rename", refusing_place)
    with pytest.raises(PermissionError) as caught:
        agents["moves"].export(path)
    assert caught.value.filename == str(path)
    assert [*tmp_path.iterdir()] == [path]
    assert (path / "policy.json").read_bytes() == before


def test_a_full_disk_is_reported_and_nothing_is_left(agents, tmp_path, monkeypatch):
    """SavedModel raises TensorFlow's own error; the other formats fail when they write their file."""

    def full(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "variables.index; No space left on device")

    def full_too(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # without a file name, as errors of open files

    monkeypatch.setattr(tf.saved_model, "save", full)
    monkeypatch.setattr(formats.Path, "write_bytes", full_too)
    monkeypatch.setattr(formats.Path, "write_text", full_too)
    for kind in ("savedmodel", "tflite", "numpy", "c"):
        with pytest.raises(OSError, match="No space left on device") as caught:
            agents["box"].export(tmp_path / "policy", kind)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "policy")), kind
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_when_tflite_metadata_is_appended(agents, tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(formats.zipfile.ZipFile, "writestr", full)
    with pytest.raises(OSError, match=r"policy\.tflite") as caught:
        agents["box"].export(tmp_path / "policy.tflite", "tflite")
    assert caught.value.errno == errno.ENOSPC
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["numpy", "c"])
def test_a_description_above_the_size_limit_is_not_written(kind, agents, tmp_path, monkeypatch):
    path = agents["box"].export(tmp_path / "policy", kind)
    size = (path / "policy.json").stat().st_size
    monkeypatch.setattr(safe_json, "LARGEST", size - 1)
    with refuses(UsageError, f"format={kind!r} {size - 1} {size} savedmodel"):
        agents["box"].export(tmp_path / "other", kind)
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.setattr(safe_json, "LARGEST", size)
    assert agents["box"].export(path, kind) == path


def test_twenty_thousand_actions_are_too_many_for_numpy(tmp_path):
    with refuses(UsageError, "format='numpy' 1048576 savedmodel"):
        make_agent(gym.spaces.Discrete(20_000), gym.spaces.Box(-1, 1, (2,)), hidden=(2,)).export(tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_export_left_is_removed_after_a_day(agents, tmp_path):
    """A folder may also be that of an export that is still running, or someone else's."""
    left, running, other = (tmp_path / f".a[b].ddpg-{name}" for name in ("0123abc_", "fresh___", "mine1234"))
    for folder, name in ((left, "a[b]"), (running, "a[b]"), (other, "notes")):
        (folder / name).mkdir(parents=True)
    for folder in (left, other):
        os.utime(folder, times=(time.time() - 90_000,) * 2)
    path = agents["box"].export(tmp_path / "a[b]")
    assert sorted(tmp_path.iterdir()) == sorted([running, other, path])


def test_the_working_directory_is_refused(agents, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refuses(UsageError, "'.' directory"):
        agents["box"].export(".")
    assert list(tmp_path.iterdir()) == []


def test_the_first_axis_of_onnx_arrays_is_named(agents, tmp_path):
    import onnxruntime

    session = onnxruntime.InferenceSession(agents["choice"].export(tmp_path / "policy.onnx", "onnx"))
    shapes = {value.name: value.shape for value in (*session.get_inputs(), *session.get_outputs())}
    n = agents["choice"].action_space.n
    assert shapes == {"observations": ["batch", 2, 3], "actions": ["batch"], "values": ["batch", n]}


def test_onnx_without_its_extra_is_refused(agents, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with refuses(UsageError, "onnx 'export'"):
        agents["box"].export(tmp_path / "policy", "onnx")


# -- what load_policy refuses --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(agents, tmp_path_factory):
    return agents["box"].export(tmp_path_factory.mktemp("exported") / "policy")


def resealed(exported, folder, change):
    """Write a copy of an export whose policy.json is changed and has a matching checksum."""
    from ddpg.exports.policy_file import _DIGEST, ABOUT, ARRAYS, hashlib, safe_json

    folder.mkdir()
    about = json.loads((exported / ABOUT).read_text())
    change(about)
    about.pop(_DIGEST)
    about[_DIGEST] = hashlib.sha256(safe_json.canonical_json(about)).hexdigest()
    (folder / ABOUT).write_text(json.dumps(about))
    (folder / ARRAYS).write_bytes((exported / ARRAYS).read_bytes())
    return folder


# What is wrong in a program itself is in test_policy_file_widths.py and test_policy_file_forged.py.
FORGED = {
    "an unknown operation": (lambda w: w["program"]["steps"][0].update(operation="eval"), "operation 'eval'"),
    "no such register": (lambda w: w["program"].update(result=99), "register 99"),
    "another space": (lambda w: w["action_space"].update(shape=[2, 1], low=0.0, high=1.0), "4"),
    "wider observations": (lambda w: w["observation_space"].update(shape=[7]), ""),
    "an additional field": (lambda w: w.update(code="import os"), "unknown field code"),
    "kind": (lambda w: w.update(kind="onnx"), "'onnx'"),
    "format": (lambda w: w.update(format=2), "format 2"),
    "array": (lambda w: w["arrays"].popitem(), ""),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_policies_are_refused(name, exported, tmp_path):
    change, message = FORGED[name]
    with refuses(UsageError, message):
        ddpg.load_policy(resealed(exported, tmp_path / "forged", change))
    assert ddpg.load_policy(resealed(exported, tmp_path / "same", lambda about: None)).predict(observations())


def test_damage_is_reported(exported, tmp_path):
    folder = resealed(exported, tmp_path / "damaged", lambda about: None)
    about = folder / "policy.json"
    text = about.read_text()
    about.write_text(text.replace('"size": ', '"size": 1'))
    with refuses(UsageError, "checksum"):
        ddpg.load_policy(folder)
    about.write_text(text)
    data = (folder / "policy.safetensors").read_bytes()
    (folder / "policy.safetensors").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with refuses(UsageError, "checksum"):
        ddpg.load_policy(folder)
    with refuses(UsageError, "lacks"):
        ddpg.load_policy(tmp_path)
    with refuses(UsageError, "explore"):
        ddpg.load_policy(exported).predict(observations(), deterministic=False)
    with refuses(UsageError, "deterministic='no'"):  # truthy, but no flag
        ddpg.load_policy(exported).predict(observations(), deterministic="no")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["numpy", *FILES])
@pytest.mark.parametrize("name", ["box", "inverting", "moves", "choice"])
def test_a_thousand_observations_in_a_separate_process(name, kind, agents, tmp_path):
    batch = observations(1000).astype(np.float32)
    np.save(tmp_path / "observations.npy", batch)
    path = agents[name].export(tmp_path / "policy", kind)
    loads = {
        "numpy": "import ddpg; policy = ddpg.load_policy(path); act = lambda x: {'actions': policy._program(x)}",
        "savedmodel": "import tensorflow as tf; s = tf.saved_model.load(path).signatures['serving_default']\n"
        "act = lambda x: {k: v.numpy() for k, v in s(observations=tf.constant(x)).items()}",
        "tflite": "import tensorflow as tf; s = tf.lite.Interpreter(path).get_signature_runner()\n"
        "act = lambda x: s(observations=x)",
        "onnx": "import onnxruntime; s = onnxruntime.InferenceSession(path)\n"
        "act = lambda x: dict(zip([o.name for o in s.get_outputs()], s.run(None, {'observations': x})))",
    }
    absent = "tensorflow" if kind == "numpy" else "ddpg"
    code = (
        f"import sys, numpy as np; path = {str(path)!r}\n{loads[kind]}\n"
        f"np.savez({str(tmp_path / 'out.npz')!r}, **act(np.load({str(tmp_path / 'observations.npy')!r})))\n"
        f"assert {absent!r} not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    outputs = dict(np.load(tmp_path / "out.npz"))
    if kind == "numpy":
        np.testing.assert_array_equal(outputs["actions"], agents[name].policy(batch))
        assert_same_actions(ddpg.load_policy(path).predict(batch)[0], agents[name].predict(batch)[0])
    else:
        assert_outputs_match(agents[name], outputs, agents[name].predict(batch)[0])
