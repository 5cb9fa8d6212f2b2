"""The compiled policy for one observation agrees with the NumPy program up to rounding, and refuses the same inputs."""

import sys
import threading
import warnings
from itertools import cycle

import gymnasium as gym
import numpy as np
import pytest
from action_spaces import BOX, MOVES, PARTS, UNBOUNDED
from agent_options import SMALL_UPDATE, WITHOUT_SLOTS_AND_TARGETS
from refusals import refuses

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError, conv
from ddpg.compiler import jit
from ddpg.compiler.interpreter import interpret
from ddpg.compiler.ir import Program
from ddpg.config.algorithm_options import ACTIVATIONS, NORMS
from ddpg.config.options import from_toml
from ddpg.config.presets import RECIPES, read_recipe
from ddpg.gradients.bounding import BOUNDINGS
from ddpg.interaction.actions import unbatch
from ddpg.policies.native_policy import lower_to_ir
from ddpg.policies.numpy_program import NumpyProgram, ProgramStep
from ddpg.policies.standalone import OPERATIONS

SMALL = {"hidden": (40, 9), "output_init": "fan_in", **WITHOUT_SLOTS_AND_TARGETS}
INVERTING = {"bounding": "inverting", "hidden": (64, 64)}
NORMALISED = {"normalize_observations": True}
# Each activation, norm and bounding is in some network. They are cycled: there are more activations than norms.
CHOICES = [
    {"activation": activation, "norm": norm, "bounding": bounding, **SMALL_UPDATE}
    for activation, norm, bounding in zip(ACTIVATIONS, cycle([*NORMS, None]), cycle(BOUNDINGS), strict=False)
]
RESIDUAL = {"block": "residual", "hidden": (24, 24), **NORMALISED}
SPACES = {
    "float64 box": gym.spaces.Box(-0.1, 0.7, (3,), np.float64),
    "parameterised": MOVES,
    "one of": gym.spaces.OneOf(PARTS),
    "discrete": gym.spaces.Discrete(4, start=-1),
}


def make_agent(space=BOX, states=UNBOUNDED, **options):
    kind, schema = (DQN, DQNConfig) if isinstance(space, gym.spaces.Discrete) else (DDPG, DDPGConfig)
    return kind((states, space), schema().replace(**{**SMALL, **options, "buffer_size": 500}), seed=0)


@pytest.fixture(scope="module")
def shared():
    """A function that returns an agent, always the same for the same options, with its first weights times a factor."""
    made = {}

    def scaled(factor=1, **options):
        if (key := str(options)) not in made:
            agent = make_agent(**options)
            made[key] = agent, agent.get_parameters()
        agent, first = made[key]
        agent.set_parameters({name: factor * value for name, value in first.items()})
        return agent

    return scaled


def observations(count=20):
    return np.random.default_rng(0).normal(size=(count, *UNBOUNDED.shape))


def flatten(action):
    """Return all numbers of an action in one vector."""
    parts = action if isinstance(action, tuple) else (action,)
    return np.concatenate([np.ravel(part) if not isinstance(part, tuple) else flatten(part) for part in parts])


def assert_same_action(one, other):
    np.testing.assert_allclose(flatten(one), flatten(other), rtol=1e-6, atol=2e-5)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)


def assert_acts_natively(agent):
    """Assert that single observations use the compiled policy, and agree with batches up to rounding."""
    if agent.memory.observations is not None:
        agent.memory.observations.update(np.float32(observations(50) * 3 + 1))
    for observation in observations():
        assert agent._native_policy(observation) is not None
        batch = agent.predict(np.stack([observation] * 2))[0]
        assert_same_action(agent.predict(observation)[0], unbatch(batch))


# A norm of rows and one of moving statistics; the operations of the others are compiled alone, further below.
FAST = [
    *(next(one for one in CHOICES if one["norm"] == norm) for norm in ("layer", "renorm")),
    *(RESIDUAL, {"hidden": (256, 130), **SMALL_UPDATE}),
]


@pytest.mark.parametrize(
    "options", [*FAST, *(pytest.param(one, marks=pytest.mark.slow) for one in CHOICES if one not in FAST)], ids=str
)
def test_every_network(options):
    assert_acts_natively(make_agent(**options))


@pytest.mark.parametrize("name", SPACES)
def test_every_kind_of_action(name):
    assert_acts_natively(make_agent(SPACES[name]))


@pytest.mark.slow  # test_every_network has all their activations, norms and boundings
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe(recipe):
    options = from_toml(DDPGConfig, read_recipe(recipe), recipe)
    small = {"hidden": (8,) * min(2, len(options.get("hidden", (8, 8)))), "optimizer": "adam"}
    assert_acts_natively(make_agent(**options | small))


def test_every_operation_of_the_numpy_program_can_be_compiled():
    """Compile each alone, with a constant: an unsupported one would silently act with the slower NumPy.

    Except for those of images, on which a network acts by code that is compiled from its graph.
    """
    row, constant = np.float32([[0.5, 1, 2]]), np.float32([[4, 4, 4]])
    second = {"Reshape": np.int32([-1, 3]), "Mean": np.int32(1), "MatMul": np.ones((3, 2), np.float32)}
    unary = {"Neg", "Square", "Sqrt", "Rsqrt", "Tanh", "Erf", "Erfc", "Sigmoid", "Softplus", "Softsign", "Elu", "Selu"}
    for operation in OPERATIONS.keys() - {"Conv2D", "Transpose"}:
        inputs = (0,) if operation in unary else (0, 1, 2) if operation == "ConcatV2" else (0, 1)
        constants = {1: second.get(operation, constant), 2: np.int32(-1)}
        program = NumpyProgram([ProgramStep(operation, inputs, 3)], 4, constants, [], [0], 3)
        ir = Program()
        output = lower_to_ir(ir, program, ir.var_read(0, (1, 3)), 1)
        np.testing.assert_allclose(interpret(ir, [output], {}, [row])[0], program(row), rtol=1e-6, err_msg=operation)


def test_layout_and_type_of_an_observation_do_not_matter(shared):
    agent = shared()
    observation = np.float32(observations(1)[0])
    expected = agent.predict(observation)[0]
    strided = observation[:, ::-1].copy()[:, ::-1]
    for same in (observation.astype(np.float64), observation.ravel(), observation.tolist(), strided):
        np.testing.assert_array_equal(agent.predict(same)[0], expected)
    np.testing.assert_array_equal(agent.predict(observation[None])[0], expected[None])
    for dtype in (int, ">f8"):
        np.testing.assert_array_equal(agent.predict(np.ones((2, 3), dtype))[0], agent.predict(np.ones((2, 3)))[0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39, -1e300])
def test_non_finite_observations_are_refused_without_warnings(value, shared):
    observation = observations(1)[0]
    observation[1, 2] = value
    for state in ("warn", "raise"):
        with warnings.catch_warnings(), np.errstate(all=state), refuses(UsageError, "observation [1, 2]"):
            warnings.simplefilter("error")
            shared().predict(observation)


def test_an_observation_that_overflows_in_the_layers_is_refused(shared):
    with refuses(UsageError, "3e+38"):
        shared(30, **INVERTING).predict(np.full((2, 3), 3e38))


def test_the_largest_finite_numbers_act(shared):
    middle = (BOX.low + BOX.high) / 2
    np.testing.assert_array_equal(shared(0).predict(np.full((2, 3), np.finfo(np.float32).max))[0], middle)


def test_saturated_actions_are_inside_the_box(shared):
    found = np.array([shared(100).predict(observation)[0] for observation in observations(50)])
    assert ((found >= BOX.low) & (found <= BOX.high)).all()
    assert (found == BOX.low).any()
    assert (found == BOX.high).any()


def test_new_weights_and_statistics_apply_to_the_next_call():
    agent = make_agent(normalize_observations=True)
    observation = observations(1)[0]
    before = agent.predict(observation)[0]
    kept = before.copy()
    agent.set_parameters({name: value + 0.1 for name, value in agent.get_parameters().items()})
    assert (agent.predict(observation)[0] != before).all()
    assert_acts_natively(agent)
    np.testing.assert_array_equal(before, kept)  # a returned array is not written again


@pytest.mark.parametrize("options", [{}, {**INVERTING, **NORMALISED, "norm": "renorm"}], ids=["plain", "normalised"])
def test_learning_in_one_environment_acts_with_the_compiled_policy(options):
    """Without noise the action is the compiled output, bit by bit; several environments act with NumPy."""
    agent = make_agent(**options, noise_scale=0.0, learning_starts=0)
    if agent.memory.observations is not None:
        agent.memory.observations.update(np.float32(observations(50) * 3 + 1))
    states = np.float32(observations())
    by_numpy, _ = agent.act(states)
    agent._native_exploring_policy  # noqa: B018  compiled from the policy, which is then removed
    agent.exploring_policy = None
    for state, other in zip(states, by_numpy, strict=True):
        action = agent.act(state[None])[0]
        np.testing.assert_array_equal(action, np.clip(agent._native_exploring_policy(state), -1, 1))
        np.testing.assert_allclose(action[0], other, rtol=1e-6, atol=2e-5)


def test_learning_with_parameter_noise_acts_with_numpy():
    agent = make_agent(parameter_noise=0.5, noise_scale=0.0, learning_starts=0)
    state = np.float32(observations(1))
    assert np.abs(agent.act(state)[0] - agent.policy(state)).max() > 1e-3
    assert "_native_exploring_policy" not in vars(agent)


def test_random_actions_before_learning_compile_nothing(shared):
    agent = shared()
    agent.act(np.float32(observations(1)))
    assert "_native_exploring_policy" not in vars(agent)


def test_clipped_predictions_are_counted(shared):
    agent = shared(3, **INVERTING)
    outside = [bool((np.abs(agent._native_policy(observation)) > 1).any()) for observation in observations()]
    before = agent.num_clipped_predictions
    for observation in observations():
        agent.predict(observation)
    assert agent.num_clipped_predictions - before == sum(outside) > 0


def test_threads_get_their_own_actions_while_weights_change(shared):
    agent = shared()
    states = observations(4)
    weights = agent.policy.program.parameters()
    other = [2 * array for array in weights]
    possible = []
    for arrays in (weights, other):
        agent.policy.load(arrays)
        possible.append([agent.predict(state)[0].tobytes() for state in states])
    interval, found = sys.getswitchinterval(), [set() for _ in states]
    sys.setswitchinterval(1e-6)

    def act(index):
        for _ in range(300):
            found[index].add(agent.predict(states[index])[0].tobytes())

    threads = [threading.Thread(target=act, args=(index,)) for index in range(len(states))]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        agent.policy.load(weights)
        agent.policy.load(other)
    sys.setswitchinterval(interval)
    assert all(some <= {before, after} for some, before, after in zip(found, *possible, strict=True))


@pytest.mark.parametrize("options", [{"jit": False}, {"compiler": "xla"}])
def test_numpy_acts_if_the_compiler_is_switched_off(options):
    agent = make_agent(**options)
    assert agent._native_policy is None
    batch = agent.policy(np.float32(observations(1)))
    np.testing.assert_array_equal(agent.predict(observations(1)[0])[0], agent.to_env(batch)[0])


def test_numpy_acts_if_the_compiler_fails(monkeypatch, shared):
    numpy = shared()
    expected = numpy.to_env(numpy.policy(np.float32(observations(1))))[0]

    def fails():
        raise jit.CompilerFailure("LLVM failed")

    monkeypatch.setattr("ddpg.policies.native_policy.host_registers", fails)
    agent = make_agent()
    np.testing.assert_array_equal(agent.predict(observations(1)[0])[0], expected)
    assert agent._native_policy is None


def test_the_session_acts_if_numpy_cannot():
    images = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    agent = DDPG((images, BOX), DDPGConfig(hidden=(4,), buffer_size=50), actor_network=conv([(2, 3, 2)], (4,)), seed=0)
    assert agent._native_policy is None
    assert agent.predict(np.zeros((8, 8, 1), np.uint8))[0].shape == BOX.shape
