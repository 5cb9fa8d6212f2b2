"""The gradient laboratory's report as tables for a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

_KEY = """\
difference: from the first path, relative to the gradient's largest value; = where that is rounding
finite diff., cosine: against central differences in float64, at sampled weights
ms: one gradient, its target included
reached: variables of actor, critic, target actor, target critic with a gradient, asked for or not"""


def paths_text(report: Mapping[str, Any]) -> str:
    """Return what :func:`ddpg.compare_paths` measured: of what, a table of TD paths, one of policy paths, a key."""
    return "\n\n".join([_head(report), *(_table(kind, report[kind]) for kind in ("td", "policy")), _KEY])


def _head(report: Mapping[str, Any]) -> str:
    outside = ", ".join(f"{bounding} {share:.0%}" for bounding, share in report["outside"].items())
    about = [f"seed {report['seed']}", f"hidden layers of {', '.join(map(str, report['hidden']))}"]
    about += [f"a minibatch of {report['batch_size']}"]
    return f"{report.get('env_id', 'gradient paths')}: {'; '.join(about)}\nactions outside their box: {outside}"


def _table(kind: str, rows: Sequence[Mapping[str, Any]]) -> str:
    def milliseconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    title = {"td": "td_target", "policy": "policy_gradient"}[kind]
    heads = (title, "bounding", "norm", "difference", "finite diff.", "cosine", "ms", "ms compiled", "reached")
    cells = [
        (
            row["path"],
            row.get("bounding", ""),
            f"{row['gradient_norm']:.4g}",
            f"{row['difference']['max_relative']:.1e} {'=' if row['difference']['equal'] else '≠'}",
            f"{row['finite_difference']['max_relative']:.1e}",
            f"{row['finite_difference']['cosine']:.6f}",
            milliseconds(row["milliseconds"]),
            milliseconds(row["milliseconds_compiled"]),
            " ".join(str(count) for count in row["reached"].values()),
        )
        for row in rows
    ]
    columns = [column for column in range(len(heads)) if any(line[column] for line in cells)]
    widths = {column: max(len(line[column]) for line in [heads, *cells]) for column in columns}
    return "\n".join(
        "  ".join(
            line[column].ljust(widths[column]) if column < 2 else line[column].rjust(widths[column])
            for column in columns
        )
        for line in [heads, *cells]
    )
