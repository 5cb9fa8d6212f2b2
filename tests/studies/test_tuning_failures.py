"""With which line ``ddpg tune`` ends where something failed: the first cause that applies."""

import types

import pytest

from ddpg.cli.studies import _refuse_failures
from ddpg.errors import CellsFailed

TRIALS = [
    types.SimpleNamespace(number=0, state="complete", reason=None),
    types.SimpleNamespace(number=1, state="failed", reason="no such key"),
]


@pytest.mark.parametrize(
    ("stopped", "cells", "trials", "told"),
    [
        ("the first three trials failed", {"a/1": "disk full"}, TRIALS, ["the first three trials failed"]),
        (None, {"a/1": "disk full", "a/2": "killed"}, TRIALS, ["2 cells", "a/1", "disk full"]),
        (None, {}, TRIALS, ["1 of 2 trials", "no such key"]),
    ],
)
def test_the_first_cause_is_told(stopped, cells, trials, told):
    with pytest.raises(CellsFailed) as caught:
        _refuse_failures(types.SimpleNamespace(stopped=stopped, failed=cells, trials=trials))
    assert all(word in str(caught.value) for word in told)


def test_nothing_is_refused_where_nothing_failed():
    _refuse_failures(types.SimpleNamespace(stopped=None, failed={}, trials=TRIALS[:1]))
