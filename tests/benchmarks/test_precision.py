"""The speedup by bfloat16 products: the measured ratio, the table, and its page."""

from benchmarks import marks, precision


def test_the_ratio_compares_neighbouring_measurements(monkeypatch):
    """Microseconds of 2 updates: 8 and 4 on a quiet machine, 80 and 20 on a busy one, so the ratios are 2 and 4."""
    clock = iter([0.0, 8.0, 8.0, 12.0, 0.0, 80.0, 80.0, 100.0])

    class Subject:
        updates = 2

        def __init__(self, task, part, precision):
            self.run = lambda: None

    monkeypatch.setattr(precision, "PARTS", {"whole": "an update"})
    monkeypatch.setattr(precision, "Subject", Subject)
    monkeypatch.setattr(precision.time, "thread_time", lambda: next(clock) / 1e6)
    found = precision.measured("Pendulum 64-64", 2)["whole"]
    assert [found[column][0] for column in ("float32", "bfloat16", "ratio")] == [22.0, 6.0, 3.0]
    document = {"machine": {"processor": "a processor"}, "repeats": 2, "tasks": {"small": {"whole": found}}}
    lines = precision.table(document).splitlines()
    assert lines[0] == "Medians (quartiles) of 2 pairs on one core of a processor."
    assert lines[-1].startswith("| small | an update | 22 (")
    assert " | 3.00 (" in lines[-1]


def test_the_page_has_the_results_of_every_machine():
    page = precision.PAGE.read_text(encoding="utf-8")
    assert marks.between(page, precision.MARKS) == precision.tables(), "run: python -m benchmarks.precision --write"
    assert precision.tables().count("Medians (") == len([*precision.RESULTS.parent.glob("precision*.json")])
