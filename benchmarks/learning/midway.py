"""Measure what the cooldown of `plus` adds: runs that end at a step, compared with longer runs at that step.

`plus` lowers its learning rates to 0 within the last fifth of a run. The table's runs end at 100,000 steps, so rates
have reached 0 at their last evaluation. At that step the runs of `long.toml`, planned for 300,000 steps, still learn at
full rates, like the agents whose published values are read from the middle of a run.
"""

from collections.abc import Sequence

from benchmarks.learning.long_form import Cell
from benchmarks.learning.tables import nothing
from ddpg.progress import format_number

RECIPE = "plus"


def pairs(cells: Sequence[Cell]) -> list[tuple[Cell, Cell, float]]:
    """Return the short run, the long run, and the long one's return at the short one's end, by environment and seed.

    That is the return of the first evaluation at or after the step at which the short run ends.
    """
    own = {(cell.study, cell.env_id, cell.seed): cell for cell in cells if cell.recipe == RECIPE and cell.finished}
    found = []
    for (study, env_id, seed), long in own.items():
        early = own.get(("table", env_id, seed))
        if study == "long" and early is not None:
            at = int((long.steps >= early.asked).argmax())
            found.append((early, long, float(long.returns[at])))
    return found


def table(cells: Sequence[Cell]) -> str:
    """Return a row for each run: its return after the cooldown, and without one."""
    rows = [
        f"| {early.env_id} | {early.seed} | {format_number(early.final)} | {format_number(there)} |"
        for early, _, there in pairs(cells)
    ]
    if not rows:
        return nothing("long")
    early, long, _ = pairs(cells)[0]
    heads = f"run of {early.asked:,} steps, its end", f"run of {long.asked:,} steps, after {early.asked:,}"
    return "\n".join([f"| environment | seed | {heads[0]} | {heads[1]} |", "|---" * 4 + "|", *rows])


def sentence(cells: Sequence[Cell], env_id: str = "HalfCheetah-v5") -> str:
    """Return the same numbers for one environment, in sentences."""
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
    return (
        f"**`{RECIPE}` and the published values are not read at the same point of a run.** `{RECIPE}`'s learning rates "
        f"fall to 0 within the last fifth of its {early.asked:,} steps, and its return is read after that. The "
        f"published values are from the middle of longer runs. Without the cooldown, {early.asked:,} steps into runs "
        f"of {long.asked:,}, "
        f"`{RECIPE}` has {theres} in {env_id} (seeds {seeds}), where the runs of the table have {ends}."
    )
