"""Whether a run holds what it has learned: how far its last evaluation is below its largest, and how often it dips.

A level is a return counted from a floor: (return − floor) / (largest − floor), so the largest evaluation has level 1.
The floor is the first evaluation's return or 0, whichever is lower. Where returns are positive the levels are plain
ratios, such as last / largest; where they start below 0 they are shares of what the run has gained since then, which
no offset of the rewards changes as long as the first evaluation stays below 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEARNED, DIPPED = 0.8, 0.6  # levels: from the first the run counts as having learned, below the second it has dipped


class Holding(NamedTuple):
    """How a run holds what it has learned; NaN where that cannot be said.

    Attributes:
        kept: the level of the last evaluation, at most 1; NaN if no evaluation is above the floor, or if a level is
            beyond float64.
        dips: of the evaluations after the first at a level of at least :data:`LEARNED`, the share below
            :data:`DIPPED`; NaN if there are none after it.
    """

    kept: float
    dips: float


def holding(returns: Sequence[float] | np.ndarray) -> Holding:
    """Return how a run holds what it has learned.

    Args:
        returns: the mean return of every evaluation, in their order (env units).
    """
    values = np.asarray(returns, np.float64)
    if not len(values) or not np.isfinite(values).all():
        return Holding(np.nan, np.nan)
    floor = min(0.0, values[0])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        levels = (values - floor) / (values.max() - floor)
    if not np.isfinite(levels).all():
        return Holding(np.nan, np.nan)
    later = levels[int(np.argmax(levels >= LEARNED)) + 1 :]
    return Holding(float(levels[-1]), float(np.mean(later < DIPPED)) if len(later) else np.nan)
