"""How busy a learner is: the clock around it, what follows from measurements, and the table."""

import json
import sys
from pathlib import Path

import pytest
from refusals import refuses

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks import marks, vectors
from benchmarks.vectors import Sample, Timed, name_of, spread, summary, table


def test_the_clock_takes_what_is_inside_the_call_alone():
    """The clock reads 0 and 3 around the first call, 10 and 14 around the second, which fails."""
    readings = iter([0.0, 3.0, 10.0, 14.0])
    timed = Timed(lambda n, by=1: n // by, clock=lambda: next(readings))
    assert timed(6, by=2) == 3
    assert (timed.seconds, timed.count) == (3.0, 1)
    with pytest.raises(ZeroDivisionError):
        timed(6, by=0)
    assert (timed.seconds, timed.count) == (7.0, 2)


def test_what_follows_from_measurements():
    """1000 transitions in 2, 4 and 5 s, of which the learner took 1, 3 and 4.5: shares 1/2, 3/4, 9/10."""
    samples = [Sample(1000, 990, 2.0, 1.0, 3.0), Sample(1000, 1000, 4.0, 3.0, 4.0), Sample(1000, 1000, 5.0, 4.5, 9.0)]
    assert (samples[1].rate, samples[1].busy) == (250.0, 0.75)
    found = summary(samples)
    assert found["transitions_per_second"] == {"median": 250.0, "low": 200.0, "high": 500.0}
    assert found["busy"] == {"median": 0.75, "low": 0.5, "high": 0.9}
    assert found["updates_per_transition"] == 1.0
    assert found["cpu_seconds_per_1000"] == 4.0
    assert found["left_over"] == 1.0  # ms a transition: 1, 1 and 0.5
    assert found["limit"] == pytest.approx(1000 / 3)
    assert spread([4.0, 2.0]) == {"median": 3.0, "low": 2.0, "high": 4.0}


def test_the_table_says_who_is_not_busy_enough():
    idle, busy = (summary([Sample(1000, 1000, 4.0, share * 4, 4.0)]) for share in (0.5, 0.95))
    lines = table(
        {name_of("sync", 1, {}): idle, name_of("envpool", 16, {"overlap": True, "threads": 1}): busy}
    ).splitlines()
    assert lines[2] == "| 1 in this process | 250 (250–250) | 50.0% (below 90%) | 2.00 | 500 |"
    assert lines[3] == "| 16 in EnvPool, overlapping, updates on one thread | 250 (250–250) | 95.0% | 0.20 | 263 |"


def test_the_clock_is_around_the_updater_of_a_training(monkeypatch):
    """One environment of Pendulum: every transition measured earned an update, and those took part of the time."""
    monkeypatch.setattr(vectors, "ENV", "Pendulum-v1")
    options = {"hidden": (4,), "batch_size": 4, "learning_starts": 8, "updates_per_call": 4, "jit": False}
    monkeypatch.setattr(vectors, "OPTIONS", options)
    for more in ({}, {"overlap": True}):
        sample = vectors.measure("sync", 1, more, 20, 40)
        assert (sample.transitions, sample.updates) == (40, 40)
        assert 0 < sample.busy < 1
    with refuses(RuntimeError, "measured"):
        vectors.measure("sync", 1, {}, 4, 2)


def test_the_page_holds_what_was_measured():
    page, document = vectors.PAGE.read_text(encoding="utf-8"), json.loads(vectors.RESULTS.read_text(encoding="utf-8"))
    assert marks.between(page, "vectors") == vectors.told(document), "run: python -m benchmarks.vectors --write"
