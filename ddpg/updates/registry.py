"""The algorithms: under each name, its options and its update."""

from typing import NamedTuple

from ddpg.config import AgentConfig, DDPGConfig, DQNConfig
from ddpg.errors import UsageError
from ddpg.updates.base import Update
from ddpg.updates.crossq import CrossQUpdate
from ddpg.updates.ddpg import DDPGUpdate
from ddpg.updates.dqn import DQNUpdate
from ddpg.updates.td3 import TD3Update


class Algorithm(NamedTuple):
    """The class of an algorithm's options, and of its update."""

    config: type[AgentConfig]
    update: type[Update]


ALGORITHMS = {
    "DDPG": Algorithm(DDPGConfig, DDPGUpdate),
    "DQN": Algorithm(DQNConfig, DQNUpdate),
}

VARIANTS = (CrossQUpdate, TD3Update)  # of an algorithm's update, where options ask for them


def algorithm_of(config: AgentConfig) -> str:
    """Return the name of the algorithm whose options ``config`` holds.

    Raises:
        UsageError: a class of options without an entry in :data:`ALGORITHMS`.
    """
    for name, algorithm in ALGORITHMS.items():
        if algorithm.config is type(config):
            return name
    raise UsageError(
        f"{type(config).__name__} is not the options of an algorithm this version knows ({', '.join(ALGORITHMS)}); "
        "add a line to ddpg.updates.registry.ALGORITHMS"
    )


def update_of(config: AgentConfig) -> type[Update]:
    """Return the update that the options ask for.

    Raises:
        UsageError: as :func:`algorithm_of`, or options of a variant with an update that does not stand on it.
    """
    name = algorithm_of(config)
    update = ALGORITHMS[name].update
    for variant in VARIANTS:
        if variant.is_asked_for(config) and not issubclass(update, variant):
            if not issubclass(variant, update):
                raise UsageError(
                    f"{name}'s {update.__name__} would ignore options of {variant.__name__} that are set; "
                    f"derive it from {variant.__name__}, or leave them off"
                )
            return variant
    return update
