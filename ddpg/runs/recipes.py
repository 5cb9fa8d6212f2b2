"""Recipes: options under a name, with where each value is from (``ddpg/recipes/NAME.toml``), or in one's own file."""

from pathlib import Path
from typing import Any

from ddpg.errors import UsageError, did_you_mean
from ddpg.options import read_toml

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
