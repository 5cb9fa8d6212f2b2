"""Format measured speeds: text for a terminal, and Markdown tables for README and ``docs/performance.md``."""

import itertools
from collections.abc import Iterable, Sequence

from benchmarks import marks
from benchmarks.speed.kinds import KINDS, MORE, Quantity
from benchmarks.speed.packages import OURS, OURS_BFLOAT16, OURS_BFLOAT16X3
from benchmarks.speed.processors import describe_rates, processor_name, short_name
from benchmarks.speed.summary import Line, Spread, summarise

README_PEERS = (OURS, "Stable-Baselines3", "SBX, 32 updates per 32 steps", "Tianshou", "RLtools (TD3)")


def report(rows: Sequence[dict]) -> str:
    """Return all measurements as text for a terminal."""
    parts = []
    for (kind, task, cores), lines in _grouped(summarise(rows)):
        quantities = KINDS[kind].quantities
        parts += [
            "",
            f"{kind}: {task}, {_cores(cores)}",
            f"  {', '.join(q.title for q in quantities)}; factor in our favour",
        ]
        for line in lines:
            numbers = "  ".join(f"{spread_text(line.spreads[q.key], q):24}" for q in quantities if line.spreads)
            ratio = "" if line.ratio is None else f"{line.ratio:8.2f}"
            parts.append(f"  {line.peer:30} {numbers}{ratio}{_failures(line, numbers)}")
    return "\n".join(parts)


def tables(rows: Sequence[dict]) -> str:
    """Return a Markdown table for each kind."""
    parts = []
    for kind, lines in itertools.groupby(summarise(rows), key=lambda line: line.kind):
        quantities = KINDS[kind].quantities
        heads = ["task", "cores", "package", *(q.title for q in quantities), "factor in our favour"]
        cells = []
        for line in lines:
            numbers = [spread_text(line.spreads[q.key], q) if line.spreads else "–" for q in quantities]
            ratio = "" if line.ratio is None or line.peer == KINDS[kind].ours else f"× {line.ratio:.2f}"
            cells.append([line.task, str(line.cores), line.peer + _failures(line, line.spreads), *numbers, ratio])
        parts.append(f"**{KINDS[kind].title}**\n\n{marks.table(heads, cells)}")
    return "\n\n".join(parts)


def short_table(rows: Sequence[dict]) -> str:
    """Return README's table: steps/s of training on two cores and, in brackets, on one."""
    lines = {(line.task, line.cores, line.peer): line for line in summarise(rows) if line.kind == "training"}
    quantity = KINDS["training"].quantities[0]
    cells = []
    for task in dict.fromkeys(task for task, _, _ in lines):
        row = [task]
        for peer in README_PEERS:
            two, one = (lines.get((task, cores, peer)) for cores in (2, 1))
            row.append(f"{_first_median(two, quantity)} ({_first_median(one, quantity)})")
        cells.append(row)
    return marks.table(["", *(peer if peer != OURS else "this package" for peer in README_PEERS)], cells)


def machines_table(documents: Sequence[dict]) -> str:
    """Return a table of our training steps/s divided by other packages', a column per machine, and the machines."""
    heads = ["task", "cores", "package", *(short_name(document["machine"]) for document in documents)]
    by_machine = [_training_lines(document["rows"]) for document in documents]
    rows = []
    for key in _on_several_machines(by_machine):
        task, cores, peer = key
        rows.append([task, str(cores), peer, *(_ratio_cell(lines, key) for lines in by_machine)])
    machines = [
        f"- {processor_name(document['machine'])}, {describe_rates(document['machine']) or 'rates not measured'} "
        f"(BLAS, 256 × 256 × 256). {document.get('about', '')}".rstrip()
        for document in documents
    ]
    return "\n".join([marks.table(heads, rows), "", *machines])


def bfloat16_table(documents: Sequence[dict]) -> str:
    """Return a table of training with bfloat16 products: its steps/s, also divided by float32's and other packages'.

    It has a row for each machine, task, number of cores and precision that was measured beside float32; "" if none was.
    """
    rows, peers = [], [peer for peer in README_PEERS if peer not in (OURS, "Tianshou")]
    for document in documents:
        found = {
            (line.task, line.cores, line.peer): line.spreads["steps_per_second"].median
            for line in summarise([row for row in document["rows"] if row["kind"] == "training"])
            if line.spreads
        }
        for task, cores, peer in found:
            if peer not in (OURS_BFLOAT16, OURS_BFLOAT16X3) or (task, cores, OURS) not in found:
                continue
            ours, narrow = found[task, cores, OURS], found[task, cores, peer]
            others = [found.get((task, cores, other)) for other in peers]
            ratios = ["–" if other is None else f"× {narrow / other:.2f}" for other in others]
            name = short_name(document["machine"])
            cells = [peer.removeprefix(f"{OURS}, "), f"{narrow:,.0f}", f"{ours:,.0f}", f"× {narrow / ours:.2f}"]
            rows.append([name, task, str(cores), *cells, *ratios])
    heads = ["machine", "task", "cores", "precision", "steps/s", "in float32", "ours, float32", *peers]
    return marks.table(heads, rows) if rows else ""


def machines_sentence(documents: Sequence[dict]) -> str:
    """Return README's list: for each task, the range of our steps/s divided by each package's, over all machines."""
    by_machine = [_training_lines(document["rows"]) for document in documents]
    ratios: dict[str, dict[str, list[float]]] = {}
    for task, cores, peer in _on_several_machines(by_machine):
        for lines in by_machine:
            if line := lines.get((task, cores, peer)):
                ratios.setdefault(task, {}).setdefault(peer, []).append(line.ratio)
    *others, last = (short_name(document["machine"]) for document in documents)
    names = f"{', '.join(others)} and {last}" if others else last
    parts = [f"- {task}. {'; '.join(itertools.starmap(_range, peers.items()))}" for task, peers in ratios.items()]
    heading = (
        f"Our steps/s divided by another package's, lowest to highest over machines ({names}) and one or two cores:"
    )
    return "\n".join([heading, "", *parts])


def _range(peer: str, ratios: Sequence[float]) -> str:
    return f"{peer}: {min(ratios):.1f} to {max(ratios):.1f}"


def _training_lines(rows: Sequence[dict]) -> dict[tuple[str, int, str], Line]:
    """Return the lines that compare training of another package with ours, by task, cores and package."""
    assert KINDS["training"].quantities[0].better == MORE
    return {
        (line.task, line.cores, line.peer): line
        for line in summarise([row for row in rows if row["kind"] == "training"])
        if line.ratio is not None and not line.peer.startswith(OURS)
    }


def _on_several_machines(by_machine: Sequence[dict]) -> list[tuple[str, int, str]]:
    keys = dict.fromkeys(key for lines in by_machine for key in lines)
    return sorted(key for key in keys if sum(key in lines for lines in by_machine) > 1)


def _ratio_cell(lines: dict[tuple[str, int, str], Line], key: tuple[str, int, str]) -> str:
    return f"× {lines[key].ratio:.2f}" if key in lines else "–"


def spread_text(spread: Spread, quantity: Quantity) -> str:
    """Return ``median (minimum to maximum)``."""
    middle, least, most = (f"{number:,.{quantity.digits}f}" for number in (spread.median, spread.least, spread.most))
    return middle if least == most else f"{middle} ({least} to {most})"


def _first_median(line: Line | None, quantity: Quantity) -> str:
    return f"{line.spreads[quantity.key].median:,.0f}" if line and line.spreads else "–"


def _failures(line: Line, measured: object) -> str:
    if not line.failed:
        return ""
    return f" ({line.failed} failed: {line.why})" if measured else f" ({line.why})"


def _grouped(lines: Sequence[Line]) -> Iterable[tuple[tuple[str, str, int], list[Line]]]:
    for key, group in itertools.groupby(lines, key=lambda line: (line.kind, line.task, line.cores)):
        yield key, list(group)


def _cores(count: int) -> str:
    return f"{count} core{'s' * (count > 1)}"
