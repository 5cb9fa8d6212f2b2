"""The numbers of a run's diagnostics as a table for people, for ``ddpg plot RUN --diagnose``."""

from collections.abc import Callable, Sequence

from ddpg.progress import format_number
from ddpg.runs.found_runs import Run
from ddpg.runs.listing import table
from ddpg.runs.plotting import diagnostics_of
from ddpg.runs.tables import read_table

_MOMENTS = 4  # of the run, as far apart as possible
_OF_NETWORKS: dict[str, Callable[[float], str]] = {
    **dict.fromkeys(("dormant_share", "dead_share"), "{:.0%}".format),
    **dict.fromkeys(("feature_rank", "weight_norm", "gradient_norm", "effective_learning_rate"), format_number),
}


def diagnosis_text(run: Run) -> str:
    """Return a line for each measure: at a quarter, a half, three quarters and the end of the run so far.

    The names are those of the columns of ``diagnostics.csv``, of ``evaluations.csv`` (``mean_return``: of the last
    evaluation until then) and of ``metrics.csv`` (``actions_saturated``).

    Args:
        run: a run that was trained with ``diagnose``.

    Raises:
        UsageError: as :func:`ddpg.runs.plotting.diagnostics_of`.
    """
    rows = diagnostics_of(run)
    chosen = [rows[number - 1] for number in sorted({-(-len(rows) * k // _MOMENTS) for k in range(1, _MOMENTS + 1)})]
    steps = [int(row["timesteps"]) for row in chosen]
    metrics = read_table(run.path / "metrics.csv")
    lines = [["timesteps", *(f"{step:,}" for step in steps)]]

    def add(name: str, found: Sequence[dict[str, str]], form: Callable[[float], str] = format_number) -> None:
        cells = [row.get(name) for row in found]
        if any(cells):
            lines.append([name, *(form(float(cell)) if cell else "" for cell in cells)])

    add("mean_return", [_until(run.rows, step, "mean_return") for step in steps])
    add("q_value", chosen)
    add("discounted_return", chosen)
    add("actions_saturated", [_until(metrics, step, "actions_saturated") for step in steps], "{:.0%}".format)
    for measure, form in _OF_NETWORKS.items():
        for name in rows[0]:
            if name.endswith(f"_{measure}"):
                add(name, chosen, form)
    return table(lines, numbers=lines[0][1:])


def _until(rows: Sequence[dict[str, str]], step: int, name: str) -> dict[str, str]:
    """Return the last row until ``step`` that has a number in column ``name``, or an empty one."""
    return next((row for row in reversed(rows) if int(row["timesteps"]) <= step and row.get(name)), {})
