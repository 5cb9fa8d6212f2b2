"""What a run's first data say about its environment: units, time limits, actions without effect."""

import types

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting
from refusals import lacking

from ddpg import DDPGConfig, train
from ddpg.interaction.env_runner import Episode
from ddpg.replay.buffer import ReplayBuffer
from ddpg.runs.environment_notes import ALIKE, UNCHANGED, EnvironmentNotes, observations_note, rewards_note
from ddpg.runs.evaluation import Evaluation


def agent_with(observations, rewards, terminated=False, **options):
    """Return what the notes read of an agent; its memory holds an episode: observations [N + 1, 2], rewards [N]."""
    replay, count = ReplayBuffer(10, (2,), 1), len(rewards)
    ends = np.arange(1, count + 1) == count
    for row in range(count):
        fields = observations[[row]], np.zeros((1, 1)), rewards[[row]], observations[[row + 1]]
        replay.add(*fields, ends[[row]] & terminated, ends[[row]] & (not terminated))
    return types.SimpleNamespace(config=DDPGConfig(**options), replay=replay)


@pytest.mark.parametrize(
    ("sizes", "options", "words"),
    [
        ((1.0, 1e3), {}, None),
        ((1.0, 1e-9), {}, None),
        ((0.0, 0.0), {}, None),
        ((1.0, 2e3), {}, ["component 1", "2000", "--normalize-observations"]),
        ((-7e6, 1.0), {}, ["component 0", "7000000"]),
        ((1e-4, 2e-4), {}, ["0.0002", "--normalize-observations"]),
        ((1e6, 1.0), {"normalize_observations": True}, None),
        ((1e6, 1.0), {"norm": "renorm_soft"}, None),
        ((1e6, 1.0), {"norm": "batch"}, None),
        ((1e6, 1.0), {"norm": "layer"}, ["component 0"]),
    ],
)
def test_observations_far_from_order_one(sizes, options, words):
    note = observations_note(agent_with(np.array([[0.0], [1], [0.5], [0.1], [0]]) * sizes, np.arange(4.0), **options))
    assert not note if words is None else not lacking(note, *words)


@pytest.mark.parametrize(
    ("rewards", "options", "words"),
    [
        ([1.0, 0.0, 400.0], {"gamma": 0.5}, None),
        ([1000.0, 500.0, 400.0], {"gamma": 0.5}, ["1350", "--normalize-rewards"]),  # 1000 + 500 / 2 + 400 / 4
        ([-1000.0, -500.0, -400.0], {"gamma": 0.5}, ["1350"]),
        ([1000.0, 500.0, 400.0], {"gamma": 0.5, "normalize_rewards": True}, None),
        ([1000.0, 500.0, 400.0], {"gamma": 0.5, "rescale_rewards": True}, None),
        ([-1.0, -1.0, -1.0], {}, ["all 3 rewards", "-1"]),
        ([-1.0, -1.0, -1.0], {"terminated": True}, None),
    ],
)
def test_rewards_that_are_large_or_all_alike(rewards, options, words):
    note = rewards_note(agent_with(np.zeros((4, 2)), np.array(rewards), **options))
    assert not note if words is None else not lacking(note, *words)


@pytest.mark.parametrize(
    ("lengths", "terminated", "begun", "said"),
    [
        ([200] * ALIKE, True, 0, True),
        ([200] * (ALIKE - 1), True, 0, False),
        ([200] * 2 * ALIKE, False, 0, False),
        ([200, 199, *[200] * ALIKE], True, 0, False),
        ([1] * ALIKE, True, 0, False),  # a bandit
        ([200] * ALIKE, True, 5000, False),  # a resumed run
    ],
)
def test_first_episodes_that_all_terminate_after_as_many_steps(lengths, terminated, begun, said, capsys):
    notes, agent = EnvironmentNotes("Mine-v0"), types.SimpleNamespace(num_timesteps=begun)
    notes.on_training_start(agent, 10_000)
    for length in lengths:
        notes.on_episode_end(agent, Episode(0.0, length, 0, None, terminated))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == said
    assert not said or not lacking(lines[0], "Mine-v0", "200 steps", "truncated=True")


@pytest.mark.parametrize(
    ("returns", "saturated", "words"),
    [
        ([[1.0, 2.0]] * (UNCHANGED + 2), 0.5, ["Mine-v0", "actions"]),
        ([[1.0, 2.0]] * UNCHANGED, 0.995, ["bound", "--bounding inverting"]),
        ([[1.0, 2.0]] * (UNCHANGED - 1), 0.5, None),
        ([[1.0, 2.0], [1.0, 2.5]] * UNCHANGED, 0.5, None),
        ([[500.0, 500.0]] * UNCHANGED, 0.5, None),  # every episode may be perfect
        ([[1.0, 2.0]] * UNCHANGED, None, None),  # discrete actions
    ],
)
def test_evaluations_that_never_change(returns, saturated, words, capsys):
    notes, agent = EnvironmentNotes("Mine-v0"), types.SimpleNamespace(num_updates=0)
    for numbers in returns:
        agent.num_updates += 10
        notes.on_update(agent, {} if saturated is None else {"actions_saturated": saturated})
        for _ in range(2):  # a second evaluation without an update in between does not count
            notes.on_evaluation(agent, Evaluation(np.array(numbers), np.array([9, 9]), 0, None, 0.0))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (words is not None)
    assert not lines or not lacking(lines[0], *words)


def test_a_run_says_what_its_environment_does_wrong(tmp_path, capsys):
    """Rewards of 1,000 to 3,000, and each episode is terminated after three steps."""
    gym.register("Ignores-v0", lambda: gym.wrappers.TransformReward(Counting(3), lambda reward: 1e3 * reward))
    config = DDPGConfig(hidden=(2,), batch_size=2, learning_starts=4, updates_per_call=1, gamma=0.9, jit=False)
    steps = {"total_timesteps": 18, "evaluation_interval": 18, "evaluation_episodes": 1}
    train("Ignores-v0", config, seed=0, root=tmp_path, progress_bar=False, **steps)
    lines = [line for line in capsys.readouterr().err.splitlines() if "Ignores-v0" in line]
    expected = ["5230", "--normalize-rewards"], ["3 steps", "truncated=True"]  # 1000 + 0.9 * 2000 + 0.81 * 3000
    assert [lacking(line, *words) for line, words in zip(lines, expected, strict=True)] == [[], []]
    del gym.registry["Ignores-v0"]
