"""The registry of algorithms: the options and the update of each name."""

from typing import NamedTuple

from ddpg.algorithms.base import Update
from ddpg.algorithms.crossq import CrossQUpdate
from ddpg.algorithms.ddpg import DDPGUpdate
from ddpg.algorithms.dqn import DQNUpdate
from ddpg.algorithms.td3 import TD3Update
from ddpg.config.algorithm_options import AgentConfig, DDPGConfig, DQNConfig
from ddpg.errors import UsageError


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
        "add a line to ddpg.algorithms.registry.ALGORITHMS"
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
