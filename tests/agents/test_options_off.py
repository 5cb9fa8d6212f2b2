"""Disabled options cost nothing: the same seed gives the same numbers as before the options existed."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from conftest import assert_close
from plain_runs import ACTIONS, RUNS, SMALL, STEPS, Swing, run

from ddpg import DDPG, DDPGConfig

GOLDEN = Path(__file__).parents[1] / "golden" / "plain_runs.npz"


# Slow: test_native and test_dqn compare such compiled updates with uncompiled ones; two of the runs, for their time.
LONG = (
    *("ddpg_other_paths-compiled", "ddpg_online-compiled", "dqn-compiled"),
    *("ddpg-uncompiled", "ddpg_other_paths-uncompiled", "ddpg_online-uncompiled"),
)
CASES = [
    pytest.param(name, jit, id=case, marks=[pytest.mark.slow] * (case in LONG))
    for name in RUNS
    for jit, case in ((False, f"{name}-uncompiled"), (True, f"{name}-compiled"))
]


@pytest.mark.parametrize(("name", "jit"), CASES)
def test_same_seed_same_numbers_as_before(name, jit):
    """An additional random number would change all later actions, an additional term the weights."""
    with np.load(GOLDEN) as stored:
        before = {what: stored[f"{name}/{what}"] for what in ("actions", "weights")}
    now = run(name, jit=jit)
    assert len(now["actions"]) == STEPS
    assert_close(now, before, rtol=0, atol=2e-6)


def test_disabled_options_have_no_variables():
    """Weights and biases of three layers, their moving averages and Adam's moments; Adam's two powers and the rate."""
    agent = DDPG((Swing.observation_space, ACTIONS), DDPGConfig(**SMALL), seed=0)
    with agent.graph.as_default():
        assert len(tf.compat.v1.global_variables()) == 2 * (3 * 2 * 4 + 3)
