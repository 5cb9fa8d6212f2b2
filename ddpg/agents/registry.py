"""Find the agent class for an action space or a checkpoint, in the registry of algorithms."""

import importlib
from pathlib import Path
from typing import Any

import gymnasium as gym

from ddpg.agents.off_policy import OffPolicyAgent
from ddpg.algorithms.registry import ALGORITHMS, algorithm_named, algorithm_of
from ddpg.checkpoints import checkpoint
from ddpg.config.algorithm_options import AgentConfig, DDPGConfig, DQNConfig
from ddpg.config.imports import is_reference
from ddpg.errors import UsageError
from ddpg.interaction.spaces import algorithm_for


def agent_for(action_space: gym.Space, config: AgentConfig | None = None) -> type[OffPolicyAgent]:
    """Return the agent for an action space, or for the options of an algorithm of the user's own.

    Raises:
        UsageError: if no algorithm has such options.
    """
    own = config is not None and type(config) not in (DDPGConfig, DQNConfig)
    name = algorithm_of(config) if config is not None and own else algorithm_for(action_space)
    return _agent_class(ALGORITHMS[name].agent)


def load_agent(path: str | Path, env: Any = None, which: str = "latest", **options: Any) -> OffPolicyAgent:
    """Return the agent of a checkpoint or a run directory, of the class that saved it.

    Args:
        path: a checkpoint directory, or a run directory.
        env: to go on learning in.
        which: in a run directory, ``"latest"``, ``"best"`` or a number of timesteps.
        options: ``config`` and networks of the user's own, as for :meth:`OffPolicyAgent.load`.

    Raises:
        UsageError: if there is no checkpoint, it is damaged, its agent is of a class that no algorithm names, or it
            names code of the user's own that may not be imported (:func:`ddpg.config.imports.imports_allowed`).
    """
    path = checkpoint.find(path, which)
    manifest = checkpoint.read(path, only=set())[0]
    if is_reference(manifest["algorithm"]) and options.get("config") is None:
        algorithm_named(manifest["algorithm"])  # registers the class of its agent, too
    kind = manifest["kind"]
    agents = {algorithm.agent.rpartition(":")[2]: algorithm.agent for algorithm in ALGORITHMS.values()}
    if kind not in agents:
        raise UsageError(f"{path} is a checkpoint of {kind!r}; this version knows {', '.join(agents)}")
    return _agent_class(agents[kind]).load(path, env, **options)


def _agent_class(name: str) -> type[OffPolicyAgent]:
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)
