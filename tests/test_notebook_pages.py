"""Notebooks become pages of the site: they are copied before a build, and links between them and pages are adapted."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "extensions" / "notebook_pages.py"
SPECIFICATION = importlib.util.spec_from_file_location("notebook_pages", FILE)
notebook_pages = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(notebook_pages)


def test_links_of_pages_lead_to_the_notebooks_pages():
    text = (
        "[one](../notebooks/1_quickstart.ipynb) [two](../../notebooks/7_minimize.ipynb) [other](../notebooks/README.md)"
    )
    assert notebook_pages.with_links_to_pages(text) == (
        "[one](/notebooks/1_quickstart.ipynb) [two](/notebooks/7_minimize.ipynb) [other](../notebooks/README.md)"
    )


def test_links_of_notebooks_lead_to_pages():
    assert notebook_pages.as_page("![a](../docs/a.png) [b](../docs/faq.md)") == "![a](../a.png) [b](../faq.md)"


def test_every_notebook_is_copied_once_and_stale_copies_are_deleted(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "0_gone.ipynb").write_text("{}")
    app = SimpleNamespace(srcdir=tmp_path)
    notebook_pages._copy(app, None)
    copied = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "notebooks").iterdir()}
    assert {*copied} == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")}
    notebook_pages._copy(app, None)  # unchanged files are not written, which keeps builds incremental
    assert copied == {path.name: path.stat().st_mtime_ns for path in (tmp_path / "notebooks").iterdir()}
