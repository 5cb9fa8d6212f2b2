"""The study files of benchmarks/learning: their runs, and the one option that each rung of the ladder adds."""

import itertools

import pytest
from learning_cells import ROOT

from benchmarks.learning import ladder, pages
from benchmarks.learning.normalised import REFERENCES
from ddpg.config.presets import preset_for
from ddpg.studies.study import cells_of, read_study

FOLDER = ROOT / "benchmarks" / "learning"


def study(name):
    return read_study(FOLDER / f"{name}.toml")


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("table", 5 * 3 * 3),
        ("long", 2 * 2),
        ("long_averaged", 2 * 3),
        ("long_preactivation", 2 * 3 + 2),
        ("preactivation", 5 * 3),
        ("pink", 5 * 3),
        ("ladder", 2 * 2 * 9),
        ("beside", 5),
    ],
)
def test_studies_of_locomotion_have_the_same_evaluations_and_random_steps(name, cells):
    groups = study(name)
    assert len(cells_of(groups)) == cells
    assert {(group.evaluation_interval, group.evaluation_episodes) for group in groups} == {(5_000, 10)}
    starts = {(group.configuration == "td3", group.options["learning_starts"]) for group in groups}
    assert starts <= {(False, 5_000), (True, 10_000)}
    assert {group.name for group in groups} <= {*REFERENCES}


def test_further_seeds_of_td3_have_the_options_of_the_table():
    table = [group for group in study("table") if (group.name, group.configuration) == ("Hopper-v5", "td3")]
    both = [*table, *study("beside")]
    assert len({str((group.configuration, group.options, group.total_timesteps)) for group in both}) == 1
    assert sorted(cell.seed for cell in cells_of(both)) == [*range(8)]


def test_presets_are_trained_for_their_number_of_steps():
    """Swimmer's is an exception: the study trains it for a third of the preset's steps, as its comment says."""
    steps = {group.name: group.total_timesteps for group in study("others")}
    assert (steps["Pendulum-v1"], steps["Reacher-v5"], steps["ddpg_envs/HalfFieldOffense-v0"]) == (
        *(10_000, 50_000, 1_500_000),
    )
    assert 3 * steps["Swimmer-v5"] == preset_for("Swimmer-v5").total_timesteps


def test_the_runs_of_a_million_steps_have_the_presets_options():
    for group in (*study("million"), *study("million_humanoid")):
        preset = preset_for(group.name)
        assert group.total_timesteps == 1_000_000 <= preset.total_timesteps
        assert {**preset.options, "hidden": [*preset.options["hidden"]]}.items() <= group.options.items()
        assert (group.evaluation_interval, group.evaluation_episodes) == (5_000, 10)


def test_each_rung_adds_one_option_to_the_one_before():
    """Some options need others: the joint pass a norm, the categorical critic a range, more updates a batch size."""
    options = {("table", group.configuration): group.options for group in study("table")}
    options |= {("ladder", group.configuration): group.options for group in study("ladder")}
    assert [rung.configuration for rung in ladder.RUNGS if rung.study == "ladder"] == [
        *dict.fromkeys(group.configuration for group in study("ladder"))
    ]
    changes = []
    for before, rung in itertools.pairwise(ladder.RUNGS):
        old, new = options[before.study, before.configuration], options[rung.study, rung.configuration]
        changes.append({name for name in new if new[name] != old[name]})
    assert changes == [
        {"n_critics"},
        {"policy_delay"},
        {"target_policy_noise"},
        {"target", "norm"},
        {"adam_beta1"},
        {"policy_delay"},
        {"learning_rate_schedule"},
        {"critic", "atoms", "v_min", "v_max", "normalize_rewards"},
        {"norm"},
        {"updates_per_step", "batch_size", "policy_delay"},
    ]


def test_every_rung_is_shown_on_its_option_s_page():
    for rung in ladder.RUNGS:
        if rung.page is not None:
            text = (ROOT / "docs" / "options" / f"{rung.page}.md").read_text(encoding="utf-8")
            assert f"rung {rung.page}" in pages.marked(text)
