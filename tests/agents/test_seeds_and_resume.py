"""When an agent learns and how many updates are due; seeds; and the state that a loaded agent continues with."""

import functools
import operator
import types

import gymnasium as gym
import numpy as np
import pytest
import tensorflow as tf
from environments import Counting
from refusals import refuses
from tensorflow.python.framework import random_seed

from ddpg import DDPG, DQN, Callback, DDPGConfig, DQNConfig, UsageError
from ddpg.agents.learn_loop import LearnLoop
from ddpg.config.presets import RECIPES, Preset
from ddpg.errors import EnvironmentFault

BOX = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
SPACES = {DDPG: gym.spaces.Box(-1.0, 1.0, (1,), np.float32), DQN: gym.spaces.Discrete(3)}
# The driver with the smallest graph, and without Adam's slots, a third of the graph; test_checkpoint.py has them.
QUICK = {"hidden": (8,), "batch_size": 4, "buffer_size": 50, "optimizer": "sgd", "jit": False, "updates_per_call": 1}
QUICK |= {"td_target": "placeholder"}
SEVERAL = {"td_target": "stop_gradient", "updates_per_call": 2}  # updates in a call
SMALL = {DDPG: DDPGConfig(**QUICK), DQN: DQNConfig(**QUICK, exploration_initial=0.0, exploration_final=0.0)}


def make(kind, length=7, seed=0, **changes):
    return kind(Counting(length, action_space=SPACES[kind]), SMALL[kind].replace(**changes), seed=seed)


class Updates(Callback):
    """Records the number of updates after every step."""

    def __init__(self):
        self.made = []

    def on_step(self, agent):
        self.made.append(agent.num_updates)


# -- when an agent learns -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DDPG, DQN])
def test_actions_are_random_until_learning_starts(kind):
    """Those of the loop; ``predict`` explores around the policy from the start. The first update follows step 11."""
    agent = make(kind, learning_starts=10, **({"noise_scale": 0.0} if kind is DDPG else {}))
    updates, seen = Updates(), np.array([[0, step] for step in range(7)] + [[1, step] for step in range(4)])
    chosen, _ = agent.predict(seen)
    np.testing.assert_allclose(agent.predict(seen, deterministic=False)[0], chosen, rtol=1e-5)
    stored = agent.learn(11, [updates]).replay.arrays()
    assert updates.made == [*[0] * 10, 1]
    np.testing.assert_array_equal(stored["observations"], seen)
    assert stored["actions"][10] == pytest.approx(chosen[10], abs=1e-6)
    differ = np.abs(stored["actions"] - np.reshape(chosen, (11, 1))).max(axis=1) > 1e-3
    # A random one of three actions may be the greedy one.
    assert differ[:10].all() if kind is DDPG else differ[:10].sum() >= 3


def test_fractions_of_updates_are_carried_over(tmp_path):
    """0.75 due updates a step, made two at a time: 0.75, 1.5, 2.25 | 1, 1.75, 2.5 | 1.25, 2 |."""
    updates = Updates()
    agent = make(DDPG, learning_starts=0, updates_per_step=0.75, **SEVERAL)
    agent.learn(5, [updates])
    agent.save(tmp_path / "c")
    agent.learn(3, [updates])
    assert updates.made == [0, 0, 2, 2, 2, 4, 4, 6]
    resumed = Updates()
    DDPG.load(tmp_path / "c", Counting(7, action_space=SPACES[DDPG])).learn(3, [resumed])
    assert resumed.made == [4, 4, 6]


def test_the_number_of_updates_is_exact():
    """Floating-point sums of 0.1 stay below 20 for 200 steps; whole updates are still made when they are due."""
    agent = make(DDPG, learning_starts=0)
    for per_step, steps, made in ((0.1, 200, 20), (1 / 3, 90, 30), (2.1, 10, 21)):
        agent.config, seen, agent.updater.num_updates = agent.config.replace(updates_per_step=per_step), Updates(), 0
        agent.learn(steps, [seen])
        assert seen.made[-1] == agent.num_updates == made
        assert agent.loop.owed_updates == 0
        assert seen.made == [int(step * per_step + 1e-9) for step in range(1, steps + 1)]


def owing(per_step, owed=0.0):
    """Return a loop that owes this many updates, and a function with which it owes those of another step."""
    loop, agent = LearnLoop(), types.SimpleNamespace(config=SMALL[DDPG].replace(updates_per_step=per_step))
    loop.owed_updates = owed
    return loop, lambda: loop._owe_updates(agent, 1)


def test_a_checkpoint_with_nearly_one_due_update_makes_it():
    """Earlier versions saved the rounded sum of 0.1."""
    nearly_one = functools.reduce(operator.add, [0.1] * 10)  # sum() is exact from Python 3.12 on
    assert nearly_one < 1
    loop, owe = owing(0.1, nearly_one)
    for _ in range(10):
        owe()
    assert loop.owed_updates == 2


@pytest.mark.parametrize("per_step", [1e-4, 1e-10])
def test_rare_updates_are_made_when_they_are_due(per_step):
    loop, owe = owing(per_step)
    for step in range(1, 4):
        owe()
        assert loop.owed_updates == pytest.approx(step * per_step, rel=1e-9)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"updates_per_call": 32}, {"updates_per_call": 1, "td_target": "placeholder"}),
        pytest.param({"overlap": True, "updates_per_step": 3.0}, {"overlap": False}, marks=pytest.mark.slow),
    ],
)
def test_due_updates_survive_a_change_of_options(before, after, tmp_path):
    """A loaded agent with other options can be saved again before its first step, and then makes these updates."""
    agent = make(DDPG, **{"learning_starts": 0, **SEVERAL, **before}).learn(5)
    owed, earned = agent.loop.owed_updates, 5 * agent.config.updates_per_step
    config = agent.config.replace(**after)
    assert owed >= config.updates_per_call
    agent.save(tmp_path / "c")
    DDPG.load(tmp_path / "c", config=config).save(tmp_path / "d")
    loaded = DDPG.load(tmp_path / "d", Counting(7, action_space=SPACES[DDPG]))
    assert loaded.loop.owed_updates == owed
    loaded.learn(1)
    assert loaded.num_updates + loaded.loop.owed_updates == earned + config.updates_per_step
    assert loaded.loop.owed_updates < 1


# -- seeds --------------------------------------------------------------------------------------------


def in_a_box(kind=Counting):
    """Return an environment with episodes of seven steps, for DDPG."""
    return kind(7, action_space=SPACES[DDPG])


def seeds_of(agent, steps):
    agent.learn(steps)
    return agent.env.seeds


def test_an_episodes_seed_depends_on_the_agents_seed_and_its_first_step(tmp_path):
    agent, other = (make(DDPG, seed=seed) for seed in (0, 1))
    seeds_of(agent, 14)  # episodes begin at 0, 7, and then at 14
    agent.save(tmp_path / "14")
    seeds = list(seeds_of(agent, 6))
    assert len(set(seeds + seeds_of(other, 20))) == 6
    assert None not in seeds
    agent.save(tmp_path / "20")
    loaded = DDPG.load(tmp_path / "20", in_a_box())  # saved within an episode, so new ones begin at 20 and 27
    agent.learn(8)  # one begins at 21
    assert not set(seeds_of(loaded, 8)) & set(agent.env.seeds)
    saved_at_an_end = DDPG.load(tmp_path / "14", in_a_box())
    assert seeds_of(saved_at_an_end, 14) == agent.env.seeds[2:4]


class Fails(Counting):
    """Raises once, in its fifth step."""

    def step(self, action):
        if len(self.actions) == 4:
            self.actions.append(None)
            raise RuntimeError("the simulator lost its state")
        return super().step(action)


@pytest.mark.parametrize("overlap", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_after_a_failed_step_a_new_episode_begins(overlap):
    """γ = 0.5, rewards 1 to 4, and 1 after the failure: G is 1, 2.5, 4.25, 6.125, and 1 again."""
    options = {"normalize_rewards": True, "gamma": 0.5, "learning_starts": 0, "overlap": overlap}
    agent = DDPG(in_a_box(Fails), SMALL[DDPG].replace(**options), seed=0)
    start, started = agent.behaviour.start, []
    agent.behaviour.start = lambda count: (started.append(count), start(count))
    with refuses(EnvironmentFault, "step 5 episode 1"):
        agent.learn(10)
    agent.learn(1)
    assert agent.memory.statistics()["rewards.mean"] == pytest.approx((1 + 2.5 + 4.25 + 6.125 + 1) / 5)
    assert len(started) == len(agent.env.seeds) == len({*agent.env.seeds} - {None}) == 2


def test_an_error_in_overlapping_updates_ends_the_episode():
    """The transition of that step is not stored, so the next one must not be linked to the episode."""
    agent = DDPG(in_a_box(), SMALL[DDPG].replace(overlap=True, learning_starts=0), seed=0)

    class Failing(Callback):
        def on_update(self, agent, metrics):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        agent.learn(10, Failing())
    agent.learn(2)
    assert agent.replay.arrays()["observations"].tolist() == [[0, 0], [1, 0], [1, 1]]
    assert len(agent.env.seeds) == len({*agent.env.seeds} - {None}) == 2


def test_an_error_in_on_episode_end_does_not_change_the_next_episodes_seed():
    class Failing(Callback):
        def on_episode_end(self, agent, episode):
            raise ZeroDivisionError

    agent = DDPG(in_a_box(), SMALL[DDPG], seed=0)
    with pytest.raises(ZeroDivisionError):
        agent.learn(10, Failing())
    assert None not in seeds_of(agent, 1)


# -- what a checkpoint restores --------------------------------------------------------------------------


def observed(kind, rewards, **changes):
    """Return an agent without environment that has stored transitions with these rewards."""
    agent = kind((BOX, SPACES[kind]), SMALL[kind].replace(**changes), seed=0)
    observe(agent, rewards)
    return agent


def observe(agent, rewards):
    action = 1 if isinstance(agent, DQN) else np.zeros(1, np.float32)
    for reward in rewards:
        agent.observe(np.full(2, reward), action, reward, np.full(2, reward + 1), False, False)


def test_exploration_sampling_and_initialization_have_separate_seeds():
    """With equal streams the noise and the minibatches would depend on the same numbers."""
    draws = {}
    for seed in (0, 1):
        agent = make(DDPG, seed=seed)
        draws |= {(seed, name): int(rng.integers(2**62)) for name, rng in agent.generators.items()}
        draws[seed, "weights"] = agent.graph.seed
    assert len({*draws.values()}) == len(draws) == 6


def test_the_largest_reward_is_saved_with_or_without_the_memory(tmp_path):
    agent = observed(DQN, [4.0, 2.0], rescale_rewards=True, buffer_size=1, gamma=0.0)
    for replay in (True, False):
        loaded = DQN.load(agent.save(tmp_path / str(replay), replay=replay))
        assert loaded.largest_reward == 4
    observe(loaded, [2.0])
    with loaded.session.as_default():
        q = loaded.q.predict(np.full((1, 2), 2.0))[0, 1]
    assert loaded.update(1)["loss"] == pytest.approx((q - 2 / 4) ** 2, rel=1e-5)


def test_a_loaded_buffer_overwrites_its_oldest_row(tmp_path):
    agent = observed(DDPG, range(7), buffer_size=5)
    agent.save(tmp_path / "c")
    loaded = DDPG.load(tmp_path / "c")
    observe(loaded, [7])
    np.testing.assert_array_equal(loaded.replay.arrays()["rewards"][:, 0], [5, 6, 7, 3, 4])
    observe(agent, [7])
    np.testing.assert_equal(loaded.replay.arrays(), agent.replay.arrays())


@pytest.mark.parametrize("kind", [DDPG, pytest.param(DQN, marks=pytest.mark.slow)])
def test_a_loaded_agent_draws_the_numbers_that_the_saved_one_would_have_drawn(kind, tmp_path):
    exploring = {"exploration_initial": 0.5, "exploration_final": 0.5}
    agent = observed(kind, range(40), **exploring)
    observations = np.random.default_rng(0).normal(size=(100, 2))
    fresh_actions = agent.predict(observations, deterministic=False)[0]
    fresh_metrics = agent.update(3)
    agent.save(tmp_path / "c")
    loaded = kind.load(tmp_path / "c")
    # Noise and random actions, at a step other than the first, which the seed alone would reproduce.
    actions = agent.predict(observations, deterministic=False)[0]
    np.testing.assert_array_equal(loaded.predict(observations, deterministic=False)[0], actions)
    assert (actions != fresh_actions).any()
    metrics = agent.update(3)
    assert loaded.update(3) == metrics != fresh_metrics
    assert loaded.num_updates == agent.num_updates == 6


# -- truncation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "truncate"), [(DDPG, True), (DQN, False)])
def test_truncation_is_not_stored_as_termination(kind, truncate):
    env = Counting(3, truncate=truncate, action_space=SPACES[kind])
    agent = kind(env, SMALL[kind], seed=0).learn(9)
    stored = agent.replay.arrays()
    ends = [0, 0, 1] * 3
    np.testing.assert_array_equal(stored["truncated"][:, 0], ends if truncate else 0)
    np.testing.assert_array_equal(stored["terminated"][:, 0], 0 if truncate else ends)


def test_a_truncated_transition_bootstraps():
    """With one transition all minibatches are equal; the critic's values are set by hand: Q = 3 everywhere."""
    agent = DDPG((BOX, SPACES[DDPG]), SMALL[DDPG].replace(gamma=0.5, buffer_size=1), seed=0)
    for terminated, y in ((True, 10.0), (False, 10.0 + 0.5 * 3.0)):
        with agent.session.as_default():
            weights = [0 * array for array in agent.critic.get_network_params()]
            agent.critic.set_network_params([*weights[:-1], np.array([3.0])])
            agent.critic.sync_target_network()
        agent.observe(np.zeros(2), np.zeros(1), 10.0, np.ones(2), terminated, True)
        assert agent.update(1)["critic_loss"] == pytest.approx((3.0 - y) ** 2, rel=1e-6)


def test_a_checkpoint_for_other_action_bounds_is_refused_however_small_the_difference(tmp_path):
    observations = gym.spaces.Box(-1, 1, (1,), np.float32)
    small, larger = (gym.spaces.Box(-bound, bound, (1,), np.float64) for bound in (1e-9, 5e-9))
    DDPG((observations, small), SMALL[DDPG], seed=0).save(tmp_path / "agent")
    with refuses(UsageError, "action space"):
        DDPG.load(tmp_path / "agent", (observations, larger))


class SavesAtTheEnd(Callback):
    """Saves the agent at the end of an episode."""

    def __init__(self, path):
        self._path = path

    def on_episode_end(self, agent, episode):
        agent.save(self._path)


def test_an_agent_saved_at_an_episodes_end_still_makes_the_updates_of_that_step(tmp_path):
    agent = make(DDPG, length=7, learning_starts=2)
    agent.learn(7, SavesAtTheEnd(tmp_path / "agent"))
    loaded = DDPG.load(tmp_path / "agent", Counting(7, action_space=SPACES[DDPG]))
    for one in (agent, loaded):
        one.learn(3)
    assert agent.num_timesteps == loaded.num_timesteps == 10
    assert agent.num_updates == loaded.num_updates == 8


# One is fast: batch normalisation draws gains, the other recipes only weights.
@pytest.mark.parametrize(
    "recipe", [pytest.param(r, marks=[pytest.mark.slow] * (r != "lillicrap2015")) for r in RECIPES]
)
def test_every_random_operation_has_a_seed(recipe, monkeypatch):
    """With deterministic operations, which the command enables on a GPU, TensorFlow refuses an op without a seed."""
    monkeypatch.setattr(random_seed.config, "is_op_determinism_enabled", lambda: True)
    with tf.Graph().as_default(), refuses(RuntimeError, "seed"):
        tf.random.uniform([1])
    spaces = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-1, 1, (1,))
    options = Preset(0, recipe=recipe).options | {"hidden": (4, 4), "batch_size": 4, "buffer_size": 20, "jit": False}
    agent = DDPG(spaces, DDPGConfig(**options), seed=0)
    for _ in range(4):
        agent.observe(np.ones(2), np.ones(1), 1.0, np.zeros(2), False, False)
    assert np.isfinite(agent.update(2)["critic_loss"])
    make(DQN, jit=False).learn(20)
