"""The registry of algorithms: the options, the update and the agent of each name."""

import dataclasses
import inspect
from typing import Any, NamedTuple

from ddpg.algorithms.base import Update
from ddpg.algorithms.crossq import CrossQUpdate
from ddpg.algorithms.ddpg import DDPGUpdate
from ddpg.algorithms.dqn import DQNUpdate
from ddpg.algorithms.td3 import TD3Update
from ddpg.algorithms.td3_bc import TD3BCUpdate
from ddpg.config.algorithm_options import CONFIGS, AgentConfig, DDPGConfig, DQNConfig
from ddpg.config.imports import import_module_of, is_reference
from ddpg.errors import UsageError, brief, did_you_mean


class Algorithm(NamedTuple):
    """An algorithm's classes.

    Attributes:
        config: the options.
        update: one gradient update.
        agent: the agent as ``module:class``; not the class itself, since agents import algorithms.
    """

    config: type[AgentConfig]
    update: type[Update]
    agent: str = "ddpg.agents.ddpg:DDPG"


ALGORITHMS = {
    "DDPG": Algorithm(DDPGConfig, DDPGUpdate),
    "DQN": Algorithm(DQNConfig, DQNUpdate, "ddpg.agents.dqn:DQN"),
}

VARIANTS = (TD3BCUpdate, CrossQUpdate, TD3Update)  # the first that the options enable replaces their algorithm's update


def algorithm_of(config: AgentConfig) -> str:
    """Return the name of the algorithm whose options ``config`` holds; of several, the one registered last.

    Raises:
        UsageError: if no algorithm in :data:`ALGORITHMS` has options of this class.
    """
    for name, algorithm in reversed(ALGORITHMS.items()):
        if algorithm.config is type(config):
            return name
    raise UsageError(
        f"{type(config).__name__} is not the options of an algorithm this version knows ({', '.join(ALGORITHMS)}); "
        "add a line to ddpg.algorithms.registry.ALGORITHMS"
    )


def algorithm_named(name: str) -> Algorithm:
    """Return the algorithm of a name; a reference such as ``"mymodule:Cautious"`` is imported and registered.

    A reference names one of these in its module: an :class:`Algorithm`, the options class of a registered algorithm, or
    an algorithm that the module registered under that name.

    Raises:
        UsageError: if there is none, or its module is not allowed to be imported, or the import fails.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if not is_reference(name):
        raise UsageError(
            f"no algorithm {brief(name)}; this version knows {', '.join(ALGORITHMS)}{did_you_mean(name, ALGORITHMS)}; "
            "one of your own is named module:Name, and what Python has trained under a name that a module registers is "
            "loaded in Python, once that module is imported"
        )
    module, attribute = import_module_of(name, "algorithm"), name.rpartition(":")[2]
    found = getattr(module, attribute, ALGORITHMS.get(attribute))
    if inspect.isclass(found) and issubclass(found, AgentConfig):
        found = next((algorithm for algorithm in ALGORITHMS.values() if algorithm.config is found), found)
    if not isinstance(found, Algorithm):
        known = [key for key, value in vars(module).items() if isinstance(value, Algorithm)]
        raise UsageError(
            f"algorithm={name!r} must be an Algorithm, or the options class or the name of one that the module "
            f"{module.__name__!r} registers, and is {brief(found)}{did_you_mean(attribute, known)}"
        )
    for given, expected in ((found.config, AgentConfig), (found.update, Update)):
        if not (inspect.isclass(given) and issubclass(given, expected)):
            raise UsageError(
                f"algorithm={name!r} has {brief(given)} in place of a class derived from {expected.__name__}; give "
                "Algorithm the class of options, then that of updates"
            )
    ALGORITHMS[name], CONFIGS[name] = found, found.config
    return found


def update_of(config: AgentConfig) -> type[Update]:
    """Return the update for these options: a variant's if an option of it is set, else the algorithm's.

    Raises:
        UsageError: as :func:`algorithm_of`, or if the algorithm's update would ignore a variant's options.
    """
    return checked_update(algorithm_of(config), config)


def checked_update(name: str, config: AgentConfig) -> type[Update]:
    """Return as :func:`update_of`, of an algorithm by its name.

    Raises:
        UsageError: if the algorithm's update would ignore a variant's options.
    """
    update = ALGORITHMS[name].update
    for variant in VARIANTS:
        if variant.is_enabled(config) and not issubclass(update, variant):
            if not issubclass(variant, update):
                raise UsageError(
                    f"{name}'s {update.__name__} would ignore {', '.join(_enabling(variant, config))}, which "
                    f"{variant.__name__} is for; derive {update.__name__} from it, or leave that off"
                )
            return variant
    return update


def _enabling(variant: Any, config: AgentConfig) -> list[str]:
    """Return the options that enable a variant, as text, ``n_critics=2``."""
    found = []
    for field in dataclasses.fields(config):
        alone, value = DDPGConfig(), getattr(config, field.name)
        object.__setattr__(alone, field.name, value)  # unchecked: the option may need others
        if variant.is_enabled(alone):
            found.append(f"{field.name}={brief(value)}")
    return found
