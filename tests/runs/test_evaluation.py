"""``evaluate`` runs complete episodes of a policy, in one environment or a vector."""

import functools
import operator

import gymnasium as gym
import numpy as np
import pytest
from environments import Counting, ReusingVector, Still, Walk
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from refusals import refuses

import ddpg
from ddpg import UsageError
from ddpg.runs.evaluation import choice_seed, evaluate, evaluation_seed, final_seed

MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]


class Linear:
    """Acts on the sum of an observation, for one or a batch; records the values of ``deterministic``."""

    def __init__(self, env=None):
        self.env = env
        self.deterministic_values = set()
        self.num_clipped_predictions = 0

    def predict(self, observation, deterministic=False):
        self.deterministic_values.add(deterministic)
        self.num_clipped_predictions += 1
        return np.tanh(np.asarray(observation).sum(axis=-1, keepdims=True)).astype(np.float32), None


class Learner(Linear):
    """Stands in for an agent that learns in ``env``."""

    abandoned = 0

    def abandon_episode(self):
        self.abandoned += 1


def by_hand(env, episodes, seed):
    """Return (return, length, success) of each episode, from a plain Gymnasium loop."""
    rows, policy = [], Linear()
    for number in range(episodes):
        observation, _ = env.reset(seed=seed) if number == 0 else env.reset()
        rewards, done = [], False
        while not done:
            observation, reward, terminated, truncated, info = env.step(policy.predict(observation)[0])
            rewards.append(reward)
            done = terminated or truncated
        total = functools.reduce(operator.add, rewards)  # sum() compensates rounding errors from Python 3.12 on
        rows.append((total, len(rewards), info["is_success"]))
    return rows


def rows_of(result):
    return list(zip(result.returns.tolist(), result.lengths.tolist(), result.successes.tolist(), strict=True))


def test_one_environment_equals_a_plain_loop():
    """Only the first reset is seeded, so that the episodes differ."""
    expected = by_hand(Walk(), 6, seed=3)
    assert len(set(expected)) == 6
    policy = Linear()
    result = evaluate(policy, Walk(), 6, seed=3)
    assert rows_of(result) == expected
    assert policy.deterministic_values == {True}
    assert result.clipped_actions == result.lengths.sum()
    again = evaluate(policy, Walk(), 6, seed=4)
    assert rows_of(again) != expected
    assert again.clipped_actions == again.lengths.sum()  # without those of the first evaluation
    evaluate(policy, Walk(), 1, deterministic=False)
    assert policy.deterministic_values == {True, False}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "episodes"),
    [
        *((SyncVectorEnv, episodes) for episodes in (1, 2, 7)),
        (AsyncVectorEnv, 7),
        *(pytest.param(AsyncVectorEnv, episodes, marks=pytest.mark.slow) for episodes in (1, 2)),
    ],
)
def test_each_environment_of_a_vector_contributes_its_first_episodes(mode, kind, episodes):
    """Gymnasium seeds environment i with seed + i."""
    env = kind([Walk] * 3, autoreset_mode=mode)
    result = evaluate(Linear(), env, episodes, seed=3)
    env.close()
    expected = [row for index in range(3) for row in by_hand(Walk(), (episodes + index) // 3, seed=3 + index)]
    assert len(expected) == episodes
    found = sorted(rows_of(result))
    np.testing.assert_allclose(found, sorted(expected), rtol=1e-12)


def test_short_episodes_are_not_preferred():
    env = SyncVectorEnv([lambda: Counting(2), lambda: Counting(20)])
    lengths = evaluate(Still(), env, 6).lengths
    assert sorted(lengths) == [2, 2, 2, 20, 20, 20]


@pytest.mark.parametrize("mode", MODES)
def test_a_vector_that_reuses_its_arrays(mode):
    result = evaluate(Still(), ReusingVector(mode), 5)
    assert sorted(rows_of(result)) == sorted([(6, 3, True), (6, 3, False), *[(10, 4, n % 2 == 0) for n in range(3)]])


def test_successes_are_reported_only_if_every_episode_reports_one():
    assert evaluate(Still(), Counting(3), 2).successes is None
    env = SyncVectorEnv([Walk, lambda: Walk(says_success=False)])
    assert evaluate(Still(), env, 2).successes is None
    result = evaluate(Linear(), SyncVectorEnv([Walk] * 2), 8, seed=1)
    assert result.summary()["success_rate"] == (result.returns > 0).mean()
    assert 0 < result.summary()["success_rate"] < 1


def test_infos_of_each_environment_as_a_list():
    """Some custom vector environments return the final infos as a list."""

    class Listing(ReusingVector):
        def step(self, actions):
            *rest, infos = super().step(actions)
            if "final_info" in infos:
                success = infos["final_info"]["is_success"]
                ended = infos["_final_info"]
                infos["final_info"] = [{"is_success": success[i]} if ended[i] else None for i in range(self.num_envs)]
            return *rest, infos

    successes = evaluate(Still(), Listing(AutoresetMode.SAME_STEP), 4).successes
    assert sorted(successes) == [False, False, True, True]


def test_discrete_observations():
    env = gym.make("FrozenLake-v1", is_slippery=False)

    class Right:
        def predict(self, observation, deterministic=True):
            assert observation in env.observation_space
            return 2, None

    assert evaluate(Right(), env, 2, seed=0).lengths.max() <= 100


# -- the training environment of an agent --------------------------------------------------------------


@pytest.mark.parametrize("wrap", [lambda env: env, gym.wrappers.ClipAction, lambda env: env.unwrapped])
def test_evaluating_in_the_training_environment_abandons_its_episode(wrap):
    policy = Learner(gym.wrappers.TimeLimit(Walk(), 5))
    evaluate(policy, wrap(policy.env), 2)
    assert policy.abandoned == 1
    evaluate(policy, SyncVectorEnv([lambda: policy.env]), 2)
    assert policy.abandoned == 2


def test_evaluating_in_the_training_vector_abandons_its_episodes():
    vector = SyncVectorEnv([Walk] * 2)
    policy = Learner(vector)
    evaluate(policy, vector, 2)
    evaluate(policy, vector.envs[1], 1)
    evaluate(policy, gym.wrappers.vector.RecordEpisodeStatistics(vector), 1)
    assert policy.abandoned == 3


def test_an_evaluation_that_fails_abandons_the_training_episode():
    class Failing(Learner):
        def predict(self, observation, deterministic=True):
            raise RuntimeError("no action")

    policy = Failing(Walk())
    with refuses(RuntimeError, "action"):
        evaluate(policy, policy.env, 2)
    assert policy.abandoned == 1


def test_evaluating_in_another_environment_keeps_the_training_episode():
    policy = Learner(Walk())
    evaluate(policy, Walk(), 2)
    evaluate(policy, SyncVectorEnv([Walk] * 2), 2)
    evaluate(Learner(None), Walk(), 2)
    assert policy.abandoned == 0
    evaluate(Linear(env := Walk()), env, 1)  # a policy without abandon_episode


# -- errors -------------------------------------------------------------------------------------------

HALF = gym.wrappers.RescaleAction(gym.make("Pendulum-v1"), np.float32(-1), np.float32(1))


@pytest.mark.parametrize(
    ("policy", "env", "options", "message"),
    [
        (Linear(), Walk(), {"episodes": 0}, "episodes=0"),
        (Linear(), Walk(), {"episodes": 2.5}, "episodes=2.5"),
        (lambda observation: 0, Walk(), {}, "method predict"),
        (Linear(), "Pendulum-v1", {}, "env='Pendulum-v1' Env VectorEnv"),
        (Linear(), (Walk().observation_space, Walk().action_space), {}, "Env VectorEnv"),
        (Linear(), SyncVectorEnv([Walk], autoreset_mode=AutoresetMode.DISABLED), {}, "autoreset_mode"),
        (Still(), Counting(3, nan_reward_at=2), {}, "reward nan"),
        (ddpg.load_policy("zoo:MountainCarContinuous-v0"), gym.make("MountainCar-v0"), {}, "Discrete(3) Box(-1.0, 1.0"),
        (ddpg.load_policy("zoo:Pendulum-v1"), HALF, {}, "Box(-1.0, 1.0 Box(-2.0, 2.0 wrappers"),
        (ddpg.load_policy("zoo:Pendulum-v1"), SyncVectorEnv([lambda: HALF]), {}, "Box(-1.0, 1.0 Box(-2.0, 2.0"),
    ],
)
def test_bad_arguments_are_refused(policy, env, options, message):
    with refuses(UsageError, message):
        evaluate(policy, env, **options)


@pytest.mark.parametrize(("derived", "offset"), [(evaluation_seed, 1), (final_seed, 2), (choice_seed, 3)])
def test_derived_seeds_are_valid_seeds(derived, offset):
    assert derived(7) == 7 + offset * 10**6
    assert derived(2**63 - 1 - offset * 10**6) == 2**63 - 1
    assert derived(2**63 - 1) == offset * 10**6 - 1


@pytest.mark.parametrize(("given", "hint"), [({"n_eval_episodes": 2}, "episodes="), ({"episods": 2}, "'episodes'")])
def test_unknown_keywords_get_a_hint(given, hint):
    with refuses(UsageError, "evaluate", next(iter(given))) as caught:
        evaluate(Linear(), Walk(), **given)
    assert hint in str(caught.value)
