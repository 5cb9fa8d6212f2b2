"""One environment, or a vector of them in either autoreset mode: the same transitions."""

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from ddpg import DDPG, DDPGConfig, UsageError
from ddpg.experience.interaction import make_interaction

LENGTHS = (3, 5)


def collect(env, steps):
    """Return what ``steps`` steps stored: rows of (environment, s, r, s′, terminated, truncated)."""
    interaction = make_interaction(env, seed=0)
    rows, episodes = [], []
    for _ in range(steps):
        actions = np.zeros((interaction.count, 1), np.float32)
        transitions = interaction.step(actions)
        numbers = np.arange(interaction.count)[transitions.environments]
        for row in zip(numbers, *transitions[1:-1], strict=True):
            rows.append(tuple(np.asarray(item).tolist() for item in row))
        episodes += transitions.episodes
    return rows, episodes


def vector(mode, kind=SyncVectorEnv, **options):
    makers = [lambda length=length: Counting(length, **options) for length in LENGTHS]
    return kind(makers, autoreset_mode=mode)


@pytest.mark.parametrize("truncate", [True, False])
def test_single(truncate):
    rows, episodes = collect(Counting(3, truncate), 4)
    assert rows == [
        (0, [0.0, 0.0], 1.0, [0.0, 1.0], False, False),
        (0, [0.0, 1.0], 2.0, [0.0, 2.0], False, False),
        (0, [0.0, 2.0], 3.0, [0.0, 3.0], not truncate, truncate),  # s′ is the true last observation
        (0, [1.0, 0.0], 1.0, [1.0, 1.0], False, False),
    ]
    assert episodes == [(6.0, 3, 0, None)]


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_vector_stores_what_single_environments_do(mode, kind, truncate):
    env = vector(mode, kind, truncate=truncate)
    rows, episodes = collect(env, 24)
    env.close()
    for number, length in enumerate(LENGTHS):
        mine = [(0, *row[1:]) for row in rows if row[0] == number]
        expected, expected_episodes = collect(Counting(length, truncate), len(mine))
        assert mine == expected
        assert [episode[:2] for episode in episodes if episode.index == number] == [
            episode[:2] for episode in expected_episodes
        ]
    resets = sum(24 // (length + 1) for length in LENGTHS) if mode == AutoresetMode.NEXT_STEP else 0
    assert len(rows) == 2 * 24 - resets


def test_other_modes_are_refused():
    with pytest.raises(UsageError, match=r"autoreset_mode AutoresetMode\.DISABLED"):
        make_interaction(vector(AutoresetMode.DISABLED), seed=0)
    env = vector(AutoresetMode.SAME_STEP)
    env.metadata = {}
    with pytest.raises(UsageError, match="autoreset_mode None"):
        make_interaction(env, seed=0)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_agent_learns_on_a_vector(mode):
    env = vector(mode)
    agent = DDPG(env, DDPGConfig(hidden=(8,), batch_size=4, learning_starts=10, updates_per_call=4), seed=0)
    agent.learn(60)
    stored = agent.replay.arrays()
    assert len(agent.replay) == agent.num_timesteps >= 60
    np.testing.assert_array_equal(stored["next_observations"][:, 1], stored["observations"][:, 1] + 1)
    np.testing.assert_array_equal(stored["rewards"][:, 0], stored["next_observations"][:, 1])
    # 48 or so steps of learning at one update each, four at a time.
    assert 40 <= agent.num_updates <= agent.num_timesteps - 10
    # The action that was sent is the action that is stored, in [-1, 1]; the box is [-2, 4].
    sent = np.array([a for e in env.envs for a in e.unwrapped.actions])
    assert {round(float(a), 4) for a in stored["actions"][:, 0] * 3 + 1} <= {round(float(a), 4) for a in sent[:, 0]}


def test_not_an_environment():
    with pytest.raises(UsageError, match="neither a gymnasium Env"):
        DDPG("Pendulum-v1")


def test_pair_of_spaces():
    env = gym.make("Pendulum-v1")
    agent = DDPG((env.observation_space, env.action_space), DDPGConfig(hidden=(8,)))
    assert env.action_space.contains(agent.predict(env.reset(seed=0)[0])[0])
    with pytest.raises(UsageError, match="made from spaces"):
        agent.learn(10)
