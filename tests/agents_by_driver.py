"""Small agents with a filled memory, for tests that compare drivers of updates."""

import gymnasium as gym
import numpy as np

from ddpg import DDPG, DDPGConfig

BOX = gym.spaces.Box(-1, 1, (2,), np.float32)
SMALL = {"hidden": (6, 5), "batch_size": 4, "updates_per_call": 1, "jit": False}
DRIVERS = {
    "stepped": {"td_target": "placeholder", "updates_per_call": 1},
    "uncompiled": {},
    "xla": {"jit": True, "compiler": "xla"},
    "native": {"jit": True, "compiler": "native"},
}


def filled(agent, rows=8):
    """Store random transitions in an agent's memory, and return the agent."""
    rng, space = np.random.default_rng(0), agent.action_space
    for _ in range(rows):
        before, after = rng.uniform(-1, 1, (2, *agent.observation_space.shape)).astype(np.float32)
        action = (
            rng.uniform(space.low, space.high).astype(np.float32) if hasattr(space, "low") else rng.integers(space.n)
        )
        agent.observe(before, action, rng.normal(), after, bool(rng.random() < 0.1), False)
    return agent


def agent_with(kind=DDPG, actions=BOX, config=DDPGConfig, seed=0, **options):
    """Return an agent that has stored 16 transitions."""
    agent = kind((BOX, actions), config(**SMALL | options), seed)
    rng = np.random.default_rng(1)
    for _ in range(16):
        state, action, after = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
        agent.observe(state, action if kind is DDPG else rng.integers(2), rng.normal(), after, False, False)
    return agent
