"""An algorithm of the user's own, named ``module:Name`` by a flag or in a study's file."""

from typing import TYPE_CHECKING

from ddpg.cli.command import import_with_tensorflow
from ddpg.config.imports import is_reference
from ddpg.config.name_hints import ADVICE
from ddpg.errors import UsageError, brief

if TYPE_CHECKING:
    from ddpg.config.algorithm_options import AgentConfig


def own_options(algorithm: str, usual: "type[AgentConfig]", env_id: str) -> "type[AgentConfig]":
    """Return the class of the options of an algorithm of the user's own.

    Args:
        algorithm: its name, ``module:Name``.
        usual: the options of the algorithm that trains in the environment otherwise.
        env_id: the environment, for messages.

    Raises:
        UsageError: if there is no such algorithm, it may not be imported
            (:func:`ddpg.config.imports.imports_allowed`), or it is for other actions.
    """
    if not is_reference(algorithm):
        raise UsageError(
            f"algorithm={brief(algorithm)} must be one of your own, MODULE:NAME; for any other {ADVICE['algo']}"
        )
    import_with_tensorflow("ddpg.algorithms.registry")
    from ddpg.algorithms.registry import algorithm_named
    from ddpg.config.algorithm_options import CONFIGS

    kind = algorithm_named(algorithm).config
    theirs = [name for name, config in CONFIGS.items() if name != algorithm and issubclass(kind, config)]
    if theirs and not issubclass(kind, usual):
        raise UsageError(
            f"algorithm={algorithm!r} has the options of {theirs[0]}, and the actions of {env_id} need those of "
            f"{usual.__name__}; take another environment or algorithm"
        )
    return kind
