"""Only the text between marks is replaced."""

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
