"""Refuse options and spaces that need more memory than there is, before anything is built.

A number in a small file can ask for any amount of memory or time. So the networks that a checkpoint describes must not
have more weights than its arrays, and its other options have bounds far beyond any sensible run. Options passed in
Python are compared only with the memory of this machine.

The replay buffer takes memory as it fills, so only the rows that a run will fill count: the default of a million rows
is fine for a run of ten thousand steps on any machine.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from ddpg.checkpoints import memory_limit
from ddpg.checkpoints.safe_json import short_repr
from ddpg.config.algorithm_options import AgentConfig, DDPGConfig
from ddpg.errors import FileFault, UsageError
from ddpg.replay.minibatch import stored_dtype

Spaces = tuple[gym.Space, gym.Space]  # of observations and actions

LAYERS, NUMBERS = 4, 1 << 20  # networks up to this size are always built; loading then names a variable that differs
UPDATES_PER_STEP = 10_000
MINIBATCHES = 4 << 30  # bytes of the minibatches of one call, of which there are fewer if they are large
REPLAY = 1 << 40  # bytes of a full replay memory; rows that are not filled take none
INTEGER = 2**31 - 1  # TensorFlow counts in int32

_SLOTS = {"adam": 2, "rmsprop": 2, "momentum": 1}  # numbers that an optimiser keeps for each weight

_ADVICE = "pass config=... if that is meant, or take another checkpoint"


def check_options(path: Any, config: AgentConfig, spaces: Spaces, variables: Mapping[str, np.ndarray]) -> None:
    """Refuse options of a checkpoint that need more than its arrays justify or the bounds above allow.

    Args:
        path: the checkpoint, for the message.
        config, variables: what it holds.
        spaces: of observations and actions.

    Raises:
        FileFault: if they do.
    """

    def refuse(name: str, why: str) -> FileFault:
        return FileFault(f"checkpoint {path}: {name}={short_repr(getattr(config, name))} {why}; {_ADVICE}")

    row, stored, numbers = _drawn_bytes(spaces), _stored_bytes(spaces), sum(array.size for array in variables.values())
    count = sum(len(hidden) for _, hidden in config.described_layers)
    for name, hidden in config.described_layers:
        # Each layer has weights and biases, and so does its copy in the target network.
        layers = max(LAYERS, len(variables) // 4 - (count - len(hidden)))
        if len(hidden) > layers:
            raise refuse(name, f"has {len(hidden)} layers; its {len(variables)} variables make at most {layers}")
        asked = _count_weights(config, hidden, spaces)
        if asked > max(NUMBERS, numbers):
            raise refuse(
                name,
                f"makes a network of at least {asked} numbers for these spaces, but its variables hold only {numbers}",
            )
    if getattr(config, "n_critics", 1) > max(LAYERS, len(variables) // 4):  # each: weights, biases and targets
        raise refuse("n_critics", f"is more than its {len(variables)} variables make")
    has_atoms = isinstance(config, DDPGConfig) and config.critic != "scalar"
    if has_atoms and config.hidden_of_critics[-1] * config.atoms > max(NUMBERS, numbers):  # type: ignore[attr-defined]
        raise refuse("atoms", f"makes an output layer of more numbers than its variables hold, {numbers}")
    if config.updates_per_step > UPDATES_PER_STEP:
        raise refuse("updates_per_step", f"is more than {UPDATES_PER_STEP}")
    if config.batch_size * row > MINIBATCHES:
        raise refuse("batch_size", f"transitions of {row} bytes are more than {MINIBATCHES} bytes")
    if config.buffer_size * stored > REPLAY:
        raise refuse("buffer_size", f"transitions of {stored} bytes are more than {REPLAY} bytes")
    for name, _ in _beyond_int32(config):
        raise refuse(name, f"is more than {INTEGER}")


def check_counts(config: AgentConfig) -> None:
    """Raise UsageError for a count beyond int32, in which TensorFlow counts: its checkpoint could not be loaded."""
    for name, value in _beyond_int32(config):
        raise UsageError(f"{name}={value} is more than {INTEGER}, as far as TensorFlow counts; give less")


def check_memory(config: AgentConfig, spaces: Spaces, rows: int = 0) -> None:
    """Refuse options that need more memory than this machine has, by a lower bound of the need.

    ``rows`` transitions will be stored; 0 where nothing is learned yet.

    Raises:
        UsageError: if they need more; the message names the need, the memory there is, and the option to lower.
    """
    there = memory_limit.memory_limit()
    networks = _network_bytes(config, spaces, learning=rows > 0)
    row, capacity = _stored_bytes(spaces), config.buffer_size
    stored = row * min(rows, capacity)
    if networks > there:
        raise _size_error(config, "hidden", "networks and their updates", networks, there)
    of_images = stored_dtype(spaces[0]) == np.uint8 or config.network == "conv"
    calls = 1 if of_images else largest_call(config, spaces)  # the native learner draws few minibatches of images
    minibatches = config.batch_size * calls * _drawn_bytes(spaces)
    if minibatches > there:
        what = f"a call's minibatches ({calls}) of {config.batch_size} transitions"
        raise _size_error(config, "batch_size", what, minibatches, there)
    memory = f"a replay memory of {row} bytes a transition"
    if row * capacity > max(REPLAY, there):
        raise _size_error(config, "buffer_size", memory, row * capacity, there, fitting_buffer(*spaces))
    if networks + stored > there:
        what = f"{memory}, of which {min(rows, capacity)} will be filled, and the networks"
        raise _size_error(config, "buffer_size", what, networks + stored, there, fitting_buffer(*spaces))


def largest_call(config: AgentConfig, spaces: Spaces) -> int:
    """Return the most updates of a call: those that the options ask for, or as many as have 4 GiB of minibatches."""
    return max(1, min(config.largest_call, MINIBATCHES // (config.batch_size * _drawn_bytes(spaces))))


def fitting_buffer(observations: gym.Space, actions: gym.Space) -> int:
    """Return how many transitions fit into half of this machine's memory."""
    return max(1, memory_limit.memory_limit() // 2 // _stored_bytes((observations, actions)))


def with_fitting_buffer(options: dict[str, Any], kind: type[AgentConfig], spaces: Spaces) -> tuple[dict[str, Any], str]:
    """Return default options with a replay buffer that fits into memory, and why it was reduced, "" if it was not.

    ``options`` are those of a run for which the caller gives none; the class ``kind`` has the size that they lack.
    """
    usual, fits = options.get("buffer_size", kind.buffer_size), fitting_buffer(*spaces)
    if usual <= fits:
        return {**options, "buffer_size": usual}, ""
    return {**options, "buffer_size": fits}, (
        f"the replay memory holds {fits:,} transitions (--buffer-size {fits}), not {usual:,}: those would need "
        f"{usual * _stored_bytes(spaces) / 1e9:,.1f} GB, and this machine has "
        f"{memory_limit.memory_limit() / 1e9:,.1f} GB"
    )


def _size_error(
    config: AgentConfig, name: str, what: str, needed: int, there: int, fits: int | None = None
) -> UsageError:
    lower = "" if fits is None else f": {fits} fits into half of it (--{name.replace('_', '-')} {fits})"
    return UsageError(
        f"{name}={short_repr(getattr(config, name))} needs at least {needed / 1e9:,.1f} GB for {what}, and this "
        f"machine has {there / 1e9:,.1f} GB; lower {name}{lower}"
    )


def _stored_bytes(spaces: Spaces) -> int:
    """Return the bytes of a transition in the replay memory, which stores each observation once.

    The last s′ of an episode is stored in addition, so episodes of few steps take more.
    """
    observations, actions = map(_flat_size, spaces)
    return observations * stored_dtype(spaces[0]).itemsize + 4 * (actions + 3)


def _drawn_bytes(spaces: Spaces) -> int:
    """Return the bytes of a transition in a minibatch, with s and s′."""
    return _stored_bytes(spaces) + _flat_size(spaces[0]) * stored_dtype(spaces[0]).itemsize


def _network_bytes(config: AgentConfig, spaces: Spaces, learning: bool) -> int:
    """Return a lower bound of the bytes of the networks that the options describe and, if ``learning``, of updates."""
    networks = [hidden for _, hidden in config.described_layers]
    slots = _SLOTS.get(config.optimizer, 0) if isinstance(config.optimizer, str) else 0
    copies = 2 + slots  # the network itself, and its moving average
    weights = sum(_count_weights(config, hidden, spaces) for hidden in networks)
    if not learning:
        return 4 * weights * copies
    # Updates add the gradients and, for a minibatch, every layer's outputs and the gradients with respect to them.
    return 4 * (weights * (copies + 1) + 2 * config.batch_size * sum(map(sum, networks)))


def _beyond_int32(config: AgentConfig) -> list[tuple[str, int]]:
    """Return the integer options, with their names, that exceed int32, which TensorFlow counts in."""
    found = [(name, value) for name, value in vars(config).items() if type(value) is int and abs(value) > INTEGER]
    return [(name, value) for name, value in found if name != "buffer_size"]


def _flat_size(space: gym.Space) -> int:
    """Return how many numbers an element of the space has."""
    if isinstance(space, gym.spaces.Box):
        return math.prod(space.shape)
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    return sum(map(_flat_size, getattr(space, "spaces", ())))


def _count_weights(config: AgentConfig, hidden: Sequence[int], spaces: Spaces) -> int:
    """Return a lower bound of the number of weights of a network with these hidden layers."""
    features, actions = map(_flat_size, spaces)
    if config.network == "conv":
        height, width = (*(spaces[0].shape or ()), 1, 1)[:2]
        features = 32 * (height // 4) * (width // 4)  # after the convolutions of ddpg.networks.layers.conv
    layers = [features, *hidden, actions]
    return sum(inputs * outputs for inputs, outputs in itertools.pairwise(layers))
