"""What of an agent goes into a checkpoint, and how it comes back."""

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from ddpg.errors import UsageError
from ddpg.experience.interaction import spaces_of
from ddpg.storage import checkpoint

if TYPE_CHECKING:
    from ddpg.agents.off_policy import OffPolicyAgent


def capture(agent: "OffPolicyAgent", replay: bool) -> tuple[dict[str, Any], checkpoint.Groups]:
    """Return the manifest and the arrays of an agent: everything that learning reads or writes."""
    groups = {"variables": agent.session.run(agent.global_variables)}
    if replay:
        groups["replay"] = agent.replay.arrays()
    manifest = {
        "kind": type(agent).__name__,
        "config": agent.config.to_json(),
        "observation_space": checkpoint.describe_space(agent.observation_space),
        "action_space": checkpoint.describe_space(agent.action_space),
        "seed": agent.seed,
        "num_timesteps": agent.num_timesteps,
        "num_updates": agent.num_updates,
        "owed_updates": agent._owed_updates,
        "largest_reward": agent._largest_reward,
        "random_states": {name: rng.bit_generator.state for name, rng in _generators(agent).items()},
    }
    return manifest, groups


def check_spaces(manifest: dict[str, Any], env):
    """Return ``env`` if it has the saved spaces; the saved pair of spaces if it is None.

    Raises:
        UsageError: the spaces differ.
    """
    saved = tuple(checkpoint.restore_space(manifest[name]) for name in ("observation_space", "action_space"))
    if env is None:
        return saved
    for name, given, expected in zip(("observation", "action"), spaces_of(env), saved, strict=True):
        if not _same(given, expected):
            raise UsageError(
                f"the environment's {name} space is {given}, the checkpoint's is {expected}; "
                "load it with the environment it was trained in"
            )
    return env


def restore(agent: "OffPolicyAgent", manifest: dict[str, Any], groups: checkpoint.Groups) -> None:
    """Set an agent, freshly made with the same options, to a captured state.

    Raises:
        UsageError: its variables are not those of the checkpoint; nothing is set then.
    """
    variables, values = agent.global_variables, groups["variables"]
    if variables.keys() != values.keys():
        missing, extra = sorted(variables.keys() - values.keys()), sorted(values.keys() - variables.keys())
        raise UsageError(
            f"the checkpoint does not fit these networks: it lacks {missing[:3] or 'nothing'}, and has "
            f"{extra[:3] or 'nothing'} that they do not; pass the configuration and networks it was made with"
        )
    for name, variable in variables.items():
        if values[name].shape != tuple(variable.shape):
            raise UsageError(
                f"{name} has shape {values[name].shape} in the checkpoint and {tuple(variable.shape)} here; "
                "pass the configuration and networks it was made with"
            )
    if "replay" in groups:
        agent.replay.restore(groups["replay"])
    initializers = {variable.initializer: values[name] for name, variable in variables.items()}
    # A variable's initialiser assigns its second input: feeding that sets any value, without new ops.
    agent.session.run(list(initializers), {op.inputs[1]: value for op, value in initializers.items()})
    agent._policy.load(agent.session.run(agent._policy.variables))
    agent.num_timesteps = manifest["num_timesteps"]
    agent._updater.num_updates = manifest["num_updates"]
    agent._owed_updates = manifest["owed_updates"]
    agent._largest_reward = manifest["largest_reward"]
    for name, generator in _generators(agent).items():
        generator.bit_generator.state = manifest["random_states"][name]


def _generators(agent: "OffPolicyAgent") -> dict[str, np.random.Generator]:
    return {"exploration": agent._exploration_rng, "replay": agent._replay_rng}


def _same(one, other) -> bool:
    if isinstance(one, (spaces.Tuple, spaces.OneOf)) and type(one) is type(other):
        return len(one.spaces) == len(other.spaces) and all(map(_same, one.spaces, other.spaces))
    if isinstance(one, spaces.Box) and isinstance(other, spaces.Box):
        return one.shape == other.shape and np.allclose(one.low, other.low) and np.allclose(one.high, other.high)
    return one == other
