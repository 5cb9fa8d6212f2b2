"""Tables and pictures of learning, from runs that are made by hand."""

import numpy as np
import pytest
from learning_cells import cell

from benchmarks.learning import figures, ladder, normalised, tables
from benchmarks.learning.long_form import make_cell


def test_final_and_largest_returns_count_finished_seeds():
    """Finals 1 and 3, largest 5 and 7; the third seed is unfinished and appears only in the number of seeds."""
    cells = [cell("table", "E", "r", 0, [5, 1]), cell("table", "E", "r", 1, [7, 3])]
    cells += [cell("table", "E", "r", 2, [900], asked=200)]
    lines = tables.table(cells, "table").splitlines()
    assert lines[2] == "| E | r | 200 | 2 of 3 | 2 (1 to 3) | 6 (5 to 7) |"
    assert tables.table(cells, "long") == "No runs of the study `long` yet."


def test_holding_counts_finished_seeds():
    """[5, 1]: last / largest is 0.2, and the only evaluation after the largest is a dip; [1, 4] ends at its largest."""
    cells = [cell("table", "E", "r", 0, [5, 1]), cell("table", "E", "r", 1, [1, 4])]
    cells += [cell("table", "E", "r", 2, [900], asked=200), cell("table", "F", "r", 0, [1], asked=200)]
    lines = tables.holding(cells, "table", "long").splitlines()
    assert lines[2:4] == ["| E | r | 200 | 2 of 3 | 0.6 (0.2 to 1) | 1 (1 to 1), of 1 seed |", ""]
    assert tables.holding(cells, "long") == "No runs of the study `long` yet."


def test_presets_have_the_final_return_of_every_finished_seed():
    cells = [cell("landing", "E", "preset", 1, [5, 7]), cell("landing", "E", "preset", 0, [9])]
    cells += [cell("landing", "E", "preset", 2, [3], asked=200), cell("landing", "E", "other", 0, [8])]
    cells += [cell("swimmer", "F", "plus_swimming_mean", 0, [1.25]), cell("table", "G", "preset", 0, [4])]
    assert tables.of_presets(cells).splitlines()[2:] == ["| E | 200 | 9, 7 |", "| F | 100 | 1.25 |"]
    assert tables.of_presets(cells[2:4]) == "No runs of the study `landing` yet."


def test_a_span_has_its_two_ends_once():
    assert [tables.span(numbers) for numbers in ([3, 1, 2], [2, 2], [])] == ["1 to 3", "2", ""]


def test_every_finished_seed_has_a_row_with_its_last_fifth():
    """The last three of ten evaluations are 4, 1, 7: mean 4, lowest 1. The evaluation after training returns 9.24."""
    first = cell("first", "E", "preset", 5001, [9, 9, 9, 9, 9, 9, 9, 4, 1, 7])
    cells = [make_cell(first.key, [*first.values, (1000, "final_mean_return", "9.24")])]
    cells += [cell("first", "E", "preset", 5002, [3], asked=200), cell("first", "F", "preset", 5001, [2, 3])]
    assert tables.by_seed(cells, "first").splitlines()[2:] == [
        "| E | 5001 | 1,000 | 9.2 | 4 | 1 |",
        "| E | 5002 | not finished |  |  |  |",
        "| F | 5001 | 200 | 3 | 3 | 3 |",
    ]
    assert tables.by_seed(cells, "others") == "No runs of the study `others` yet."


def test_groups_are_ordered_by_environment_with_peers_after_ours():
    cells = [cell("table", env_id, recipe, 0, [1]) for env_id in "FE" for recipe in ("b", "a")]
    cells += [cell("stable_baselines", "F", "peer", 0, [1])]
    assert [(g[0].env_id, g[0].recipe) for g in tables.groups(cells, "table", "stable_baselines")] == [
        *(("F", "b"), ("F", "a"), ("F", "peer"), ("E", "b"), ("E", "a"))
    ]


def test_an_evaluation_after_training_is_the_final_one():
    one = cell("table", "E", "r", 0, [5, 1])
    assert one.final == 1
    assert make_cell(one.key, [*one.values, (200, "final_mean_return", "4.5")]).final == 4.5


def test_reference_returns_have_the_scores_0_and_1():
    for env_id, (random, reference) in normalised.REFERENCES.items():
        assert normalised.normalised(env_id, [random, reference]).tolist() == [0, 1]
    assert normalised.normalised("Hopper-v5", [18.791 + 0.25 * (3226 - 18.791)]) == pytest.approx([0.25])


def test_the_mean_across_tasks_resamples_seeds_within_tasks():
    """0, 0, 1, 1, 2, 2, 3, 3 without the two lowest and highest has the mean 1.5; equal seeds give no interval."""
    scores = {name: [value, value] for name, value in zip("abcd", (0.0, 1.0, 2.0, 3.0), strict=True)}
    assert normalised.across_tasks(scores) == (1.5, 1.5, 1.5)
    centre, low, high = normalised.across_tasks({"a": [0.0, 1.0], "b": [0.0, 1.0]})
    assert (centre, low, high) == (0.5, 0.0, 1.0)


def test_the_table_across_tasks_counts_finished_tasks():
    random, reference = normalised.REFERENCES["Ant-v5"]
    cells = [cell("table", "Ant-v5", "r", seed, [reference, random]) for seed in (0, 1)]
    cells += [cell("table", "Hopper-v5", "r", 0, [1], asked=200), cell("table", "Pendulum-v1", "r", 0, [1])]
    assert tables.across(cells).splitlines()[2] == "| r | 1 of 5 | 2 | 0 (0 to 0) | 1 (1 to 1) |"


def test_minutes_are_listed_where_a_peer_was_measured():
    cells = [cell("table", "E", "r", seed, [1, 2], seconds=60.0 * (seed + 1)) for seed in (0, 1)]
    cells += [cell("table", "F", "r", 0, [1]), cell("stable_baselines", "E", "peer", 0, [1, 2], seconds=150)]
    assert tables.seconds(cells).splitlines()[2:] == ["| E | r | 200 | 2 to 4 |", "| E | peer | 200 | 5 |"]


def test_the_comparison_with_peers_has_our_seeds_from_both_studies():
    """Our finals are 2 and, in the other study, 4; the peer's is 3. Other recipes and environments are left out."""
    cells = [cell("table", "E", "td3", 0, [2]), cell("beside", "E", "td3", 3, [4]), cell("table", "E", "plus", 0, [9])]
    cells += [cell("stable_baselines", "E", "peer", 0, [3]), cell("table", "F", "td3", 0, [1])]
    lines = tables.beside(cells).splitlines()
    assert lines[2:4] == [
        "| E | td3 | 100 | 2 | 3 (2 to 4) | 3 (2 to 4) |",
        "| E | peer | 100 | 1 | 3 (3 to 3) | 3 (3 to 3) |",
    ]
    assert lines[4] == "", lines
    assert tables.beside(cells[:2]) == "No runs of the study `stable_baselines` yet."


def rungs(*skipped):
    """A ladder in one environment: rung n returns 10 n and 10 n + 2; rungs of the study ``table`` have a third seed."""
    cells = []
    for number, rung in enumerate(ladder.RUNGS):
        if rung.configuration not in skipped:
            cells += [cell(rung.study, "E", rung.configuration, seed, [10 * number + 2 * seed]) for seed in (0, 1)]
        if rung.study == "table":
            cells += [cell("table", "E", rung.configuration, 2, [1e6])]
    return cells


def test_the_ladder_uses_the_seeds_that_all_rungs_have():
    lines = tables.ladder_table(rungs("joint_pass")).splitlines()
    assert lines[2] == f"| DDPG |  |{' 1 (0 to 2) |' * 3}"
    assert lines[3] == f"| + two critics | [n_critics](../options/n_critics.md) |{' 11 (10 to 12) |' * 3}"
    (missing,) = [line for line in lines if "joint pass" in line]
    assert missing.endswith(f"(../options/target.md) |{' none yet |' * 3}")


def test_a_rung_has_its_final_return_its_last_five_evaluations_and_its_largest():
    """The first of six evaluations is the largest; (0 + 1 + 2 + 3 + 9) / 5 = 3. The unfinished seed does not count."""
    runs = [
        cell("ladder", "E", "cooldown", 0, [100, 0, 1, 2, 3, 9]),
        cell("ladder", "E", "cooldown", 1, [7], asked=900),
    ]
    lines = tables.ladder_table(runs).splitlines()
    assert lines[0] == "| rung | option | E, final | E, last five | E, largest |"
    (row,) = [line for line in lines if "cooldown" in line]
    assert row.endswith("| 9 (9 to 9) | 3 (3 to 3) | 100 (100 to 100) |")


def test_an_option_s_page_has_the_returns_before_and_after_its_rungs():
    lines = tables.rung_of(rungs(), "policy_delay").splitlines()
    assert lines[2] == (
        "- *+ policy delay 2*, E: final return 11 (10 to 12) before, 21 (20 to 22) with it (2 and 2 seeds, 100 steps)."
    )
    assert len([line for line in lines if line.startswith("- ")]) == 2  # two rungs change the policy delay
    assert tables.rung_of(rungs("policy_delay"), "n_critics")
    assert tables.rung_of(rungs("policy_delay"), "target_policy_noise") == ""  # the rung before it has no runs
    assert tables.rung_of(rungs(), "hindsight") == ""


def test_readme_s_table_has_a_column_for_each_recipe():
    cells = [cell("table", "E", "a", 0, [1200.4, 1000.4]), cell("table", "E", "b", 0, [1], asked=900)]
    cells += [cell("stable_baselines", "F", "peer", 0, [3])]
    assert tables.front(cells).splitlines() == [
        "| 900 steps | a | b | peer |",
        "|---|---|---|---|",
        "| E | 1000 (1000 to 1000; 1 seed) |  |  |",
        "| F |  |  | 3 (3 to 3; 1 seed) |",
    ]
    assert tables.front(cells[1:2]) == "No runs yet."


@pytest.mark.slow
def test_pictures_are_drawn_for_studies_with_runs(tmp_path):
    whole, short = cell("table", "E", "r", 0, [1, 2, 3]), cell("table", "E", "r", 1, [1], asked=300)
    assert figures.shown([whole, short], "table") == [whole]  # an unfinished seed does not shorten the others' curve
    assert figures.shown([short], "table") == [short]
    assert [path.name for path in figures.draw([whole, short], tmp_path)] == ["learning_table.png"]
    peer = cell("stable_baselines", "E", "peer", 0, [1, 2, 3])
    drawn = figures.draw([*rungs("cooldown"), peer, cell("long", "E", "plus", 0, [1])], tmp_path)
    assert [path.name for path in drawn] == [f"learning_{name}.png" for name in ("table", "long", "seconds", "ladder")]
    assert all(path.stat().st_size > 10_000 for path in drawn)
    assert figures.draw([], tmp_path) == []


def test_bars_show_final_returns(tmp_path):
    from matplotlib.figure import Figure

    axes = Figure().add_subplot()
    figures._bars(axes, rungs("cooldown"), "E")
    assert [bar.get_width() for bar in axes.patches] == [1, 11, 21, 31, 41, 51, 61, 81, 91, 101]
    assert [text.get_text() for text in axes.texts] == ["none yet"]
    assert np.isclose(axes.texts[0].xy[1], 7)
    assert axes.get_title() == "E (2 seeds)"


def test_returns_are_read_at_each_share_of_the_steps():
    """The n-th of ten evaluations returns n (seed 0) or n + 2 (seed 1): 1 and 3 after a tenth, 10 and 12 at the end."""
    cells = [cell("table", "E", "plus", seed, [n + 2 * seed for n in range(1, 11)]) for seed in (0, 1)]
    head, _, row = tables.budget(cells).splitlines()
    assert head == "| environment | recipe | after 100 | after 200 | after 400 | after 600 | after 1,000 |"
    assert row == "| E | plus | 2 (1 to 3) | 3 (2 to 4) | 5 (4 to 6) | 7 (6 to 8) | 11 (10 to 12) |"


def test_unfinished_runs_have_no_returns_after_shares():
    assert tables.budget([cell("table", "E", "plus", 0, [1.0], asked=500)]) == "No runs of the study `table` yet."
