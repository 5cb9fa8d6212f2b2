"""`plus` with and without an averaged actor, from runs made by hand."""

import pytest
from learning_cells import cell

from benchmarks.learning import averaged

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
    lines = averaged.table(cells).splitlines()
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
    assert averaged.table(cells).splitlines()[3].startswith("| E | its average | 2 | 80 (75 to 85) | 65 (60 to 70) |")
    assert averaged.on_the_way(cells[0]) == pytest.approx(54)


def test_before_there_is_a_pair_nothing_is_compared():
    assert (
        averaged.table([cell("averaged", "E", "plus_averaged", 0, AVERAGE)]) == "No runs of the study `averaged` yet."
    )
