"""Forbidden actions are never taken, greedily or at random, nor used in targets, with any learner."""

import c_compilers
import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from conftest import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

import ddpg
from ddpg import DQN, ActionMask, DQNConfig, UsageError
from ddpg.agents.off_policy import load_agent
from ddpg.cli.main import main
from ddpg.errors import EnvironmentFault
from ddpg.interaction.action_mask import FORBIDDEN, MaskedBox, check_mask
from ddpg.networks.q_network import QNetwork
from ddpg.policies import standalone
from ddpg.policies.exploration import DiscreteExploration
from ddpg.replay.minibatch import Batch
from ddpg.runs.env_factory import make_env
from ddpg.runs.env_source import EnvSource

N = 4
SMALL = {
    **{"hidden": (8,), "batch_size": 8, "learning_starts": 20, "updates_per_call": 4, "exploration_steps": 60},
    **{"exploration_initial": 0.5, "exploration_final": 0.5, "buffer_size": 64, "optimizer": "sgd"},
}


class Rooms(gym.Env):
    """A corridor of five rooms, the first terminal; the allowed actions change at every step.

    A forbidden action raises an error.
    """

    action_space = gym.spaces.Discrete(N)
    first_is_terminal = True
    taken: list  # of all instances: (mask, action)

    def __init__(self, how="info"):
        self._how = how
        box = gym.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.observation_space = box
        if how == "dict":
            self.observation_space = gym.spaces.Dict({"observation": box, "action_mask": gym.spaces.MultiBinary(N)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._room, self._left = 2, 10
        return self._with_mask()

    def step(self, action):
        type(self).taken.append((self.mask.copy(), int(action)))
        assert self.mask[action], f"action {action} of {self.mask}"
        self._room = int(np.clip(self._room + (-1, 1, -2, 2)[action], 0, 4))
        self._left -= 1
        observation, info = self._with_mask()
        return observation, float(self._room == 4), self._is_terminal, self._left == 0, info

    @property
    def _is_terminal(self):
        return self.first_is_terminal and self._room == 0

    def _with_mask(self):
        self.mask = self.np_random.integers(0, 2, N).astype(np.int8)
        self.mask[self.np_random.integers(N)] = 1
        if self._is_terminal:
            self.mask[:] = 0
        here = np.array([self._room / 4, self._left / 10], np.float32)
        if self._how == "dict":
            return {"observation": here, "action_mask": self.mask.copy()}, {}
        return here, {"action_mask": self.mask.copy()}


@pytest.fixture(autouse=True)
def steps(monkeypatch):
    """The action and the mask of every step in all of these environments."""
    taken = []
    monkeypatch.setattr(Rooms, "taken", taken, raising=False)
    for name, how in (("RoomsInfo-v0", "info"), ("RoomsDict-v0", "dict")):
        spec = gym.envs.registration.EnvSpec(name, lambda **options: Rooms(**options), kwargs={"how": how})
        monkeypatch.setitem(gym.registry, name, spec)
    return taken


def masks(observations):
    return observations[..., -N:] > 0.5


# -- the wrapper ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["info", "dict"])
def test_the_wrapper_appends_the_mask_to_the_observation(how):
    env = ActionMask(Rooms(how))
    assert env.observation_space == MaskedBox(np.zeros(2 + N), np.ones(2 + N), dtype=np.float32)
    observation, _ = env.reset(seed=3)
    assert observation.dtype == np.float32
    np.testing.assert_array_equal(observation, [0.5, 1.0, *env.unwrapped.mask])
    observation, *_ = env.step(int(env.unwrapped.mask.argmax()))
    np.testing.assert_array_equal(observation[-N:], env.unwrapped.mask)


OUTSIDE = {
    "another dtype": lambda: gym.wrappers.DtypeObservation(ActionMask(Rooms()), np.float64),
    "stacked": lambda: gym.wrappers.FrameStackObservation(ActionMask(Rooms()), 2),
    "rescaled": lambda: gym.wrappers.RescaleObservation(ActionMask(Rooms()), np.float32(-1), np.float32(1)),
    "flattened again": lambda: gym.wrappers.FlattenObservation(ActionMask(Rooms())),
    "a Dict flattened": lambda: gym.wrappers.FlattenObservation(Rooms("dict")),
    "more around it": lambda: gym.wrappers.TransformReward(gym.wrappers.FlattenObservation(Rooms("dict")), float),
    "in a vector": lambda: gym.vector.SyncVectorEnv([OUTSIDE["flattened again"]] * 2),
    "of a vector": lambda: gym.wrappers.vector.NormalizeObservation(
        gym.vector.SyncVectorEnv([lambda: ActionMask(Rooms())])
    ),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_a_wrapper_that_hides_the_mask_is_refused(case):
    """Unless the caller states that the mask is still at the end of the observations."""
    with refuses(UsageError, "action mask ddpg.ActionMask outermost action_mask=True"):
        DQN(OUTSIDE[case](), DQNConfig(**SMALL), seed=0)
    if case in ("another dtype", "flattened again"):
        assert DQN(OUTSIDE[case](), DQNConfig(**SMALL, action_mask=True), seed=0).config.action_mask


@pytest.mark.parametrize("given", [False, True])
def test_a_dict_with_a_mask_must_be_wrapped(given):
    with refuses(UsageError, "Dict 'action_mask' ddpg.ActionMask"):
        DQN(Rooms("dict"), DQNConfig(**SMALL, action_mask=given), seed=0)


def test_wrappers_that_keep_the_observation_or_deliberately_drop_the_mask_are_accepted():
    counted = DQN(gym.wrappers.RecordEpisodeStatistics(ActionMask(Rooms())), DQNConfig(**SMALL), seed=0)
    assert counted.config.action_mask
    without = gym.wrappers.FlattenObservation(gym.wrappers.FilterObservation(Rooms("dict"), ["observation"]))
    assert not DQN(without, DQNConfig(**SMALL), seed=0).config.action_mask


@pytest.mark.parametrize("mask", [[1, 0, 1], [1, 0, 2, 0], [[1, 0, 1, 1]], [0.5, 1, 1, 1], "1011", None, [0, 0, 0, 0]])
def test_an_invalid_mask_is_refused(mask):
    with refuses(UsageError, "action_mask"):
        check_mask(mask, N)


@pytest.mark.parametrize("mask", [[1, 0, 1, 0], (True, False, False, True), np.array([0.0, 1.0, 0.0, 0.0])])
def test_numbers_and_bools_are_masks(mask):
    np.testing.assert_array_equal(check_mask(mask, N), np.array(mask, np.float32))


def test_a_terminal_state_needs_no_allowed_action():
    assert not check_mask([0] * N, N, terminated=True).any()


def test_a_missing_mask_is_a_one_line_error(monkeypatch):
    monkeypatch.setattr(Rooms, "_with_mask", lambda self: (np.zeros(2, np.float32), {}))
    with refuses(EnvironmentFault, "info 'action_mask' ActionMask"):
        DQN(ActionMask(Rooms()), DQNConfig(**SMALL, jit=False), seed=0).learn(1)


def test_environments_that_cannot_be_masked_are_refused():
    with refuses(UsageError, "Discrete"):
        ActionMask(gym.make("Pendulum-v1"))
    with refuses(UsageError, "action_mask ddpg.ActionMask"):
        QNetwork(gym.spaces.Box(0, 1, (4,)), gym.spaces.Discrete(4), masked=True)
    with refuses(UsageError, "action_mask normalize_observations"):
        DQNConfig(action_mask=True, normalize_observations=True)
    with refuses(UsageError, "action_mask network 'conv'"):
        DQNConfig(action_mask=True, network="conv")


PAIR = gym.spaces.Box(0, 1, (2 + N,)), gym.spaces.Discrete(N)
USABLE = [0.5, 0.5, 1, 0, 1, 0], 2, 0.0, [0.5, 0.5, 0, 1, 0, 0], False, False


@pytest.fixture(scope="module")
def masked():
    """An agent whose observations end with a mask."""
    return DQN(PAIR, DQNConfig(**SMALL, jit=False, action_mask=True), seed=0)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, [0.5, 0.5, 1, 0, 0.3, 0], "action_mask 0.3 numbers"),
        (0, [0.5, 0.5, 0, 0, 0, 0], "action_mask allow no action"),
        (3, [0.5, 0.5, 0, 0, 0, 0], "action_mask allow no action"),
        (1, 1, "action 1 forbidden action_mask"),
    ],
)
def test_a_transition_with_an_invalid_mask_is_not_stored(place, value, message, masked):
    agent, (steps, added) = masked, (masked.num_timesteps, masked.replay.added)
    agent.observe(*USABLE)
    fields = [*USABLE]
    fields[place] = value
    with refuses(UsageError, message):
        agent.observe(*fields)
    with refuses(UsageError, message):
        agent.remember(*([whole, field] for whole, field in zip(USABLE, fields, strict=True)))
    assert (agent.num_timesteps, agent.replay.added) == (steps + 1, added + 1)
    agent.observe(*USABLE[:3], [0.5, 0.5, 0, 0, 0, 0], True, False)  # a terminal state need not allow any


def test_the_row_of_an_invalid_mask_is_named(masked):
    for place, value, message in (
        (0, [0.5, 0.5, 0, 0, 0, 0], "row 3 of observations: allows no action"),
        (3, [0.5, 0.5, 0, 0, 0.5, 0], "row 3 of next_observations: 0.5 numbers"),
        (1, 1, "row 3: action 1 forbidden"),
    ):
        columns = [[field] * 5 for field in USABLE]
        columns[place][3] = value
        with refuses(UsageError, message):
            masked.remember(*columns)


MASKS_MAIN = """\
#include <stdio.h>
#include "policy.h"
int main(void)
{
    const float numbers[5] = {0.0f, 0.5f, 1.0f, -1.0f, 2.0f};
    int k;
    for (k = 0; k < 5; k++) {
        float observation[POLICY_OBSERVATION_SIZE] = {0.5f, 0.5f, 1.0f, 0.0f, 1.0f, 0.0f};
        int action = 7;
        observation[5] = numbers[k];
        printf("%d", policy_act(observation, &action));
        printf("%d ", action == 7);
    }
    return 0;
}
"""


def test_a_policy_refuses_a_mask_that_is_not_zeros_and_ones(masked, tmp_path):
    """The agent and its exports; a mask of zeros is that of a terminal state."""
    agent = masked
    loaded = ddpg.load_policy(agent.export(tmp_path / "numpy"))
    act = standalone.load(tmp_path / "numpy")
    ending, half = [0.5, 0.5, 0, 0, 0, 0], [0.5, 0.5, 1, 0, 1, 0.5]
    assert agent.predict(ending)[0] == loaded.predict(ending)[0] == act(ending) == 0
    for wrong in (half, [ending, half]):
        for policy in (agent, loaded):
            with refuses(UsageError, "action_mask 0.5 4 numbers"):
                policy.predict(wrong)
        with pytest.raises(ValueError, match="last 4 numbers of the observation"):
            act(wrong)
    folder = agent.export(tmp_path / "c", "c")
    assert "action mask anything but 0 and 1" in (folder / "policy.h").read_text()
    (folder / "main.c").write_text(MASKS_MAIN)
    for compiler in c_compilers.compilers()[:1]:
        program = c_compilers.build(compiler, folder, ["main.c", "policy.c"], c_compilers.strict(compiler))
        assert c_compilers.run(program, compiler).stdout.split() == ["00", "11", "00", "11", "11"]


# -- values and targets -----------------------------------------------------------------------------------------------


def agent_of(seed=0, **options):
    return DQN(ActionMask(Rooms()), DQNConfig(**{**SMALL, "jit": False, **options}), seed=seed)


def observations_of(count, rng, terminal=()):
    allowed = rng.integers(0, 2, (count, N))
    allowed[np.arange(count), rng.integers(0, N, count)] = 1
    allowed[list(terminal)] = 0
    return np.concatenate([rng.random((count, 2)), allowed], axis=1).astype(np.float32)


def target_of(agent, *fields):
    with agent.graph.as_default():
        return agent.session.run(agent.symbolic_update.target(Batch(*map(tf.constant, fields))))


@pytest.mark.parametrize("options", [{}, {"double_q": True}, {"target": "online"}, {"td_target": "residual_gradient"}])
def test_the_target_uses_allowed_actions_only(options):
    """Against the definition in NumPy: the largest unmasked value among the next state's allowed actions."""
    agent, rng = agent_of(**options), np.random.default_rng(0)
    after = observations_of(64, rng)
    rewards, terminated = rng.random((64, 1), np.float32), np.zeros((64, 1), np.float32)
    with agent.graph.as_default():
        for variable in agent.q.trainable_variables:  # the online weights must differ from the target's
            change = rng.normal(size=variable.shape).astype(np.float32)
            agent.session.run(variable.assign_add(change))
        online = agent.session.run(agent.q._online([tf.constant(after)], False))
        target = agent.session.run(agent.q._of_target([tf.constant(after)]))
    y = target_of(agent, after, np.zeros((64, 1), np.float32), rewards, after, terminated)
    if options.get("target") == "online" or "td_target" in options:
        target = online
    chooses, rows = online if "double_q" in options else target, np.arange(64)
    best = np.where(masks(after), chooses, -np.inf).argmax(axis=1)
    np.testing.assert_allclose(y[:, 0], rewards[:, 0] + 0.99 * target[rows, best], rtol=1e-5, atol=1e-6)
    assert (best != chooses.argmax(axis=1)).any()  # the mask changes the result


@pytest.fixture(scope="module")
def agent():
    return agent_of()


def test_the_value_of_a_terminal_state_without_allowed_actions_is_zero(agent):
    rng = np.random.default_rng(0)
    after, ones = observations_of(4, rng, terminal=range(4)), np.ones((4, 1), np.float32)
    np.testing.assert_array_equal(target_of(agent, after, 0 * ones, ones, after, ones), ones)


def test_values_of_forbidden_actions_are_constant_and_others_the_networks(agent):
    states = observations_of(32, np.random.default_rng(1))
    with agent.graph.as_default(), agent.session.as_default():
        values = agent.q.predict(states)
        plain = agent.session.run(agent.q._online([tf.constant(states)], False))
    allowed = masks(states)
    assert (values[~allowed] == FORBIDDEN).all()
    np.testing.assert_array_equal(values[allowed], plain[allowed])


# -- acting -----------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6), st.floats(0, 1), st.booleans())
def test_no_forbidden_action_is_ever_chosen(seed, count, epsilon, at_random):
    """Greedily, ε-greedily, and in the random steps at the beginning."""
    rng = np.random.default_rng(seed)
    behaviour = DiscreteExploration(rng, 10 * at_random, lambda step: epsilon, choices=N, masked=True)
    observations = observations_of(count, rng)
    values = rng.normal(size=(count, N)).astype(np.float32)
    outputs = np.where(masks(observations), values, np.float32(FORBIDDEN))
    for step in range(8):
        actions, _ = behaviour.act(lambda _: outputs, observations, step)
        for chosen in (actions, behaviour.around(outputs, step), behaviour.greedy(outputs)):
            assert chosen.shape == (count, 1)
            assert masks(observations)[np.arange(count), chosen[:, 0].astype(int)].all()


@pytest.mark.parametrize("step", [0, 1])
def test_random_actions_are_uniform_among_the_allowed(step):
    """In the random steps at the beginning, and with probability ε later."""
    behaviour = DiscreteExploration(np.random.default_rng(0), 1, lambda step: 1.0, choices=N, masked=True)
    rows = np.tile(np.array([0.3, 0.3, 1, 0, 1, 1], np.float32), (3000, 1))
    outputs = np.tile(np.array([1.0, FORBIDDEN, 2.0, 0.0], np.float32), (3000, 1))
    actions, _ = behaviour.act(lambda _: outputs, rows, step)
    counts = np.bincount(actions[:, 0].astype(int), minlength=N)
    assert counts[1] == 0
    assert (np.abs(counts[[0, 2, 3]] - 1000) < 110).all()  # four standard deviations


# -- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "n_envs"),
    [
        ("RoomsDict-v0", 3),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("RoomsInfo-v0", 1), ("RoomsInfo-v0", 3), ("RoomsDict-v0", 1))
        ),
    ],
)
def test_learning_never_takes_a_forbidden_action(name, n_envs, steps, tmp_path):
    run = ddpg.train(
        name,
        DQNConfig(**SMALL, jit=False),
        **{"seed": 0, "total_timesteps": 300, "evaluation_interval": 150, "evaluation_episodes": 2},
        **{"root": tmp_path, "n_envs": n_envs, "progress_bar": False},
        wrappers=["ActionMask"] if name == "RoomsInfo-v0" else [],
    )
    assert len(steps) >= 300
    assert all(mask[action] for mask, action in steps)
    assert {action for _, action in steps} == {*range(N)}
    agent = load_agent(run)
    assert agent.config.action_mask
    assert agent.observation_space.shape == (2 + N,)


class NotANumberInRoomThree(gym.ObservationWrapper):
    """Room 3 is observed as NaN."""

    def observation(self, observation):
        return np.where(observation == 0.75, np.nan, observation).astype(np.float32)


def test_a_dropped_observation_keeps_its_mask(steps):
    """A vector steps all of its environments, also the one whose observation is NaN."""
    env = gym.vector.SyncVectorEnv([lambda: ActionMask(NotANumberInRoomThree(Rooms()))] * 3)
    options = {**SMALL, "learning_starts": 1000, "on_bad_transition": "drop"}
    agent = DQN(env, DQNConfig(**options, jit=False), seed=0)
    agent.learn(150)
    assert agent.counts["dropped_transitions"] > 20
    assert all(mask[action] for mask, action in steps)
    agent.close()


def after_updates(agent):
    """Return the weights after updates on transitions with allowed actions."""
    rng = np.random.default_rng(5)
    before, after = observations_of(40, rng), observations_of(40, rng)
    taken = np.where(masks(before), rng.random((40, N)), -1).argmax(axis=1)
    agent.remember(before, taken, rng.random(40), after, np.zeros(40, bool), np.zeros(40, bool))
    agent.update(8)
    return agent.get_parameters()


@pytest.mark.parametrize("compiler", ["native", pytest.param("xla", marks=pytest.mark.slow)])
def test_compiled_updates_are_those_of_tensorflow_op_by_op(compiler):
    one, other = (after_updates(agent_of(**options)) for options in ({"jit": True, "compiler": compiler}, {}))
    assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_on_the_command_line(tmp_path, monkeypatch, steps, capsys):
    monkeypatch.chdir(tmp_path)
    flags = "--hidden 8 --batch-size 8 --learning-starts 20 --no-jit --total-timesteps 60 --evaluation-episodes 1"
    assert main(["train", "RoomsInfo-v0", "--wrap", "ActionMask", *flags.split(), "--no-progress-bar"]) == 0
    assert main(["evaluate", "runs/RoomsInfo-v0/1", "--episodes", "3"]) == 0
    assert all(mask[action] for mask, action in steps)
    capsys.readouterr()
    assert main(["train", "RoomsInfo-v0", "--wrap", "ActionMask", "--wrap", "FlattenObservation"]) == 2
    assert "ActionMask last" in capsys.readouterr().err
    assert main(["train", "RoomsDict-v0", "--wrap", "FlattenObservation"]) == 2
    assert "'action_mask'" in capsys.readouterr().err


@pytest.mark.parametrize("last", [[], ["ActionMask"]])
def test_the_time_is_observed_with_a_dicts_mask(last):
    """Flattened in the Dict's order: the observation's two numbers, the time, and then the mask."""
    env = make_env(EnvSource("RoomsDict-v0", ["TimeAwareObservation", *last], {"max_episode_steps": 10}))
    env.reset(seed=3)
    allowed = int(env.unwrapped.mask.argmax())
    observation, *_ = env.step(allowed)
    assert isinstance(env.observation_space, MaskedBox)
    np.testing.assert_array_equal(observation[1:3], [np.float32(0.9), 1])
    np.testing.assert_array_equal(observation[-N:], env.unwrapped.mask)


class Clocked(gym.Env):
    """Its observation is a large integer."""

    observation_space = gym.spaces.Box(0, 2**40, (1,), np.int64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, time):
        self.time = time

    def reset(self, *, seed=None, options=None):
        return np.array([self.time]), {"action_mask": [1, 0]}


def test_integers_that_float32_rounds_are_refused():
    """As without a mask; gymnasium's flattening keeps their type."""
    assert ActionMask(Clocked(2**24)).reset()[0].tolist() == [2**24, 1, 0]
    with refuses(UsageError, "observation 16777217"):
        ActionMask(Clocked(2**24 + 1)).reset()
