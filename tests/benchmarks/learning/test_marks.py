"""Filling the marks of pages, and refusing invalid marks."""

import os
import sys

import pytest
from learning_cells import cell
from refusals import refuses

from benchmarks.learning import long_form, pages
from benchmarks.learning.__main__ import main
from ddpg import UsageError


def mark(name, text=""):
    return f"<!-- learning {name}: begin -->\n{text}\n<!-- learning {name}: end -->"


def test_filling_replaces_only_the_text_between_our_marks():
    others = f"b\n{mark('rung x')}\n<!-- speed: begin -->\n1\n<!-- speed: end -->\n"
    text = f"a\n\n{mark('table', 'old')}\n\n{others}"
    cells = [cell("table", "E", "r", 0, [5, 1])]
    now = pages.filled(text, cells, "it")
    assert now.startswith("a\n\n<!-- learning table: begin -->\n| environment |")
    assert "| E | r | 200 | 1 | 1 (1 to 1) | 5 (5 to 5) |" in now
    assert "old" not in now
    assert now.endswith(f"\n<!-- learning table: end -->\n\n{others}")
    assert pages.filled(now, cells, "it") == now


@pytest.mark.parametrize("name", ["tabel", "rung", "recipes td3"])
def test_an_unknown_mark_is_refused(name):
    with refuses(UsageError, f"it.md '{name}' table"):
        pages.filled(mark(name), [], "it.md")


def test_a_mark_without_its_end_is_refused():
    text = f"<!-- learning table: begin -->\n{mark('long')}\n"
    with refuses(UsageError, "it.md"):
        pages.filled(text, [], "it.md")


def test_the_command_draws_and_fills_pages_that_change(tmp_path, capsys):
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "options").mkdir(parents=True)
    (tmp_path / "README.md").write_text(mark("front"))
    (tmp_path / "docs" / "options" / "n.md").write_text("nothing\n")
    long_form.write(tmp_path / "benchmarks" / "results" / "learning.csv", [cell("table", "E", "r", 0, [5, 1])])
    assert main(["--write"], root=tmp_path) == 0
    assert [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()] == [
        *("learning_table.png", "README.md")
    ]
    assert "| E | 1 (1 to 1; 1 seed) |" in (tmp_path / "README.md").read_text()
    assert main(["--write"], root=tmp_path) == 0
    assert "README" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([], root=tmp_path)


def test_a_closed_pipe_does_not_stop_the_command(tmp_path, monkeypatch):
    """As in ``python -m benchmarks.learning --write | head -1``."""
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(mark("front"))
    long_form.write(tmp_path / "benchmarks" / "results" / "learning.csv", [cell("table", "E", "r", 0, [5, 1])])
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as nobody:
        monkeypatch.setattr(sys, "stdout", nobody)
        assert main(["--write"], root=tmp_path) == 0
    assert "(1 to 1; 1 seed)" in (tmp_path / "README.md").read_text()
