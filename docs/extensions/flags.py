"""Keep flags in running text in one piece: browsers break ``--allow-import`` behind its hyphens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the tests read this file where Sphinx is not installed
    from docutils import nodes
    from sphinx.application import Sphinx

LONGEST = 24  # characters of a word that a narrow column has room for


def has_flags(code: str) -> bool:
    """Return whether inline code has a flag, and only words short enough not to be broken."""
    words = code.split()
    return any(word.startswith("-") for word in words) and all(len(word) <= LONGEST for word in words)


def _mark(app: Sphinx, document: nodes.document) -> None:
    from docutils.nodes import literal

    for code in document.findall(literal):
        if has_flags(code.astext()):
            code["classes"].append("flags")  # site.css breaks it between words alone


def setup(app: Sphinx) -> dict[str, Any]:
    """Mark code in each page as it is read."""
    app.connect("doctree-read", _mark)
    return {"version": "1", "parallel_read_safe": True}
