"""The notebooks as pages: copied beside the pages before a build, as they were executed and committed.

On a forge a page links to ``../notebooks/NAME.ipynb``; on the site the same link leads to the notebook's page.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the tests read this file where Sphinx is not installed
    from sphinx.application import Sphinx
    from sphinx.config import Config

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def as_page(notebook: str) -> str:
    """Return a notebook's text with its links into docs/ rewritten for a page in docs/notebooks/."""
    return notebook.replace("](../docs/", "](../")


def with_links_to_pages(text: str) -> str:
    """Return a page's source with its links to notebooks rewritten to the notebooks' pages."""
    return re.sub(r"\]\((?:\.\./)+notebooks/(\w+\.ipynb)", r"](/notebooks/\1", text)


def _copy(app: Sphinx, config: Config) -> None:
    folder = Path(app.srcdir) / "notebooks"
    folder.mkdir(exist_ok=True)
    names = {path.name for path in NOTEBOOKS.glob("*.ipynb")}
    for stale in {path.name for path in folder.glob("*.ipynb")} - names:
        (folder / stale).unlink()
    for name in names:
        page, text = folder / name, as_page((NOTEBOOKS / name).read_text(encoding="utf-8"))
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    source[0] = with_links_to_pages(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Copy notebooks before pages are looked for, and rewrite links as pages are read."""
    app.connect("config-inited", _copy)
    app.connect("source-read", _read)
    return {"version": "1", "parallel_read_safe": True}
