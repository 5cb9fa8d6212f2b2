"""Write the measured speeds between marks in README and ``docs/performance*``, so that no number is typed."""

import collections
import json
from pathlib import Path

from benchmarks import marks
from benchmarks.speed.figure import draw
from benchmarks.speed.processors import processor_name
from benchmarks.speed.report import bfloat16_table, machines_sentence, machines_table, short_table, tables
from benchmarks.speed.results import RESULTS
from benchmarks.speed.roofline.profile import PROFILE, profile_table
from benchmarks.speed.roofline.recipes import COUNTS, counts_table
from benchmarks.speed.roofline.report import ROOFLINE, roofline_tables

ROOT = Path(__file__).parents[2]
README, PAGE, FIGURE = ROOT / "README.md", ROOT / "docs" / "performance.md", ROOT / "docs" / "speed.png"
UPDATE_PAGE = PAGE.with_suffix("") / "update.md"
ALTERNATIVE = "Bar chart of our training speed divided by each package's, for each task, on one core and on two"
SPEED, MACHINES, LIMITS, OPERATIONS, SHARES = "speed", "speed by machine", "roofline", "operations", "profile"  # marks
NARROW, ELSEWHERE = "speed in bfloat16", "speed on another machine"


def write(document: dict) -> None:
    """Write the results into README and the page, and draw the page's figure."""
    draw(document["rows"], FIGURE)
    for (path, name), text in texts(document).items():
        marks.write(path, {name: text})


def texts(document: dict) -> dict[tuple[Path, str], str]:
    """Return the text for each file and mark."""
    about = sentence(document)
    machines = [document, *other_machines()]
    found = {
        (README, MACHINES): machines_sentence(machines),
        (PAGE, MACHINES): machines_table(machines),
        (PAGE, NARROW): bfloat16_table(machines),
        (PAGE, ELSEWHERE): measured_elsewhere(document, other_machines()),
        (README, SPEED): f"{about}\n\n{short_table(document['rows'])}",
        (PAGE, SPEED): f"{about} {versions(document)}\n\n![{ALTERNATIVE}]({FIGURE.name})\n\n{tables(document['rows'])}",
    }
    if ROOFLINE.exists():
        found[UPDATE_PAGE, LIMITS] = roofline_tables(json.loads(ROOFLINE.read_text()))
    if COUNTS.exists():
        found[UPDATE_PAGE, OPERATIONS] = counts_table(json.loads(COUNTS.read_text()))
    if PROFILE.exists():
        found[UPDATE_PAGE, SHARES] = profile_table(json.loads(PROFILE.read_text()))
    return found


def other_machines() -> list[dict]:
    """Return the results of other machines, from the files ``speed_NAME.json`` in the same folder."""
    return [json.loads(path.read_text()) for path in sorted(RESULTS.parent.glob("speed_*.json"))]


def measured_elsewhere(document: dict, others: list[dict]) -> str:
    """Return the tables of the kinds that ``document`` lacks, each from the first of ``others`` that has it."""
    kinds, parts = {row["kind"] for row in document["rows"]}, []
    for other in others:
        rows = [row for row in other["rows"] if row["kind"] not in kinds]
        if rows:
            parts.append(f"{sentence(other | {'rows': rows})}\n\n{tables(rows)}")
        kinds |= {row["kind"] for row in rows}
    return "\n\n".join(parts)


def sentence(document: dict) -> str:
    """Return a sentence with the number of repetitions and the machine."""
    machine, rows = document["machine"], document["rows"]
    times = collections.Counter((row["kind"], row["task"], row["cores"], row["peer"]) for row in rows).values()
    repeats = f"{min(times)} to {max(times)}" if min(times) < max(times) else f"{max(times)}"
    measured = f"Medians of {repeats} measurements" if max(times) > 1 else "One measurement each"
    return f"{measured}; packages took turns on {machine['cores']} cores of {processor_name(machine)}."


def versions(document: dict) -> str:
    """Return the packages' versions; a package that was measured on several days may have several."""
    used = {(package, version) for peer in document["versions"].values() for package, version in peer.items()}
    return f"Versions: {', '.join(f'{package} {version}' for package, version in sorted(used))}."
