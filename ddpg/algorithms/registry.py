"""The registry of algorithms: the options, the update and the agent of each name."""

from typing import NamedTuple

from ddpg.algorithms.base import Update
from ddpg.algorithms.crossq import CrossQUpdate
from ddpg.algorithms.ddpg import DDPGUpdate
from ddpg.algorithms.dqn import DQNUpdate
from ddpg.algorithms.td3 import TD3Update
from ddpg.algorithms.td3_bc import TD3BCUpdate
from ddpg.config.algorithm_options import AgentConfig, DDPGConfig, DQNConfig
from ddpg.errors import UsageError


class Algorithm(NamedTuple):
    """An algorithm's classes.

    Attributes:
        config: the options.
        update: one gradient update.
        agent: the agent's ``module:class``, a name because agents stand on algorithms and not the other way round.
    """

    config: type[AgentConfig]
    update: type[Update]
    agent: str = "ddpg.agents.ddpg:DDPG"


ALGORITHMS = {
    "DDPG": Algorithm(DDPGConfig, DDPGUpdate),
    "DQN": Algorithm(DQNConfig, DQNUpdate, "ddpg.agents.dqn:DQN"),
}

VARIANTS = (TD3BCUpdate, CrossQUpdate, TD3Update)  # the first that the options ask for replaces its algorithm's update


def algorithm_of(config: AgentConfig) -> str:
    """Return the name of the algorithm whose options ``config`` holds.

    Raises:
        UsageError: if no algorithm in :data:`ALGORITHMS` has options of this class.
    """
    for name, algorithm in ALGORITHMS.items():
        if algorithm.config is type(config):
            return name
    raise UsageError(
        f"{type(config).__name__} is not the options of an algorithm this version knows ({', '.join(ALGORITHMS)}); "
        "add a line to ddpg.algorithms.registry.ALGORITHMS"
    )


def update_of(config: AgentConfig) -> type[Update]:
    """Return the update for these options: a variant's if an option of it is set, else the algorithm's.

    Raises:
        UsageError: as :func:`algorithm_of`, or if the algorithm's update would ignore a variant's options.
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
