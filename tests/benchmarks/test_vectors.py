"""The learner's busy share: the clock around its updates, the summary of measurements, and the table."""

import pytest
from refusals import refuses

from benchmarks import vectors
from benchmarks.vectors import Sample, Timed, name_of, spread, summary, table


def test_the_clock_counts_only_the_time_inside_the_call():
    """The clock reads 0 and 3 around the first call, 10 and 14 around the second, which fails."""
    readings = iter([0.0, 3.0, 10.0, 14.0])
    timed = Timed(lambda n, by=1: n // by, clock=lambda: next(readings))
    assert timed(6, by=2) == 3
    assert (timed.seconds, timed.count) == (3.0, 1)
    with pytest.raises(ZeroDivisionError):
        timed(6, by=0)
    assert (timed.seconds, timed.count) == (7.0, 2)


def test_the_summary_of_measurements():
    """1000 transitions in 2, 4 and 5 s, with the learner busy for 1, 3 and 4.5 s: shares 1/2, 3/4, 9/10."""
    samples = [Sample(1000, 990, 2.0, 1.0, 3.0), Sample(1000, 1000, 4.0, 3.0, 4.0), Sample(1000, 1000, 5.0, 4.5, 9.0)]
    assert (samples[1].rate, samples[1].busy) == (250.0, 0.75)
    found = summary(samples)
    assert found["transitions_per_second"] == {"median": 250.0, "low": 200.0, "high": 500.0}
    assert found["busy"] == {"median": 0.75, "low": 0.5, "high": 0.9}
    assert found["updates_per_transition"] == 1.0
    assert found["cpu_seconds_per_1000"] == 4.0
    assert found["left_over"] == 1.0  # ms per transition: 1, 1 and 0.5
    assert found["limit"] == pytest.approx(1000 / 3)
    assert spread([4.0, 2.0]) == {"median": 3.0, "low": 2.0, "high": 4.0}


def test_the_table_marks_busy_shares_below_the_goal():
    idle, busy = (summary([Sample(1000, 1000, 4.0, share * 4, 4.0)]) for share in (0.5, 0.95))
    lines = table(
        {name_of("sync", 1, {}): idle, name_of("envpool", 16, {"overlap": True, "threads": 1}): busy}
    ).splitlines()
    assert lines[2] == "| 1 in this process | 250 (250–250) | 50.0% (below 90%) | 2.00 | 500 |"
    assert lines[3] == "| 16 in EnvPool, overlapping, updates on one thread | 250 (250–250) | 95.0% | 0.20 | 263 |"


@pytest.mark.slow
def test_training_is_measured_with_a_clock_around_the_updater(monkeypatch):
    """One Pendulum environment: one update per measured transition, in a part of the time."""
    monkeypatch.setattr(vectors, "ENV", "Pendulum-v1")
    options = {"hidden": (4,), "batch_size": 4, "learning_starts": 8, "updates_per_call": 4, "jit": False}
    monkeypatch.setattr(vectors, "OPTIONS", options)
    for more in ({}, {"overlap": True}):
        sample = vectors.measure("sync", 1, more, 20, 40)
        assert (sample.transitions, sample.updates) == (40, 40)
        assert 0 < sample.busy < 1
    with refuses(RuntimeError, "measured"):
        vectors.measure("sync", 1, {}, 4, 2)
