"""Only the text between marks is replaced, and pages have the tables of the committed results."""

import importlib

import pytest
from refusals import refuses

from benchmarks import marks


def test_only_the_text_between_the_marks_changes(tmp_path):
    page = "Before\n<!-- speed: begin -->\nold\n<!-- speed: end -->\nafter\n"
    filled = marks.filled(page, "speed", "new\nlines")
    assert filled == "Before\n<!-- speed: begin -->\nnew\nlines\n<!-- speed: end -->\nafter\n"
    assert marks.between(filled, "speed") == "new\nlines"
    path = tmp_path / "page.md"
    path.write_text(page + "<!-- b: begin --><!-- b: end -->")
    marks.write(path, {"b": "2", "speed": "1"})
    assert path.read_text() == page.replace("old", "1") + "<!-- b: begin -->\n2\n<!-- b: end -->"


@pytest.mark.parametrize("page", ["", "<!-- speed: begin -->", "<!-- speed: end --><!-- speed: begin -->"])
def test_pages_without_marks_are_refused(page):
    with refuses(ValueError, "once each"):
        marks.filled(page, "speed", "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *((name, "--write") for name in ("gpu.__main__", "images", "int8", "learning.offline", "memory", "pixels")),
        *((name, "--write") for name in ("precision", "scaling_model", "vectors")),
        *((name, "") for name in ("bounding_figures", "options_page", "workers", "zoo.page")),
        ("many_cores", "write"),
    ],
)
def test_pages_have_the_tables_of_the_committed_results(name, words):
    """Those of ``benchmarks.speed`` and ``benchmarks.learning`` are on several pages, and have tests of their own."""
    module = importlib.import_module(f"benchmarks.{name}")
    page = module.PAGE.read_text(encoding="utf-8")
    for mark, text in module.tables().items():
        assert marks.between(page, mark) == text, f"run: python -m benchmarks.{name.partition('.__')[0]} {words}"
