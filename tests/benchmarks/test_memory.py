"""What memory costs: the tables, and that the page holds them."""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))

from benchmarks import marks, memory


def test_updates_are_compared_with_the_plain_one():
    drawing = {"uniform": 0.02}
    updates = {"none": 2.0, "n_steps=3": 2.5}
    lines = memory.told(
        {
            "transitions": 1000,
            "bytes_per_transition": 102.14,
            "milliseconds_per_minibatch": drawing,
            "milliseconds_per_update": updates,
        }
    ).splitlines()
    assert lines[0] == "102.1 bytes a transition, of 1,000."
    assert "| uniform | 0.0200 |" in lines
    assert lines[-2:] == ["| none | 2.0000 | 100.0% |", "| n_steps=3 | 2.5000 | 125.0% |"]


def test_the_page_holds_what_was_measured():
    page, result = memory.PAGE.read_text(encoding="utf-8"), json.loads(memory.RESULTS.read_text(encoding="utf-8"))
    assert marks.between(page, "memory") == memory.told(result), "run: python -m benchmarks.memory --write"
