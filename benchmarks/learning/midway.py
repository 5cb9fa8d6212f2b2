"""Compare returns before and after the cooldown of `plus`: of long runs midway, and of short runs at their end.

`plus` lowers its learning rates to 0 within the last fifth of a run. The table's runs end at 100,000 steps, so their
rates are 0 at the last evaluation. At the same step, the runs of `long.toml` (300,000 steps) and `million.toml` still
learn at full rates, like the agents whose published values come from the middle of a run.
"""

from collections.abc import Sequence

from benchmarks import marks
from benchmarks.learning.long_form import Cell
from benchmarks.learning.normalised import REFERENCES, normalised
from benchmarks.learning.tables import nothing
from ddpg.progress import format_number
from ddpg.runs.curves import holding

RECIPE = "plus"
MILLION = ("million", "million_humanoid")  # the studies with the longest runs of the presets
PUBLISHED_STEPS = (100_000, 300_000)  # steps after which others publish returns


def pairs(cells: Sequence[Cell]) -> list[tuple[Cell, Cell, float]]:
    """Return the short run, the long run and the long one's return where the short one ends, by environment and seed.

    That is the return of the first evaluation at or after the step at which the short run ends.
    """
    own = {(cell.study, cell.env_id, cell.seed): cell for cell in cells if cell.recipe == RECIPE and cell.finished}
    found = []
    for (study, env_id, seed), long in own.items():
        early = own.get(("table", env_id, seed))
        if study == "long" and early is not None:
            found.append((early, long, long.return_at(early.planned_steps)))
    return found


def table(cells: Sequence[Cell]) -> str:
    """Return a row for each pair of runs: the return after the cooldown, and without one."""
    rows = [
        [early.env_id, str(early.seed), format_number(early.final), format_number(there)]
        for early, _, there in pairs(cells)
    ]
    if not rows:
        return nothing("long")
    early, long, _ = pairs(cells)[0]
    ends = (
        f"run of {early.planned_steps:,} steps, its end",
        f"run of {long.planned_steps:,} steps, after {early.planned_steps:,}",
    )
    return marks.table(["environment", "seed", *ends], rows)


def sentence(cells: Sequence[Cell], env_id: str = "HalfCheetah-v5") -> str:
    """Return the numbers of one environment as a paragraph."""
    found = [pair for pair in pairs(cells) if pair[0].env_id == env_id]
    if not found:
        return nothing("long")
    early, long, _ = found[0]
    seeds, ends, theres = (
        " and ".join(texts)
        for texts in (
            [str(early.seed) for early, *_ in found],
            [f"{early.final:,.0f}" for early, *_ in found],
            [f"{there:,.0f}" for *_, there in found],
        )
    )
    steps, long_steps = f"{early.planned_steps:,}", f"{long.planned_steps:,}"
    return (
        f"**`{RECIPE}` and the published values are not read at the same point of a run.** `{RECIPE}`'s learning rates "
        f"fall to 0 within the last fifth of its {steps} steps, and its return is read after that. The published "
        f"values are from the middle of longer runs. Without the cooldown, {steps} steps into runs of {long_steps}, "
        f"`{RECIPE}` returns {theres} in {env_id} (seeds {seeds}); the runs of the table return {ends}."
    )


def million_table(cells: Sequence[Cell]) -> str:
    """Return a row for each finished run of a million steps: returns midway and at the end, and how well they hold."""
    runs = [cell for cell in cells if cell.study in MILLION and cell.finished]
    if not runs:
        return nothing(MILLION[0])
    steps = (*PUBLISHED_STEPS, runs[0].planned_steps)
    heads = ["environment", "seed", *(f"after {step:,}" for step in steps), "largest", "last / largest", "dips"]
    lines = []
    for cell in runs:
        returns = [_with_score(cell.env_id, cell.return_at(step)) for step in steps]
        kept = (format_number(round(value, 4)) for value in holding(cell.returns))
        env_id = cell.env_id + " in bfloat16" * cell.recipe.endswith("bfloat16")
        lines.append([env_id, str(cell.seed), *returns, f"{cell.returns.max():,.0f}", *kept])
    return marks.table(heads, lines)


def _with_score(env_id: str, value: float) -> str:
    score = f" ({normalised(env_id, [value])[0]:.2f})" if env_id in REFERENCES else ""
    return f"{value:,.0f}{score}"
