"""What is put between the marks of a page, and marks that are refused."""

import pytest
from learning_cells import cell

from benchmarks.learning import long_form, pages
from benchmarks.learning.__main__ import main
from ddpg import UsageError


def test_between_marks_stands_the_table_and_nothing_else_is_touched():
    empty = "<!-- learning: rung x -->\n<!-- /learning -->\n"
    text = f"a\n\n<!-- learning: table -->\nold\n\nold\n<!-- /learning -->\n\nb\n{empty}"
    cells = [cell("table", "E", "r", 0, [5, 1])]
    now = pages.filled(text, cells, "it")
    assert now.startswith("a\n\n<!-- learning: table -->\n\n| environment |")
    assert "| E | r | 200 | 1 | 1 (1 to 1) | 5 (5 to 5) |" in now
    assert "old" not in now
    assert now.endswith(f"\n\n<!-- /learning -->\n\nb\n{empty}")
    assert pages.filled(now, cells, "it") == now


@pytest.mark.parametrize("name", ["tabel", "rung", "recipes td3"])
def test_an_unknown_mark_is_named(name):
    with pytest.raises(UsageError, match=f"it.md marks '{name}', which is not one of table, "):
        pages.filled(f"<!-- learning: {name} -->\n<!-- /learning -->\n", [], "it.md")


def test_a_mark_without_its_end_is_refused():
    text = "<!-- learning: table -->\n<!-- learning: long -->\n<!-- /learning -->\n"
    with pytest.raises(UsageError, match=r"it\.md has a mark without its end"):
        pages.filled(text, [], "it.md")


def test_the_command_fills_pages_and_draws_once(tmp_path, capsys):
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "options").mkdir(parents=True)
    (tmp_path / "README.md").write_text("<!-- learning: front -->\n<!-- /learning -->\n")
    (tmp_path / "docs" / "options" / "n.md").write_text("nothing\n")
    long_form.write(tmp_path / "benchmarks" / "results" / "learning.csv", [cell("table", "E", "r", 0, [5, 1])])
    assert main(["--write"], root=tmp_path) == 0
    assert [line.rpartition("/")[2] for line in capsys.readouterr().out.splitlines()] == [
        *("learning_table.png", "README.md")
    ]
    assert "| E | 1 (largest 5; 1 seed) |" in (tmp_path / "README.md").read_text()
    assert main(["--write"], root=tmp_path) == 0
    assert "README" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([], root=tmp_path)
