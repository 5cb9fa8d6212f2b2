"""Actions are counted as clipped only if they were executed and stored."""

import numpy as np
import pytest
from environments import Counting
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ddpg import DDPG, DDPGConfig

STARTS = 6


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_ignored_actions_of_a_vector_are_not_counted(mode):
    """Episodes of 2 steps: a NEXT_STEP vector ignores a third of the actions. Noise clips nearly all of them."""
    env = SyncVectorEnv([lambda: Counting(2)] * 3, autoreset_mode=mode)
    config = DDPGConfig(hidden=(4,), learning_starts=STARTS, updates_per_call=1000, noise_scale=1e3, jit=False)
    agent = DDPG(env, config, seed=0).learn(60)
    assert agent.num_updates == 0
    actions = agent.replay.arrays()["actions"][:, 0]
    clipped = int((np.abs(actions[STARTS:]) == 1).sum())  # clipped actions are stored as ±1
    assert 50 <= clipped <= len(actions) - STARTS
    assert agent.num_clipped_actions == clipped
