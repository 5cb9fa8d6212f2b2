"""The comparison of int8 with float32 weights: measured returns, the table, and its page."""

import gymnasium as gym
import numpy as np
import pytest
from c_compilers import KNOWN, works

import ddpg
from benchmarks import int8
from benchmarks.int8 import Episode

HERE = [known.command[0] for known in KNOWN if known.name in ("gcc", "clang") and works(known)][:1]


@pytest.mark.parametrize("compiler", HERE)
def test_both_variants_run_the_zoo_s_policy_in_the_same_episode(compiler):
    """In C with float32 weights the returns equal those of NumPy's policy; with int8 they are slightly different."""
    (episode,) = int8.measure("Pendulum-v1", [3], compiler)
    policy = ddpg.load_policy("zoo:Pendulum-v1")
    with gym.make("Pendulum-v1") as env:
        expected = int8.episode_return(env, lambda state: policy.predict(state)[0], 3)
    assert (episode.seed, episode.float32) == (3, pytest.approx(expected, abs=0.05))
    assert 0 < abs(episode.int8 - episode.float32) < 20


@pytest.mark.parametrize("compiler", HERE)
def test_discrete_actions_are_integers(compiler):
    (episode,) = int8.measure("CartPole-v1", [3], compiler)
    assert episode.float32 == 500


def test_the_table_has_paired_differences():
    """Returns 10, 20 and 30 differ by 0, -2 and -4: by -2 on average, a tenth of the mean return."""
    episodes = [Episode("A-v0", seed, 10.0 * seed, 10.0 * seed - 2 * (seed - 1)) for seed in (1, 2, 3)]
    _, _, line = int8.table(episodes).splitlines()
    assert line == "| A-v0 | 20 | 18 | -2 (-4 to 0) | -10.00% |"
    low, high = int8.interval(np.array([-1.0, 1.0] * 200))
    assert low == pytest.approx(-1.96 / 20, abs=0.02)
    assert high == pytest.approx(1.96 / 20, abs=0.02)


def test_every_environment_has_all_its_episodes():
    episodes = [(episode.env_id, episode.seed) for episode in int8.read()]
    assert sorted(episodes) == sorted((env_id, seed) for env_id in int8.ENVIRONMENTS for seed in int8.SEEDS)
