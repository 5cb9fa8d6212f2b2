"""Presets against the results of benchmarks/learning: no other measured recipe may be clearly better."""

import sys
from types import SimpleNamespace

import pytest
from learning_cells import ROOT

from benchmarks.learning import long_form, tables
from benchmarks.learning.collecting import checksum
from ddpg import DDPGConfig
from ddpg.config.algorithm_options import CONFIGS
from ddpg.config.options import from_toml
from ddpg.config.presets import preset_config, preset_for, read_recipe

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STUDIES = (
    "table",
    "averaged",
    "preactivation",
    "others",
    "box2d",
    "held",
    "swimmer",
    "landing",
    "walking",
    "regulator",
)
CELLS = long_form.read(ROOT / "benchmarks" / "results" / "learning.csv")
FINISHED = [cell for cell in CELLS if cell.study in STUDIES and cell.finished]


def rows_of(env_id):
    """Return ``(study, row)`` of every recipe that has finished in an environment."""
    groups = tables.groups([cell for cell in FINISHED if cell.env_id == env_id], *STUDIES)
    return [(group[0].study, tables.row_of(group)) for group in groups]


def options_of(study, name, env_id):
    """Return the config of a study's configuration, without ``read_study``, which needs Box2D.

    An empty configuration is the preset; the runs had the preset of their time, and this returns the current one.
    """
    text = (ROOT / "benchmarks" / "learning" / f"{study}.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)["configurations"][name]
    if not found:
        return preset_config(env_id)
    found = {"recipe": found} if isinstance(found, str) else dict(found)
    recipe = from_toml(DDPGConfig, read_recipe(found.pop("recipe")), "recipe")
    return DDPGConfig(**recipe | found)


RUNS_OF_PRESETS = [
    cell
    for group in tables.groups(CELLS, *tables.OF_PRESETS)
    for cell in group
    if cell.recipe in tables.PRESETS and cell.finished
]


@pytest.mark.parametrize("cell", {cell.env_id: cell for cell in RUNS_OF_PRESETS}.values(), ids=lambda cell: cell.env_id)
def test_runs_of_presets_have_the_options_of_todays_preset(cell):
    """The page says that ``ddpg train`` reaches their returns."""
    algorithm = "DQN" if cell.study == "first" else "DDPG"
    preset = preset_for(cell.env_id, CONFIGS[algorithm])
    options = CONFIGS[algorithm](**preset.options_for(CONFIGS[algorithm], cell.planned_steps)).to_json()
    group = SimpleNamespace(algorithm=algorithm, options=options, evaluation_episodes=10, n_envs=1)
    assert str(checksum(group)) == cell.one(long_form.OPTIONS, "")


@pytest.mark.parametrize("env_id", dict.fromkeys(cell.env_id for cell in FINISHED))
def test_no_recipe_is_clearly_better_than_the_preset(env_id):
    """The preset's interval over seeds must overlap that of the best recipe, or miss it by at most 1 %."""
    rows = rows_of(env_id)
    best = max((row for _, row in rows), key=lambda row: row["final"])
    # In the locomotion studies all recipes have the same number of steps before learning.
    config = preset_config(env_id).replace(learning_starts=1)
    own = [row for study, row in rows if options_of(study, row["config"], env_id).replace(learning_starts=1) == config]
    assert own, "the current preset was not measured"
    assert max(row["final_high"] for row in own) >= best["final_low"] - 0.01 * abs(best["final"])
