"""The studies of benchmarks/: their runs, and the options and page texts that follow from their results."""

import csv
import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks import bounding_figures
from ddpg import DDPGConfig
from ddpg.config.options import from_toml
from ddpg.config.presets import preset_config, read_recipe
from ddpg.config.toml_file import read_toml
from ddpg.studies.study import Cell, cells_of, read_study
from ddpg.studies.study_folder import CellFolder

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def results(name):
    """Return the rows of a file of results."""
    with (BENCHMARKS / "results" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def page(name):
    return (BENCHMARKS.parent / "docs" / f"{name}.md").read_text(encoding="utf-8")


@pytest.fixture
def tried(monkeypatch):
    """A function that returns the groups of a study of tuning, on bodies that benchmarks/studies/variants.py makes."""
    monkeypatch.syspath_prepend(str(BENCHMARKS / "studies"))
    return lambda name: read_study(BENCHMARKS / "studies" / f"tuning_{name}.toml", allow_import=["variants"])


def options_in_the_table(env_id, configuration, study="table"):
    """Return the options of one group of a study of learning."""
    groups = read_study(BENCHMARKS / "learning" / f"{study}.toml")
    (found,) = (group.options for group in groups if (group.name, group.configuration) == (env_id, configuration))
    return found


@pytest.mark.parametrize("name", ["bounding", "workers", "pendulum", "keeping"])
def test_every_cell_can_be_trained(name):
    groups = read_study(BENCHMARKS / "studies" / f"{name}.toml")
    cells = {"bounding": 75, "workers": 18, "pendulum": 40, "keeping": 60}
    assert len(cells_of(groups)) == cells[name]
    assert {group.final_episodes for group in groups} == {100}


def test_tuning_of_pendulum_does_not_use_the_seeds_of_the_final_results():
    """The seeds 200 to 239 are used only once, after all decisions."""
    cells = cells_of(read_study(BENCHMARKS / "studies" / "tuning_pendulum.toml"))
    assert len(cells) == 8 * 20
    assert {cell.seed for cell in cells} == {*range(300, 320)}


@pytest.mark.parametrize(
    ("env_id", "name", "configuration", "seeds", "looked_at"),
    [
        ("CartPole-v1", "cartpole", "steps10_cool", range(1100, 1225), ()),
        (
            "InvertedDoublePendulum-v5",
            "double_pendulum",
            "td3_noise03",
            range(1000, 1150),
            [*range(10), *range(500, 510)],
        ),
    ],
)
def test_keeping_has_a_tuned_configuration_on_at_least_ten_new_seeds(env_id, name, configuration, seeds, looked_at):
    """``looked_at`` are seeds that were seen with options that were not chosen; they do not count as new."""
    tried = read_study(BENCHMARKS / "studies" / f"tuning_{name}.toml")
    (chosen,) = (group.options for group in tried if group.configuration == configuration)
    (kept,) = (group for group in read_study(BENCHMARKS / "studies" / "keeping.toml") if group.name == env_id)
    assert kept.options == chosen
    assert {cell.seed for cell in cells_of(tried)} <= {*seeds}
    known = {int(row["seed"]) for row in results(f"tuning_{name}")}
    assert known <= {*seeds, *looked_at}
    assert len({cell.seed for cell in cells_of([kept])} - known) >= 10


def test_the_page_has_the_returns_of_keeping():
    """Each row has the mean returns over 100 episodes of ten seeds, in order."""
    returns: dict[str, list[str]] = {}
    for row in results("keeping"):
        if row["measure"] == "final_mean_return":
            returns.setdefault(row["env"], []).append(f"{float(row['value']):.0f}")
    text = page("results")
    assert [len(seeds) for seeds in returns.values()] == [30, 30]
    for seeds in returns.values():
        for ten in (seeds[:10], seeds[10:20], seeds[20:]):
            assert f"| {', '.join(ten)} |" in text


def test_the_recipe_ddpg_was_tuned_and_its_page_has_the_results(tried):
    """A row per configuration, with each run's last evaluation and the mean of its last five."""
    groups = tried("ddpg")
    (before, *_) = (group.options for group in groups if group.configuration == "before")
    assert before == options_in_the_table("Hopper-v5", "ddpg") | {"output_init": "small"}
    returns: dict[str, dict[tuple[str, int], list[float]]] = {}
    for row in results("tuning_ddpg"):
        if row["measure"] == "evaluation_mean_return":
            runs = returns.setdefault(row["config"], {})
            runs.setdefault((row["env"], int(row["seed"])), []).append(float(row["value"]))
    assert {cell.seed for cell in cells_of(groups)} >= {seed for runs in returns.values() for _, seed in runs}
    text = page("recipes/ddpg")
    for runs in returns.values():
        row = (
            f"{runs[key][-1]:,.0f} ({np.mean(runs[key][-5:]):,.0f})" if key in runs else ""
            for key in itertools.product(["HeavyHalfCheetah-v0", "HeavyHopper-v0"], [1003, 1005])
        )
        assert f" | {' | '.join(row)} |".replace("  ", " ") in text


def test_the_recipe_plus_was_tuned_and_the_ladder_has_its_former_version(tried):
    """Tuning used other bodies and none of the table's seeds."""
    groups = tried("plus")
    options = {group.configuration: group.options for group in groups}
    assert options["three_96_delay_3"] == options_in_the_table("HalfCheetah-v5", "plus")
    assert {cell.seed for cell in cells_of(groups)} == {1003, 1004}
    rows = {(row["env"], row["config"], int(row["seed"])) for row in results("tuning_plus")}
    assert rows <= {(f"variants:{cell.group.name}", cell.group.configuration, cell.seed) for cell in cells_of(groups)}
    assert options["plus"] == options_in_the_table("HalfCheetah-v5", "small_inputs", "ladder")


def test_environments_without_a_preset_have_the_tuned_noise_and_its_page_has_the_results():
    """The study's rule: a higher return where reward is found late, and at least 0.95 of it in the last two tasks."""
    configurations = read_toml(BENCHMARKS / "studies" / "tuning_exploration.toml")["configurations"]
    options = {name: read_recipe(given.pop("recipe")) | given for name, given in configurations.items()}
    noise = {"noise": "pink", "noise_scale": 0.5}
    assert options["plus_averaged_pink_half"] == options["plus_averaged"] | noise
    added = options["plus_averaged_pink_half"] | {"learning_starts": read_recipe("plus")["learning_starts"]}
    assert preset_config("Unknown-v0") == DDPGConfig(**from_toml(DDPGConfig, added, "the study"))
    rows = [row for row in results("tuning_exploration") if row["measure"] == "evaluation_mean_return"]
    final = {(row["env"], row["config"]): float(row["value"]) for row in rows}  # the last of each run
    text = page("options/noise")
    pairs = [
        (final[name, "plus_averaged"], final[name, "plus_averaged_pink_half"])
        for name in ("LightPendulumSwingup-v0", "LightHalfCheetah-v0", "HeavyWalker2d-v0")
    ]
    assert pairs[0][0] < pairs[0][1]
    assert np.mean([pink / usual for usual, pink in pairs[1:]]) >= 0.95
    for usual, pink in pairs:
        assert f"| {usual:,.0f} | {pink:,.0f} |" in text


def test_the_page_has_the_results_of_the_study_of_critics(tried):
    """Runs have two critics or one, on a body that no table uses."""
    groups, rows = tried("critics"), results("tuning_critics")
    assert {group.configuration: group.options["n_critics"] for group in groups} == {"plus": 2, "one_critic": 1}
    cells = {(f"variants:{cell.group.name}", cell.group.configuration, str(cell.seed)) for cell in cells_of(groups)}
    assert {(row["env"], row["config"], row["seed"]) for row in rows} == cells
    returns = {(row["config"], int(row["step"]) // 5_000): f"{float(row['value']):,.0f}" for row in rows}
    text = page("learning/holding")
    for key in (("plus", 15), ("plus", 19), ("plus", 20), ("one_critic", 14), ("plus", 14)):
        assert returns[key] in text


def test_evaluations_of_seeds_at_different_steps_are_drawn_together():
    """An evaluation waits for the end of its episode; the second seed has only one yet."""
    figure, runs = Figure(), {"0": [(100, 1.0), (200, 2.0)], "1": [(104, 3.0)]}
    rows = [{"seed": seed, "timesteps": str(step)} for seed, run in runs.items() for step, _ in run]
    values = [value for run in runs.values() for _, value in run]
    axes = figure.subplots()
    bounding_figures.draw_band(axes, rows, values, "black", "squashing", most=None)
    (line,) = axes.lines
    assert line.get_xydata().tolist() == [[102.0, 2.0]]


def test_bounding_results_are_collected_from_runs(tmp_path, monkeypatch):
    """30 of 100 actions were clipped; the logged shares outside the bounds, 0.2 and 0.4, have the mean 0.3."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bounding

    study = tmp_path / "bounding.toml"
    study.write_text(
        "environments = ['Pendulum-v1']\ntotal_timesteps = 100\nfinal_episodes = 1\n"
        "[configurations]\nzeroing = { bounding = 'zeroing' }\n"
    )
    (group,) = read_study(study)
    place = CellFolder(tmp_path, Cell(group, 0))
    run = place.path / "1"
    (run / "checkpoints" / "100").mkdir(parents=True)
    (run / "checkpoints" / "100" / "manifest.json").write_text("{}")
    (run / "config.json").write_text("{}")
    (run / "evaluations.csv").write_text("timesteps,mean_return,success_rate\n100,-7.0,\n")
    heads = "timesteps,seconds,fps,clipped_actions," + ",".join(bounding.DIAGNOSTICS)
    (run / "metrics.csv").write_text(f"{heads}\n50,1.0,50.0,10,0.2,0.0,2.0,1.0\n100,2.0,50.0,20,0.4,0.0,4.0,1.0\n")
    place.final.write_text(json.dumps({"timesteps": 100, "episodes": 1, "mean_return": -5.0}))
    monkeypatch.setattr(bounding, "read_cells", lambda root: [group])
    monkeypatch.setattr(sys, "argv", ["bounding.py", "--root", str(tmp_path), "--out", str(tmp_path)])
    bounding.main()
    with (tmp_path / "bounding.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert [row[name] for name in ("bounding", "mean_return", "training_seconds")] == ["zeroing", "-5", "2"]
    with (tmp_path / "bounding_curves.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert [row[name] for name in ("mean_return", "actions_outside", "action_gradient_norm", "clipped_share")] == [
        *("-7", "0.3", "3", "0.3")
    ]
