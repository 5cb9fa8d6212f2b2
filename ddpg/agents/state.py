"""Capture an agent's state for a checkpoint as plain values and arrays, and restore it.

The state is everything that learning reads or writes. Learning rates are options, so they are not among the variables.
The environment's state is not included: learning continues with a new episode.
"""

from collections.abc import Mapping
from typing import Any

from ddpg.agents.tf_agent import check_variables
from ddpg.algorithms.registry import algorithm_named, algorithm_of
from ddpg.checkpoints import checkpoint
from ddpg.checkpoints.space_json import describe_space, restore_space
from ddpg.config.algorithm_options import NETWORKS, AgentConfig
from ddpg.errors import UsageError
from ddpg.interaction.spaces import same_space, spaces_of


def capture(agent: Any, replay: bool) -> tuple[dict[str, Any], checkpoint.Groups]:
    """Return the manifest and the arrays of an agent: everything that learning reads or writes."""
    groups = {"variables": agent.get_parameters()}
    if replay:
        groups["replay"] = agent.memory.sampler.state()
    if statistics := agent.memory.statistics():
        groups["statistics"] = statistics
    if noise := agent.behaviour.state():
        groups["noise"] = noise
    manifest = {
        "kind": type(agent).__name__,
        "algorithm": algorithm_of(agent.config),
        "config": agent.config.to_json(),
        "observation_space": describe_space(agent.observation_space),
        "action_space": describe_space(agent.action_space),
        "seed": agent.seed,
        "num_timesteps": agent.num_timesteps,
        "own_steps": agent.replay.own,
        "num_updates": agent.num_updates,
        "owed_updates": agent.loop.owed_updates,
        "largest_reward": agent.largest_reward,
        "random_states": {name: rng.bit_generator.state for name, rng in agent.generators.items()},
    }
    return manifest, groups


def restore(agent: Any, manifest: dict[str, Any], groups: checkpoint.Groups) -> None:
    """Restore a captured state into an agent that was just made with the same options.

    Raises:
        UsageError: if its variables or random generators differ from the checkpoint's; nothing is set then.
    """
    there, here = manifest["config"], agent.config.to_json()
    changed = [name for name in there.keys() & here.keys() if there[name] != here[name]]
    differences = [f"{name} was {there[name]!r} and is {here[name]!r}" for name in sorted(changed)]
    advice = "; ".join(["pass the configuration and networks it was made with", *differences])
    check_variables(agent.global_variables, groups.get("variables", {}), "the checkpoint", advice)
    if agent.generators.keys() != manifest["random_states"].keys():
        raise UsageError(
            f"the checkpoint has random states of {sorted(manifest['random_states'])}, expected those of "
            f"{sorted(agent.generators)}; take another checkpoint"
        )
    if "replay" in groups:
        agent.memory.sampler.restore(groups["replay"])
    agent.memory.restore_statistics(groups.get("statistics", {}))
    agent.assign(groups["variables"])
    agent.behaviour.restore(groups.get("noise", {}))
    agent.num_timesteps = manifest["num_timesteps"]
    agent.replay.own = manifest.get("own_steps", agent.replay.own)  # not saved by earlier versions
    agent.updater.num_updates = manifest["num_updates"]
    agent.loop.owed_updates = manifest["owed_updates"]
    agent.largest_reward = manifest["largest_reward"]
    for name, generator in agent.generators.items():
        generator.bit_generator.state = manifest["random_states"][name]


def config_of(manifest: dict[str, Any], networks: Mapping[str, Any]) -> AgentConfig:
    """Return the options that were saved.

    Args:
        manifest: the checkpoint's.
        networks: the user's own networks, passed again, by option name.

    Raises:
        UsageError: if this version does not know the algorithm, an option was a callable (which no file can hold) and
            is not passed again, or an option names user code that is not allowed to be imported.
    """
    again = {name: network for name, network in networks.items() if name in NETWORKS and network is not None}
    return algorithm_named(manifest["algorithm"]).config.from_json(manifest["config"] | again)


def fitting_env(manifest: dict[str, Any], env: Any) -> Any:
    """Return ``env`` if its spaces are the saved ones; if ``env`` is None, the saved pair of spaces.

    Raises:
        UsageError: if the spaces differ.
    """
    saved = tuple(restore_space(manifest[name]) for name in ("observation_space", "action_space"))
    if env is None:
        return saved
    for name, given, expected in zip(("observation", "action"), spaces_of(env), saved, strict=True):
        if not same_space(given, expected):
            raise UsageError(
                f"the environment's {name} space is {given}, the checkpoint's is {expected}; "
                "load it with the environment it was trained in"
            )
    return env
