"""`ddpg train ENV` takes what measured best there: the presets against what benchmarks/learning has found."""

import sys

import pytest
from learning_cells import ROOT

from benchmarks.learning import long_form, tables
from ddpg import DDPGConfig
from ddpg.config.options import from_toml
from ddpg.config.presets import preset_config, read_recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STUDIES = ("table", "averaged", "preactivation", "others", "box2d", "held", "swimmer")
CELLS = long_form.read(ROOT / "benchmarks" / "results" / "learning.csv")
FINISHED = [cell for cell in CELLS if cell.study in STUDIES and cell.finished]


def rows_of(env_id):
    """Return ``(study, row)`` of every recipe that has finished in an environment."""
    groups = tables.groups([cell for cell in FINISHED if cell.env_id == env_id], *STUDIES)
    return [(group[0].study, tables.row_of(group)) for group in groups]


def options_of(study, name, env_id):
    """Return what a configuration of a study is; read_study would ask for Box2D.

    One named *preset* is the preset as it is now, and was as it was when it was measured.
    """
    text = (ROOT / "benchmarks" / "learning" / f"{study}.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)["configurations"][name]
    if not found:
        return preset_config(env_id)
    found = {"recipe": found} if isinstance(found, str) else dict(found)
    recipe = from_toml(DDPGConfig, read_recipe(found.pop("recipe")), "recipe")
    return DDPGConfig(**recipe | found)


@pytest.mark.parametrize("env_id", dict.fromkeys(cell.env_id for cell in FINISHED))
def test_no_preset_is_behind_another_recipe(env_id):
    """By intervals over seeds: one that overlaps the best's, or is within a hundredth, may be taken for its speed."""
    rows = rows_of(env_id)
    best = max((row for _, row in rows), key=lambda row: row["final"])
    # The studies of locomotion begin to learn after as many steps whatever the recipe.
    config = preset_config(env_id).replace(learning_starts=1)
    own = [row for study, row in rows if options_of(study, row["config"], env_id).replace(learning_starts=1) == config]
    assert own, "what the preset is was not measured"
    assert max(row["final_high"] for row in own) >= best["final_low"] - 0.01 * abs(best["final"])
