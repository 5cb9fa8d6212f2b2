"""Generate the tables of all options and presets in docs/options.md from the source code.

python -m benchmarks.options_page    # writes the tables; a test checks that the page is up to date
"""

import csv
import dataclasses
import re
import typing
from pathlib import Path
from typing import Any

from benchmarks import marks
from ddpg.config.algorithm_options import AgentConfig, DDPGConfig, DQNConfig
from ddpg.config.presets import PRESETS, SUITES, Preset, preset_for

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "options.md"
PAGES = PAGE.with_suffix("")  # the folder with a page for each option of the DDPG family
OWNERS: dict[str, type[AgentConfig]] = {"shared": AgentConfig, "DDPG": DDPGConfig, "DQN": DQNConfig}
HEADS = "option, flag", "type", "default", "meaning"
PRESETS_HEADS = "environment", "steps", "options", "published return"


def main() -> None:
    """Write the tables into the page."""
    marks.write(PAGE, tables())


def tables() -> dict[str, str]:
    """Return the tables, by the names of their marks."""
    options = {f"options {owner}": marks.table(HEADS, option_rows(owner).values()) for owner in OWNERS}
    return options | {"presets": marks.table(PRESETS_HEADS, preset_rows().values())}


def option_rows(owner: str) -> dict[str, list[str]]:
    """Return ``{name: row}`` of the options of ``owner``: both algorithms, or only one of them.

    An option that both algorithms have, but with different defaults or meanings, is in both of their tables.
    """
    shared = {field.name for field in dataclasses.fields(AgentConfig)}
    fields = [field for field in dataclasses.fields(OWNERS[owner]) if owner == "shared" or field.name not in shared]
    return {field.name: _row(field) for field in fields}


def preset_rows() -> dict[str, list[str]]:
    """Return ``{environment: row}``: what its preset changes, and whether its return has been published.

    The last two rows are for all other environments.
    """
    published, texts = _published(), {True: "yes", False: "not yet"}
    rows = {
        env_id: _preset_row(f"`{env_id}`", preset, texts[env_id in published]) for env_id, preset in PRESETS.items()
    }
    rows |= {suite: _preset_row(f"`{suite}…`", preset, "yes") for suite, preset in SUITES.items()}
    others = {"any other, actions of a Box or parameterised": DDPGConfig, "any other, discrete actions": DQNConfig}
    return rows | {name: _preset_row(name, preset_for("", kind), "") for name, kind in others.items()}


def option_pages() -> dict[str, list[str]]:
    """Return the options that each page names in its line ``Options: `a`, `b```, by the page's name."""
    found = {
        page.stem: re.search(r"^Options: (.+)$", page.read_text("utf-8"), re.MULTILINE) for page in PAGES.iterdir()
    }
    return {name: re.findall(r"`(\w+)`", line[1]) if line else [] for name, line in sorted(found.items())}


def _row(field: dataclasses.Field) -> list[str]:
    flag = "--" + field.name.replace("_", "-")
    page = next((page for page, options in option_pages().items() if field.name in options), None)
    name = f"`{field.name}`" if page is None else f"[`{field.name}`](options/{page}.md)"
    cells = [f"{name}<br>`{flag}`", f"`{_type(field.type)}`", f"`{_value_text(field.default)}`"]
    return [cell.replace("|", "\\|") for cell in (*cells, field.metadata["help"])]


def _preset_row(name: str, preset: Preset, published: str) -> list[str]:
    recipe = [f"recipe [`{preset.recipe}`](recipes/{preset.recipe}.md)"] if preset.recipe else []
    changes = [f"`{name}={_value_text(value)}`" for name, value in preset.changes.items()]
    options = ", ".join(recipe + changes) or "the defaults"
    return [name, f"{preset.total_timesteps:,}", options, published]


def _published() -> set[str]:
    tables = {"bounding.csv": "env_id"} | dict.fromkeys(
        ("learning.csv", "pendulum.csv", "keeping.csv", "fetch.csv"), "env"
    )
    return {
        row[column]
        for name, column in tables.items()
        for row in csv.DictReader((RESULTS / name).open(encoding="utf-8", newline=""))
    }


def _type(hint: Any) -> str:
    plain = isinstance(hint, type) and not typing.get_args(hint)
    return hint.__name__ if plain else re.sub(r"[a-z_]+(?:\.[a-z_]+)*\.", "", str(hint))


def _value_text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


if __name__ == "__main__":
    main()
