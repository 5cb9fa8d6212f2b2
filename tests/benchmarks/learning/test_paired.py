"""Two variants of `plus` on the same seeds, from runs made by hand."""

import pytest
from learning_cells import cell

from benchmarks.learning import paired

OWN = [1, 5, 10, 40, 80, 20, 70, 60, 100, 90]  # every 100 steps of 1,000; on the way: 40, 80, 20, 70, 60
AVERAGE = [1, 5, 10, 60, 70, 80, 80, 85, 90, 95]


def test_runs_of_a_seed_stand_side_by_side():
    """Dips: after the first at 80 of 100, 20 is one of five that is below 60 of 100."""
    cells = [
        cell("table", "E", "plus", 0, OWN),
        cell("averaged", "E", "plus_averaged", 0, AVERAGE),
        cell("averaged", "E", "plus_averaged", 1, AVERAGE),  # the table has no such seed
        cell("averaged", "F", "plus_averaged", 0, AVERAGE[:5], asked=1_000),  # under way
        cell("table", "F", "plus", 0, OWN),
    ]
    lines = paired.averaged(cells).splitlines()
    assert lines[2:] == [
        "| E | the actor itself | 1 | 54 | 20 | 0.2 | 90 |",
        "| E | its average | 1 | 75 | 60 | 0 | 95 |",
    ]


def test_over_seeds_stand_the_mean_and_the_range():
    cells = [
        make
        for seed in (0, 1)
        for make in (
            cell("table", "E", "plus", seed, OWN),
            cell("averaged", "E", "plus_averaged", seed, [value + 10 * seed for value in AVERAGE]),
        )
    ]
    assert paired.averaged(cells).splitlines()[3].startswith("| E | its average | 2 | 80 (75 to 85) | 65 (60 to 70) |")
    assert paired.on_the_way(cells[0]) == pytest.approx(54)


def test_before_there_is_a_pair_nothing_is_compared():
    assert (
        paired.averaged([cell("averaged", "E", "plus_averaged", 0, AVERAGE)]) == "No runs of the study `averaged` yet."
    )


def test_the_norm_before_the_activation_is_compared_with_the_average_of_the_same_seed():
    cells = [
        cell("averaged", "E", "plus_averaged", 0, OWN),
        cell("averaged", "E", "plus_averaged", 1, OWN),
        cell("preactivation", "E", "plus_preactivation", 0, AVERAGE),
        cell("table", "E", "plus", 0, OWN),
    ]
    assert paired.preactivation(cells).splitlines() == [
        "| environment | norm | seeds | mean return on the way | lowest on the way | dips | final return |",
        "|---|---|---|---|---|---|---|",
        "| E | after the activation | 1 | 54 | 20 | 0.2 | 90 |",
        "| E | before it | 1 | 75 | 60 | 0 | 95 |",
    ]
