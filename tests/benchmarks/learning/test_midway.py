"""`plus` with and without its cooldown, and its versions, from runs made by hand."""

import csv

import numpy as np
from learning_cells import ROOT, cell

from benchmarks.learning import long_form, midway, normalised, versions
from benchmarks.learning.__main__ import committed


def test_the_longer_run_is_read_at_the_step_where_the_short_one_ends():
    cells = [cell("table", "E", "plus", seed, [1, 20 + seed]) for seed in (0, 1)]
    cells += [cell("long", "E", "plus", seed, [1, 10 + seed, 30, 40]) for seed in (0, 1, 2)]  # no short one of seed 2
    assert [(early.seed, there) for early, _, there in midway.pairs(cells)] == [(0, 10.0), (1, 11.0)]
    assert midway.table(cells).splitlines()[2:] == ["| E | 0 | 20 | 10 |", "| E | 1 | 21 | 11 |"]
    told = midway.sentence(cells, "E")
    assert "10 and 11 in E (seeds 0 and 1)" in told
    assert "20 and 21" in told


def test_without_a_longer_run_there_is_nothing_to_compare():
    cells = [cell("table", "E", "plus", 0, [1, 2]), cell("long", "E", "plus", 0, [1], asked=400)]
    assert midway.pairs(cells) == []
    assert midway.table(cells) == midway.sentence(cells, "E") == "No runs of the study `long` yet."


def test_a_run_of_a_million_steps_is_read_on_the_way():
    """Ten evaluations, every 100,000 steps; scores of Hopper: (r - 18.791) / (3226 - 18.791)."""
    returns = [1_000, 1_500, 2_000, 2_500, 3_226, 3_226, 1_000, 3_226, 4_000, 3_600]
    run = cell("million", "Hopper-v5", "preset", 0, returns)
    values = [(step * 1_000, measure, value) for step, measure, value in run.values if measure != long_form.ASKED]
    run = long_form.make_cell(run.key, [*values, (0, long_form.ASKED, "1000000")])
    unfinished = cell("million", "Ant-v5", "preset", 0, [1], asked=400)
    assert midway.on_the_way([run, unfinished]).splitlines()[2:] == [
        "| Hopper-v5 | 0 | 1,000 (0.31) | 2,000 (0.62) | 3,600 (1.12) | 4,000 | 0.9 | 0.2 |"
    ]
    assert midway.on_the_way([unfinished]) == "No runs of the study `million` yet."


def test_versions_are_compared_by_both_means(tmp_path):
    """Scores 0, 0, 0, 1 have the mean 0.25 and the interquartile mean 0; one resample in 20 is of three ones."""
    random, reference = normalised.REFERENCES["Ant-v5"]
    own = [cell("table", "Ant-v5", "plus", seed, [random + share * (reference - random)]) for seed, share in
           enumerate((0, 0, 0, 1))]  # fmt: skip
    long_form.write(tmp_path / "plus_single.csv", own[:1])
    lines = versions.table(own, tmp_path).splitlines()
    assert len(lines) == 4  # a head of two, one former version, today's
    assert lines[-1] == f"| {versions.TODAY} | 4 | 0.25 | 0 (0 to 1) |"


def test_the_committed_numbers_are_those_of_the_file():
    """Read apart from the code that fills the page: the returns of `plus` on HalfCheetah at 100,000 steps."""
    with (ROOT / "benchmarks" / "results" / "learning.csv").open(newline="", encoding="utf-8") as file:
        found = {
            (row["study"], row["seed"]): float(row["value"])
            for row in csv.DictReader(file)
            if (row["env"], row["recipe"], row["step"], row["measure"])
            == ("HalfCheetah-v5", "plus", "100000", "evaluation_mean_return")
        }
    told = [(early.final, there) for early, _, there in midway.pairs(committed()) if early.env_id == "HalfCheetah-v5"]
    expected = [(found["table", seed], found["long", seed]) for seed in ("0", "1")]
    assert np.array_equal(told, expected)
