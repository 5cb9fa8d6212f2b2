"""README and the pages under docs agree with the committed results."""

import re

import pytest
from learning_cells import ROOT

from benchmarks.learning import pages
from benchmarks.learning.__main__ import committed

PAGES = [page.relative_to(ROOT).as_posix() for page in pages.pages_of(ROOT)]


@pytest.mark.parametrize("name", [name for name in PAGES if pages.marked((ROOT / name).read_text("utf-8"))])
def test_pages_agree_with_the_committed_results(name):
    """If this fails, run ``python -m benchmarks.learning --write``."""
    text = (ROOT / name).read_text(encoding="utf-8")
    assert pages.filled(text, committed(), name) == text
    for picture in re.findall(r"\]\((\S*learning_\w+\.png)\)", text):
        assert ((ROOT / name).parent / picture).exists(), picture


def test_every_block_is_on_a_page():
    marked = {name for page in PAGES for name in pages.marked((ROOT / page).read_text("utf-8"))}
    assert marked >= {*pages.BLOCKS}
