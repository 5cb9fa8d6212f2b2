"""Runs for tests of benchmarks.learning, without training."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from benchmarks.learning import long_form  # noqa: E402


def cell(study, env_id, recipe, seed, returns, asked=None, seconds=10.0, options="1"):
    """Return a run evaluated every 100 steps, which take ``seconds``; finished unless ``asked`` is larger."""
    values = [(0, long_form.ASKED, str(asked or 100 * len(returns))), (0, long_form.OPTIONS, options)]
    for number, value in enumerate(returns, 1):
        values += [(100 * number, long_form.RETURN, repr(float(value)))]
        values += [(100 * number, long_form.SECONDS, repr(seconds * number))]
    return long_form.make_cell((study, env_id, recipe, seed), values)
