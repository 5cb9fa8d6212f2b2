"""`plus` before and after its cooldown, from runs that are made by hand."""

import csv
import dataclasses

import numpy as np
from learning_cells import ROOT, cell

from benchmarks.learning import long_form, midway
from benchmarks.learning.__main__ import committed


def test_the_longer_run_is_read_where_the_short_one_ends():
    cells = [cell("table", "E", "plus", seed, [1, 20 + seed]) for seed in (0, 1)]
    cells += [cell("long", "E", "plus", seed, [1, 10 + seed, 30, 40]) for seed in (0, 1, 2)]  # seed 2 has no short run
    assert [(early.seed, there) for early, _, there in midway.pairs(cells)] == [(0, 10.0), (1, 11.0)]
    assert midway.table(cells).splitlines()[2:] == ["| E | 0 | 20 | 10 |", "| E | 1 | 21 | 11 |"]
    text = midway.sentence(cells, "E")
    assert "10 and 11 in E (seeds 0 and 1)" in text
    assert "20 and 21" in text


def test_without_a_longer_run_nothing_is_compared():
    cells = [cell("table", "E", "plus", 0, [1, 2]), cell("long", "E", "plus", 0, [1], asked=400)]
    assert midway.pairs(cells) == []
    assert midway.table(cells) == midway.sentence(cells, "E") == "No runs of the study `long` yet."


def test_a_run_of_a_million_steps_is_read_midway_and_at_its_end():
    """Ten evaluations, one per 100,000 steps; Hopper's score is (r - 18.791) / (3226 - 18.791)."""
    returns = [1_000, 1_500, 2_000, 2_500, 3_226, 3_226, 1_000, 3_226, 4_000, 3_600]
    run = cell("million", "Hopper-v5", "preset", 0, returns)
    values = [(step * 1_000, measure, value) for step, measure, value in run.values if measure != long_form.ASKED]
    run = long_form.make_cell(run.key, [*values, (0, long_form.ASKED, "1000000")])
    unfinished = cell("million", "Ant-v5", "preset", 0, [1], asked=400)
    rounded = dataclasses.replace(run, study="million_humanoid", recipe="preset_bfloat16")
    assert midway.million_table([run, rounded, unfinished]).splitlines()[2:] == [
        "| Hopper-v5 | 0 | 1,000 (0.31) | 2,000 (0.62) | 3,600 (1.12) | 4,000 | 0.9 | 0.2 |",
        "| Hopper-v5 in bfloat16 | 0 | 1,000 (0.31) | 2,000 (0.62) | 3,600 (1.12) | 4,000 | 0.9 | 0.2 |",
    ]
    assert midway.million_table([unfinished]) == "No runs of the study `million` yet."


def test_the_committed_pairs_agree_with_the_file():
    """Reads the returns of `plus` on HalfCheetah after 100,000 steps without the code that fills the page."""
    with (ROOT / "benchmarks" / "results" / "learning.csv").open(newline="", encoding="utf-8") as file:
        found = {
            (row["study"], row["seed"]): float(row["value"])
            for row in csv.DictReader(file)
            if (row["env"], row["recipe"], row["step"], row["measure"])
            == ("HalfCheetah-v5", "plus", "100000", "evaluation_mean_return")
        }
    pairs = [(early.final, there) for early, _, there in midway.pairs(committed()) if early.env_id == "HalfCheetah-v5"]
    expected = [(found["table", seed], found["long", seed]) for seed in ("0", "1")]
    assert np.array_equal(pairs, expected)
