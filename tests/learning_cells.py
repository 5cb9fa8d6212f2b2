"""Runs for tests of benchmarks.learning, without training."""

from pathlib import Path

from benchmarks.learning import long_form

ROOT = Path(__file__).parents[1]


def cell(study, env_id, recipe, seed, returns, asked=None, seconds=10.0, options="1"):
    """Return a run evaluated every 100 steps, which take ``seconds``; finished unless ``asked`` is larger."""
    values = [(0, long_form.ASKED, str(asked or 100 * len(returns))), (0, long_form.OPTIONS, options)]
    for number, value in enumerate(returns, 1):
        values += [(100 * number, long_form.RETURN, repr(float(value)))]
        values += [(100 * number, long_form.SECONDS, repr(seconds * number))]
    return long_form.make_cell((study, env_id, recipe, seed), values)
