"""The summary as tables: to read in a terminal, and in Markdown for pages."""

import itertools
from collections.abc import Iterable, Sequence

from benchmarks.speed.kinds import KINDS, MORE, Quantity
from benchmarks.speed.packages import OURS
from benchmarks.speed.processors import about_rates, named, short_name
from benchmarks.speed.summary import Line, Spread, summarise

README_PEERS = (OURS, "Stable-Baselines3", "SBX, 32 updates per 32 steps", "Tianshou", "RLtools (TD3)")


def report(rows: Sequence[dict]) -> str:
    """Return everything as text."""
    told = []
    for (kind, task, cores), lines in _grouped(summarise(rows)):
        quantities = KINDS[kind].quantities
        told += [
            "",
            f"{kind}: {task}, {_cores(cores)}",
            f"  {', '.join(q.title for q in quantities)}; ours is so many times as good",
        ]
        for line in lines:
            numbers = "  ".join(f"{spread_text(line.spreads[q.key], q):24}" for q in quantities if line.spreads)
            ratio = "" if line.ratio is None else f"{line.ratio:8.2f}"
            told.append(f"  {line.peer:30} {numbers}{ratio}{_failures(line, numbers)}")
    return "\n".join(told)


def tables(rows: Sequence[dict]) -> str:
    """Return a table in Markdown for each kind."""
    parts = []
    for kind, lines in itertools.groupby(summarise(rows), key=lambda line: line.kind):
        quantities = KINDS[kind].quantities
        heads = ["task", "cores", "package", *(q.title for q in quantities), "ours is better by"]
        cells = []
        for line in lines:
            numbers = [spread_text(line.spreads[q.key], q) if line.spreads else "–" for q in quantities]
            ratio = "" if line.ratio is None or line.peer == KINDS[kind].ours else f"× {line.ratio:.2f}"
            cells.append([line.task, str(line.cores), line.peer + _failures(line, line.spreads), *numbers, ratio])
        parts.append(f"**{KINDS[kind].says}**\n\n{markdown(heads, cells)}")
    return "\n\n".join(parts)


def short_table(rows: Sequence[dict]) -> str:
    """Return README's: steps/s of training on two cores, in brackets on one."""
    lines = {(line.task, line.cores, line.peer): line for line in summarise(rows) if line.kind == "training"}
    quantity = KINDS["training"].quantities[0]
    cells = []
    for task in dict.fromkeys(task for task, _, _ in lines):
        row = [task]
        for peer in README_PEERS:
            two, one = (lines.get((task, cores, peer)) for cores in (2, 1))
            row.append(f"{_first(two, quantity)} ({_first(one, quantity)})")
        cells.append(row)
    return markdown(["", *(peer if peer != OURS else "this package" for peer in README_PEERS)], cells)


def machines_table(documents: Sequence[dict]) -> str:
    """Return how many times the steps of others ours makes in training, a column a machine, and the machines."""
    heads = ["task", "cores", "package", *(short_name(document["machine"]) for document in documents)]
    by_machine = [_compared(document["rows"]) for document in documents]
    rows = []
    for key in _on_several(by_machine):
        task, cores, peer = key
        rows.append([task, str(cores), peer, *(_ratio_cell(lines, key) for lines in by_machine)])
    machines = [
        f"- {named(document['machine'])}, {about_rates(document['machine']) or 'rates not measured'} "
        f"(BLAS, 256 × 256 × 256). {document.get('about', '')}".rstrip()
        for document in documents
    ]
    return "\n".join([markdown(heads, rows), "", *machines])


def machines_sentence(documents: Sequence[dict]) -> str:
    """Return README's: from which to which multiple, over machines and numbers of cores, a line a task."""
    by_machine = [_compared(document["rows"]) for document in documents]
    ratios: dict[str, dict[str, list[float]]] = {}
    for task, cores, peer in _on_several(by_machine):
        for lines in by_machine:
            if line := lines.get((task, cores, peer)):
                ratios.setdefault(task, {}).setdefault(peer, []).append(line.ratio)
    *others, last = (short_name(document["machine"]) for document in documents)
    names = f"{', '.join(others)} and {last}" if others else last
    told = [f"- {task}. {'; '.join(itertools.starmap(_range, peers.items()))}" for task, peers in ratios.items()]
    heading = (
        f"Our steps/s divided by another package's, lowest to highest over machines ({names}) and one or two cores:"
    )
    return "\n".join([heading, "", *told])


def _range(peer: str, ratios: Sequence[float]) -> str:
    return f"{peer}: {min(ratios):.1f} to {max(ratios):.1f}"


def _compared(rows: Sequence[dict]) -> dict[tuple[str, int, str], Line]:
    """Return the lines of training that compare another package with ours, by task, cores and package."""
    assert KINDS["training"].quantities[0].better == MORE
    return {
        (line.task, line.cores, line.peer): line
        for line in summarise([row for row in rows if row["kind"] == "training"])
        if line.ratio is not None and not line.peer.startswith(OURS)
    }


def _on_several(by_machine: Sequence[dict]) -> list[tuple[str, int, str]]:
    keys = dict.fromkeys(key for lines in by_machine for key in lines)
    return sorted(key for key in keys if sum(key in lines for lines in by_machine) > 1)


def _ratio_cell(lines: dict[tuple[str, int, str], Line], key: tuple[str, int, str]) -> str:
    return f"× {lines[key].ratio:.2f}" if key in lines else "–"


def markdown(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def spread_text(spread: Spread, quantity: Quantity) -> str:
    """Return ``median (least to most)``."""
    middle, least, most = (f"{number:,.{quantity.digits}f}" for number in (spread.median, spread.least, spread.most))
    return middle if least == most else f"{middle} ({least} to {most})"


def _first(line: Line | None, quantity: Quantity) -> str:
    return f"{line.spreads[quantity.key].median:,.0f}" if line and line.spreads else "–"


def _failures(line: Line, measured: object) -> str:
    if not line.failed:
        return ""
    return f" ({line.failed} without: {line.why})" if measured else f" ({line.why})"


def _grouped(lines: Sequence[Line]) -> Iterable[tuple[tuple[str, str, int], list[Line]]]:
    for key, group in itertools.groupby(lines, key=lambda line: (line.kind, line.task, line.cores)):
        yield key, list(group)


def _cores(count: int) -> str:
    return f"{count} core{'s' * (count > 1)}"
