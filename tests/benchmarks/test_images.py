"""The duration of updates on images: the table and its page."""

import pytest

from benchmarks import images


def test_a_table_of_medians_with_their_range():
    ms = {"compiled 84 1": [3.0, 1.0, 2.0], "stable_baselines 84 1": [40.0, 60.0, 50.0]}
    ms |= {"compiled 42 1": [1.0], "stable_baselines 42 1": [9.0]}
    document = {"machine": {"processor": "a processor"}, "cores": [1], "versions": {"torch": "2"}, "ms": ms}
    about, _, heads, _, large, small = images.table(document).splitlines()
    assert "3 measurements on a processor; torch 2" in about
    assert heads == "| frames, cores | compiled | Stable-Baselines3 |"
    assert large == "| 84 x 84, 1 | 2 (1 to 3) | 50 (40 to 60) |"
    assert small == "| 42 x 42, 1 | 1 (1 to 1) | 9 (9 to 9) |"


@pytest.mark.slow
def test_our_updates_are_measured(monkeypatch):
    monkeypatch.setattr(images.os, "sched_setaffinity", lambda process, cores: None)
    found = images.measured("session", "42", "1", 0.01)
    assert found["ms"] > 0
    assert set(found["versions"]) == {"tensorflow"}
