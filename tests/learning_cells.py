"""Runs for tests of benchmarks.learning, without training."""

from pathlib import Path

from benchmarks.learning import long_form

ROOT = Path(__file__).parents[1]


def cell(study, env_id, recipe, seed, returns, asked=None, seconds=10.0, options="1", every=100):
    """Return a run evaluated every ``every`` steps, which take ``seconds``; finished unless ``asked`` is larger."""
    values = [(0, long_form.ASKED, str(asked or every * len(returns))), (0, long_form.OPTIONS, options)]
    for number, value in enumerate(returns, 1):
        values += [(every * number, long_form.RETURN, repr(float(value)))]
        values += [(every * number, long_form.SECONDS, repr(seconds * number))]
    return long_form.make_cell((study, env_id, recipe, seed), values)
