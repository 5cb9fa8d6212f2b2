"""Equations as MathML: browsers typeset it themselves, without JavaScript and without a network.

MathML has no line breaks, so parts between ``\\quad`` or ``\\qquad`` are elements of their own, which wrap like words
where the screen is narrow. The lines of ``aligned`` are rows of a grid with two columns, left and right of ``&``.
"""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

_ALIGNED = re.compile(r"\\begin\{aligned\}(.*)\\end\{aligned\}", re.DOTALL)


def block(tex: str) -> str:
    """Return the HTML of a displayed equation."""
    tex = re.sub(r"\\text(?:rm|tt)?\{[^{}]*\}", lambda text: text[0].replace(r"\_", "_"), tex.strip())
    aligned = _ALIGNED.fullmatch(tex)
    if not aligned:
        return f'<div class="math">{_parts(tex)}</div>\n'
    rows = [line.partition("&")[::2] for line in aligned[1].split(r"\\")]
    cells = [
        f'<div class="math-left">{_parts(left)}</div><div class="math">{_parts(right)}</div>' for left, right in rows
    ]
    return f'<div class="math-aligned">{"".join(cells)}</div>\n'


def _parts(tex: str) -> str:
    """Return a ``<math>`` element for each part of an equation that may begin a line."""
    parts = [tex] if r"\begin" in tex else re.split(r"\\q?quad\b", tex)
    return "".join(convert(part.strip(), display="block") for part in parts if part.strip())


def _visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(convert(node.astext(), display="inline"))
    raise nodes.SkipNode


def _visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(block(node.astext()))
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Offer ``html_math_renderer = "mathml"``."""
    app.add_html_math_renderer("mathml", (_visit_inline, None), (_visit_block, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
