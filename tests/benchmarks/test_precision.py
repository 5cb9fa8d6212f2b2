"""The speedup by bfloat16 products: the measured ratio, the table, and its page."""

from types import SimpleNamespace

import pytest

from benchmarks import precision


def test_the_ratio_compares_neighbouring_measurements(monkeypatch):
    """Microseconds of 2 updates: 8, 4 and 8 on a quiet machine, 80, 20 and 40 on a busy one.

    So the ratios are 2 and 4, and 1 and 2.
    """
    clock = iter([0.0, 8.0, 8.0, 12.0, 12.0, 20.0, 0.0, 80.0, 80.0, 100.0, 100.0, 140.0])

    class Subject:
        updates = 2

        def __init__(self, task, part, precision):
            self.run = lambda: None

    monkeypatch.setattr(precision, "PARTS", {"whole": "an update"})
    monkeypatch.setattr(precision, "Subject", Subject)
    monkeypatch.setattr(precision.jit, "host_registers", lambda: SimpleNamespace(amx=True))
    monkeypatch.setattr(precision.time, "thread_time", lambda: next(clock) / 1e6)
    found = precision.measured("Pendulum 64-64", 2)["whole"]
    medians = {"float32": 22, "bfloat16": 6, "bfloat16x3": 12, "bfloat16 speedup": 3, "bfloat16x3 speedup": 1.5}
    assert {column: numbers[0] for column, numbers in found.items()} == pytest.approx(medians)
    document = {"machine": {"processor": "a processor"}, "repeats": 2, "tasks": {"small": {"whole": found}}}
    lines = precision.table(document | {"instructions": "AMX"}).splitlines()
    assert lines[0] == "Medians (quartiles) of 2 measurements in turn on one core of a processor, with AMX."
    assert lines[-1].startswith("| small | an update | 22 (")
    assert " | 3.00 (" in lines[-1]
    assert " | 1.50 (" in lines[-1]


def test_three_products_are_measured_with_amx(monkeypatch):
    made = []
    monkeypatch.setattr(precision.jit, "host_registers", lambda: SimpleNamespace(amx=False))
    monkeypatch.setattr(
        precision,
        "Subject",
        lambda *a, precision: made.append(precision) or SimpleNamespace(run=lambda: None, updates=1),
    )
    monkeypatch.setattr(precision.time, "thread_time", iter(range(99)).__next__)
    precision.measured("Pendulum 64-64", 2)
    assert {*made} == {"float32", "bfloat16"}


def test_every_machine_with_results_has_a_table():
    (text,) = precision.tables().values()
    assert text.count("Medians (") == len([*precision.RESULTS.parent.glob("precision*.json")])
