"""Find the agent class for an action space or a checkpoint."""

from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents.ddpg import DDPG
from ddpg.agents.dqn import DQN
from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.checkpoints import checkpoint
from ddpg.errors import UsageError
from ddpg.interaction.spaces import algorithm_for

AGENTS: dict[str, type[OffPolicyAgent]] = {"DDPG": DDPG, "DQN": DQN}


def agent_for(action_space: gym.Space) -> type[OffPolicyAgent]:
    """Return the agent for an action space."""
    return AGENTS[algorithm_for(action_space)]


def load_agent(path: str | Path, env: Any = None, which: str = "latest", **options: Any) -> OffPolicyAgent:
    """Return the agent of a checkpoint or a run directory, of the class that saved it.

    Args:
        path: a checkpoint directory, or a run directory.
        env: to go on learning in.
        which: in a run directory, ``"latest"``, ``"best"`` or a number of timesteps.
        options: ``config`` and networks of one's own, as for :meth:`OffPolicyAgent.load`.

    Raises:
        UsageError: no checkpoint there, a damaged one, or one of an agent this version does not know.
    """
    path = checkpoint.find(path, which)
    kind = checkpoint.read(path, only=set())[0]["kind"]
    if kind not in AGENTS:
        raise UsageError(f"{path} is a checkpoint of {kind!r}; this version knows {', '.join(AGENTS)}")
    return AGENTS[kind].load(path, env, **options)
