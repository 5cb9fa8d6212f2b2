"""Find the agent class for an action space or a checkpoint, in the registry of algorithms."""

import importlib
from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.algorithms.registry import ALGORITHMS
from ddpg.checkpoints import checkpoint
from ddpg.errors import UsageError
from ddpg.interaction.spaces import algorithm_for


def agent_for(action_space: gym.Space) -> type[OffPolicyAgent]:
    """Return the agent for an action space."""
    return _agent_class(ALGORITHMS[algorithm_for(action_space)].agent)


def load_agent(path: str | Path, env: Any = None, which: str = "latest", **options: Any) -> OffPolicyAgent:
    """Return the agent of a checkpoint or a run directory, of the class that saved it.

    Args:
        path: a checkpoint directory, or a run directory.
        env: to go on learning in.
        which: in a run directory, ``"latest"``, ``"best"`` or a number of timesteps.
        options: ``config`` and networks of the user's own, as for :meth:`OffPolicyAgent.load`.

    Raises:
        UsageError: if there is no checkpoint, it is damaged, or its agent is of a class that no algorithm names.
    """
    path = checkpoint.find(path, which)
    kind = checkpoint.read(path, only=set())[0]["kind"]
    agents = {algorithm.agent.rpartition(":")[2]: algorithm.agent for algorithm in ALGORITHMS.values()}
    if kind not in agents:
        raise UsageError(f"{path} is a checkpoint of {kind!r}; this version knows {', '.join(agents)}")
    return _agent_class(agents[kind]).load(path, env, **options)


def _agent_class(name: str) -> type[OffPolicyAgent]:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
