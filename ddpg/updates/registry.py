"""The algorithms: under each name, its options and its update."""

from typing import NamedTuple

from ddpg.config import AgentConfig, DDPGConfig, DQNConfig
from ddpg.errors import UsageError
from ddpg.updates.base import Update
from ddpg.updates.ddpg import DDPGUpdate
from ddpg.updates.dqn import DQNUpdate


class Algorithm(NamedTuple):
    """The class of an algorithm's options, and of its update."""

    config: type[AgentConfig]
    update: type[Update]


ALGORITHMS = {
    "DDPG": Algorithm(DDPGConfig, DDPGUpdate),
    "DQN": Algorithm(DQNConfig, DQNUpdate),
}


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
