"""Write generated tables between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``, so that no number is typed."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> str:
    """Return a Markdown table, whose last ``numbers`` columns are aligned to the right."""
    rule = ["---"] * (len(heads) - numbers) + ["---:"] * numbers
    return "\n".join([_row(heads), f"|{'|'.join(rule)}|", *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def filled(page: str, name: str, text: str) -> str:
    """Return a page with ``text`` between the marks of ``name``.

    Raises:
        ValueError: if the page does not have both marks once, in this order.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, found_too, after = rest.partition(end)
    if not found or not found_too or begin in after or end in before + after:
        raise ValueError(f"the page must have {begin} and {end} once each, in this order")
    return f"{before}{begin}\n{text}\n{end}{after}"


def names(page: str) -> list[str]:
    """Return the names of a page's marks."""
    return re.findall(r"<!-- (\S.*?): begin -->", page)


def between(page: str, name: str) -> str:
    """Return the text between the marks of ``name``."""
    return page.partition(f"<!-- {name}: begin -->\n")[2].partition(f"\n<!-- {name}: end -->")[0]


def write(path: Path, texts: Mapping[str, str]) -> None:
    """Write each text between the marks of its name into the page at ``path``."""
    page = path.read_text(encoding="utf-8")
    for name, text in texts.items():
        page = filled(page, name, text)
    path.write_text(page, encoding="utf-8")
