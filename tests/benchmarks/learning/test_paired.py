"""Comparison of variants and versions of `plus`, from runs that are made by hand."""

import pytest
from learning_cells import cell

from benchmarks.learning import long_form, normalised, paired

OWN = [1, 5, 10, 40, 80, 20, 70, 60, 100, 90]  # every 100 steps of 1,000; from 40 to 80 %: 40, 80, 20, 70, 60
AVERAGE = [1, 5, 10, 60, 70, 80, 80, 85, 90, 95]


def test_variants_are_compared_on_seeds_that_both_have_finished():
    """Dips: of the five evaluations after the first good one (80 of 100), one (20) is below 60."""
    cells = [
        cell("table", "E", "plus", 0, OWN),
        cell("averaged", "E", "plus_averaged", 0, AVERAGE),
        cell("averaged", "E", "plus_averaged", 1, AVERAGE),  # the other variant does not have this seed
        cell("averaged", "F", "plus_averaged", 0, AVERAGE[:5], asked=1_000),  # unfinished
        cell("table", "F", "plus", 0, OWN),
    ]
    lines = paired.averaged(cells).splitlines()
    assert lines[2:] == [
        "| E | actor | 1 | 54 | 20 | 0.2 | 90 |",
        "| E | averaged actor | 1 | 75 | 60 | 0 | 95 |",
    ]


def test_several_seeds_have_a_mean_and_a_range():
    cells = [
        make
        for seed in (0, 1)
        for make in (
            cell("table", "E", "plus", seed, OWN),
            cell("averaged", "E", "plus_averaged", seed, [value + 10 * seed for value in AVERAGE]),
        )
    ]
    assert (
        paired.averaged(cells).splitlines()[3].startswith("| E | averaged actor | 2 | 80 (75 to 85) | 65 (60 to 70) |")
    )
    assert paired.mean_before_cooldown(cells[0]) == pytest.approx(54)


def test_without_a_pair_nothing_is_compared():
    assert (
        paired.averaged([cell("averaged", "E", "plus_averaged", 0, AVERAGE)]) == "No runs of the study `averaged` yet."
    )


def test_the_norm_before_the_activation_is_compared_on_the_same_seed():
    cells = [
        cell("averaged", "E", "plus_averaged", 0, OWN),
        cell("averaged", "E", "plus_averaged", 1, OWN),
        cell("preactivation", "E", "plus_preactivation", 0, AVERAGE),
        cell("table", "E", "plus", 0, OWN),
    ]
    assert paired.preactivation(cells).splitlines() == [
        "| environment | place of the norm | seeds | mean return, 40 to 80 % of the run "
        "| lowest return, 40 to 80 % of the run | dips | final return |",
        "|---|---|---|---|---|---|---|",
        "| E | after the activation | 1 | 54 | 20 | 0.2 | 90 |",
        "| E | before the activation | 1 | 75 | 60 | 0 | 95 |",
    ]


def test_versions_are_compared_by_both_means(tmp_path):
    """Scores 0, 0, 0, 1 have the mean 0.25 and the interquartile mean 0; one resample in 20 has three ones."""
    random, reference = normalised.REFERENCES["Ant-v5"]
    own = [cell("table", "Ant-v5", "plus", seed, [random + share * (reference - random)]) for seed, share in
           enumerate((0, 0, 0, 1))]  # fmt: skip
    long_form.write(tmp_path / "plus_single.csv", own[:1])
    lines = paired.versions(own, tmp_path).splitlines()
    assert len(lines) == 4  # two lines of heading, one former version, the current one
    assert lines[-1] == f"| {paired.TODAY} | 4 | 0.25 | 0 (0 to 1) |"
