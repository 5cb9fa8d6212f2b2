"""Converts the parts of plain-text docstrings that Sphinx would misread into reStructuredText."""

import re
from typing import Any

from sphinx.application import Sphinx


def tables_and_bars(lines: list[str]) -> list[str]:
    """Return the lines of a docstring with Markdown tables as list-tables, and every other ``|`` escaped.

    ``actor, critic: the networks`` becomes a line for each of the names.
    """
    written: list[str] = []
    rows: list[list[str]] = []
    names: list[str] = []  # of the entry that the current line belongs to
    entry: list[str] = []
    for line in [*lines, ""]:
        if names and line.startswith("        "):
            entry.append(line)
            continue
        written += [named for name in names for named in (f"    {name}: {entry[0]}", *entry[1:])]
        names = []
        if line.startswith("| ") or line.startswith("|-"):
            rows.append([cell.strip() for cell in line.strip("| ").split(" | ")])
            continue
        if rows:
            written += _list_table(rows)
            rows = []
        if together := re.fullmatch(r"    (\w+(?:, \w+)+): (.+)", line):
            names, entry = together[1].split(", "), [_escaped(together[2])]
        else:
            written.append(_escaped(line))
    return written[:-1] if written and not written[-1] else written


def _list_table(rows: list[list[str]]) -> list[str]:
    heading, _, *others = rows
    lines = ["", ".. list-table::", "   :header-rows: 1", ""]
    for row in [heading, *others]:
        cells = [_escaped(cell).replace("*", r"\*") for cell in row]
        lines += [f"   {'  -' if index else '* -'} {cell}" for index, cell in enumerate(cells)]
    return [*lines, ""]


def _escaped(line: str) -> str:
    """Escape ``|`` where it is not inside ``literal text`` or indented as an equation is."""
    if line.startswith("    "):
        return line
    parts = line.split("``")
    return "``".join(part if index % 2 else part.replace("|", r"\|") for index, part in enumerate(parts))


def _process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = tables_and_bars(lines)
    if what in ("property", "attribute") and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)  # what stands before a colon would be its type


def setup(app: Sphinx) -> dict[str, Any]:
    """Convert each docstring before napoleon parses it."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    return {"version": "1", "parallel_read_safe": True}
