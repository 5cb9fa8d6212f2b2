"""Recipes: options under a name, with where each value is from (``ddpg/recipes/NAME.toml``), or in one's own file."""

import dataclasses
from pathlib import Path
from typing import Any

from ddpg.config import CONFIGS, AgentConfig
from ddpg.errors import UsageError, brief, did_you_mean
from ddpg.foreign_names import FILES
from ddpg.options import from_toml
from ddpg.spelling import OPTIONS
from ddpg.toml_file import read_toml

_FOLDER = Path(__file__).parents[1] / "recipes"
RECIPES = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def read_recipe(name: str, beside: str | Path = ".") -> dict[str, Any]:
    """Return what a recipe says; it stands in the place of an environment's preset.

    Args:
        name: one of :data:`RECIPES`, or the path of a TOML file, ending in ``.toml``.
        beside: the folder that a relative path starts from.

    Raises:
        UsageError: no such recipe or file.
    """
    if name in RECIPES:
        return read_toml(_FOLDER / f"{name}.toml")
    if name.endswith(".toml"):
        return read_toml(Path(beside) / name)
    raise UsageError(
        f"recipe {name!r} is not one of {', '.join(RECIPES)}{did_you_mean(name, RECIPES)}; a file of your own is named "
        "by its path, ending in .toml"
    )


def recipe_options(name: str, kind: type[AgentConfig], env_id: str) -> dict[str, Any]:
    """Return the options of a recipe for an environment whose algorithm has options of class ``kind``.

    Raises:
        UsageError: no such recipe, or one of another algorithm's options.
    """
    return from_toml(
        kind, read_recipe(name), f"recipe {brief(name)} in {env_id}: {kind.__name__}", hints_for(kind, env_id)
    )


def hints_for(kind: type[AgentConfig], env_id: str) -> dict[str, str]:
    """Return, by name, what to do of options that ``kind`` does not have: another algorithm's, and other packages'.

    Args:
        kind: the options of the algorithm that trains in the environment.
        env_id: the environment, for the message.
    """
    algorithms = {config: algorithm for algorithm, config in CONFIGS.items()}
    trains = algorithms.get(kind, kind.__name__)
    actions = {"DQN": " (its actions are discrete)", "DDPG": " (its actions are a Box)"}.get(trains, "")
    own = {field.name for field in dataclasses.fields(kind)}
    others = {
        field.name: f"it is {algorithm}'s option, and {env_id} trains {trains}{actions}; leave it, or its recipe, out"
        for config, algorithm in algorithms.items()
        for field in dataclasses.fields(config)
        if field.name not in own
    }
    return others | OPTIONS | FILES
