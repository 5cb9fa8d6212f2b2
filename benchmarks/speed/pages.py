"""What pages show of the results, between marks: nobody types a number."""

import collections
import json
from pathlib import Path

from benchmarks.speed.figure import draw
from benchmarks.speed.report import short_table, tables
from benchmarks.speed.roofline.report import ROOFLINE, roofline_tables

ROOT = Path(__file__).parents[2]
README, PAGE, FIGURE = ROOT / "README.md", ROOT / "docs" / "performance.md", ROOT / "docs" / "speed.png"
ALTERNATIVE = "Bars of how many times as fast ours trains as each package, for each task, on one core and on two"
SPEED, LIMITS = "speed", "roofline"  # names of marks


def write(document: dict) -> None:
    """Put the results into README, the page and its figure."""
    draw(document["rows"], FIGURE)
    for (path, name), text in texts(document).items():
        path.write_text(filled(path.read_text(encoding="utf-8"), name, text), encoding="utf-8")


def texts(document: dict) -> dict[tuple[Path, str], str]:
    """Return what stands between which marks of which file."""
    about = sentence(document)
    found = {
        (README, SPEED): f"{about}\n\n{short_table(document['rows'])}",
        (PAGE, SPEED): f"{about}\n\n![{ALTERNATIVE}]({FIGURE.name})\n\n{tables(document['rows'])}",
    }
    if ROOFLINE.exists():
        found[PAGE, LIMITS] = roofline_tables(json.loads(ROOFLINE.read_text()))
    return found


def sentence(document: dict) -> str:
    """Return what was measured, where, and how often."""
    machine, rows = document["machine"], document["rows"]
    times = collections.Counter((row["kind"], row["task"], row["cores"], row["peer"]) for row in rows).values()
    repeats = f"{min(times)} to {max(times)}" if min(times) < max(times) else f"{max(times)}"
    used = {(package, version) for told in document["versions"].values() for package, version in told.items()}
    versions = ", ".join(f"{package} {version}" for package, version in sorted(used))
    return (
        f"Medians of {repeats}; packages in turn, on {machine['cores']} cores of "
        f"{machine['processor']}. Versions: {versions}."
    )


def filled(page: str, name: str, text: str) -> str:
    """Return a page with ``text`` between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``.

    Raises:
        ValueError: the marks are not there once each, in this order.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found, rest = page.partition(begin)
    _, found_too, after = rest.partition(end)
    if not found or not found_too or begin in after or end in before + after:
        raise ValueError(f"{begin} and {end} must stand on the page once each, in this order")
    return f"{before}{begin}\n{text}\n{end}{after}"


def between(page: str, name: str) -> str:
    """Return what stands between the marks of ``name``."""
    return page.partition(f"<!-- {name}: begin -->\n")[2].partition(f"\n<!-- {name}: end -->")[0]
