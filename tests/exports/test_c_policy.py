"""C exports reproduce the agent's actions, compiled by every compiler on PATH and computed by NumPy from the source."""

import functools
import json
import re
from pathlib import Path

import c_compilers
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from action_spaces import BOX, MOVES, PARTS, UNBOUNDED
from agent_options import SMALL_UPDATE, WITHOUT_SLOTS_AND_TARGETS
from refusals import refuses

import ddpg
from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError, conv, mlp
from ddpg.cli.main import main
from ddpg.errors import brief
from ddpg.exports import c_network, c_policy, policy_file
from ddpg.exports.c_network import lower_to_c, quantized
from ddpg.exports.c_policy import _scaling, read_arrays, scaled_actions
from ddpg.exports.policy_graph import ActingPolicy, numpy_program
from ddpg.interaction.actions import BoxActions, ParameterisedActions, make_actions
from ddpg.policies.numpy_program import NumpyProgram, ProgramStep
from ddpg.policies.standalone import OPERATIONS

CASES = {
    "plain": (UNBOUNDED, BOX, {}),
    "inverting": (UNBOUNDED, gym.spaces.Box(-0.1, 0.7, (3,), np.float64), {"bounding": "inverting"}),
    "normalised": (UNBOUNDED, BOX, {"normalize_observations": True, "norm": "layer"}),
    "parameterised": (UNBOUNDED, MOVES, {"bounding": "inverting", "activation": "elu"}),
    "one of": (UNBOUNDED, gym.spaces.OneOf(PARTS), {"norm": "renorm"}),
    "without parameters": (UNBOUNDED, gym.spaces.OneOf((PARTS[1], PARTS[1])), {}),
    "residual": (UNBOUNDED, BOX, {"block": "residual", "hidden": (12, 12)}),
    "discrete": (gym.spaces.Box(0, 255, (2, 5), np.uint8), gym.spaces.Discrete(4, start=-1), {"activation": "selu"}),
    "images": (
        *(gym.spaces.Box(0, 255, (2, 9, 10, 3), np.uint8), BOX),
        {"network": "conv", "norm": "layer", "hidden": (9,)},
    ),
    "valid": (
        *(gym.spaces.Box(0, 255, (13, 11), np.uint8), gym.spaces.Discrete(3)),
        {"layers": conv(((5, 4, 3), (6, 2, 1)), (9,), padding="valid")},
    ),
    "256-256": (gym.spaces.Box(-5, 5, (17,)), gym.spaces.Box(-1, 1, (6,)), {"hidden": (256, 256)}),
}
COMPILERS = c_compilers.compilers()
NATIVE = [compiler for compiler in COMPILERS if not compiler.emulator]
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")
SANITIZING = [one for one in NATIVE if one.name in ("gcc", "clang") and c_compilers.works(one, SANITIZERS)]
BACKENDS = [None, *COMPILERS]  # None: NumPy, with the constants read from policy.c


def backend_id(backend):
    return "numpy" if backend is None else backend.name


def slow_after_first(backends):
    """Return parameters for NumPy and each compiler; those after the first compiler are marked slow."""
    fast = backends[: 2 if None in backends else 1]
    return [
        pytest.param(backend, id=backend_id(backend), marks=() if backend in fast else pytest.mark.slow)
        for backend in backends
    ]


@functools.cache
def make_agent(name):
    """Return an agent with outputs of size 1 that depend on all layers; with inverting, some exceed the bounds."""
    observation_space, action_space, options = CASES[name]
    options, networks = dict(options), {}
    if "layers" in options:
        networks["q_network"] = options.pop("layers")
    kind, schema = (DQN, DQNConfig) if isinstance(action_space, gym.spaces.Discrete) else (DDPG, DDPGConfig)
    small = SMALL_UPDATE if kind is DDPG and "block" not in options else WITHOUT_SLOTS_AND_TARGETS
    config = schema(**{"hidden": (20, 9), "jit": False, "output_init": "fan_in", **options, **small})
    agent = kind((observation_space, action_space), config, seed=0, **networks)
    if agent.memory.observations is not None:
        agent.memory.observations.update(np.float32(states(name, 50) * 3 + 1))
    if options.get("bounding") == "inverting":
        with agent.session.as_default():
            parameters = agent.actor.get_network_params()
            agent.actor.set_network_params([*parameters[:-2], parameters[-2] * 6, parameters[-1]])
        agent.refresh_policy()
    return agent


def states(name, count=1000):
    space = CASES[name][0]
    drawn = np.random.default_rng(1).normal(size=(count, *space.shape))
    if space.dtype.kind != "f":
        return np.floor(np.abs(drawn) * 60).clip(0, 255).astype(space.dtype)
    return np.clip(drawn, space.low, space.high).astype(np.float32)


@functools.cache
def exported(name, folder, quantize=None):
    return make_agent(name).export(folder / f"{name}-{quantize}", "c", quantize)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("c")


def copy_export(path, tmp_path):
    """Copy an export to the test's directory, where compilers may write."""
    copy = tmp_path / "policy"
    copy.mkdir(parents=True)
    for name in ("policy.c", "policy.h", "policy.json"):
        (copy / name).write_bytes((path / name).read_bytes())
    return copy


def self_test(path, compiler, *options):
    """Compile the policy with its ``main``, and run it."""
    return c_compilers.run(c_compilers.build(compiler, path, ["policy.c"], ["-DPOLICY_MAIN", *options]), compiler)


def evaluate(backend, path, agent, observations, quantize=None):
    if backend is None:
        return c_compilers.read_and_acted(path, agent, observations, quantize)
    sanitized = backend in SANITIZING and max(agent.config.hidden) < 256
    options = SANITIZERS if sanitized else ()  # `acted` asserts that they report nothing; large arrays take a second
    return c_compilers.acted(path, backend, agent.actions, observations, options)


def slow_by_case(name, backend):
    """Fast are one case of each kind of action, and wide layers: the self-test of each other case is compiled, too."""
    fast = (
        ("plain", "parameterised", "discrete") if backend is None else ("plain", "parameterised", "discrete", "256-256")
    )
    return [pytest.mark.slow] * (backend not in BACKENDS[:2] or name not in fast)


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        pytest.param(name, backend, id=f"{name}-{backend_id(backend)}", marks=slow_by_case(name, backend))
        for name in CASES
        for backend in BACKENDS
    ],
)
def test_actions_for_a_thousand_observations(name, backend, folder, tmp_path):
    agent, observations = make_agent(name), states(name)
    found = evaluate(backend, copy_export(exported(name, folder), tmp_path), agent, observations)
    expected = agent.predict(observations)[0]
    outputs = agent.policy(np.float32(observations))
    discrete = not isinstance(agent.actions, (BoxActions, ParameterisedActions))
    scale = max(1, np.abs(outputs).max()) if discrete else 1
    assert np.abs(np.clip(found.outputs / scale, -1, 1) - np.clip(outputs / scale, -1, 1)).max() < 1e-5
    if isinstance(agent.actions, BoxActions):
        low, high = agent.actions.bounds
        assert np.abs((found.numbers - expected.reshape(len(expected), -1)) / (high - low) * 2).max() < 1e-5
        assert (low <= found.numbers).all()
        assert (found.numbers <= high).all()
        assert ((np.abs(outputs) > 1).any()) == (name == "inverting")
        return
    scores = outputs if discrete else np.clip(outputs[:, : agent.actions.scores], -1, 1)
    start = getattr(agent.action_space[0] if name == "parameterised" else agent.action_space, "start", 0)
    best = np.sort(scores, axis=1)
    clear = best[:, -1] - best[:, -2] > 1e-4 * scale  # of two almost equal scores, either choice is right
    np.testing.assert_array_equal(found.choices[clear], (scores.argmax(axis=1) + start)[clear])
    assert clear.mean() > (0.2 if name == "without parameters" else 0.5)
    if name == "parameterised":
        parameters = np.concatenate([part.reshape(len(observations), -1) for part in expected[1]], axis=1)
        low, high = (bound[agent.actions.scores :] for bound in agent.actions.bounds)
        assert np.abs((found.numbers - parameters) / (high - low) * 2).max() < 1e-5


# "parameterised" is inverting, too; one choice of "one of" has no parameters; of the widest the actions are compared,
# and convolutions of all sizes are compiled further below.
LIKE_OTHERS = ("inverting", "without parameters", "valid", "256-256")


@pytest.mark.parametrize("compiler", slow_after_first(COMPILERS))
@pytest.mark.parametrize(
    ("name", "quantize"),
    [
        *(pytest.param(name, None, marks=[pytest.mark.slow] * (name in LIKE_OTHERS)) for name in CASES),
        *(("plain", "int8"), ("discrete", "int8")),
    ],
)
def test_it_compiles_without_warnings_and_passes_its_self_test(name, quantize, compiler, folder, tmp_path):
    path = copy_export(exported(name, folder, quantize), tmp_path)
    assert c_compilers.warnings_of(compiler, path) == ""
    done = self_test(path, compiler)
    assert done.returncode == 0
    origin = "the agent" if quantize is None else "the quantised policy"
    assert done.stdout.startswith(f"differs from {origin} by ")
    assert float(done.stdout.split(" by ")[1].split()[0]) < 1e-5


@pytest.mark.parametrize("compiler", slow_after_first(NATIVE))
@pytest.mark.parametrize("what", ["weights", "bias", "half_range", "test_outputs"])
def test_the_self_test_detects_a_wrong_number(what, compiler, folder, tmp_path):
    path = copy_export(exported("plain", folder), tmp_path)
    text = (path / "policy.c").read_text()
    begin = re.search(rf"const float {what}\w*\[", text).start()
    place = re.search(r"\d\.\d+f", text[begin:])
    number = float(place[0][:-1]) * 1.01 + 0.01
    (path / "policy.c").write_text(text[:begin] + text[begin:].replace(place[0], f"{number}f", 1))
    done = self_test(path, compiler)
    assert done.returncode == 1


@pytest.mark.parametrize("compiler", slow_after_first(NATIVE))
def test_the_self_test_of_a_normalising_policy_detects_a_wrong_weight(compiler, tmp_path):
    """Observations are 300 ± 5: near 0 all units saturate, and a matrix 1.1 times as large gives the same outputs."""
    spaces = gym.spaces.Box(-np.inf, np.inf, (3,)), gym.spaces.Box(-2, 2, (1,))
    config = DDPGConfig(hidden=(8, 8), jit=False, output_init="fan_in", normalize_observations=True, **SMALL_UPDATE)
    agent = DDPG(spaces, config, seed=0)
    agent.memory.observations.update(np.float32(300 + 5 * np.random.default_rng(0).normal(size=(100, 3))))
    with agent.session.as_default():
        agent.actor.set_network_params([3 * value for value in agent.actor.get_network_params()])
    agent.refresh_policy()
    path = agent.export(tmp_path / "policy", "c")
    for status in (0, 1):
        done = self_test(path, compiler)
        assert done.returncode == status
        text = (path / "policy.c").read_text()
        weights = re.search(r"weights_1\[8\]\[8\] = (\{.*?\});", text, re.DOTALL)
        larger = re.sub(r"[-\d][-+.\de]*f", lambda number: f"{float(number[0][:-1]) * 1.1:.9g}f", weights[1])
        (path / "policy.c").write_text(text.replace(weights[1], larger))


NON_FINITE_MAIN = """\
#include <stdio.h>
#include "policy.h"
int main(void)
{
    const float huge[3] = {3.0e38f, -3.0e38f, 1.0f}, zero = 0.0f;
    int bad, j, k;
    for (k = 0; k < 4; k++) {
        float observation[POLICY_OBSERVATION_SIZE], action[POLICY_ACTION_SIZE] = {7.0f, 7.0f, 7.0f, 7.0f};
        for (j = 0; j < POLICY_OBSERVATION_SIZE; j++)
            observation[j] = (k == 3) ? huge[j % 2] : 0.5f;
        if (k == 1)
            observation[2] = zero / zero;
        if (k == 2)
            observation[4] = 1.0f / zero;
        bad = policy_act(observation, action);
        printf("%d %d ", bad, action[0] == 7.0f && action[3] == 7.0f);
    }
    return 0;
}
"""


@pytest.mark.parametrize("compiler", slow_after_first(COMPILERS))
def test_non_finite_observations_and_outputs_give_no_action(compiler, folder, tmp_path):
    """The observations are finite, with NaN, with infinity, and one that overflows in the layers."""
    path = copy_export(exported("plain", folder), tmp_path)
    (path / "main.c").write_text(NON_FINITE_MAIN)
    text = (path / "policy.c").read_text()
    first = re.search(r"weights_0.*?([-\d.e]+)f", text, re.DOTALL)
    (path / "policy.c").write_text(text[: first.start(1)] + "3e38" + text[first.end(1) :])  # huge inputs overflow
    done = c_compilers.run(c_compilers.build(compiler, path, ["main.c", "policy.c"]), compiler)
    assert done.stdout.split() == ["0", "0", "1", "1", "1", "1", "1", "1"]


NAN_MAIN = """\
#include <stdio.h>
#include <stdint.h>
#include <string.h>
#include "policy.h"
int main(void)
{
    /* 0.5; a quiet NaN of each sign; a signalling NaN; -infinity; the largest number. */
    const uint32_t bits[6] = {0x3f000000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xff800000, 0x7f7fffff};
    int j, k;
    for (k = 0; k < 6; k++) {
        float observation[POLICY_OBSERVATION_SIZE], action[POLICY_ACTION_SIZE] = {7.0f, 7.0f, 7.0f, 7.0f};
        for (j = 0; j < POLICY_OBSERVATION_SIZE; j++)
            observation[j] = 0.5f;
        memcpy(&observation[4], &bits[k], sizeof bits[k]);
        printf("%d", policy_act(observation, action));
        printf("%d ", action[0] == 7.0f && action[3] == 7.0f);
    }
    return 0;
}
"""
FAST_MATH = ["-ffast-math", *(pytest.param(name, marks=pytest.mark.slow) for name in ("-ffinite-math-only", "-Ofast"))]


@pytest.mark.parametrize("compiler", slow_after_first(NATIVE))
@pytest.mark.parametrize("option", FAST_MATH)
def test_fast_math_options_keep_the_nan_check(option, compiler, folder, tmp_path):
    if not c_compilers.works(compiler, (option,)):
        pytest.skip("the compiler does not know the option")
    path = copy_export(exported("inverting", folder), tmp_path)
    done = self_test(path, compiler, option)
    assert (done.returncode, "NaN" in done.stdout) == (0, False)
    path = copy_export(exported("plain", folder), tmp_path / "plain")
    (path / "main.c").write_text(NAN_MAIN)
    done = c_compilers.run(c_compilers.build(compiler, path, ["main.c", "policy.c"], (option,)), compiler)
    assert done.stdout.split()[:5] == ["00", "11", "11", "11", "11"]
    assert done.stdout.split()[5] in ("00", "11")  # its layers may overflow


@pytest.mark.parametrize("compiler", slow_after_first(NATIVE))
@pytest.mark.parametrize("name", ["plain", "discrete", "parameterised"])
def test_the_self_test_detects_a_missing_nan_check(name, compiler, folder, tmp_path):
    path = copy_export(exported(name, folder), tmp_path)
    text = (path / "policy.c").read_text()
    (path / "policy.c").write_text(
        text.replace("            return 0;\n    }\n    return 1;", "            ;\n    }\n    return 1;")
    )
    done = self_test(path, compiler)
    assert done.returncode == 1
    assert "NaN" in done.stdout


ELEMENTWISE = sorted(OPERATIONS.keys() - {"MatMul", "Conv2D", "Reshape", "Transpose", "ConcatV2", "Mean"})


def test_every_elementwise_operation_has_a_c_expression():
    assert sorted(c_network._EXPRESSIONS) == ELEMENTWISE


@functools.cache
def every_operation():
    """Return a program that concatenates the results of every operation on the observation, and of a mean."""
    rng = np.random.default_rng(3)
    axis, factors = np.array(1), rng.uniform(0.5, 2, (1, 11)).astype(np.float32)
    steps, constants, size = [], {1: axis, 2: factors, 3: np.array([[0.75]], np.float32)}, 4
    rows = []
    for operation in ELEMENTWISE:
        unary = operation in policy_file._UNARY
        for inputs in [(0,)] if unary else [(0, 2), (0, 3), (3, 0)]:
            if operation in ("Sqrt", "Rsqrt"):
                steps.append(ProgramStep("Square", (0,), size))
                inputs, size = (size,), size + 1
            steps.append(ProgramStep(operation, inputs, size))
            rows.append(size)
            size += 1
    steps += [ProgramStep("Mean", (0, 1), size), ProgramStep("Mul", (size, 2), size + 1)]
    rows.append(size + 1)
    size += 2
    result = rows[0]
    for row in rows[1:]:
        steps.append(ProgramStep("ConcatV2", (result, row, 1), size))
        result, size = size, size + 1
    return NumpyProgram(steps, size, constants, [], [0], result)


@pytest.mark.parametrize("backend", slow_after_first(BACKENDS))
def test_every_operation_agrees_with_numpy(backend, tmp_path):
    program = every_operation()
    space = gym.spaces.Box(-np.inf, np.inf, (11,))
    observations = np.random.default_rng(0).normal(0, 4, (200, 11)).astype(np.float32)
    expected = program(observations)
    actions = make_actions(gym.spaces.Box(-1, 1, (expected.shape[1],)))
    checks = policy_file.check_observations(space)
    path = tmp_path / "policy"
    test = policy_file.SelfTest(checks, program(checks), 1e-5)
    run = c_policy.write(path, program, space, actions, test)
    outputs = lower_to_c(program, (11,)).outputs(observations)
    np.testing.assert_array_equal(run(observations)["actions"], np.clip(outputs, -1, 1))
    if backend is not None:
        outputs = c_compilers.acted(path, backend, actions, observations).outputs
    np.testing.assert_allclose(outputs, expected, rtol=2e-6, atol=1e-6)


@functools.cache
def every_convolution():
    """Return a program that joins convolutions of one image (3 channels, 7 x 5) of different sizes and strides.

    A filter larger than the image, zeros on no side, one side and all sides, and positions with gaps between them.
    """
    rng, steps, constants, rows = np.random.default_rng(5), [ProgramStep("Transpose", (0, 1), 10)], {}, []
    constants[1], constants[2] = np.array([0, 2, 3, 1]), np.array(1)
    sizes = [(3, 3), (2, 2), (9, 8), (4, 3), (1, 1)]
    for size, how in zip(sizes, [(2, 2, 1), (1, 3, 1), (3, 2, 1), (2, 1, 0), (4, 2, 0)], strict=True):
        first = 10 + len(steps) + len(constants)
        constants |= {first: rng.normal(size=(*size, 3, 4)).astype(np.float32), first + 1: np.array(how)}
        constants[first + 2] = rng.normal(size=4).astype(np.float32)
        steps.append(ProgramStep("Conv2D", (10, first, first + 1), first + 3))
        steps.append(ProgramStep("BiasAdd", (first + 3, first + 2), first + 4))
        width = int(np.prod(OPERATIONS["Conv2D"](np.zeros((1, 7, 5, 3)), constants[first], how).shape))
        constants[first + 5] = np.array([-1, width])
        steps.append(ProgramStep("Reshape", (first + 4, first + 5), first + 6))
        rows.append(first + 6)
    result, size = rows[0], 100
    for row in rows[1:]:
        steps.append(ProgramStep("ConcatV2", (result, row, 2), size))
        result, size = size, size + 1
    return NumpyProgram(steps, size, constants, [], [0], result)


@pytest.mark.parametrize("backend", slow_after_first(BACKENDS))
@pytest.mark.parametrize("quantize", [None, pytest.param("int8", marks=pytest.mark.slow)])
def test_every_size_of_convolutions_agrees_with_numpy(quantize, backend, tmp_path):
    program, space = every_convolution(), gym.spaces.Box(-1, 1, (3, 7, 5))
    observations = np.random.default_rng(0).uniform(-1, 1, (50, 3, 7, 5)).astype(np.float32)
    lowered = lower_to_c(program, space.shape, quantize)
    expected = program(observations) if quantize is None else lowered.outputs(observations)
    actions = make_actions(gym.spaces.Box(-1, 1, (expected.shape[1],)))
    checks = policy_file.check_observations(space)
    c_policy.write(
        *(tmp_path / "policy", program, space, actions),
        *(policy_file.SelfTest(checks, program(checks), 1e-5), quantize),
    )
    outputs = lowered.outputs(observations)
    if backend is not None:
        options = ("-O0", *SANITIZERS) if backend in SANITIZING else ()  # optimised, they compile three times as long
        outputs = c_compilers.acted(tmp_path / "policy", backend, actions, observations, options).outputs
    np.testing.assert_allclose(outputs, expected, rtol=2e-6, atol=5e-6)


def test_the_source_holds_the_exact_weights_and_needs_only_the_c_library(folder):
    for name in CASES:
        text = (exported(name, folder) / "policy.c").read_text()
        program = lower_to_c(numpy_program(ActingPolicy.of(make_agent(name))), CASES[name][0].shape)
        constants = read_arrays(text)
        assert {"weights_0", "bias_0", "test_outputs"} <= constants.keys()
        for key, array in program.arrays.items():
            if array.size > 1:
                assert constants[key].dtype == array.dtype
                np.testing.assert_array_equal(constants[key].view(np.uint32), array.view(np.uint32))
        policy, main_function = text.split("#ifdef POLICY_MAIN")
        assert re.findall(r"#include (\S+)", policy) == ['"policy.h"', "<math.h>", "<stdint.h>", "<string.h>"]
        assert re.findall(r"#include (\S+)", main_function) == ["<stdio.h>"]
        assert not re.search(r"malloc|double|\bstatic (?!const|int all_finite)", policy)
        assert max(map(len, text.splitlines())) <= 160


def test_the_header_documents_inputs_and_outputs(folder):
    header = (exported("parameterised", folder) / "policy.h").read_text()
    source = (exported("parameterised", folder) / "policy.c").read_text()
    for text in ("(2, 3), float64: each in [-inf, inf]", "integers from 1 to 3", "[0, 30]", "PARAMETER_SIZE 3"):
        assert text in header
    assert "choice 1 parameters 0 to 0, of choice 2 no parameters, of choice 3 parameters 1 to 2" in header
    assert "[-1, 3], [0.5, 1], [0, 1], [-30, 30]" in (exported("plain", folder) / "policy.h").read_text()
    agent = make_agent("parameterised")
    check = policy_file.check_observations(UNBOUNDED)[:1]
    listed = re.search(r"observation \[(.*)\]\n \*   -> outputs \[(.*)\]", source)
    np.testing.assert_allclose([float(word) for word in listed[1].split(",")], check.ravel(), rtol=1e-6)
    np.testing.assert_allclose([float(word) for word in listed[2].split(",")], agent.policy(check)[0], rtol=1e-5)


def test_bounds_of_float64_are_rounded_inwards():
    """Float32 cannot represent 0.1: the nearest float32 is larger."""
    space = gym.spaces.Box(-0.1, 0.1, (1,), np.float64)
    scaling = _scaling(make_actions(space))
    found = scaled_actions(make_actions(space), np.float32([[-5], [5], [0]]), scaling)
    assert -0.1 <= float(found[0, 0]) < -0.0999999
    assert 0.0999999 < float(found[1, 0]) <= 0.1
    assert found[2, 0] == 0


def test_int8_by_hand():
    """In each column 127 stands for the largest magnitude, 2 and 0.5; a column of zeros stays zeros."""
    weights = np.float32([[1, 0.5, 0], [-2, 0.1, 0], [0.26, -0.25, 0]])
    integers, scale = quantized(weights)
    assert integers.dtype == np.int8
    np.testing.assert_array_equal(integers, [[64, 127, 0], [-127, 25, 0], [17, -64, 0]])
    np.testing.assert_allclose(scale, [2 / 127, 0.5 / 127, 0], rtol=1e-6)


@pytest.mark.parametrize("backend", slow_after_first(BACKENDS))
@pytest.mark.parametrize("name", ["plain", pytest.param("discrete", marks=pytest.mark.slow)])
def test_int8_weights_take_a_quarter_and_outputs_stay_close(name, backend, folder, tmp_path):
    agent, observations = make_agent(name), states(name, 200)
    path = exported(name, folder, "int8")
    constants = read_arrays((path / "policy.c").read_text())
    exact = read_arrays((exported(name, folder) / "policy.c").read_text())
    for key in ("weights_0", "weights_1", "weights_2"):
        assert constants[key].dtype == np.int8
        assert constants[key].nbytes * 4 == exact[key].nbytes
        scale = constants[key.replace("weights", "scale")]
        assert np.abs(constants[key] * scale - exact[key]).max() <= scale.max() / 2 * 1.001
    found = evaluate(backend, copy_export(path, tmp_path), agent, observations, "int8").outputs
    outputs = agent.policy(np.float32(observations))
    assert 1e-5 < np.abs(found - outputs).max() < 0.05 * max(1, np.abs(outputs).max())


def test_int8_from_the_command_line(tmp_path, capsys):
    agent = make_agent("plain")
    agent.save(tmp_path / "saved")
    arguments = ["export", str(tmp_path / "saved"), "--format", "c", "--json", "--quantize", "int8"]
    assert main([*arguments, "-o", str(tmp_path / "c")]) == 0
    assert 1e-5 < json.loads(capsys.readouterr().out)["difference"] < 0.05
    for quantize in ("int8", None):
        assert json.loads((tmp_path / "c" / "policy.json").read_text())["quantize"] == quantize
        agent.export(tmp_path / "c", "c")  # replaces the int8 export


THREE_POLICIES_MAIN = """\
#include <stdio.h>
#include "stand.h"
#include "walk.h"
#include "policy.h"
int main(void)
{
    const float standing[STAND_OBSERVATION_SIZE] = {1.0f, -2.0f, 0.5f}, walking[WALK_OBSERVATION_SIZE] = {0.25f};
    float action[STAND_ACTION_SIZE], outputs[WALK_OUTPUT_SIZE], third[POLICY_ACTION_SIZE];
    int choice, status = stand_act(standing, action) + walk_act(walking, &choice);
    walk_outputs(walking, outputs);
    status += policy_act(standing, third);
    printf("%.9g %d %.9g %.9g\\n", (double)action[1], choice, (double)outputs[3], (double)third[1]);
    return status;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", slow_after_first(BACKENDS))
def test_three_policies_in_one_program(backend, tmp_path):
    """The policies differ in their sizes and kinds of actions; one has the default name."""
    spaces = gym.spaces.Box(-np.inf, np.inf, (3,)), gym.spaces.Box(-2, 2, (2,))
    stand, third = (DDPG(spaces, DDPGConfig(hidden=(8,), jit=False, output_init="fan_in"), seed) for seed in (0, 1))
    spaces = gym.spaces.Box(-1, 1, (8,)), gym.spaces.Discrete(4, start=2)
    walk = DQN(spaces, DQNConfig(hidden=(8,), jit=False), 0)
    paths = [
        stand.export(tmp_path / "a", "c", name="stand"),
        walk.export(tmp_path / "b", "c", "int8", "walk"),
        third.export(tmp_path / "c", "c"),
    ]
    files = [sorted(entry.name for entry in path.iterdir()) for path in paths]
    assert files == [["policy.json", f"{name}.c", f"{name}.h"] for name in ("stand", "walk")] + [
        ["policy.c", "policy.h", "policy.json"]
    ]
    for path, name in ((paths[0], "stand"), (paths[1], "walk")):
        about = json.loads((path / "policy.json").read_text())
        assert about["name"] == name
        for file in (f"{name}.h", f"{name}.c"):
            text = (path / file).read_text()
            assert not re.search(r"\bpolicy_|POLICY|\bpolicy\.[ch]", text)
            assert file.endswith("c") or {f"{name.upper()}_H", f"{name}_act"} <= {*re.findall(r"\w+", text)}
    assert "name" not in json.loads((paths[2] / "policy.json").read_text())
    if backend is None:
        return
    together = tmp_path / "all"
    together.mkdir()
    for path in paths:
        for file in (*path.glob("*.c"), *path.glob("*.h")):
            (together / file.name).write_bytes(file.read_bytes())
    (together / "main.c").write_text(THREE_POLICIES_MAIN)
    names = ["stand", "walk", "policy"]
    strict = c_compilers.strict(backend)
    sources = ["main.c", *(f"{name}.c" for name in names)]
    done = c_compilers.run(c_compilers.build(backend, together, sources, strict), backend)
    assert done.returncode == 0
    action, choice, value, other = map(float, done.stdout.split())
    standing, walking = np.float32([1, -2, 0.5]), np.float32([0.25, 0, 0, 0, 0, 0, 0, 0])
    values = walk.policy(walking[None])[0]
    assert action == pytest.approx(stand.predict(standing)[0][1], abs=1e-5)
    assert other == pytest.approx(third.predict(standing)[0][1], abs=1e-5)
    assert value == pytest.approx(values[3], abs=0.02)
    assert values[int(choice) - 2] > values.max() - 0.04
    for name in names:
        options = [f"-D{name.upper()}_MAIN", *strict]
        assert c_compilers.run(c_compilers.build(backend, together, [f"{name}.c"], options), backend).returncode == 0


def test_only_the_api_functions_have_external_linkage(folder):
    text = (exported("plain", folder) / "policy.c").read_text()
    functions = re.findall(r"^(?!static|typedef)\w+ (\w+)\(", text, re.MULTILINE)
    assert functions == ["policy_outputs", "policy_act", "main"]


@pytest.mark.parametrize(
    "name", ["", "9lives", "a-b", "a b", "ä", "_a", "int", "class", "math", "Stdio", "features", "test", "a" * 64]
)
def test_invalid_names_are_refused(name, tmp_path):
    with refuses(UsageError, f"name={brief(name)}"):
        make_agent("plain").export(tmp_path / "policy", "c", name=name)
    assert list(tmp_path.iterdir()) == []


def test_a_name_must_be_a_string_and_needs_format_c(tmp_path):
    with refuses(UsageError, "name=7 identifier"):
        make_agent("plain").export(tmp_path / "policy", "c", name=7)
    with refuses(UsageError, "name='walk' format='c' format='numpy'"):
        make_agent("plain").export(tmp_path / "policy", "numpy", name="walk")
    assert list(tmp_path.iterdir()) == []
    longest = make_agent("plain").export(tmp_path / "policy", "c", name="a" * 63)
    assert (longest / f"{'a' * 63}.c").exists()
    header = make_agent("plain").export(tmp_path / "policy", "c", name="MY_POLICY") / "MY_POLICY.h"
    assert "int MY_POLICY_act(const float observation[MY_POLICY_OBSERVATION_SIZE]" in header.read_text()


@pytest.mark.slow
def test_an_export_with_another_name_is_replaced_unless_edited(tmp_path, capsys):
    make_agent("plain").save(tmp_path / "saved")
    path = tmp_path / "c"
    for name in ("policy", "walk", "stand", "policy", "walk"):
        assert main(["export", str(tmp_path / "saved"), "--format", "c", "--name", name, "-o", str(path)]) == 0
        assert sorted(entry.name for entry in path.iterdir()) == sorted(["policy.json", f"{name}.c", f"{name}.h"])
    capsys.readouterr()
    (path / "policy.c").write_text("/* mine */")
    with refuses(UsageError, "policy.c"):
        make_agent("plain").export(path, "c")
    (path / "policy.c").unlink()
    for file in ("walk.h", "walk.c"):
        written = (path / file).read_text()
        (path / file).write_text(written + "/* mine */\n")
        with refuses(UsageError, f"{file} changed"):
            make_agent("plain").export(path, "c", name="stand")
        assert (path / file).read_text().endswith("/* mine */\n")
        (path / file).write_text(written)
    with refuses(UsageError, "'c' numpy"):
        ddpg.load_policy(path)


def test_the_lines_of_an_export_end_alike_on_every_system(tmp_path, monkeypatch):
    """Otherwise its checksums, of the text, would take an export for an edited one."""

    def of_windows(path, text, encoding=None, errors=None, newline=None):
        return path.write_bytes(text.replace("\n", newline or "\r\n").encode(encoding))

    monkeypatch.setattr(Path, "write_text", of_windows)
    agent = make_agent("plain")
    for path in (agent.export(tmp_path / "c", "c"), agent.export(tmp_path / "c", "c")):
        assert b"\r" not in (path / "policy.c").read_bytes() + (path / "policy.h").read_bytes()


def test_what_a_compiler_made_of_it_is_replaced_with_an_export(tmp_path):
    """But not in an export of another format, where nothing is compiled."""
    agent = make_agent("plain")
    path = agent.export(tmp_path / "c", "c", name="walk")
    for name in ("a.out", "walk.o"):
        (path / name).write_bytes(b"binary")
    agent.export(path, "c")
    assert sorted(entry.name for entry in path.iterdir()) == ["policy.c", "policy.h", "policy.json"]
    (path / "walk.o").write_bytes(b"another program's")
    with refuses(UsageError, "walk.o"):
        agent.export(path, "c")
    (path / "walk.o").unlink()
    agent.export(path)
    (path / "a.out").write_bytes(b"another program's")
    with refuses(UsageError, "a.out"):
        agent.export(path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("c", "int4"), "quantize='int4' int8"),
        (("c", 8), "quantize=8 int8"),
        (("numpy", "int8"), "quantize='int8' format='c' format='numpy'"),
    ],
)
def test_unknown_quantizations_are_refused(arguments, message, tmp_path):
    with refuses(UsageError, message):
        make_agent("plain").export(tmp_path / "policy", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_unsupported_networks_and_spaces_are_refused_by_name(tmp_path):
    images = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    config = DDPGConfig(hidden=(8,), jit=False, **WITHOUT_SLOTS_AND_TARGETS)

    def pooled(states):
        return mlp((8,))(tf.nn.max_pool2d(states, 2, 2, "SAME"))

    agent = DDPG((images, BOX), config, 0, actor_network=pooled)
    for kind in ("c", "numpy"):
        with refuses(UsageError, f"format='{kind}' MaxPool savedmodel"):
            agent.export(tmp_path / "policy", kind)
    far = gym.spaces.Discrete(3, start=2**31)
    agent = DQN((UNBOUNDED, far), DQNConfig(hidden=(4,), jit=False, **WITHOUT_SLOTS_AND_TARGETS), 0)
    with refuses(UsageError, f"format='c' {far} int"):
        agent.export(tmp_path / "policy", "c")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("count", "start", "dtype"), [(3, 126 - 3, np.int8), (100, 150, np.uint8)])
def test_discrete_actions_of_few_bits(count, start, dtype, tmp_path):
    """The space's own numbers are of this dtype, in which their sum, or 2³¹ − 1, overflows."""
    try:
        space = gym.spaces.Discrete(count, start=start, dtype=dtype)
    except TypeError:
        pytest.skip("this gymnasium has only int64")
    agent = DQN((UNBOUNDED, space), DQNConfig(hidden=(4,), jit=False, **WITHOUT_SLOTS_AND_TARGETS), 0)
    header = (agent.export(tmp_path / "policy", "c") / "policy.h").read_text()
    assert f"integers from {start} to {start + count - 1}\n" in header
