"""Format the laboratory's reports as tables for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddpg.laboratory.gradient_checks import ROUNDED
from ddpg.laboratory.picture import DATA

_KEY = """\
difference: from the first path, relative to the gradient's largest value; = if within rounding
finite diff., cosine: against central differences in float64, at sampled weights
bfloat16, bfloat16x3: difference of the gradient where matrix products round their arguments so, by its norm
ms: one gradient, its target included
reached: variables of actor, critic, target actor, target critic that a gradient reaches, used or not"""


def paths_text(report: Mapping[str, Any]) -> str:
    """Return the report of :func:`ddpg.compare_paths`: a heading, tables of TD and of policy paths, a key."""
    return "\n\n".join([_head(report), *(_table(kind, report[kind]) for kind in ("td", "policy")), _KEY])


def update_text(report: Mapping[str, Any]) -> str:
    """Return the report of :func:`ddpg.laboratory.flow.trace_update`: a heading and a table for each step."""
    options = _options(report["options"]) or "every option at its default"
    if report["not_traced"]:
        options += f"\nnot traced: {_options(report['not_traced'])}"
    return "\n\n".join([f"{_about(report)}\n{options}", *(_edges(report[step], step) for step in ("critic", "actor"))])


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in options.items())


def _edges(edges: Sequence[Mapping[str, Any]], step: str) -> str:
    lines = [(f"the {step}'s step, backward", "norm", "")]
    for edge in edges:
        if edge["source"] in DATA or not (edge["stopped"] or edge["norm"] is not None):
            continue
        what = "stopped" if edge["stopped"] else "trains" if edge["trained"] else "nobody asked for it"
        norm = "" if edge["stopped"] else f"{edge['norm']:.4g}"
        lines.append((f"{edge['destination']} → {edge['source']}", norm, what))
    widths = [max(len(line[column]) for line in lines) for column in (0, 1)]
    return "\n".join(f"{way:{widths[0]}}  {norm:>{widths[1]}}  {what}".rstrip() for way, norm, what in lines)


def _about(report: Mapping[str, Any]) -> str:
    actor, critics = (", ".join(map(str, report[name])) for name in ("hidden", "critic_hidden"))
    layers = f"hidden layers of {actor}" + f" (critics: {critics})" * (critics != actor)
    about = [f"seed {report['seed']}", layers, f"a minibatch of {report['batch_size']}"]
    return f"{report.get('env_id', 'gradient paths')}: {'; '.join(about)}"


def _head(report: Mapping[str, Any]) -> str:
    outside = ", ".join(f"{bounding} {share:.0%}" for bounding, share in report["outside"].items())
    return f"{_about(report)}\nactions outside their box: {outside}"


def _table(kind: str, rows: Sequence[Mapping[str, Any]]) -> str:
    def milliseconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    title = {"td": "td_target", "policy": "policy_gradient"}[kind]
    lines = [
        {
            title: row["path"],
            "bounding": row.get("bounding", ""),
            "norm": f"{row['gradient_norm']:.4g}",
            "difference": f"{row['difference']['max_relative']:.1e} {'=' if row['difference']['equal'] else '≠'}",
            "finite diff.": f"{row['finite_difference']['max_relative']:.1e}",
            "cosine": f"{row['finite_difference']['cosine']:.6f}",
            **{name: "-" if row[name] is None else f"{row[name]['relative_norm']:.1e}" for name in ROUNDED},
            "ms": milliseconds(row["milliseconds"]),
            "ms compiled": milliseconds(row["milliseconds_compiled"]),
            "reached": " ".join(str(count) for count in row["reached"].values()),
        }
        for row in rows
    ]
    heads = [head for head in (lines[0] if lines else ()) if any(line[head] for line in lines)]
    columns = []
    for head in heads:
        cells = [head, *(line[head] for line in lines)]
        width = max(map(len, cells))
        columns.append([cell.ljust(width) if head in (title, "bounding") else cell.rjust(width) for cell in cells])
    return "\n".join("  ".join(cells) for cells in zip(*columns, strict=True))
