"""The summary as tables: to read in a terminal, and in Markdown for pages."""

import itertools
from collections.abc import Iterable, Sequence

from benchmarks.speed.kinds import KINDS, Quantity
from benchmarks.speed.packages import OURS
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
            ratio = "" if line.ratio is None or line.peer == OURS else f"× {line.ratio:.2f}"
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
