"""One observation in machine code: what the NumPy program puts out, up to rounding, and what it refuses."""

import sys
import threading
import warnings

import gymnasium as gym
import numpy as np
import pytest
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

STATES = gym.spaces.Box(-np.inf, np.inf, (2, 3), np.float64)
BOX = gym.spaces.Box(np.float32([[-1, 0.5], [0, -30]]), np.float32([[3, 1], [1, 30]]))
PARTS = (gym.spaces.Box(0, 30, (1,)), gym.spaces.Box(0, 1, (0,)), gym.spaces.Box(-0.1, 0.7, (2, 1), np.float64))
SMALL = {"hidden": (40, 9), "output_init": "fan_in"}
OPTIONS = {
    **{name: {"activation": name} for name in ACTIVATIONS},
    **{f"norm {name}": {"norm": name} for name in NORMS},
    **{name: {"bounding": name} for name in BOUNDINGS},
    "normalised": {"normalize_observations": True},
    "residual": {"block": "residual", "hidden": (24, 24)},
    "wide": {"hidden": (256, 130)},
}
SPACES = {
    "float64 box": gym.spaces.Box(-0.1, 0.7, (3,), np.float64),
    "parameterised": gym.spaces.Tuple((gym.spaces.Discrete(3, start=1), gym.spaces.Tuple(PARTS))),
    "one of": gym.spaces.OneOf(PARTS),
    "discrete": gym.spaces.Discrete(4, start=-1),
}


def agent_with(space=BOX, states=STATES, **options):
    kind, schema = (DQN, DQNConfig) if isinstance(space, gym.spaces.Discrete) else (DDPG, DDPGConfig)
    return kind((states, space), schema().replace(**{**SMALL, **options, "buffer_size": 500}), seed=0)


def observations(count=20):
    return np.random.default_rng(0).normal(size=(count, *STATES.shape))


def numbers(action):
    """Return an action's numbers in a row."""
    parts = action if isinstance(action, tuple) else (action,)
    return np.concatenate([np.ravel(part) if not isinstance(part, tuple) else numbers(part) for part in parts])


def assert_same_action(one, other):
    np.testing.assert_allclose(numbers(one), numbers(other), rtol=1e-6, atol=2e-5)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)


def assert_acts_natively(agent):
    """Assert that the actions for one observation are the compiled ones, and up to rounding those of a batch."""
    if agent.memory.observations is not None:
        agent.memory.observations.update(np.float32(observations(50) * 3 + 1))
    for observation in observations():
        assert agent._native_policy(observation) is not None
        batch = agent.predict(np.stack([observation] * 2))[0]
        assert_same_action(agent.predict(observation)[0], unbatch(batch))


@pytest.mark.parametrize("name", OPTIONS)
def test_every_network(name):
    assert_acts_natively(agent_with(**OPTIONS[name]))


@pytest.mark.parametrize("name", SPACES)
def test_every_kind_of_action(name):
    assert_acts_natively(agent_with(SPACES[name]))


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe(recipe):
    options = from_toml(DDPGConfig, read_recipe(recipe), recipe)
    assert_acts_natively(agent_with(**options | {"hidden": (8,) * min(2, len(options.get("hidden", (8, 8))))}))


def test_every_operation_of_the_numpy_program_is_known():
    """Each on its own, with a constant; one that the compiler did not know would act slowly, unseen."""
    row, constant = np.float32([[0.5, 1, 2]]), np.float32([[4, 4, 4]])
    second = {"Reshape": np.int32([-1, 3]), "Mean": np.int32(1), "MatMul": np.ones((3, 2), np.float32)}
    unary = {"Neg", "Square", "Sqrt", "Rsqrt", "Tanh", "Sigmoid", "Softplus", "Softsign", "Elu", "Selu"}
    for operation in OPERATIONS:
        inputs = (0,) if operation in unary else (0, 1, 2) if operation == "ConcatV2" else (0, 1)
        constants = {1: second.get(operation, constant), 2: np.int32(-1)}
        program = NumpyProgram([ProgramStep(operation, inputs, 3)], 4, constants, [], [0], 3)
        ir = Program()
        output = lower_to_ir(ir, program, ir.var_read(0, (1, 3)), 1)
        np.testing.assert_allclose(interpret(ir, [output], {}, [row])[0], program(row), rtol=1e-6, err_msg=operation)


def test_what_form_an_observation_has_does_not_matter():
    agent = agent_with()
    observation = np.float32(observations(1)[0])
    expected = agent.predict(observation)[0]
    strided = observation[:, ::-1].copy()[:, ::-1]
    for same in (observation.astype(np.float64), observation.ravel(), observation.tolist(), strided):
        np.testing.assert_array_equal(agent.predict(same)[0], expected)
    np.testing.assert_array_equal(agent.predict(observation[None])[0], expected[None])
    np.testing.assert_array_equal(agent.predict(np.ones((2, 3), int))[0], agent.predict(np.ones((2, 3)))[0])
    np.testing.assert_array_equal(agent.predict(np.ones((2, 3), ">f8"))[0], agent.predict(np.ones((2, 3)))[0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39, -1e300])
@pytest.mark.parametrize("state", ["warn", "raise"])
def test_what_is_not_finite_is_refused_by_name_alone(value, state):
    agent = agent_with()
    observation = observations(1)[0]
    observation[1, 2] = value
    with warnings.catch_warnings(), np.errstate(all=state), refuses(UsageError, "observation [1, 2]"):
        warnings.simplefilter("error")
        agent.predict(observation)


def test_an_observation_that_overflows_in_the_layers_is_refused():
    agent = agent_with(bounding="inverting", hidden=(64, 64))
    agent.set_parameters({name: 30 * value for name, value in agent.get_parameters().items()})
    with refuses(UsageError, "3e+38"):
        agent.predict(np.full((2, 3), 3e38))


def test_the_largest_finite_numbers_act():
    agent = agent_with(hidden=(4,))
    agent.set_parameters({name: value * 0 for name, value in agent.get_parameters().items()})
    middle = (BOX.low + BOX.high) / 2
    np.testing.assert_array_equal(agent.predict(np.full((2, 3), np.finfo(np.float32).max))[0], middle)


def test_a_saturated_action_is_inside_the_box():
    agent = agent_with(output_init="fan_in")
    agent.set_parameters({name: 100 * value for name, value in agent.get_parameters().items()})
    found = np.array([agent.predict(observation)[0] for observation in observations(50)])
    assert ((found >= BOX.low) & (found <= BOX.high)).all()
    assert (found == BOX.low).any()
    assert (found == BOX.high).any()


def test_new_weights_and_statistics_act_from_the_next_call_on():
    agent = agent_with(normalize_observations=True)
    observation = observations(1)[0]
    before = agent.predict(observation)[0]
    kept = before.copy()
    agent.set_parameters({name: value + 0.1 for name, value in agent.get_parameters().items()})
    assert (agent.predict(observation)[0] != before).all()
    assert_acts_natively(agent)
    np.testing.assert_array_equal(before, kept)  # what was returned is the caller's own


@pytest.mark.parametrize("name", ["relu", "inverting", "normalised", "norm renorm"])
def test_learning_acts_by_it_in_one_environment(name):
    """Without noise the action is the compiled output to the last bit; in two environments it is NumPy's."""
    agent = agent_with(**OPTIONS[name], noise_scale=0.0, learning_starts=0)
    if agent.memory.observations is not None:
        agent.memory.observations.update(np.float32(observations(50) * 3 + 1))
    states = np.float32(observations())
    by_numpy, _ = agent.act(states)
    agent._native_exploring_policy  # noqa: B018  compiled from the policy that is taken away here
    agent.exploring_policy = None
    for state, other in zip(states, by_numpy, strict=True):
        action = agent.act(state[None])[0]
        np.testing.assert_array_equal(action, np.clip(agent._native_exploring_policy(state), -1, 1))
        np.testing.assert_allclose(action[0], other, rtol=1e-6, atol=2e-5)


def test_learning_acts_by_numpy_where_each_environment_has_weights_of_its_own():
    agent = agent_with(parameter_noise=0.5, noise_scale=0.0, learning_starts=0)
    state = np.float32(observations(1))
    assert np.abs(agent.act(state)[0] - agent.policy(state)).max() > 1e-3
    assert "_native_exploring_policy" not in vars(agent)


def test_the_first_random_actions_compile_nothing():
    agent = agent_with(learning_starts=1_000)
    agent.act(np.float32(observations(1)))
    assert "_native_exploring_policy" not in vars(agent)


def test_unbounded_predictions_that_are_clipped_are_counted():
    agent = agent_with(bounding="inverting")
    agent.set_parameters({name: 3 * value for name, value in agent.get_parameters().items()})
    outside = [bool((np.abs(agent._native_policy(observation)) > 1).any()) for observation in observations()]
    for observation in observations():
        agent.predict(observation)
    assert agent.num_clipped_predictions == sum(outside) > 0


def test_threads_get_their_own_actions_while_weights_change():
    agent = agent_with()
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
def test_numpy_acts_where_our_compiler_is_not_wanted(options):
    agent = agent_with(**options)
    assert agent._native_policy is None
    batch = agent.policy(np.float32(observations(1)))
    np.testing.assert_array_equal(agent.predict(observations(1)[0])[0], agent.to_env(batch)[0])


def test_numpy_acts_where_the_compiler_fails(monkeypatch):
    expected = agent_with(jit=False).predict(observations(1)[0])[0]

    def fails():
        raise jit.CompilerFailure("LLVM failed")

    monkeypatch.setattr("ddpg.policies.native_policy.host_registers", fails)
    agent = agent_with()
    np.testing.assert_array_equal(agent.predict(observations(1)[0])[0], expected)
    assert agent._native_policy is None


def test_the_session_acts_where_numpy_cannot():
    images = gym.spaces.Box(0, 255, (8, 8, 1), np.uint8)
    agent = DDPG((images, BOX), DDPGConfig(hidden=(4,), buffer_size=50), actor_network=conv([(2, 3, 2)], (4,)), seed=0)
    assert agent._native_policy is None
    assert agent.predict(np.zeros((8, 8, 1), np.uint8))[0].shape == BOX.shape
