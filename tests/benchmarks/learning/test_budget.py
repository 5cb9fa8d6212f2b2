"""Returns after parts of runs that are made by hand."""

from learning_cells import cell

from benchmarks.learning import budget


def test_returns_are_read_at_each_share_of_the_steps():
    """The n-th of ten evaluations returns n (seed 0) or n + 2 (seed 1): 1 and 3 after a tenth, 10 and 12 at the end."""
    cells = [cell("table", "E", "plus", seed, [n + 2 * seed for n in range(1, 11)]) for seed in (0, 1)]
    head, _, row = budget.table(cells).splitlines()
    assert head == "| environment | recipe | after 100 | after 200 | after 400 | after 600 | after 1,000 |"
    assert row == "| E | plus | 2 (1 to 3) | 3 (2 to 4) | 5 (4 to 6) | 7 (6 to 8) | 11 (10 to 12) |"


def test_unfinished_runs_are_left_out():
    assert budget.table([cell("table", "E", "plus", 0, [1.0], asked=500)]) == "No runs of the study `table` yet."
