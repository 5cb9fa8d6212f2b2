"""What an option costs that is off: nothing. Same seed, same numbers as before any option of the family was there."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from plain_runs import ACTIONS, RUNS, SMALL, STEPS, Swing, run

from ddpg import DDPG, DDPGConfig

GOLDEN = Path(__file__).parents[1] / "golden" / "plain_runs.npz"


@pytest.mark.parametrize("jit", [False, True], ids=["uncompiled", "compiled"])
@pytest.mark.parametrize("name", RUNS)
def test_same_seed_same_numbers_as_before(name, jit):
    """A random number more, or in another order, and every later action is another; a term more, and the weights."""
    with np.load(GOLDEN) as stored:
        before = {what: stored[f"{name}/{what}"] for what in ("actions", "weights")}
    now = run(name, jit=jit)
    assert len(now["actions"]) == STEPS
    for what, values in before.items():
        np.testing.assert_allclose(now[what], values, rtol=0, atol=2e-6, err_msg=what)


def test_nothing_is_kept_for_what_is_off():
    """Weights and biases of three layers, their moving averages and Adam's moments; its two powers and the rate."""
    agent = DDPG((Swing.observation_space, ACTIONS), DDPGConfig(**SMALL), seed=0)
    with agent.graph.as_default():
        assert len(tf.compat.v1.global_variables()) == 2 * (3 * 2 * 4 + 3)
