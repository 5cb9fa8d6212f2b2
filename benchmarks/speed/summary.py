"""Medians, and ratios to ours, of what was measured."""

import statistics
from collections.abc import Sequence


def summarise(rows: Sequence[dict]) -> list[dict]:
    """Return one row for each task, number of cores and peer.

    Args:
        rows: of ``task``, ``cores``, ``peer`` and either ``steps_per_second`` or why there are none, ``failed``.

    Returns:
        With ``median``, ``least`` and ``most`` of the steps per second, and ``ratio``: how many times as fast ours
        is, by the medians (``None`` where ours was not measured); or ``failed``.
    """
    summary = []
    for task, cores in sorted(dict.fromkeys((row["task"], row["cores"]) for row in rows)):
        here = [row for row in rows if (row["task"], row["cores"]) == (task, cores)]
        rates = {name: _rates(here, name) for name in dict.fromkeys(row["peer"] for row in here)}
        ours = statistics.median(rates["ours"]) if rates.get("ours") else None
        for name, found in rates.items():
            row = {"task": task, "cores": cores, "peer": name}
            if found:
                middle = statistics.median(found)
                row |= {"median": middle, "least": min(found), "most": max(found), "ratio": ours and ours / middle}
            else:
                row["failed"] = next(row["failed"] for row in here if row["peer"] == name)
            summary.append(row)
    return summary


def report(rows: Sequence[dict]) -> str:
    """Return the summary as a table to read."""
    lines, head = [], None
    for row in summarise(rows):
        if head != (head := (row["task"], row["cores"])):
            lines += ["", f"{row['task']}, {row['cores']} core{'s' * (row['cores'] > 1)}"]
            lines += [f"  {'':30} steps/s, median (least to most); ours is so many times as fast"]
        if "failed" in row:
            lines.append(f"  {row['peer']:30} {row['failed']}")
        else:
            ratio = "" if row["ratio"] is None else f"{row['ratio']:8.2f}"
            spread = f"({row['least']:.0f} to {row['most']:.0f})"
            lines.append(f"  {row['peer']:30} {row['median']:8.0f}  {spread:18}{ratio}")
    return "\n".join(lines)


def _rates(rows: Sequence[dict], peer: str) -> list[float]:
    return [row["steps_per_second"] for row in rows if row["peer"] == peer and "steps_per_second" in row]
