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
from ddpg.config.imports import allowed_modules, import_module_of, is_reference
from ddpg.config.options import field_type
from ddpg.errors import UsageError, brief, did_you_mean


class Algorithm(NamedTuple):
    """An algorithm's classes: of its options, and of one gradient update.

    Attributes:
        agent: the agent as ``module:class``; not the class itself, since agents import algorithms.
    """

    config: type[AgentConfig]
    update: type[Update]
    agent: str = "ddpg.agents.ddpg:DDPG"


ALGORITHMS = {"DDPG": Algorithm(DDPGConfig, DDPGUpdate), "DQN": Algorithm(DQNConfig, DQNUpdate, "ddpg.agents.dqn:DQN")}

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
    an algorithm that the module registered under that name. For any other name that is not registered yet, as Python
    saves it, the modules that are allowed are imported, since one of them may register it.

    Raises:
        UsageError: if there is none, or its module is not allowed to be imported, or the import fails.
    """
    if name not in ALGORITHMS and not is_reference(name):
        for allowed in allowed_modules():
            import_module_of(f"{allowed}:{name}", "algorithm")
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    if not is_reference(name):
        raise UsageError(
            f"no algorithm {brief(name)}; this version knows {', '.join(ALGORITHMS)}{did_you_mean(name, ALGORITHMS)}; "
            "one of your own is named module:Name, and what Python has trained under a name that a module registers "
            "needs that module imported: by --allow-import MODULE, or in Python before it is loaded"
        )
    module, attribute = import_module_of(name, "algorithm"), name.rpartition(":")[2]
    found = getattr(module, attribute, ALGORITHMS.get(attribute))
    if inspect.isclass(found) and issubclass(found, AgentConfig):
        found = next((algorithm for algorithm in ALGORITHMS.values() if algorithm.config is found), found)
    if not isinstance(found, Algorithm):
        known = [key for key, value in vars(module).items() if isinstance(value, Algorithm)]
        what = f"is {brief(found)}" if hasattr(module, attribute) else f"the module has no {attribute!r}"
        raise UsageError(
            f"algorithm={name!r} must be an Algorithm, or the options class or the name of one that the module "
            f"{module.__name__!r} registers, and {what}{did_you_mean(attribute, known)}"
        )
    for given, expected in ((found.config, AgentConfig), (found.update, Update)):
        if not (inspect.isclass(given) and issubclass(given, expected)):
            raise UsageError(
                f"algorithm={name!r} has {brief(given)} in place of a class derived from {expected.__name__}; give "
                "Algorithm the class of options, then that of updates"
            )
    _check_options_class(name, found.config)
    ALGORITHMS[name], CONFIGS[name] = found, found.config
    return found


def _check_options_class(name: str, kind: type[AgentConfig]) -> None:
    """Refuse the options class of a user's own algorithm if flags and files cannot set its options."""
    why = None
    if inspect.get_annotations(kind) and "__dataclass_fields__" not in vars(kind):
        why = "is not decorated with @dataclasses.dataclass(frozen=True), and so adds no options"
    for field in dataclasses.fields(kind):
        if field.default is dataclasses.MISSING:
            why = f"has no default for {field.name}; give it one"
        elif (own := field_type(kind, field.name))[0] not in ((int, float) if own[1] else (bool, int, float, str)):
            told = inspect.formatannotation(field.type)
            why = f"has {field.name}: {told}; an option is a bool, int, float or str, or a tuple of numbers"
    if why is not None:
        raise UsageError(f"algorithm={name!r}: its options class {kind.__name__} {why}")
    try:
        kind()
    except UsageError as error:
        raise UsageError(f"algorithm={name!r}: {kind.__name__} refuses its own defaults: {error}") from None


def update_of(config: AgentConfig) -> type[Update]:
    """Return the update for these options: a variant's if an option of it is set, else the algorithm's."""
    return checked_update(algorithm_of(config), config)


def checked_update(name: str, config: AgentConfig) -> type[Update]:
    """Return as :func:`update_of`, of an algorithm by its name.

    Raises:
        UsageError: if the algorithm's update would ignore a variant's options, or derives from CrossQ's without them.
    """
    update = ALGORITHMS[name].update
    if issubclass(update, CrossQUpdate) and not CrossQUpdate.is_enabled(config):
        raise UsageError(
            f"{name}'s {update.__name__} derives from CrossQUpdate, whose y comes from a joint pass, and would ignore "
            f"target={config.target!r}; set target to 'none' or 'joint_ema', or derive it from TD3Update"
        )
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
