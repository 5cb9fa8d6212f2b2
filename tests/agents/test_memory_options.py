"""Options of the replay memory: n-step returns, priorities, normalised inputs, demonstrations."""

import gymnasium as gym
import numpy as np
import pytest
from agent_options import TINY
from environments import Counting, ReusingVector
from gymnasium.vector import AutoresetMode
from refusals import refuses

from ddpg import DDPG, DQN, DDPGConfig, DQNConfig, UsageError, evaluate
from ddpg.interaction.transitions import Transitions

BOX = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
ACTIONS = gym.spaces.Box(-2.0, 4.0, (1,), np.float32)
SMALL = DDPGConfig(
    **TINY | {"batch_size": 8}, learning_starts=4, updates_per_call=4, buffer_size=40, gamma=0.5, target="online"
)


def agent_of(**options):
    return DDPG((BOX, ACTIONS), SMALL.replace(**options), seed=0)


def constant_critic(agent, value):
    """Make Q and Q′ ``value`` everywhere."""
    with agent.session.as_default():
        weights = [0 * array for array in agent.critic.get_network_params()]
        agent.critic.set_network_params([*weights[:-1], np.array([value])])
        agent.critic.sync_target_network()


# -- n-step returns -----------------------------------------------------------------------------------


def test_returns_of_interleaved_environments_are_separate():
    """Two episodes of three steps with reward 1, interleaved; γ = 0.5 and n = 2."""
    agent = agent_of(n_steps=2, normalize_rewards=True)
    for env_indices, rewards, largest in (
        ((0, 0), [1.0] * 6, 1.0),  # with one index no row continues the one before
        ((1, 2), [1.5, 1.5, 1.5, 1.5, 1.0, 1.0], 1.75),
    ):
        for step in range(3):
            for place, env_index in zip((10, 20), env_indices, strict=True):
                state = np.full(2, place + step)
                agent.observe(state, [0.0], 1.0, state + 1, step == 2, False, env_index=env_index)
        drawn = agent.replay.gather(np.arange(len(agent.replay))[-6:], n_steps=2, gamma=0.5)
        assert drawn.rewards[:, 0].tolist() == rewards
        assert agent.memory.rewards.state()["largest"] == largest
    with refuses(UsageError, "env_index=-1"):
        agent.observe(np.zeros(2), [0.0], 1.0, np.zeros(2), False, False, env_index=-1)


def test_three_step_returns_of_an_agent():
    """γ = 0.5, Q = Q′ = 8. Rewards 1, 2, 3: y = 1 + 1 + 0.75, 2 + 1.5, 3; if truncated, a share of Q′ is added."""
    agent = agent_of(n_steps=3, prioritised="proportional", priority_exponent=1.0, batch_size=64)
    constant_critic(agent, 8.0)
    for terminated in (True, False):
        for step in range(3):
            last = step == 2
            state = np.full(2, step)
            agent.observe(state, [0.0], step + 1.0, state + 1, last and terminated, last and not terminated)
    agent.update(1)  # 64 draws of six rows: each is drawn
    errors = agent.memory.sampler.state()["priorities"]
    expected = np.array([2.75, 3.5, 3, 2.75 + 1, 3.5 + 2, 3 + 4])
    np.testing.assert_allclose(errors, np.abs(8 - expected), rtol=1e-4)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_returns_of_a_vector_stay_within_their_environment(mode):
    """Observations are [episode, step], rewards the step; environment i ends after 3 + i steps. The ring wraps."""
    agent = DDPG(ReusingVector(mode), SMALL.replace(learning_starts=1000), seed=0).learn(100)
    stored = agent.replay.arrays()
    assert len(agent.replay) == agent.replay.capacity == 40
    batch = agent.replay.gather(np.arange(40), 3, 0.5)
    first, after = stored["observations"][:, 1], batch.next_observations[:, 1]
    steps = np.round(np.log2(1 / batch.discounts[:, 0])).astype(int)
    np.testing.assert_array_equal(after, first + steps)
    np.testing.assert_array_equal(batch.next_observations[:, 0], stored["observations"][:, 0])
    for start, length, total in zip(first, steps, batch.rewards[:, 0], strict=True):
        assert total == sum(0.5**k * (start + 1 + k) for k in range(length))
    short = (steps < 3) & (batch.terminated[:, 0] == 0)
    assert short.sum() <= 4  # the newest two of each environment
    assert (steps == 3).sum() >= 10


def test_returns_do_not_span_two_calls_of_learn():
    """All observations are equal, so only the reset marks the new episode."""

    class Still(Counting):
        def _observation(self):
            return np.zeros(2)

    env = Still(length=100)
    agent = DDPG(env, SMALL, seed=0).learn(3)
    evaluate(agent, env, 1)
    agent.learn(3)
    batch = agent.replay.gather(np.arange(6), 3, 0.5)
    assert batch.discounts[:, 0].tolist() == [0.125, 0.25, 0.5] * 2


# -- priorities ---------------------------------------------------------------------------------------


def test_the_correction_exponent_reaches_one(monkeypatch):
    agent = agent_of(prioritised="proportional", priority_correction=0.2, priority_correction_steps=8)
    seen = []
    sample = agent.memory.sampler.sample

    def watching(rng, updates, batch_size, correction):
        seen.append(correction)
        return sample(rng, updates, batch_size, correction)

    monkeypatch.setattr(agent.memory.sampler, "sample", watching)
    for step in range(10):
        agent.observe(np.zeros(2), [0.0], float(step), np.ones(2), False, False)
        if step % 3 == 0:
            agent.update(1)
    np.testing.assert_allclose(seen, [0.3, 0.6, 0.9, 1.0])


def test_priorities_are_the_errors_of_all_updates_in_a_call():
    """Rewards 0 to 9, terminated, and Q = 0: |δ| is the reward, up to steps of 1e-12."""
    rates = {"actor_learning_rate": 1e-12, "critic_learning_rate": 1e-12}
    agent = agent_of(prioritised="lap", priority_exponent=1.0, batch_size=64, **rates)
    constant_critic(agent, 0.0)
    for reward in range(10):
        agent.observe(np.zeros(2), [0.0], float(reward), np.ones(2), True, False)
    agent.update(6)
    np.testing.assert_allclose(agent.memory.sampler.state()["priorities"], np.maximum(np.arange(10), 1), rtol=1e-4)


# -- normalised inputs --------------------------------------------------------------------------------


def test_acting_and_learning_normalise_alike():
    """Observations [0, 1] and [4, 3] are normalised to ±1, for both critic and actor."""
    agent, plain = agent_of(normalize_observations=True), agent_of()
    results = []
    for other, states in ((agent, [[0, 1], [4, 3]]), (plain, [[-1, -1], [1, 1]])):
        for before, after in (states, states[::-1]):
            other.observe(before, [1.0], 1.0, after, False, False)
        results.append(other.update(8))
    assert results[0] == pytest.approx(results[1], rel=1e-4)
    query = np.array([[6.0, 2.0], [4.0, 1e9]])
    np.testing.assert_allclose(agent.predict(query)[0], plain.predict([[2.0, 0.0], [1.0, 10.0]])[0], atol=1e-4)
    np.testing.assert_array_equal(agent.replay.arrays()["observations"], [[0, 1], [4, 3]])  # stored as observed
    state = agent.policy.normaliser.state()
    assert state["count"] == 2
    evaluate(agent, Counting(5), 2)
    np.testing.assert_array_equal(agent.policy.normaliser.state()["mean"], state["mean"])


def test_each_observation_acted_in_is_counted_once():
    """The next observation is not counted: it is that of the next step, or the episode's last."""
    agent = agent_of(normalize_observations=True)
    for before in (0.0, 2.0):
        agent.observe(np.full(2, before), [0.0], 0.0, np.full(2, 10.0), True, False)
    statistics = agent.memory.statistics()
    np.testing.assert_array_equal(statistics["observations.mean"], [1, 1])
    np.testing.assert_array_equal(statistics["observations.squares"], [2, 2])


def test_the_return_that_scales_rewards_restarts_with_an_episode():
    """γ = 0.5: G is 4, and then 4 + 2 unless the episode was terminated or truncated; also for rows stored together."""
    agent, zeros = agent_of(normalize_rewards=True), np.zeros((2, 2), np.float32)
    for case, (terminated, truncated, largest) in enumerate([(True, False, 4), (False, True, 4), (False, False, 6)]):
        for _ in range(2):
            agent.observe(zeros[0], [0.0], 4.0, zeros[0], terminated, truncated, env_index=case)
        flags = np.full((2, 2), [[terminated], [truncated]])
        agent.memory.store(Transitions(zeros, zeros[:, :1], zeros[:, 0] + 4, zeros, *flags, [3 + case] * 2))
        assert agent.memory.statistics()["rewards.largest"] == largest


def test_transitions_observed_during_learn_are_not_part_of_its_returns():
    """Rewards 1, 2, 3 in the episode, and 3 observed beside each with the same index: with γ = 0.5 none exceeds 3."""
    agent = DDPG(Counting(3), SMALL.replace(normalize_rewards=True, learning_starts=50), seed=0)

    def observes(agent):
        agent.observe(np.full(2, 9.0), [0.0], 3.0, np.full(2, 10.0), False, False)

    agent.learn(12, callbacks=observes)
    assert agent.memory.rewards.state()["largest"] == 3


def test_rewards_are_divided_by_the_scale_of_returns():
    """One terminal transition with reward −6: G = −6, so the scale is 6 / 5, and r becomes −5."""
    agent = agent_of(normalize_rewards=True)
    constant_critic(agent, 0.0)
    agent.observe(np.zeros(2), [0.0], -6.0, np.ones(2), True, False)
    assert agent.update(1)["critic_loss"] == pytest.approx(25, rel=1e-5)
    assert agent.replay.arrays()["rewards"].tolist() == [[-6]]


def test_returns_are_computed_per_environment_of_a_vector():
    """γ = 0.5, rewards 1, 2, 3 and 1, 2, 3, 4: the returns are 1, 2.5, 4.25, and 6.125 at the fourth step."""
    config = SMALL.replace(normalize_rewards=True, learning_starts=1000)
    agent = DDPG(ReusingVector(AutoresetMode.SAME_STEP), config, seed=0).learn(24)
    seen = [[1, 2.5, 4.25], [1, 2.5, 4.25, 6.125]]
    assert agent.memory.rewards.scale == pytest.approx(np.std(seen[0] * 4 + seen[1] * 3))


def test_images_are_not_normalised():
    space = gym.spaces.Box(0, 255, (4, 4, 1), np.uint8)
    with refuses(UsageError, "normalize_observations"):
        DQN((space, gym.spaces.Discrete(2)), DQNConfig(normalize_observations=True))


# -- demonstrations -----------------------------------------------------------------------------------

DEMONSTRATED = {
    "observations": np.array([[0, 0], [0, 1], [0, 2], [1, 0]]),
    "actions": [[1.0], [4.0], [-2.0], [1.0]],
    "rewards": [1, 2, 3, 9],
    "next_observations": np.array([[0, 1], [0, 2], [0, 3], [1, 1]]),
    "terminated": [0, 0, 1, 0],
    "truncated": np.zeros(4, bool),
}


def test_demonstrations_are_remembered():
    agent = agent_of(n_steps=2, normalize_observations=True, normalize_rewards=True)
    agent.remember(**DEMONSTRATED)
    stored = agent.replay.arrays()
    assert stored["actions"][:, 0].tolist() == [0, 1, -1, 0]  # scaled from the box [-2, 4]
    for name in ("observations", "next_observations"):
        np.testing.assert_array_equal(stored[name], DEMONSTRATED[name])
    assert agent.replay.gather(np.arange(4), 2, 0.5).discounts[:, 0].tolist() == [0.25, 0.25, 0.5, 0.5]
    assert agent.num_timesteps == 0
    assert agent.largest_reward == 9
    assert agent.policy.normaliser.state()["count"] == 4
    assert agent.memory.rewards.scale == pytest.approx(np.std([1, 2.5, 4.25, 9]))
    agent.remember([[1, 1]], [[1.0]], [0], [[1, 2]], [True], [False])  # another episode's, not the last row's successor
    assert agent.replay.gather(np.arange(5), 2, 0.5).discounts[:, 0].tolist() == [0.25, 0.25, 0.5, 0.5, 0.5]
    none = np.zeros(0, bool)
    agent.remember(np.zeros((0, 2)), [], [], np.zeros((0, 2)), none, none)
    assert len(agent.replay) == 5
    agent.update(2)


def test_returns_of_demonstrations_follow_their_episodes():
    """A row that does not continue the previous one begins a return, as it begins an episode in memory."""
    agent = agent_of(normalize_rewards=True)
    no = np.zeros(3, bool)
    agent.remember([[0, 0], [5, 5], [5, 6]], [[0.0]] * 3, [1, 2, 3], [[0, 1], [5, 6], [5, 7]], no, no)
    assert agent.memory.rewards.scale == pytest.approx(np.std([1, 2, 4]))


def test_more_demonstrations_than_the_buffer_holds():
    agent = agent_of(buffer_size=3)
    agent.remember(**DEMONSTRATED)
    assert agent.replay.arrays()["rewards"][:, 0].tolist() == [9, 2, 3]


@pytest.mark.parametrize(
    ("kind", "share", "counts"),
    [(DDPG, None, None), (DDPG, 0.25, 2), pytest.param(DQN, 0.5, 4, marks=pytest.mark.slow)],
)
def test_the_share_of_demonstrations_in_each_minibatch(kind, share, counts):
    """Four demonstrated rows and 36 own ones with reward 0: of each 8, a fixed share, or as uniformly drawn."""
    small = {"hidden": (4,), "batch_size": 8, "jit": False, "dataset_share": share}
    space, config = (ACTIONS, DDPGConfig) if kind is DDPG else (gym.spaces.Discrete(3), DQNConfig)
    agent = kind((BOX, space), config(**small), seed=0)
    actions = DEMONSTRATED["actions"] if kind is DDPG else [0, 1, 2, 0]
    agent.remember(**DEMONSTRATED | {"actions": actions})
    for step in range(36):
        agent.observe([2.0, step], [0.0] if kind is DDPG else 1, 0.0, [2.0, step + 1.0], False, False)
    batch, _ = agent.memory.sampler.sample(np.random.default_rng(0), 50, 8, 1.0)
    found = (batch.rewards[..., 0] > 0).sum(axis=1)
    assert np.isin(batch.rewards, [0, 1, 2, 3, 9]).all()
    if counts is None:
        assert 0.3 < found.mean() < 1.5  # 10 % of 8
    else:
        assert {*found} == {counts}
        agent.update(2)


def test_invalid_demonstrations_are_refused():
    agent = agent_of()
    for changes, message in (
        ({"observations": np.zeros((4, 3))}, "observations (4, 3)"),
        ({"observations": np.zeros(2)}, "observations (2,)"),
        ({"next_observations": np.zeros((3, 2))}, "4 3 next_observations"),
        ({"next_observations": np.full((4, 2), np.nan)}, "next_observations nan"),
        ({"actions": [[0.0]] * 3}, "actions 4 3"),
        ({"actions": 1}, "actions=1 4"),
        ({"actions": [[0.0], [0.0], [9.0], [0.0]]}, "outside action"),
        ({"rewards": [1, 2, 3]}, "rewards (3,)"),
        ({"rewards": [1, 2, np.nan, 4]}, "rewards nan"),
        ({"terminated": [0, 0, 2, 0]}, "flag"),
        ({"truncated": [0]}, "truncated shape"),
    ):
        with refuses(UsageError, message):
            agent.remember(**(DEMONSTRATED | changes))
    assert len(agent.replay) == 0


def test_an_invalid_discrete_action_is_named_with_its_row():
    agent = DQN((gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)), DQNConfig(hidden=(4,), jit=False), seed=0)
    states = np.zeros((3, 2), np.float32)
    for actions, words in (
        ([0, 1, 5], "row 2 5 0 to 1"),
        (np.array([0.0, 1, 1]), "row 0 astype(int)"),
        (np.array([[0], [1], [1]]), "row 0 [0] reshape(-1)"),
        (np.array([True, False, True]), "row 0 astype(int)"),
        (np.array([0.5, 1, 1]), "row 0 0.5"),
        (np.eye(3, 2), "row 0 [1. 0.]"),
        ([None, 1, 1], "row 0 None"),
    ):
        with refuses(UsageError, words) as caught:
            agent.remember(states, actions, np.zeros(3), states, np.zeros(3, bool), np.zeros(3, bool))
        assert ("astype" in str(caught.value)) == ("astype" in words or "reshape" in words)
    assert len(agent.replay) == 0
